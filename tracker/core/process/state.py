"""What a process knows: the fields of the state machine, its limits, and how a record is appended.

The layers of `tracker.core.process` stand on one another, each with a concern of its own: what is read
(reads), what shards tell each other of their state (reports), how home logs travel (exchange), what
nodes ask for (nodes), what durable records change (applying), how shards come and go (changing), what is
due by itself (timers), how the state comes back (recovery). Each calls those below it alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass

from tracker.core.cut.vectors import Vectors
from tracker.core.log import (
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
from tracker.core.log.steps import (
    ROUTING_ENTRIES,
    STEPS,
    CellsMoved,
    NodesMoved,
    RoutingEntry,
    ShardSaid,
)
from tracker.core.membership.membership import Membership
from tracker.core.model import NodeKey, PipelineSpec, RefusalCode, Refused
from tracker.core.model.routing import RoutingTable
from tracker.core.pipeline.pipeline import Pipeline
from tracker.core.replication.links import Link
from tracker.core.replication.parts import OutboxEntry

_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class ProcessConfig:
    """Limits and intervals of one process. What is not said otherwise is as it is served."""

    report_interval_ms: int = 1
    """Reports and announcements are made at most this often; at once when the last is older. A group
    commit takes about as long, so few wait for it; links to other shards send reports less often."""
    retransmit_ms: int = 500
    """What no shard confirms for this long is sent again."""
    announced_report_ms: int = 200
    """Announcements are told to the other shards at the latest after this long."""
    evict_check_ms: int = 200
    """How often silent fronts are looked for, where a pipeline evicts them."""
    reconnect_ms: int = 5_000
    """How long a node may take to find this process again after it could not be reached: a connection
    has to be given up before the next is tried. For as long, at most, it listens after it could not hear."""
    max_backlog_records: int = 20_000
    """Records that are not durable yet; from there on the shell must read no more ticks and frames, but
    one tick of each stream, which is being fetched."""
    max_entries_per_frame: int = 512
    max_bytes_per_frame: int = 8 * 1024 * 1024
    """Of entries; a larger one is alone in its frame."""
    max_bytes_per_move: int = 1024 * 1024
    """Of nodes, cells, names or last words that one entry hands over; a larger thing is alone in one."""
    max_entries_in_flight: int = 16_384
    """Entries sent to a shard beyond what it has confirmed."""
    max_unconfirmed_entries: int = 200_000
    """Entries that some shard has not confirmed; above it the process is congested and the shell
    must not submit more ticks."""
    max_pipelines: int = 10_000
    join_timeout_ms: int = 60_000
    """A shard that has not taken up its peer's state for so long is not waited for any more."""
    rescale_margin_ms: int = 1_000
    """New shards own slots from so far beyond the highest known one on."""


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
        """`routing`: the table that the tracker began with; a log that knows of a later one goes by
        that. A shard that has come later finds it in its first snapshot."""
        self.shard = shard
        self.membership = Membership.first(routing)
        self._tables = [(1, routing)]
        """By which tables the home log is split, each from an entry number on; the last one is used."""
        self.epoch = epoch
        self.config = config or ProcessConfig()
        self.position = 0
        """Position of the last record appended."""
        self.committed = 0
        """Position of the last record that is durable and has taken effect."""
        self.links = {other: Link() for other in routing.owning if other != shard}
        self._vectors = Vectors(routing.owning)
        self._needed_cut = dict.fromkeys(routing.owning, 0)
        """Where M must have come to before anything is said: others have let go of runs by it."""
        self._held_back = False
        """Whether there may be news in every pipeline when it has."""
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
        self._step_appended = 0
        """Number of the own entry by which this process goes on with a change of the shards: until it
        is durable it does nothing more about it."""
        self._handing_over_from = 0
        """Position of the last record that may change nodes that are to be handed over."""
        self._accepted_steps: deque[tuple[int, RoutingEntry, int, int]] = deque()
        """Steps that are appended and have not taken effect: (position, step, home, its number)."""
        self._parting: set[int] = set()
        """Shards whose last entry is here, and not yet at all who stay."""
        self._changing = False
        """Whether a change is under way, as far as this process has heard."""
        self._step_untold = False
        """Whether a step was applied that the others wait to hear of."""
        self._joining_since_ns: dict[int, int] = {}
        self.moved_cells = 0
        """Open cells that this process has handed over since it was started."""
        self._rescales: list[tuple[Hashable, tuple[int, ...]]] = []
        self._home_appended = 0
        self._pending: deque[tuple[int, Record, Hashable | None]] = deque()
        self._dirty: dict[str, None] = {}
        self._completing: dict[str, None] = {}
        """Pipelines that are complete, as far as is known here, which their registrar has yet to say."""
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
        self._evict_checked_ns: int | None = None
        """When silent fronts are looked for next, and were last."""
        self._handled_ns: int | None = None
        """When the last event was handled, where some pipeline evicts silent fronts."""
        self._deaf_until_ns = 0
        """Until when nodes may have spoken and were not heard."""
        self._store_mark = (0, 0)
        """A position and when it was appended: where it is not durable for long, the store stands."""
        self._unix_ms = 0
        """The wall clock at the event that is being handled; 0 where nobody says it."""
        self._wake_ns: int | None = None
        self._durable_ticks: dict[Hashable, int] = {}
        self._out: list[Effect] = []

    @property
    def routing(self) -> RoutingTable:
        """The newest table that this process has heard of."""
        return self.membership.table

    @property
    def counts(self) -> bool:
        """Whether this shard has joined, and has not left."""
        return self.shard in self.membership.members

    @property
    def congested(self) -> bool:
        """Whether so much is unconfirmed by other shards that no more ticks should be submitted."""
        return len(self._outbox) > self.config.max_unconfirmed_entries

    @property
    def is_behind(self) -> bool:
        """Whether so much is not durable yet that no more frames should be submitted."""
        return self.position - self.committed >= self.config.max_backlog_records

    @property
    def takes_ticks(self) -> bool:
        """Whether more ticks may be submitted."""
        return not self.is_behind and not self.congested

    def _append(self, record: Record, request: Hashable | None = None) -> None:
        self.position += 1
        self._pending.append((self.position, record, request))
        self._out.append(Append(self.position, record))

    def _hands_over_cells(self) -> bool:
        """Whether every home splits by the newest table, and this shard has not handed over yet what it
        does not own: nothing else may change that any more."""
        known = self.membership
        version = known.table.version
        return (
            version > 0
            and known.is_adopted
            and self.counts
            and self.shard not in known.done.get(version, ())
        )

    def _append_home(self, entry: Entry, request: Hashable | None = None) -> None:
        self._home_appended += 1
        self._append(HomeEntry(self._home_appended, entry), request)
        if type(entry) in STEPS:
            self._note_step(entry, self.shard, self._home_appended)

    def _note_step(self, step: Entry, home: int, number: int) -> None:
        """A step was appended, by the record appended last. What moves nodes and cells, changes nothing
        in the membership."""
        if isinstance(step, ROUTING_ENTRIES) and not isinstance(
            step, NodesMoved | CellsMoved | ShardSaid
        ):
            self._accepted_steps.append((self.position, step, home, number))

    def expected_membership(self) -> Membership:
        """The shards as they will be when all that has been accepted has taken effect."""
        if not self._accepted_steps:
            return self.membership
        known = self.membership.copy()
        for _, step, home, number in self._accepted_steps:
            known.apply(step, home, number)
        return known

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
        before = self.membership.previous
        if before is not None and before.home(pipeline, node_id) != self.shard:
            self._need_all_adopted(f"pipeline {pipeline!r}: node {node_id!r}")
        return state

    def _need_registrar(self, pipeline: str, what: str) -> None:
        """Raises Refused unless this shard decides on a pipeline's name."""
        home = self.routing.registrar(pipeline)
        if home != self.shard:
            raise Refused(
                RefusalCode.NOT_HOME, f"pipeline {pipeline!r} is {what} shard {home}", home=home
            )
        before = self.membership.previous
        if before is not None and before.registrar(pipeline) != self.shard:
            self._need_all_adopted(f"pipeline {pipeline!r}")

    def _decides_on(self, pipeline: str) -> bool:
        """Whether this shard is a pipeline's registrar, and everybody has applied what the one before it
        had logged."""
        if self.routing.registrar(pipeline) != self.shard:
            return False
        before = self.membership.previous
        return before is None or before.registrar(pipeline) == self.shard or self._all_adopted()

    def _need_all_adopted(self, whose: str) -> None:
        """What another home has handed over is taken up here when every shard has applied all that the
        other one logged before: then the ticks of each node stay in one order everywhere (rule 3)."""
        if not self._all_adopted():
            raise Refused(
                RefusalCode.NOT_READY,
                f"{whose} is on its way to shard {self.shard}: the shards have changed, and not all of "
                "them go by the new table; ask again",
            )

    def _all_adopted(self) -> bool:
        """Whether every shard is known to have applied what every home logged by the table before."""
        known = self.membership
        if known.is_done:
            return True
        cut = self._vectors.cut
        at = known.adopted_at
        return known.is_adopted and all(cut[home] >= at[home] for home in known.members)

    def _applied(self) -> dict[int, int]:
        """This shard's vector: by home the entries of its log that are applied here. Of shards that
        are joining nobody speaks, since some process may not have heard of them."""
        applied = {self.shard: self._home_last}
        joining = self.membership.joining
        for shard, link in self.links.items():
            if shard not in joining:
                applied[shard] = link.received
        applied.update(self.membership.former)
        return applied

    def _confirmed_everywhere(self) -> int:
        """The last entry of this home's log that every shard that has joined holds durably."""
        if not self.membership.joining:
            return min([self._home_last, *(link.confirmed for link in self.links.values())])
        joining = self.membership.joining
        known = (link.confirmed for s, link in self.links.items() if s not in joining)
        return min([self._home_last, *known])

    def _held_everywhere(self) -> int:
        """The last entry of this home's log that need not be sent to anyone any more."""
        return min([self._home_last, *(link.confirmed for link in self.links.values())])

    def _send(self, shard: int, body: FrameBody) -> None:
        link = self.links.get(shard)
        if link is not None and link.connected:
            self._out.append(Send(shard, Frame(self.shard, self.epoch, body)))
