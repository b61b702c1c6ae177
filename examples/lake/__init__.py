"""The flights demo over a broker and tables: `python -m examples.lake`, or `make demo-lake`.

    airports -> Kafka -> parse -> Delta -> enrich -> Iceberg -> aggregate -> Delta
                           └-> malformed rows -> dead letters (plain Python)

The airports write records into a topic and know of nothing else; one front labels the topic by the records'
timestamps. Tables and checkpoints are on an S3 server. What it shares with the demo over files is in
`examples.flights`.
"""
