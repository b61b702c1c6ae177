"""One pipeline at one process: its home, shard and combiner side by side, its snapshot and back."""
