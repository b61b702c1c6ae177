"""What shards tell each other of their state, and what all of it allows to announce (rules 5, 6, 8)."""
