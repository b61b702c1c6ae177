"""Local trackers: acks of a host's Python workers, merged before they go to the tracker.

`acks` is what user code calls; `worker` reaches the host's local tracker over a socket; `agent` is the
local tracker's process; `core` is how acks are merged and when they are flushed. What travels to
executors (`core`, `worker`, `acks`) needs the standard library and NumPy alone. `spark` is the
driver's side.
"""

__part_of__ = "lowmark"
