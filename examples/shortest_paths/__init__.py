"""A loop with rounds: how many edges away every vertex of a graph is, worked out by several processes at once.

`python -m examples.shortest_paths` starts a tracker and four workers, each a process with a part of the graph's
vertices. A time is one request, from which vertex to search; several are open at once. In round r a worker takes what
the others have sent it for that round, sets the distance of each vertex that it hears of first to r, and sends
their neighbours on to round r+1. That is right only where round r-1 is over, so the barrier between rounds is min
time of (time, round). Workers are killed in between, and go on where they were.
"""
