"""What a home decides: admission, nodes, batches, staging, grants (rules 1, 2, 9)."""
