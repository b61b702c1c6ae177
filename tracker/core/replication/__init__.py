"""Links between shards, and the part of an entry that each gets (rules 3, 5)."""
