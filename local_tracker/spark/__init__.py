"""Spark queries, and plain batch jobs, as nodes of a pipeline.

`tracked` starts and tracks queries in their driver, `attached` follows one from outside, `declarative` all
`flows` of a declarative pipeline, `jobs` runs batch jobs. The driver is asked through its `jvm` (whose objects are `scala`'s), or is
elsewhere (`connect`); `versions` are those of PySpark that are tried. A query's `plans` say where its input comes from and its output goes; `follow` reads each
batch that is over from Spark's own `logs`, `ticks` says what it means, `compose` makes it one tick.
`outputs` and `published` are what batches leave, all of it by way of `tracker.files`; `tables` are those whose
logs are read, `delta` and `iceberg`, and `reader_options` what no log keeps of reading them. `rows` and `ranges` are other items than whole files, `labels` what a front in a driver promises,
`state` what a query's state holds back. `completed` and `rescaling`
are for jobs over the results and for the state of a query. Users import all of it from `lowmark`.
"""
