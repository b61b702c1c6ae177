"""What a process knows: the fields of the state machine, its limits, and how a record is appended.

The layers of `tracker.core.process` stand on one another, each with a concern of its own: what is read
(reads), what shards tell each other of their state (reports), how home logs travel (exchange), what
nodes ask for (nodes), what durable records change (applying), what is due by itself (timers), how the
state comes back (recovery). Each calls those below it alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass

from tracker.core.cut import Vectors
from tracker.core.links import Link
from tracker.core.messages import (
    Append,
    Effect,
    Entry,
    Frame,
    FrameBody,
    HomeEntry,
    Record,
    Restart,
    Send,
)
from tracker.core.model import NodeKey, PipelineSpec, RefusalCode, Refused
from tracker.core.parts import OutboxEntry
from tracker.core.pipeline import Pipeline
from tracker.core.routing import RoutingTable

_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class ProcessConfig:
    """Limits and intervals of one process."""

    report_interval_ms: int = 4
    """Reports and announcements are made at most this often; at once when the last is older."""
    retransmit_ms: int = 500
    """What no shard confirms for this long is sent again."""
    announced_report_ms: int = 200
    """Announcements are told to the other shards at the latest after this long."""
    evict_check_ms: int = 200
    """How often silent fronts are looked for, where a pipeline evicts them."""
    max_entries_per_frame: int = 512
    max_bytes_per_frame: int = 8 * 1024 * 1024
    """Roughly, of entries; the entry that passes it is the last of its frame."""
    max_entries_in_flight: int = 16_384
    """Entries sent to a shard beyond what it has confirmed."""
    max_unconfirmed_entries: int = 200_000
    """Entries that some shard has not confirmed; above it the process is congested and the shell
    must not submit more ticks."""
    max_pipelines: int = 10_000


class LogLost(Exception):
    """This shard's home log is shorter than what another shard has confirmed of it."""


class ProcessState:
    """The fields of one shard's process. Times are nanoseconds of a monotonic clock."""

    def __init__(
        self,
        shard: int,
        routing: RoutingTable,
        epoch: int,
        config: ProcessConfig | None = None,
    ) -> None:
        if shard not in routing.shards:
            raise ValueError(f"shard {shard} is not among the routing table's {routing.shards}")
        self.shard = shard
        self.routing = routing
        self.epoch = epoch
        self.config = config or ProcessConfig()
        self.position = 0
        """Position of the last record appended."""
        self.committed = 0
        """Position of the last record that is durable and has taken effect."""
        self.links = {other: Link() for other in routing.shards if other != shard}
        self._vectors = Vectors(routing.shards)
        self._needed_cut = dict.fromkeys(routing.shards, 0)
        """Where M must have come to before anything is said: others have let go of runs by it."""
        self._pipelines: dict[str, Pipeline] = {}
        self._evicting: dict[str, None] = {}
        """Pipelines that evict silent fronts."""
        self._registering: dict[str, PipelineSpec] = {}
        """Appended registrations that are not durable yet."""
        self._unconfirmed_registrations: dict[str, tuple[int, list[Hashable]]] = {}
        self._unconfirmed_requests: deque[tuple[int, Hashable, Restart | None]] = deque()
        """Requests to answer when every shard has this entry of the home log, and with what."""
        self._sessions: dict[Hashable, tuple[str, NodeKey]] = {}
        self._next_incarnation = 1
        self._home_last = 0
        self._outbox: deque[OutboxEntry] = deque()
        self._closed_keys: deque[tuple[int, str, NodeKey]] = deque()
        """Closed keys that are not dropped, by the entry that closed them."""
        # Not durable, forgotten by a crash:
        self._home_appended = 0
        self._pending: deque[tuple[int, Record, Hashable | None]] = deque()
        self._dirty: dict[str, None] = {}
        self._holding: dict[str, None] = {}
        """Pipelines with runs outside M: they may have news whenever M moves."""
        self._last_refresh_ns: int | None = None
        self._last_report_ns = 0
        self._report_number = 0
        self._dropping = 0
        """How many closed keys have a dropping entry that is not durable yet: the first ones."""
        self._pins_position = 0
        """Reports wait until the records up to here are durable: a pin is told when it cannot be
        forgotten any more."""
        self._held_frames: deque[tuple[int, int, FrameBody]] = deque()
        self._announced_due_ns: int | None = None
        self._evict_check_ns: int | None = None
        self._unix_ms = 0
        """The wall clock at the event that is being handled; 0 where nobody says it."""
        self._wake_ns: int | None = None
        self._durable_ticks: dict[Hashable, int] = {}
        self._out: list[Effect] = []

    @property
    def congested(self) -> bool:
        """Whether so much is unconfirmed by other shards that no more ticks should be submitted."""
        return len(self._outbox) > self.config.max_unconfirmed_entries

    def _append(self, record: Record, request: Hashable | None = None) -> None:
        self.position += 1
        self._pending.append((self.position, record, request))
        self._out.append(Append(self.position, record))

    def _append_home(self, entry: Entry, request: Hashable | None = None) -> None:
        self._home_appended += 1
        self._append(HomeEntry(self._home_appended, entry), request)

    def _add_pipeline(self, pipeline: Pipeline) -> None:
        self._pipelines[pipeline.spec.name] = pipeline
        if pipeline.spec.evicts:
            self._evicting[pipeline.spec.name] = None

    def _pipeline(self, name: str) -> Pipeline:
        pipeline = self._pipelines.get(name)
        if pipeline is None:
            raise Refused(
                RefusalCode.UNKNOWN_PIPELINE,
                f"pipeline {name!r} is not registered (shard {self.shard} knows "
                f"{len(self._pipelines)} pipelines); register it first",
            )
        return pipeline

    def _at_home(self, pipeline: str, node_id: str) -> Pipeline:
        state = self._pipeline(pipeline)
        home = self.routing.home(pipeline, node_id)
        if home != self.shard:
            raise Refused(
                RefusalCode.NOT_HOME,
                f"pipeline {pipeline!r}: node {node_id!r} is at home at shard {home}",
                home=home,
            )
        return state

    def _applied(self) -> dict[int, int]:
        """This shard's vector: by home the entries of its log that are applied here."""
        return {self.shard: self._home_last} | {
            shard: link.received for shard, link in self.links.items()
        }

    def _confirmed_everywhere(self) -> int:
        """The last entry of this home's log that every shard holds durably."""
        return min([self._home_last, *(link.confirmed for link in self.links.values())])

    def _send(self, shard: int, body: FrameBody) -> None:
        if self.links[shard].connected:
            self._out.append(Send(shard, Frame(self.shard, self.epoch, body)))
