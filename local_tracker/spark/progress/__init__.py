"""A tracker's progress in Spark: as tables, as streams, in SQL.

`streams` are what changes, between two offsets; `asked` is all that is asked of a tracker, in the driver; `registered` are
Spark's own classes over it, which travel to executors whole, so that these need nothing of Lowmark; `frames` makes
DataFrames without them.
"""
