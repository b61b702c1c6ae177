"""What one shard keeps of a pipeline: cells, fronts, unit names, ledgers (rules 4, 5, 8)."""
