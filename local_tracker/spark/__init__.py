"""Spark queries, and plain batch jobs, as nodes of a pipeline.

`session` is how one is met: started and tracked in its driver (`tracked`), followed from outside (`attached`), all
`flows` of a declarative pipeline, batch jobs, through Spark Connect (`connect`); and what is for readers of its results.
`progress` is a tracker's progress as tables and streams. `query` is what it is to the tracker: its `plans` say where its input comes from and its output goes, `follow` reads each
batch that is over from Spark's own `logs`, `ticks` says what it means, `compose` makes it one tick. `formats` are what
sources and sinks log, all of it by way of `tracker.files`, each asked by the methods of `formats.interface`; `writers` are those of one batch, `state` is what a query's
state holds back. The driver is asked through its `jvm`, whose objects are `scala`'s; `versions` are those of PySpark that
are tried. Users import all of it from `lowmark`.
"""
