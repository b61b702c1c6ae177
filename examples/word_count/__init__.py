"""Word count over real text: the smallest whole pipeline, in one process.

`python -m examples.word_count` starts an embedded tracker, publishes the reference of the Python
language as files of lines, counts its words by a stateful Spark query, waits until min time says that
all of it is counted, and only then reads the counts and compares them. `--partitions 4` gives the state
another number of partitions at a moment of global time, in the middle of it.
"""
