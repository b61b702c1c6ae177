"""What Spark may do to a query, row by row: `python -m tests.spark_matrix`, or `make spark-matrix`.

Each row is a function. It runs a pipeline on the real engine, with tracker processes of its own kind
of production; what is announced meanwhile, and what Spark's own logs say was committed when, becomes a
history, which `tests.check` judges in a process of its own. A row holds when nothing was announced
early, min time reached the end, no cell was left, and the sink holds what it should.
"""
