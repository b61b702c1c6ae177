"""Hourly windows over real flights, and a report that reads an hour when min time says that it is complete.

`python -m examples.windows` replays two days of New York's flights in bursts of six hours. A tracked Spark query
counts them by hour and airport, with a watermark, and so emits an hour only when rows of much later have come; a
second one loads what it emits; after each burst the report takes the hours that min time has passed. The driver is
killed once. Then the same again with `state="free"`: the query holds nothing of what is in its state, and the report
misses hours.
"""
