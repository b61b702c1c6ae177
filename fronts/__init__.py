"""Fronts: they label what comes in with a slot, and promise by heartbeat what they will not label.

`core` is how labels, promises and commits hang together, as a pure state machine; `front` is the
library around it, for any way of publishing. `durable` is the base of fronts whose batches stand in a
local record: `files` publishes files for Spark to read, `ranges` labels the offsets of a partitioned
log. By `groups` several processes share a directory's files or a log's partitions. `spark` labels a raw
streaming DataFrame. Users import all of it from `lowmark`.
"""

__part_of__ = "lowmark"
