"""What goes into a tracker process and what comes out: events, effects, frames, log records.

A process is `tracker.core.process.Process`; `handle(event, now_ns)` returns effects. Everything that
must survive is a `Record`: the process asks for it by `Append`, the shell makes it durable and says
`Committed`, and only then does it take effect. Recovery applies the same records in the same order.
"""

from tracker.core.log.columns import TickColumns
from tracker.core.log.effects import (
    Announced,
    Answer,
    Append,
    Effect,
    FrontGranted,
    Grant,
    Joined,
    LeftTracker,
    MembersChanged,
    PipelineEnded,
    Send,
    SessionAttached,
    SessionRefused,
    ShardNumber,
    TickRefused,
    TicksDurable,
    UnitsArrived,
    WakeAt,
)  # fmt: skip
from tracker.core.log.entries import (
    Entry,
    KeyClosed,
    KeyDropped,
    KeyOpened,
    KeyTick,
    PipelineChanged,
    PipelineCompleted,
    PipelineDeleted,
    PipelineRegistered,
    PipelineRestarted,
    PipelinesOver,
    WrittenOff,
    pipeline_of,
)  # fmt: skip
from tracker.core.log.events import (
    AttachSession,
    Committed,
    DeclareLost,
    DeletePipeline,
    DetachSession,
    Event,
    FinishUpgrade,
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
    SubmitTicks,
    Wake,
)  # fmt: skip
from tracker.core.log.frames import (
    Entries,
    EntriesReceived,
    Frame,
    FrameBody,
    FrontReport,
    PipelineReport,
    ReportWanted,
    SegmentLow,
    ShardReport,
    TouchedRun,
)  # fmt: skip
from tracker.core.log.records import (
    Announcement,
    FrontsGranted,
    HomeEntry,
    Pinned,
    ReceivedEntries,
    Record,
    Staged,
    Swept,
)  # fmt: skip
from tracker.core.log.runs import KeyProgress, TickRun, Told, count_of, level_of, numbered
from tracker.core.model import Restart

__all__ = [
    "Announced", "Announcement", "Answer", "Append", "AttachSession", "Committed",
    "DeclareLost", "DeletePipeline", "DetachSession", "Effect", "Entries", "EntriesReceived", "Entry", "Event", "FinishUpgrade", "Frame",
    "FrameArrived", "FrameBody", "FrontGranted", "FrontReport", "FrontsGranted", "Grant",
    "HomeEntry", "JoinNode", "JoinShard", "Joined", "KeyClosed", "KeyDropped", "KeyOpened",
    "KeyProgress", "KeyTick", "LeaveNode", "LeftTracker", "MembersChanged", "NodeAlive",
    "PeerConnected", "PeerDisconnected", "Pinned", "PipelineChanged", "PipelineCompleted",
    "PipelineDeleted", "PipelineEnded", "PipelineRegistered", "PipelineReport", "PipelineRestarted", "PipelinesOver", "ReceivedEntries",
    "Record", "RegisterPipeline", "ReportWaits", "ReportWanted", "RescaleShards", "Restart",
    "RestartPipeline", "RetireNode", "SegmentLow", "Send", "SessionAttached",
    "SessionRefused", "ShardNumber", "ShardReport", "StageContributions", "Staged",
    "SubmitTick", "SubmitTicks", "Swept", "TickColumns", "TickRefused", "TickRun", "TicksDurable", "Told",
    "TouchedRun", "UnitsArrived", "Wake", "WakeAt", "WrittenOff", "count_of", "level_of", "numbered", "pipeline_of",
]  # fmt: skip
