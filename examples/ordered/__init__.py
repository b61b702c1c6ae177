"""A sink that is written in the order of time, whatever order files arrive in, and whoever is killed.

`python -m examples.ordered` starts a tracker and a sink, each a process. Two fronts publish files, one of
them minutes behind the other. The sink puts each file's row into a reorder buffer, tells the tracker that it
has arrived, and writes what min time has passed. It is killed in between, and started again.
"""
