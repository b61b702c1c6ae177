"""Which hours are complete? Five ways to tell, asked about the same flights while they come in.

`python -m examples.completeness` replays the first days of 2013 as New York's airports saw them: the record of a
flight comes in when it leaves, which may be hours after it was scheduled. A job that looks back, a marker by
cron, consumer lag, Spark's watermark and min time each say when an hour is complete, and each answer is held
against the flights themselves. `flights` knows when what came in, `answers` judges, `ways` are those that need no more
than a clock and a table, `watermark` is real Spark, `tracked` a real tracker, `picture` draws a day.
"""
