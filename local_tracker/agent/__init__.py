"""The local tracker's process: `python -m local_tracker.agent`.

`server` listens on the socket, one thread a connection; `staging` passes contributions of task
attempts on (transactional); `flushing` merges steps and commits them (eager), with `spool` as its
durable record; `uplink` is the way to the tracker, or to another local tracker; `lifetime` says when
to end.
"""

from __future__ import annotations

from local_tracker.agent.main import main

__all__ = ["main"]
