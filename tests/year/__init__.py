"""A year of a tracker in minutes: what it keeps of pipelines, nodes and sources that come and go must not grow.

`world` is a tracker whose clock goes in steps of hours: the core and the codecs as they are served, each shard with a store
of SQLite; `lives` is what pipelines and nodes do meanwhile; `tables` finds everything that is kept. `tests.check` judges
what was measured at the end of each twelfth of it.
"""
