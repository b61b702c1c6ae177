"""Shards come and go: the next step of a change, and what is handed over (rule 10)."""
