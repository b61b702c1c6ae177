"""A tracker process: home to some nodes, owner of some slots, announcer of min times (rules 1 to 10).

`handle(event, now_ns)` takes what happened and returns what to do. Whatever must survive goes through
the log: it is appended, and takes effect when the shell says that it is durable, or when recovery
replays it; both run `_apply`. Nothing is said to a node, another shard or a subscriber before what it
rests on is durable, announcements included: they never go back over a restart.
"""

from __future__ import annotations

from tracker.core.log import (
    AttachSession,
    Committed,
    DetachSession,
    Effect,
    Event,
    FrameArrived,
    JoinNode,
    JoinShard,
    LeaveNode,
    NodeAlive,
    PeerConnected,
    PeerDisconnected,
    RegisterPipeline,
    ReportWaits,
    RescaleShards,
    RestartPipeline,
    RetireNode,
    StageContributions,
    SubmitTick,
    Wake,
)
from tracker.core.process.recovery import Recovery
from tracker.core.process.state import LogLost, ProcessConfig

__all__ = ["LogLost", "Process", "ProcessConfig"]


class Process(Recovery):
    """The state machine of one shard's process. Times are nanoseconds of a monotonic clock."""

    def handle(self, event: Event, now_ns: int, unix_ms: int = 0) -> list[Effect]:
        """Takes one event; returns its effects in the order in which to carry them out. unix_ms: the
        wall clock, which is written down beside announcements and decides nothing."""
        self._out = []
        self._unix_ms = unix_ms
        if self._evicting:
            self._listen(now_ns)
        match event:
            case SubmitTick():
                self._submit(event, now_ns)
            case ReportWaits():
                self._report_waits(event, now_ns)
            case Committed():
                self._commit(event.position, now_ns)
            case FrameArrived():
                self._take_frame(event.frame, now_ns)
            case Wake():
                self._wake_ns = None
                self._wake(now_ns)
            case AttachSession():
                self._attach(event, now_ns)
            case NodeAlive():
                self._hear_alive(event, now_ns)
            case DetachSession():
                self._detach(event.session)
            case PeerConnected():
                self._connect(event.shard, now_ns)
            case PeerDisconnected():
                if event.shard in self.links:
                    self.links[event.shard].connected = False
            case JoinShard() | RescaleShards():
                self._request_shards(event)
            case (
                RegisterPipeline()
                | JoinNode()
                | LeaveNode()
                | RetireNode()
                | RestartPipeline()
                | StageContributions()
            ):
                self._request(event)
        if self._changing:
            self._go_on(now_ns)
        self._refresh_if_due(now_ns)
        self._schedule(now_ns)
        return self._out
