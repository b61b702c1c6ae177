"""Orders from topic to topic to a table, with min time for all of it: files to copy (docs/kafka.md)."""
