"""Moves between groups (rule 13), as a transition system of its own."""
