"""Which shards there are, and which steps may follow (rule 10)."""
