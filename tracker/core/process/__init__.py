"""One process of the tracker: events in, effects out; recovery; timers. It holds components, and no rules."""

from tracker.core.config import ProcessConfig
from tracker.core.process.process import Process
from tracker.core.replication.lost import LogLost

__all__ = ["LogLost", "Process", "ProcessConfig"]
