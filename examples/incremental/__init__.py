"""An incremental job over late data: gated by min time, and looking back fifteen minutes.

`python -m examples.incremental` replays an hour of two shops. One of them is cut off from 09:05 to 09:27:
what it has stamped 09:05 becomes visible at 09:27. Every ten minutes two jobs run over what a tracked Spark
query has loaded: one takes the rows completed since its last run, the other those of the last fifteen
minutes. Each row is then counted: missed, taken once, taken twice.
"""
