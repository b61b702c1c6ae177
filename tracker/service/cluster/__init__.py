"""One process among others: which shard it owns, how it becomes one, and its links to the rest."""
