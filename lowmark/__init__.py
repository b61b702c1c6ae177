"""Lowmark's public face: `from lowmark import Subscriber, Tracked, FileFront`, and nothing else is needed.

Every name comes from the package that implements it, when it is first used: what a program does not
use need not be installed. So `import lowmark` needs the standard library alone; what each machine needs
beyond that is in the README. Type checkers and editors see all names at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lowmark._shadows import import_ours, warn_if_hidden

if TYPE_CHECKING:
    from fronts.batches import PublishedBatch
    from fronts.core import FrontStateError, RolledBackError
    from fronts.files import FileFront, PublishedFile
    from fronts.front import (
        Front,
        FrontFailedError,
        FrontFullError,
        Label,
        Labels,
        NotPublishedError,
        OpenBatch,
    )
    from fronts.groups import FileGroup, PartitionGroup
    from fronts.kafka import KafkaFront, KafkaGroup
    from fronts.ranges import RangeFront
    from fronts.spark import SparkFront
    from local_tracker import acks
    from local_tracker.spark.as_of import TableAsOf
    from local_tracker.spark.committed import CommittedFiles
    from local_tracker.spark.completed import CompletedReader, Taken, slot_of_timestamp
    from local_tracker.spark.emits import EventTime
    from local_tracker.spark.follow import FollowerLimits, TrackingError
    from local_tracker.spark.kafka import topic_ranges
    from local_tracker.spark.progress_listener import ProgressListener
    from local_tracker.spark.ranges import NotYetPublished, OffsetRanges, PublishedRanges
    from local_tracker.spark.rescaling import ROCKSDB, Rescaled, RescaleError, rescale_query
    from local_tracker.spark.state.rules import HeldFor
    from local_tracker.spark.tracked import BatchWriter, Tracked, TrackedQuery
    from local_tracker.worker.noted import note_commit
    from tracker import __version__
    from tracker.client import (
        Admin,
        Applied,
        AsyncSubscriber,
        ClosedError,
        Credentials,
        Explanation,
        FencedError,
        LowmarkError,
        NodeClient,
        PipelineInfo,
        RefusedError,
        RoutingInfo,
        SecureTarget,
        ShardInfo,
        Subscriber,
        TickRefusedError,
        UnavailableError,
        Update,
    )
    from tracker.client.brokers import KafkaTopic
    from tracker.client.credentials import CredentialsError
    from tracker.client.embedded import EmbeddedTracker, embedded
    from tracker.client.history import history
    from tracker.client.holds import Hold
    from tracker.client.pipeline_file import PipelineFileError, load_pipeline
    from tracker.client.ports import free_ports
    from tracker.client.topics import BrokerAwayError, TopicEnds, TopicError
    from tracker.client.updates import slot_time, slot_until
    from tracker.client.waiting import Outcome, Waited, wait_complete
    from tracker.consumers import otel, signing
    from tracker.consumers.barrier.barrier import Barrier, BarrierCounts
    from tracker.consumers.barrier.delta import DeltaSink
    from tracker.consumers.barrier.kafka import KafkaSink
    from tracker.consumers.barrier.ledger import LateRow
    from tracker.consumers.barrier.postgres import PostgresSink
    from tracker.consumers.barrier.rows import RowError, RowReader
    from tracker.consumers.barrier.sink import (
        OrderedSink,
        Position,
        SinkAwayError,
        SinkError,
        SinkFencedError,
        SinkRefusedError,
    )
    from tracker.consumers.barrier.sources import FilesIn
    from tracker.consumers.barrier.sqlite import SqliteSink
    from tracker.consumers.barrier.taking import LateRowsError
    from tracker.consumers.callbacks import Notificator
    from tracker.consumers.durable import StateError, write_durably
    from tracker.consumers.periods import Period, PeriodFollower, Periods
    from tracker.consumers.reorder import (
        BufferFullError,
        ForeignPositionError,
        LateItemError,
        Released,
        ReorderBuffer,
    )
    from tracker.consumers.runs import Run, Runs
    from tracker.consumers.webhook import NotDeliveredError, RefusedByReceiverError, Webhook
    from tracker.core.cut.graph import SegmentGraph
    from tracker.core.cut.history import Reached
    from tracker.core.insight.describe import PipelineDescription, ShardRole
    from tracker.core.insight.diagnosis import CauseKind
    from tracker.core.log import Grant, Joined
    from tracker.core.model import (
        Batch,
        Cells,
        Edge,
        FrontPolicy,
        Heartbeat,
        HoldMove,
        PipelineSpec,
        RefusalCode,
        SilentFront,
        TickContent,
        TimeKind,
        Unit,
    )
    from tracker.core.model.ack_values import (
        child_value,
        child_values,
        offset_value,
        range_value,
        root_value,
        root_values,
        string_key,
        unit_value,
    )
    from tracker.core.model.rounds import Rounds, RoundsExceededError
    from tracker.core.model.slots import (
        DEFAULT_SLACK_NS,
        FOREVER,
        HIGHEST_SLOT,
        LOWEST_SLOT,
        add_delay,
        slot_of,
        slot_start_ns,
        subtract_delay,
    )
    from tracker.core.model.units import file_name, parse_file_name, slot_in_name, unit_name
    from tracker.core.model.waits import WaitCause, WaitKind

_NAMES = {
    "fronts.batches": ("PublishedBatch",),
    "fronts.core": ("FrontStateError", "RolledBackError"),
    "fronts.files": ("FileFront", "PublishedFile"),
    "fronts.front": (
        "Front", "FrontFailedError", "FrontFullError", "Label", "Labels", "NotPublishedError",
        "OpenBatch",
    ),
    "fronts.groups": ("FileGroup", "PartitionGroup"),
    "fronts.kafka": ("KafkaFront", "KafkaGroup"),
    "fronts.ranges": ("RangeFront",),
    "fronts.spark": ("SparkFront",),
    "local_tracker.spark.as_of": ("TableAsOf",),
    "local_tracker.spark.committed": ("CommittedFiles",),
    "local_tracker.spark.completed": ("CompletedReader", "Taken", "slot_of_timestamp"),
    "local_tracker.spark.emits": ("EventTime",),
    "local_tracker.spark.follow": ("FollowerLimits", "TrackingError"),
    "local_tracker.spark.kafka": ("topic_ranges",),
    "local_tracker.spark.progress_listener": ("ProgressListener",),
    "local_tracker.spark.ranges": ("NotYetPublished", "OffsetRanges", "PublishedRanges"),
    "local_tracker.spark.rescaling": ("ROCKSDB", "RescaleError", "Rescaled", "rescale_query"),
    "local_tracker.spark.state.rules": ("HeldFor",),
    "local_tracker.spark.tracked": ("BatchWriter", "Tracked", "TrackedQuery"),
    "local_tracker.worker.noted": ("note_commit",),
    "tracker": ("__version__",),
    "tracker.client": (
        "Admin", "Applied", "AsyncSubscriber", "ClosedError", "Credentials", "Explanation",
        "FencedError", "LowmarkError", "NodeClient", "PipelineInfo", "RefusedError", "RoutingInfo",
        "SecureTarget", "ShardInfo", "Subscriber", "TickRefusedError", "UnavailableError", "Update",
    ),
    "tracker.client.brokers": ("KafkaTopic",),
    "tracker.client.embedded": ("EmbeddedTracker", "embedded"),
    "tracker.client.ports": ("free_ports",),
    "tracker.client.history": ("history",),
    "tracker.client.holds": ("Hold",),
    "tracker.client.updates": ("slot_time", "slot_until"),
    "tracker.client.topics": ("BrokerAwayError", "TopicEnds", "TopicError"),
    "tracker.client.waiting": ("Outcome", "Waited", "wait_complete"),
    "tracker.consumers.barrier.barrier": ("Barrier", "BarrierCounts"),
    "tracker.consumers.barrier.ledger": ("LateRow",),
    "tracker.consumers.barrier.delta": ("DeltaSink",),
    "tracker.consumers.barrier.kafka": ("KafkaSink",),
    "tracker.consumers.barrier.postgres": ("PostgresSink",),
    "tracker.consumers.barrier.rows": ("RowError", "RowReader"),
    "tracker.consumers.barrier.sink": ("OrderedSink", "Position", "SinkAwayError", "SinkError", "SinkFencedError", "SinkRefusedError"),
    "tracker.consumers.barrier.sources": ("FilesIn",),
    "tracker.consumers.barrier.sqlite": ("SqliteSink",),
    "tracker.consumers.barrier.taking": ("LateRowsError",),
    "tracker.consumers.callbacks": ("Notificator",),
    "tracker.consumers.durable": ("StateError", "write_durably"),
    "tracker.consumers.periods": ("Period", "PeriodFollower", "Periods"),
    "tracker.consumers.reorder": ("BufferFullError", "ForeignPositionError", "LateItemError", "Released", "ReorderBuffer"),
    "tracker.consumers.runs": ("Run", "Runs"),
    "tracker.consumers.webhook": ("NotDeliveredError", "RefusedByReceiverError", "Webhook"),
    "tracker.core.model.ack_values": (
        "child_value", "child_values", "offset_value", "range_value", "root_value", "root_values",
        "string_key", "unit_value",
    ),
    "tracker.core.insight.describe": ("PipelineDescription", "ShardRole"),
    "tracker.core.insight.diagnosis": ("CauseKind",),
    "tracker.core.cut.graph": ("SegmentGraph",),
    "tracker.core.cut.history": ("Reached",),
    "tracker.core.log": ("Grant", "Joined"),
    "tracker.core.model": (
        "Batch", "Cells", "Edge", "FrontPolicy", "Heartbeat", "HoldMove", "PipelineSpec", "RefusalCode",
        "SilentFront", "TickContent", "TimeKind", "Unit",
    ),
    "tracker.core.model.rounds": ("Rounds", "RoundsExceededError"),
    "tracker.core.model.slots": (
        "DEFAULT_SLACK_NS", "FOREVER", "HIGHEST_SLOT", "LOWEST_SLOT", "add_delay", "slot_of",
        "slot_start_ns", "subtract_delay",
    ),
    "tracker.core.model.units": ("file_name", "parse_file_name", "slot_in_name", "unit_name"),
    "tracker.core.model.waits": ("WaitCause", "WaitKind"),
    "tracker.client.credentials": ("CredentialsError",),
    "tracker.client.pipeline_file": ("PipelineFileError", "load_pipeline"),
}  # fmt: skip
"""The names of each module, the same as are imported for type checkers above."""
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}
_MODULES = {
    "acks": "local_tracker.acks", "otel": "tracker.consumers.otel", "signing": "tracker.consumers.signing",
}  # fmt: skip
"""Those that are used as modules: `acks.consume(...)`."""

__all__ = [
    "DEFAULT_SLACK_NS", "FOREVER", "HIGHEST_SLOT", "LOWEST_SLOT", "ROCKSDB", "Admin", "Applied",
    "AsyncSubscriber", "Barrier", "BarrierCounts", "Batch", "BatchWriter", "BrokerAwayError",
    "BufferFullError", "CauseKind", "Cells", "ClosedError", "CommittedFiles", "CompletedReader",
    "Credentials", "CredentialsError", "DeltaSink", "Edge", "EmbeddedTracker", "EventTime", "Explanation",
    "FencedError", "FileFront", "FileGroup", "FilesIn", "FollowerLimits", "ForeignPositionError",
    "Front", "FrontFailedError", "FrontFullError", "FrontPolicy", "FrontStateError", "Grant",
    "Heartbeat", "HeldFor", "Hold", "HoldMove", "Joined", "KafkaFront", "KafkaGroup", "KafkaSink", "KafkaTopic",
    "Label", "Labels", "LateItemError", "LateRow", "LateRowsError", "LowmarkError", "NodeClient",
    "NotDeliveredError", "NotPublishedError", "NotYetPublished", "Notificator", "OffsetRanges",
    "OpenBatch", "OrderedSink", "Outcome", "PartitionGroup", "Period", "PeriodFollower", "Periods",
    "PipelineDescription", "PipelineFileError", "PipelineInfo", "PipelineSpec", "Position",
    "PostgresSink", "ProgressListener", "PublishedBatch", "PublishedFile", "PublishedRanges", "RangeFront", "Reached",
    "RefusalCode", "RefusedByReceiverError", "RefusedError", "Released", "ReorderBuffer", "RescaleError",
    "Rescaled", "RolledBackError", "Rounds", "RoundsExceededError", "RoutingInfo", "RowError",
    "RowReader", "Run", "Runs", "SecureTarget", "SegmentGraph", "ShardInfo", "ShardRole", "SilentFront",
    "SinkAwayError", "SinkError", "SinkFencedError", "SinkRefusedError", "SparkFront", "SqliteSink",
    "StateError", "Subscriber", "TableAsOf", "Taken", "TickContent", "TickRefusedError", "TimeKind",
    "TopicEnds", "TopicError", "Tracked", "TrackedQuery", "TrackingError", "UnavailableError", "Unit",
    "Update", "WaitCause", "WaitKind", "Waited", "Webhook", "__version__", "acks", "add_delay",
    "child_value", "child_values", "embedded", "file_name", "free_ports", "history", "load_pipeline", "note_commit",
    "offset_value", "otel", "parse_file_name", "range_value", "rescale_query", "root_value", "root_values",
    "signing", "slot_in_name", "slot_of", "slot_of_timestamp", "slot_start_ns", "slot_time",
    "slot_until", "string_key", "subtract_delay", "topic_ranges", "unit_name", "unit_value",
    "wait_complete", "write_durably",
]  # fmt: skip


if not TYPE_CHECKING:  # type checkers would take any name to be there

    def __getattr__(name: str) -> Any:
        module = _MODULES.get(name) or _MODULE_OF.get(name)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value: Any = import_ours(module)
        if name not in _MODULES:
            value = getattr(value, name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


warn_if_hidden()
