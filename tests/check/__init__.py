"""A checker of histories: it knows what is promised and what happened, and none of the code.

`python -m tests.check FILE` reads the JSON lines that a run wrote (`examples.history` lists the kinds)
and says what they break: `history` reads, `graph` knows which times bound which, `rules` are the
promises, one function each.
"""
