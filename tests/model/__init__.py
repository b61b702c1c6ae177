"""Every interleaving of a small system, run on the production core itself."""
