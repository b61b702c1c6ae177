"""Follows a query that knows nothing of Lowmark, from its checkpoint and its sink's log alone.

    attached = AttachedQuery("127.0.0.1:7070", "flights", "parse", "/data/cp", reads="parse",
                             sink="/data/parsed", creates=["enrich"])

It runs in any process that can read the directories, needs no Spark, and may begin at any batch that
is still logged. The query knows nothing of it: it is neither slowed down nor stopped, so this side must
not be away for longer than Spark keeps its logs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial

from local_tracker.spark.formats.interface import QueryReads
from local_tracker.spark.formats.outputs import Output, sink_output, table_output
from local_tracker.spark.formats.ranges import OffsetRanges
from local_tracker.spark.formats.tables import table_at, table_writer
from local_tracker.spark.query.follow import Followed, Follower, refuse_another_node
from local_tracker.spark.query.logs import CheckpointLog, SinkLog
from local_tracker.spark.query.plans import Routes
from local_tracker.spark.query.ticks import QueryTicks, let_go_of_batches
from local_tracker.spark.state.chosen import check_nothing_left, chosen_plan
from local_tracker.spark.state.clocks import NO_WATERMARK_TELLS, by_clock
from local_tracker.spark.state.holds import StateHolds, begin_state
from local_tracker.spark.state.rules import HeldFor, StatePlan
from tracker.client import Admin, NodeClient
from tracker.client.known import known_beside
from tracker.core.log import Joined
from tracker.core.model import Batch, NodeKind, PipelineSpec, TickContent
from tracker.errors import TrackingError

MAX_BATCHES_BEHIND = 10_000
"""Batches that are read ahead while the tracker is away; a query cannot be made to wait."""

_JOIN_TIMEOUT_S = 30.0
_DRAIN_TIMEOUT_S = 30.0


class AttachedQuery(Followed):
    """A query that is followed from outside. `start()`, then `close()`."""

    _one_query = True
    """Whether the node's batches are all of one query, so that another's are refused."""

    def __init__(
        self,
        target: str | Sequence[str],
        pipeline: str,
        node_id: str,
        checkpoint: str,
        *,
        reads: str | Mapping[str, str],
        creates: Sequence[str] = (),
        sink: str | None = None,
        rows: Mapping[str, str] | None = None,
        ranges: Mapping[str, OffsetRanges | Sequence[OffsetRanges]] | None = None,
        untracked: Sequence[str] = (),
        first_batch: int | None = None,
        first_versions: Mapping[str, int] | None = None,
        take_over: bool = False,
        state: HeldFor | None = None,
    ) -> None:
        """checkpoint, sink: the query's directories; sink, of files or a table, is needed where it
        creates. reads, creates, rows, ranges, untracked, take_over: as for `Tracked.start`. first_batch:
        where to begin if the tracker has nothing of the query yet; what it consumed before does not
        count. first_versions: by the sources' numbers, the versions with which readers of tables were told
        to begin (startingVersion), which no log records. state: for how long what the query has absorbed may be
        only in its state, in append mode, with `ahead_ms`; None holds nothing, since no log says what a query does.
        Raises TrackingError."""
        if creates and sink is None:
            raise TrackingError(
                f"query {node_id!r} creates in {list(creates)}, so its file sink's directory must be "
                f"given"
            )
        if state is not None and state.ahead_ms is None:
            raise TrackingError(
                f"query {node_id!r}: its state is to be held for {state}, and from outside nothing says whether Spark "
                f"evaluated a batch again that it found in its sink after a crash, so that no watermark may know of its "
                f"rows; say how far their event times may be ahead of the clock, too: ahead=1m (ahead_ms=60000)"
            )
        self._checkpoint = CheckpointLog(checkpoint)
        if not self._checkpoint.exists():
            raise TrackingError(
                f"there is no query to follow: {self._checkpoint.root}/metadata does not exist; give "
                f"the checkpointLocation of a query that has been started"
            )
        self._first_batch = first_batch or 0
        self._name, self._sink, self._take_over = node_id, sink, take_over
        self._state, self._creates = state, creates
        self._routes: Callable[[PipelineSpec], Routes] = lambda spec: Routes(
            spec,
            QueryReads(reads, untracked, ranges or {}),
            creates,
            node_id,
            rows,
            first_versions=first_versions,
        )
        known = known_beside(self._checkpoint.root, pipeline, node_id)
        self._node = NodeClient(target, pipeline, node_id, kind=NodeKind.QUERY, known=known)
        self._node.never_left = True
        self._admin = Admin(target)

    def _check_retained(self, last_batches: Sequence[Batch]) -> None:
        """Raises TrackingError where the tracker has nothing of the query yet, and the logs no longer
        tell its batches from the first on that is wanted."""
        query_id = self._checkpoint.query_id
        if any(batch.scope == query_id for batch in last_batches):
            return  # the follower judges what lies between
        readable = self._checkpoint.readable()
        if readable and readable[0] > self._first_batch:
            raise TrackingError(
                f"query {self._name!r} ({query_id}): {self._checkpoint.root} tells batches from "
                f"{readable[0]} on, those before have been purged, and {self._first_batch} was to be the "
                f"first; begin at {readable[0]} or later (first_batch, --set from_batch=N), if what the others "
                f"consumed need not be told"
            )

    def start(self) -> AttachedQuery:
        """Join, and follow from the first batch that the tracker has not. Raises LowmarkError, and
        TrackingError where segments, sources or checkpoint don't fit; no session of the node has been
        ended then."""
        try:
            owner = self._checkpoint.query_id
            asked = self._node.check_join(_JOIN_TIMEOUT_S, owner=owner, take_over=self._take_over)
            self._check_retained(asked.last_batches)
            if self._state is None:
                check_nothing_left(self._name, asked)
            else:
                if operator := by_clock(self._checkpoint):
                    raise TrackingError(f"query {self._name!r}: {operator} {NO_WATERMARK_TELLS}")
                chosen_plan(self._name, self._state, None, "Append", self._creates, None, asked)
            ticks = self._ticks(asked)
            refuse_another_node(
                f"query {self._name!r}", self._checkpoint, asked, ticks.routes.segments(), self._admin,
                self._first_batch,
            )  # fmt: skip
            ticks.check_sources(self._name)
            self._outputs(ticks.routes.creates)
            self._follow(ticks, asked)  # as it will be: nothing is begun
            joined = self._node.join(_JOIN_TIMEOUT_S, owner=owner, take_over=self._take_over)
            if not self._one_query:
                self._let_go_others()
            if (plan := self._plan()) is not None:
                holds = begin_state(plan, self._checkpoint, self._node)
                joined = replace(joined, holds=tuple(holds))
            self._follower = self._follow(self._ticks(joined), joined)
        except BaseException:
            self._node.close()
            self._admin.close()
            raise
        self._follower.start()
        return self

    def _let_go_others(self) -> None:
        """Lets go of what a query that is over, under this node id, has held for a batch which this one has not planned."""
        moves = let_go_of_batches(self._node, lambda batch: not self._checkpoint.is_planned(batch))
        if moves:
            self._node.commit(TickContent(holds=moves)).result(_JOIN_TIMEOUT_S)

    def _ticks(self, joined: Joined) -> QueryTicks:
        routes = self._routes(joined.spec)
        # Looked for when a batch is over: by then its sink is a table, or never will be one.
        outputs = cache(partial(self._outputs, routes.creates))
        state = None
        if (plan := self._plan()) is not None:
            untold = self._first_batch - 1
            state = StateHolds.of(plan, self._checkpoint, joined, joined.holds, untold)
        return QueryTicks(
            self._node, self._admin, routes, self._checkpoint, outputs, publishes=routes.creates,
            state=state,
        )  # fmt: skip

    def _plan(self) -> StatePlan | None:
        """By which its state is held."""
        return StatePlan.given(self._state) if self._state and self._creates else None

    def _outputs(self, creates: tuple[int, ...]) -> tuple[Output, ...]:
        if self._sink is None or not creates:
            return ()
        stores, query = self._checkpoint.stores, self._checkpoint.query_id
        if (table := table_at(self._sink, stores)) is not None:
            return (table_output(table_writer(table, stores, query), creates),)
        log = SinkLog(self._sink)
        log.check_is_of(self._checkpoint)
        return (sink_output(log, creates),)

    def _follow(self, ticks: QueryTicks, joined: Joined) -> Follower:
        return Follower(
            self._name, self._node, self._checkpoint, ticks, joined,
            is_active=lambda: True, on_end=lambda: None,
            max_batches_behind=MAX_BATCHES_BEHIND, first_batch=self._first_batch,
            one_query=self._one_query,
        )  # fmt: skip

    def close(self, timeout_s: float = _DRAIN_TIMEOUT_S) -> bool:
        """Commit what is over by now, for so long at most, and end. True if nothing was left behind."""
        clean = self._followed.close(timeout_s)
        self._node.close()
        self._admin.close()
        return clean
