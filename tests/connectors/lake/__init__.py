"""Delta and Iceberg tables, written and read by tracked queries; run in an environment of their own
(`python -m tests.connectors.lake`)."""
