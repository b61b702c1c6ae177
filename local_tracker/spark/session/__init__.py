"""How a query, or a batch job, is met: in its driver, from outside, through Spark Connect, declared; and what is for readers of
its results."""
