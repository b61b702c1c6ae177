"""Delta and Iceberg tables, written and read by tracked queries; run in an environment of their own
(`tests/connectors/test_lakes.py`)."""
