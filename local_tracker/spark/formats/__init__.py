"""What sources and sinks of a query are, and what their logs tell: files, topics of Kafka, tables of Delta and Iceberg, ranges."""
