"""Registering pipelines and looking at the tracker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

import grpc

from acker.v1 import group_service_pb2 as group_pb
from acker.v1 import group_service_pb2_grpc as group_grpc
from acker.v1 import pipeline_service_pb2 as pipeline_pb
from acker.v1 import pipeline_service_pb2_grpc as pipeline_grpc
from tracker.client.closing import Closing
from tracker.client.connection import CALL_TIMEOUT_S, Connection, SecureTarget
from tracker.client.finishing import Finishing
from tracker.client.groups import GroupInfo, group_info, move
from tracker.client.losing import Losing, Lost
from tracker.client.nodes import NodeList, listed
from tracker.client.rescaling import Rescaling, RoutingInfo, ShardInfo, Wish
from tracker.client.successor import succeeding
from tracker.client.updates import slot_at, slot_until
from tracker.core.home.registration import changed_fields
from tracker.core.insight.describe import (
    PipelineDescription,
    RoutingDescription,
    ShardRole,
    StandbyDescription,
)
from tracker.core.insight.diagnosis import SILENT_AFTER_MS
from tracker.core.insight.explain import MAX_EXPLAINED_CELLS, OpenCell, PipelineExplanation
from tracker.core.insight.freshness import SegmentFreshness
from tracker.core.model import Cells, NodeKey, PipelineSpec, RefusalCode
from tracker.core.model.slots import FOREVER, LOWEST_SLOT
from tracker.errors import LowmarkError, RefusedError, UnavailableError
from tracker.wire.cells import cells_to_pb
from tracker.wire.explanations import explanation_from_pb
from tracker.wire.freshness import freshness_from_pb
from tracker.wire.pipelines import spec_from_pb, spec_to_pb, state_from_pb
from tracker.wire.shards import level_from_pb, shard_from_pb

Answer = TypeVar("Answer")

TIMEOUT_S = 30.0
PAGE_PIPELINES = 200
"""How many are asked for at a time."""
SHARD_TIMEOUT_S = 5.0
"""How long one shard may take for its part of an explanation."""
GROUP_TIMEOUT_S = 0.8
"""How long a group may take to list some of its pipelines, where there are several groups: all are shown within a second."""
MAX_DROPS = 1_000
"""How often what is open in a removed segment is listed and written off, up to MAX_EXPLAINED_CELLS of each shard. What
is open after that stays, until somebody asks again."""
MAX_ASKED_AT_ONCE = 16
"""Shards that are asked for their parts at the same time."""


@dataclass(frozen=True, slots=True)
class PipelineInfo:
    """A pipeline as it is now, and its state as one process of the tracker sees it."""

    spec: PipelineSpec
    state: PipelineDescription
    omitted: int = 0
    """In a list: how many nodes and fronts are left out of a state that is larger than a page, all of them."""
    group: int = 0
    """The number of the group of the deployment in which it lives."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a pipeline's min time is where it is: its state as one process sees it, each shard's part, by number, and the
    shards that did not answer, by number with what went wrong. at: the slot that was asked about, if one was;
    silent_after_ms: how long a node may say nothing before that counts as a cause."""

    spec: PipelineSpec
    state: PipelineDescription
    parts: tuple[PipelineExplanation, ...]
    silent_shards: dict[int, str]
    at: int | None = None
    silent_after_ms: int = SILENT_AFTER_MS


@dataclass(frozen=True, slots=True)
class Applied:
    """A pipeline as it is now, or would be; whether it is new; what it was before, if it has changed; and what was
    given up in segments that are removed."""

    spec: PipelineSpec
    created: bool
    before: PipelineSpec | None
    dropped: tuple[OpenCell, ...] = ()

    @property
    def changes(self) -> dict[str, tuple[Any, Any]]:
        """By name of a field of the pipeline that has changed: what it was, and what it is, as plain data."""
        return {} if self.before is None else changed_fields(self.before, self.spec)


def as_shown(cells: Iterable[OpenCell]) -> Cells:
    """Open cells as they are to be written off: each with the checksum that was shown."""
    return Cells.of((cell.segment, cell.slot, cell.checksum, cell.items) for cell in cells)


class Admin(Closing):
    """A tracker, for those who set it up. target: host:port of one process of it or of several (with
    commas, or a sequence); it stays with the one that answered last. All methods raise RefusedError,
    and UnavailableError when no process has answered within `timeout_s` seconds."""

    def __init__(self, target: str | Sequence[str], timeout_s: float = TIMEOUT_S) -> None:
        self._connection = Connection(target)
        self._timeout_s = timeout_s
        self._last: str | None = None
        self.silent_groups: dict[int, str] = {}
        """By number the groups that did not answer when pipelines were listed last, and why."""
        self.group: int | None = None
        """The number of the group whose shards are meant. None: of the one that is asked first when they are to change."""

    def register(self, spec: PipelineSpec) -> tuple[PipelineSpec, bool]:
        """Registers a pipeline with every shard; returns it as it is now, and whether it is new. One that
        is there stays as it is, also where it was changed since. Raises RefusedError if it cannot be, or one of its
        name differs."""
        answer = self._register(spec)
        return spec_from_pb(answer.spec), answer.created

    def apply(
        self,
        spec: PipelineSpec,
        *,
        dry_run: bool = False,
        drop_open: bool = False,
        succeeds: str | None = None,
        group: int | None = None,
    ) -> Applied:
        """Registers a pipeline, or lets one that is there become this one while it runs: its limits, also lower ones
        (what is over them stays), its segments and edges, and the rest. Segments that are not named any more are removed:
        they take nothing more, and what is open there is waited for. dry_run: nothing changes. drop_open: what is open in
        removed segments is written off, and returned; UnavailableError where a shard does not answer with what that is:
        repeat it. succeeds: the name of a pipeline in whose place a new one comes, where what is to change cannot: unless it has
        a start of its own, it begins where that one is complete, which is waited for as long as the timeout of this object
        (with dry_run it is not). group: where a new one is to live, in a deployment of several groups; else it is the one that has
        the least to do. Raises RefusedError where it cannot become so while it runs, with what to do instead, where somebody else
        has changed it meanwhile, and with what is open of a pipeline that is to be succeeded."""
        if succeeds is not None:
            spec = succeeding(self, spec, succeeds, 0.0 if dry_run else self._timeout_s)
        decided_on = self._changes(spec.name)
        answer = self._register(
            spec, change=True, check_only=dry_run, group=group, decided_on=decided_on
        )
        before = spec_from_pb(answer.before) if answer.HasField("before") else None
        now = spec_from_pb(answer.spec)
        dropped = self._drop_open(now, dry_run) if drop_open and not answer.created else ()
        return Applied(now, answer.created, before, tuple(dropped))

    def _drop_open(self, spec: PipelineSpec, dry_run: bool) -> Iterator[OpenCell]:
        """Writes off what is open in segments that are removed, until nothing is: what a home had accepted before it knew
        of the change may still come."""
        for name in spec.removed:
            for _ in range(1 if dry_run else MAX_DROPS):
                found = self.explain(spec.name, name, max_cells=MAX_EXPLAINED_CELLS)
                if found.silent_shards:
                    raise UnavailableError(
                        f"pipeline {spec.name!r}: what is open in {name!r} is not dropped, shards do not answer: "
                        f"{'; '.join(found.silent_shards.values())}; repeat it"
                    )
                cells = [cell for part in found.parts for cell in part.cells]
                if not cells:
                    break
                if not dry_run:
                    self.retire(spec.name, "", as_shown(cells), generation=found.state.generation)
                yield from cells

    def _changes(self, name: str) -> int | None:
        """How often a pipeline was changed, -1 where there is none; None where the tracker is too old to tell. With that a change
        undoes nothing that others have changed since, however late its attempts come."""
        try:
            answer = self._got(name)
        except RefusedError as refused:
            if refused.refusal.code is not RefusalCode.UNKNOWN_PIPELINE:
                raise
            return -1
        return answer.changes if answer.HasField("changes") else None

    def _register(self, spec: PipelineSpec, **how: Any) -> Any:
        request = pipeline_pb.RegisterPipelineRequest(spec=spec_to_pb(spec), **how)
        return self._call(lambda stub: stub.RegisterPipeline, request)

    def pipeline(self, name: str) -> PipelineInfo:
        """One pipeline. Raises RefusedError if it is unknown."""
        return _info(self._got(name))

    def _got(self, name: str) -> Any:
        return self._call(
            lambda stub: stub.GetPipeline, pipeline_pb.GetPipelineRequest(pipeline=name)
        )

    def pipelines(self) -> list[PipelineInfo]:
        """All pipelines, by name, asked for page by page."""
        return [info for page in self.pages() for info in page]

    def pages(self, size: int | None = None) -> Iterator[list[PipelineInfo]]:
        """All pipelines, by name, up to `size` at a time (None: PAGE_PIPELINES): each page is asked for when it is its
        turn. Of a deployment with groups one group's after the other's; one that does not answer is named in `silent_groups`."""
        size, self.silent_groups = size or PAGE_PIPELINES, {}
        targets = self._targets_of_groups()
        if len(targets) < 2:
            yield from _pages(partial(self._call, lambda stub: stub.ListPipelines), size)
            return
        with (
            ExitStack() as stack,
            ThreadPoolExecutor(min(MAX_ASKED_AT_ONCE, len(targets))) as asking,
        ):
            groups = [
                (number, _pages(_lists(stack.enter_context(closing(Connection(target)))), size))
                for number, target in targets.items()
            ]
            firsts = asking.map(_first_page, (pages for _, pages in groups))
            for (number, pages), first in zip(groups, firsts, strict=True):
                if isinstance(first, LowmarkError):
                    self.silent_groups[number] = str(first)
                    continue
                yield first
                yield from pages

    def _targets_of_groups(self) -> dict[int, SecureTarget]:
        """By number where each group is reached; none where the process that is asked knows of no groups."""
        request = group_pb.ListGroupsRequest(brief=True)
        try:
            answer = self._call(lambda stub: stub.ListGroups, request, group_grpc.GroupServiceStub)
        except UnavailableError:
            raise
        except LowmarkError:  # it is of a release before there were groups
            return {}
        return {
            state.group.group: SecureTarget(state.group.addresses, self._connection.credentials)
            for state in answer.groups
            if state.group.addresses
        }

    def shards(self) -> list[ShardInfo]:
        """All shards, by number."""
        return list(self.routing().shards)

    def routing(self, pipeline: str = "") -> RoutingInfo:
        """All shards, what each is for, and by which table slots are dealt to them; of the group in which a pipeline lives, or of
        `group`, or of whichever group is asked."""
        request = pipeline_pb.ListShardsRequest(
            pipeline=pipeline, group=None if pipeline else self.group
        )
        answer = self._call(lambda stub: stub.ListShards, request)
        return RoutingInfo(
            RoutingDescription(
                answer.version,
                tuple(answer.asked),
                answer.changing,
                level_from_pb(answer.level),
            ),
            tuple(ShardInfo(shard_from_pb(shard), shard.address) for shard in answer.shards),
            tuple(StandbyDescription(s.address, s.speaks, s.release) for s in answer.standbys),
            answer.group if answer.HasField("group") else None,
            tuple(answer.elsewhere),
        )

    def _stay_in_group(self) -> None:
        """What is asked of the shards of one group goes on at no other one, where who was asked does not answer any more."""
        if self.group is None:
            self.group = self.routing().group

    def rescale(
        self,
        shards: int,
        *,
        evacuate: bool = False,
        without: Sequence[int] = (),
        timeout_s: float | None = None,
        on_progress: Callable[[str], None] | None = None,
    ) -> RoutingInfo:
        """Lets so many shards own the slots to come; returns when all use the new table, and those
        that are to go have gone. May be repeated. More than there are: processes that have joined
        (`lowmark serve --join`) get them. evacuate: those that go hand over what is open at once,
        instead of waiting until it is done; without: shards that are to go, before those with the highest numbers;
        on_progress: called with what it waits for, in a sentence, when that has changed.
        Raises RefusedError if it cannot be; UnavailableError where it is not done within `timeout_s`
        seconds (None: the timeout of this object), which goes on all the same and may be asked for
        again."""
        self._stay_in_group()
        return Rescaling(self, Wish(shards, evacuate, tuple(without)), on_progress).wait(
            self._timeout_s if timeout_s is None else timeout_s
        )

    def finish_upgrade(
        self,
        *,
        timeout_s: float | None = None,
        on_progress: Callable[[str], None] | None = None,
    ) -> RoutingInfo:
        """Lets all processes use what their release has brought, when all speak it: none of the release before can take part
        any more. Returns when every shard has heard of it; may be repeated. on_progress: called with what it waits for, in
        a sentence, when that has changed. Raises RefusedError; UnavailableError where a shard is older, or away, for
        `timeout_s` seconds (None: the timeout of this object): then nothing has changed."""
        self._stay_in_group()
        return Finishing(self, on_progress).wait(
            self._timeout_s if timeout_s is None else timeout_s
        )

    def ask_to_finish(self, level: int) -> None:
        """One attempt to let all record by a feature level. Raises RefusedError, also for what passes (NOT_READY);
        UnavailableError."""
        request = pipeline_pb.FinishUpgradeRequest(level=level, group=self.group)
        self._ask_about_shards(lambda stub: stub.FinishUpgrade, request)

    def declare_lost(
        self,
        shards: Sequence[int],
        *,
        write_off: bool = False,
        timeout_s: float | None = None,
        on_progress: Callable[[str], None] | None = None,
    ) -> Lost:
        """Declares that shards never come back, since their stores are gone; returns when the others go on without them.
        write_off: what was open is given up, and each pipeline goes on in a new generation, where it is known from which
        slot; else each stands until it is restarted. May be repeated. on_progress: as for `rescale`. Raises RefusedError
        where one of them is not lost; UnavailableError where the others do not go on within `timeout_s` seconds (None: the
        timeout of this object), which goes on all the same."""
        self._stay_in_group()
        return Losing(self, tuple(shards), write_off, on_progress).wait(
            self._timeout_s if timeout_s is None else timeout_s
        )

    def ask_to_declare_lost(
        self, shards: tuple[int, ...], write_off: bool, wait_ms: int
    ) -> pipeline_pb.DeclareLostResponse:
        """One attempt, of so many milliseconds. Raises RefusedError, also for what passes (NOT_READY); UnavailableError."""
        request = pipeline_pb.DeclareLostRequest(
            shards=shards, write_off=write_off, wait_ms=wait_ms, group=self.group
        )
        return self._ask_about_shards(lambda stub: stub.DeclareLost, request, wait_ms)

    def _ask_about_shards(self, call: Callable[[Any], Any], request: Any, wait_ms: int = 0) -> Any:
        """One attempt, which the tracker answers within `wait_ms`."""
        answer, self._last = self._connection.call(
            lambda channel: call(pipeline_grpc.PipelineServiceStub(channel)),
            request,
            self._timeout_s,
            call_timeout_s=wait_ms / 1000 + CALL_TIMEOUT_S,
            prefer=self._last,
            retry_not_ready=False,
        )
        return answer

    def ask_to_rescale(self, wish: Wish, wait_ms: int) -> bool:
        """One attempt: whether the table is in force within the time. Raises RefusedError, also for what
        passes (NOT_READY); UnavailableError."""
        request = pipeline_pb.RescaleShardsRequest(
            shards=wish.shards,
            evacuate=wish.evacuate,
            without=wish.without,
            wait_ms=wait_ms,
            group=self.group,
        )
        answer = self._ask_about_shards(lambda stub: stub.RescaleShards, request, wait_ms)
        return bool(answer.in_force)

    def explain(
        self,
        pipeline: str,
        segment: str | None = None,
        *,
        from_slot: int | datetime = LOWEST_SLOT,
        to_slot: int | datetime = FOREVER,
        max_cells: int = 100,
        at: int | datetime | None = None,
        strip_bins: int = 0,
        silent_after_ms: int = SILENT_AFTER_MS,
        shard_timeout_s: float = SHARD_TIMEOUT_S,
    ) -> Explanation:
        """Asks every shard why min time is where it is, and for the open cells with a slot of at least
        `from_slot` and below `to_slot`, or of moments between two: up to `max_cells` of each shard, the lowest slots
        first. at: what keeps min time from this slot or moment, not just from moving; strip_bins: into how many bins
        what is open between the slots is counted; silent_after_ms: how long a node may say nothing before
        that counts as a cause. Raises RefusedError if the pipeline or segment is unknown;
        shards that do not answer within `shard_timeout_s` seconds are named instead."""
        info = self.pipeline(pipeline)
        spec = info.spec
        at_slot = None if at is None else slot_until(at, spec.slack_ns, spec.rounds)
        request = pipeline_pb.ExplainPipelineRequest(
            pipeline=pipeline,
            segment=segment or "",
            from_slot=slot_at(from_slot, spec.slack_ns, spec.rounds),
            to_slot=slot_until(to_slot, spec.slack_ns, spec.rounds),
            max_cells=max_cells,
            at_slot=at_slot,
            strip_bins=strip_bins,
        )
        parts, silent = [], {}
        for shard, answer in self.ask_shards(
            lambda channel: pipeline_grpc.PipelineServiceStub(channel).ExplainPipeline,
            request,
            shard_timeout_s,
        ):
            if isinstance(answer, UnavailableError):
                silent[shard] = str(answer)
            else:
                parts.append(explanation_from_pb(answer, spec))
        return Explanation(spec, info.state, tuple(parts), silent, at_slot, silent_after_ms)

    def nodes(self, pipeline: str) -> NodeList:
        """The nodes of a pipeline as their homes know them, those that are gone first: of each shard up to
        MAX_EXPLAINED_NODES, the longest silent. Raises RefusedError if the pipeline is unknown; shards that do not
        answer are named instead."""
        explanation = self.explain(pipeline, max_cells=0)
        state = self.pipeline(pipeline).state
        return listed(explanation.spec, state, explanation.parts, explanation.silent_shards)

    def freshness(
        self, pipeline: str, within_ms: int = 0, points: int = 0
    ) -> tuple[SegmentFreshness, ...]:
        """How far each segment has been behind, over windows of time, the whole pipeline last: as one
        process has seen it since it was started. within_ms: of each window the share of samples up to it
        is told. points: by how many the lag over the longest is told, at most MAX_POINTS. Raises RefusedError; UnavailableError too where there is no sample yet."""
        answer = self._call(
            lambda stub: stub.GetFreshness,
            pipeline_pb.GetFreshnessRequest(pipeline=pipeline, within_ms=within_ms, points=points),
        )
        return freshness_from_pb(answer)

    def retire(
        self,
        pipeline: str,
        node_id: str,
        write_off: Cells | None = None,
        *,
        shown: NodeKey | None = None,
        generation: int | None = None,
    ) -> None:
        """Closes a node's key for good, with its fronts, and writes off the given cells (rule 9), each
        with the checksum that `explain` has shown: one that has changed since stays. shown, generation: the key that `nodes`
        has shown, and the pipeline's generation then; if not given, those of the beginning of this call are asked for.
        RefusedError, with nothing done, where the node has joined again since, or another generation has begun. Returns when every
        shard has done so; may be repeated. Raises RefusedError; UnavailableError where a shard is away,
        which will do so when it is back."""
        if generation is None or (shown is None and node_id):
            found = self.nodes(pipeline)
            generation = found.generation if generation is None else generation
            shown = found.newest_key(node_id) if shown is None else shown
        request = pipeline_pb.RetireNodeRequest(
            pipeline=pipeline,
            node_id=node_id,
            write_off=cells_to_pb(write_off or Cells.empty()),
            incarnation=None if shown is None else shown.incarnation,
            generation=generation,
        )
        self._call(lambda stub: stub.RetireNode, request)

    def restart(
        self, pipeline: str, generation: int, from_slot: int | datetime | None = None
    ) -> tuple[int, int]:
        """Begins the generation after `generation` from a slot or a moment on (None: from the pipeline's min time):
        what is open is dropped and listed, and all nodes have to join again. Returns its number and its
        slot, when every shard has begun it; may be repeated. Raises RefusedError; UnavailableError
        where a shard is away, which begins it when it is back."""
        if isinstance(from_slot, datetime):
            spec = self.pipeline(pipeline).spec
            from_slot = slot_until(from_slot, spec.slack_ns, spec.rounds)
        request = pipeline_pb.RestartPipelineRequest(
            pipeline=pipeline, generation=generation, from_slot=from_slot
        )
        answer = self._call(lambda stub: stub.RestartPipeline, request)
        return answer.generation, answer.from_slot

    def delete(self, pipeline: str, generation: int, *, drop_open: bool = False) -> None:
        """Ends a pipeline that is in that generation, for good, when every shard has ended it: its nodes are refused, its
        subscribers are told, what was kept of it goes, and its name is free. drop_open: also where something is open
        or a front may still label, which is lost then. May be repeated. Raises RefusedError, with what is open, and
        where there is no such pipeline; UnavailableError where a shard is away, which ends it when it is back."""
        request = pipeline_pb.DeletePipelineRequest(
            pipeline=pipeline, generation=generation, drop_open=drop_open
        )
        self._call(lambda stub: stub.DeletePipeline, request)

    def groups(self) -> list[GroupInfo]:
        """The groups of the deployment, by number, and what each has to do; of one that does not answer, why. A tracker that
        stands alone is group 0."""
        answer = self._call(
            lambda stub: stub.ListGroups, group_pb.ListGroupsRequest(), group_grpc.GroupServiceStub
        )
        return [*map(group_info, answer.groups)]

    def move(self, pipeline: str, group: int) -> None:
        """Moves a pipeline to another group while it runs, and returns when it is there. Its nodes wait meanwhile, and go on with
        what they have. May be repeated. Raises RefusedError where it stays, with the reason; UnavailableError where that is
        not decided within the timeout of this object: it goes on by itself."""
        move(
            partial(self._call, make=group_grpc.GroupServiceStub), pipeline, group, self._timeout_s
        )

    def cordon(self, group: int, cordoned: bool = True) -> None:
        """Gives a group no new pipelines from now on, or some again."""
        request = group_pb.CordonGroupRequest(group=group, cordoned=cordoned)
        self._call(lambda stub: stub.CordonGroup, request, group_grpc.GroupServiceStub)

    def ask_shards(
        self,
        make: Callable[[grpc.Channel], Callable[..., Answer]],
        request: Any,
        shard_timeout_s: float = SHARD_TIMEOUT_S,
    ) -> list[tuple[int, Answer | UnavailableError]]:
        """What each shard answers to a call, by number, or why one did not within the time; but for those
        that join, which hold nothing yet. make: as in `Connection.ask`. Raises RefusedError."""
        routing = self.routing(getattr(request, "pipeline", ""))
        shards = [s for s in routing.shards if s.state.role is not ShardRole.JOINING]
        timeout_s = min(shard_timeout_s, self._timeout_s)

        def ask(shard: ShardInfo) -> tuple[int, Answer | UnavailableError]:
            connection = Connection(SecureTarget(shard.address, self._connection.credentials))
            try:
                return shard.state.shard, connection.call(make, request, timeout_s)[0]
            except UnavailableError as error:
                return shard.state.shard, error
            finally:
                connection.close()

        with ThreadPoolExecutor(min(MAX_ASKED_AT_ONCE, len(shards))) as asking:
            return list(asking.map(ask, shards))

    def _call(
        self,
        method: Callable[[Any], Callable[..., Answer]],
        request: Any,
        make: Callable[[Any], Any] = pipeline_grpc.PipelineServiceStub,
    ) -> Answer:
        answer, self._last = self._connection.call(
            lambda channel: method(make(channel)),
            request,
            self._timeout_s,
            prefer=self._last,
        )
        return answer

    def close(self) -> None:
        self._connection.close()


def _lists(connection: Connection) -> Callable[[Any], Any]:
    """Lists pipelines of the group that a connection is to."""

    def make(channel: grpc.Channel) -> Callable[..., Any]:
        return pipeline_grpc.PipelineServiceStub(channel).ListPipelines

    return lambda request: connection.call(make, request, GROUP_TIMEOUT_S)[0]


def _pages(call: Callable[[Any], Any], size: int) -> Iterator[list[PipelineInfo]]:
    """The pipelines of one group, page by page."""
    request = pipeline_pb.ListPipelinesRequest(page_size=size)
    while True:
        answer = call(request)
        yield [_info(pipeline) for pipeline in answer.pipelines]
        if not answer.next_page_token:
            return
        request.page_token = answer.next_page_token


def _first_page(pages: Iterator[list[PipelineInfo]]) -> list[PipelineInfo] | LowmarkError:
    try:
        return next(pages)
    except LowmarkError as error:
        return error


def _info(answer: pipeline_pb.GetPipelineResponse) -> PipelineInfo:
    return PipelineInfo(
        spec_from_pb(answer.spec), state_from_pb(answer.state), answer.omitted, answer.group
    )
