"""A pipeline in plain Python, in one process: a front, two workers and a subscriber.

`python -m examples.plain_python` starts an embedded tracker of two shards. A front publishes the lines
of a text as files; `split` reads each file and hands its words on; `count` counts them; a subscriber
prints how far each of the two is, and hears in the end that all of it is complete.
"""
