"""What a process has to do with the other groups of its deployment (docs/groups.md)."""
