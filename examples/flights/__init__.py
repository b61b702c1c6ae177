"""A year of flights, replayed by three airports through three Spark queries: the demo.

`python -m examples.flights` runs it. `data` and `expected` know the flights, `replay` the clock,
`airport` is a front, `queries` and `driver` are the Spark side, `dead_letters` a plain Python node,
`witness` writes down what Spark's own logs say, `proof` compares, `run` starts and ends it all.
"""
