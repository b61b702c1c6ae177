"""A deployment of several groups as real processes: pipelines move, groups come, are drained, killed and stopped."""
