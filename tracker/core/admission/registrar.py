"""Registering pipelines, changing them, beginning them anew, ending them (rules 1, 9, 12)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from tracker.core.admission.confirmations import Confirmations, waiting_requests
from tracker.core.config import ProcessConfig
from tracker.core.home.registration import check_delays, check_spec, differences, differs
from tracker.core.log import (
    Answer,
    DeletePipeline,
    Effect,
    PipelineChanged,
    PipelineDeleted,
    PipelineRegistered,
    PipelineRestarted,
    Placed,
    RegisterPipeline,
    Restart,
    RestartPipeline,
)
from tracker.core.log.journal import Journal
from tracker.core.log.losses import base_of, follows, generation_after
from tracker.core.membership.shards import Shards
from tracker.core.model import PipelineSpec, RefusalCode, Refused
from tracker.core.model.placements import Placement
from tracker.core.model.slots import FOREVER, HIGHEST_SLOT, add_delay
from tracker.core.pipeline.change import changes_graph, check_change, is_activated, numbered
from tracker.core.pipeline.homes import Homes
from tracker.core.pipeline.pipeline import Pipeline
from tracker.core.pipeline.pipelines import MAX_ENDED, Pipelines, ending

Said = TypeVar("Said", PipelineDeleted, PipelineRestarted)

_OPEN_SHOWN = 10
"""Of what is open, in a message."""


def _registered_otherwise(known: PipelineSpec, asked: PipelineSpec) -> Refused:
    return Refused(
        RefusalCode.CONFLICT,
        f"pipeline {asked.name!r} is registered otherwise: {differences(known, asked)}; to change it while it runs: "
        "lowmark pipelines apply; or register another, under another name",
    )


def _check_decided_on(event: RegisterPipeline, number: int, differs_by: str) -> None:
    """Raises Refused(CONFLICT) where a change was decided on before the newest one, and would undo that; also where it comes once
    more, later. number: of the newest change; -1 where there is no such pipeline."""
    if event.decided_on not in (None, number):
        raise Refused(
            RefusalCode.CONFLICT,
            f"pipeline {event.spec.name!r} has changed since this was decided on: {differs_by}; look at it again, and apply what is "
            "to be",
        )


def _check_nothing_open(pipeline: Pipeline) -> None:
    """Raises Refused(CONFLICT) where something of a pipeline is open, or a front of it may still label: deleting it would
    lose that. By what has been reported here."""
    if all(slot == FOREVER for slot in pipeline.announced):
        return
    unheard = sorted(shard for shard, view in pipeline.combiner.views.items() if not view.heard)
    if unheard:
        raise Refused(
            RefusalCode.NOT_READY,
            f"pipeline {pipeline.spec.name!r} may have something open: shards {unheard} have not reported; ask again, or say that it "
            "is to be dropped (--drop-open)",
        )
    combiner, segments = pipeline.combiner, pipeline.spec.segments
    slots = [0] * len(segments)
    for view in combiner.views.values():
        for low in view.lows.values():
            slots[low.segment] += low.open_slots
    there = [f"{number} open slots in {segments[s]!r}" for s, number in enumerate(slots) if number]
    there += [f"front {front!r} of node {node!r}" for node, front, *_ in combiner.known_fronts()]
    if there:
        more = f" and {len(there) - _OPEN_SHOWN} more" if len(there) > _OPEN_SHOWN else ""
        raise Refused(
            RefusalCode.CONFLICT,
            f"pipeline {pipeline.spec.name!r} is not over: {', '.join(there[:_OPEN_SHOWN])}{more}; let its nodes leave "
            "and what is open be processed, or say that it is to be dropped (--drop-open)",
        )


def _check_not_fed(pipeline: Pipeline, known: PipelineSpec, spec: PipelineSpec) -> None:
    """Raises Refused(CONFLICT) where a front feeds a segment that is to be removed, as far as has been reported here: it
    would hold min time of all that follows from there."""
    gone = {known.segments.index(name) for name in spec.removed if name not in known.removed}
    for view in pipeline.combiner.views.values():
        for front in view.fronts.values():
            if front.segment in gone:
                raise Refused(
                    RefusalCode.CONFLICT,
                    f"pipeline {spec.name!r}: segment {known.segments[front.segment]!r} cannot be removed while front "
                    f"{front.front!r} of node {front.node_id!r} feeds it; let that leave first",
                )


def _check_not_complete(pipeline: Pipeline, known: PipelineSpec, spec: PipelineSpec) -> None:
    """Raises Refused(COMPLETE) where a new edge leads to a segment that is complete, as far as has been heard here: whoever
    feeds what leads there could label nothing."""
    complete = {
        n for n, floor in zip(known.segments, pipeline.floors(), strict=False) if floor == FOREVER
    }
    for edge in spec.edges:
        if edge.target in complete and edge not in known.edges:
            raise Refused(
                RefusalCode.COMPLETE,
                f"pipeline {spec.name!r}: segment {edge.target!r} is complete, which stays true, and nothing can come there "
                f"from {edge.source!r}; let the edge lead to a new segment",
            )


def _check_may_open(pipeline: Pipeline, known: PipelineSpec, spec: PipelineSpec) -> None:
    """Raises Refused(COMPLETE) where a pipeline is to wait for more fronts, and no front could feed some segment, as far
    as has been heard here."""
    for name, floor in zip(known.segments, pipeline.floors(), strict=False):
        if floor == FOREVER and name not in spec.removed:
            raise Refused(
                RefusalCode.COMPLETE,
                f"pipeline {spec.name!r} cannot become open: segment {name!r} is complete, which stays true, and no front "
                "could feed it; register another pipeline",
            )


def _next_generation(pipeline: Pipeline, generation: int) -> int:
    """Above all that there were; where it stands since shards were lost, also above those that nobody else knows of. generation:
    the newest, durable or not."""
    if pipeline.held is None or generation > pipeline.generation:
        return generation + 1
    return generation_after(pipeline.base, pipeline.held.lost, generation)


@dataclass(slots=True, eq=False)
class Registrar:
    """What is decided about pipelines at the shard that registers their names. Nothing of its own is kept."""

    _journal: Journal
    _shards: Shards
    _pipelines: Pipelines
    _homes: Homes
    _confirmations: Confirmations
    _config: ProcessConfig
    _effects: list[Effect]

    def register(self, event: RegisterPipeline, claimed: Placement | None = None) -> None:
        """Registers a pipeline, once, however often it is asked for; raises Refused, changing nothing. claimed: the placement of one
        that is new here, where that is to be logged, too."""
        spec = event.spec
        check_spec(spec)
        pipeline = self._pipelines.get(spec.name)
        if self._pending(PipelineDeleted, spec.name) is not None:
            raise Refused.of(ending(spec.name))
        if pipeline is not None:
            self._register_again(pipeline, event)
            return
        known = self._pipelines.registering.get(spec.name)
        if known is None:
            self._check_free(spec.name)
            _check_decided_on(event, -1, "there is none by now")
            if spec.removed:
                raise Refused(
                    RefusalCode.INVALID,
                    f"pipeline {spec.name!r} is new, and no segment of it can have been removed: {spec.removed[:20]}",
                )
            check_delays(spec)
            self._check_limits(spec)
            there = self._pipelines.there(self._shards.expected().moving.values())
            if there >= self._config.max_pipelines:
                raise Refused(
                    RefusalCode.FULL,
                    f"pipeline {spec.name!r}: {there} pipelines are registered, or about to come; "
                    f"the limit max_pipelines is {self._config.max_pipelines}",
                )
            self._check_segments(spec, len(spec.segments))
            if event.check_only:
                self._effects.append(Answer(event.request, spec))
                return
            if claimed is not None:
                self._journal.append_home(Placed(claimed))
            self._pipelines.registering[spec.name] = spec
            self._confirmations.await_registration(spec.name, [event.request])
            self._journal.append_home(self._first(event))
            return
        if known != spec and event.change:
            raise Refused(
                RefusalCode.NOT_READY,
                f"pipeline {spec.name!r} is being registered, and changes when it is; ask again",
            )
        if known != spec:
            raise _registered_otherwise(known, spec)
        if spec.name in self._confirmations.registrations:
            self._confirmations.registrations[spec.name][1].append(event.request)
        else:
            self._effects.append(Answer(event.request, spec))

    def _check_free(self, name: str) -> None:
        """Raises Refused while something of a pipeline of this name that was deleted may still come to some shard."""
        if not self._pipelines.may_begin(name, self._shards.membership.with_newcomers):
            raise Refused.of(ending(name))

    def _first(self, event: RegisterPipeline) -> PipelineRegistered:
        """How a new pipeline begins: in a generation behind all of one of its name that was deleted, or that lost shards alone knew
        when one that had just joined was left, or that went on after a loss; and above `event.above`."""
        spec, lost = event.spec, self._shards.membership.lost
        last = max(self._pipelines.last_generation(spec.name), event.above)
        base = base_of(last)
        last = max(last, generation_after(base, lost) if lost else 0)
        restart = Restart(last + 1, spec.start_slot, self._journal.unix_ms) if last else None
        return PipelineRegistered(spec, restart, event.placed, base)

    def _check_segments(self, spec: PipelineSpec, more: int) -> None:
        """Raises Refused(FULL) where all pipelines together would have too many segments, with so many more."""
        registering = self._pipelines.registering.values()
        there = self._pipelines.segments + sum(len(each.segments) for each in registering)
        most = self._config.max_segments
        if more and there + more > most:
            raise Refused(
                RefusalCode.FULL,
                f"pipeline {spec.name!r}: {there} segments are registered and {more} more would "
                f"pass the limit max_segments of {most}, which is of all pipelines together; register fewer",
            )

    def _check_limits(self, spec: PipelineSpec) -> None:
        """Raises Refused where a pipeline asks for more than the tracker lets any have. One that was registered
        before there were such bounds goes on as it is."""
        config = self._config
        bounds = {
            "max_open_cells": config.most_open_cells, "max_open_units": config.most_open_units,
            "max_nodes": config.most_nodes, "max_staged": config.most_staged,
        }  # fmt: skip
        for name, most in bounds.items():
            asked = getattr(spec, name)
            if asked > most:
                raise Refused(
                    RefusalCode.INVALID,
                    f"pipeline {spec.name!r} asks for {name} {asked}; the most that this tracker lets a pipeline "
                    f"have is {most}",
                )

    def _register_again(self, pipeline: Pipeline, event: RegisterPipeline) -> None:
        """A pipeline that is there is registered as it is, or as it was at first; or it becomes another one."""
        number, known = self._pipelines.newest(event.spec.name) or (0, pipeline.spec)
        name, spec = known.name, numbered(known, event.spec)
        _, requests = self._confirmations.registrations.get(name, (0, waiting_requests()))
        if not differs(known, spec) or (event.spec == pipeline.registered and not event.change):
            if name in self._confirmations.registrations:
                requests.append(event.request)
            elif pipeline.change_awaits:  # every shard has it, and not all go by it
                self._confirmations.registrations[name] = 0, waiting_requests([event.request])
            else:
                self._effects.append(Answer(event.request, known))
            return
        if not event.change:
            raise _registered_otherwise(known, event.spec)
        _check_decided_on(event, number, differences(known, spec))
        self._check_change(pipeline, known, spec)
        if event.check_only:
            self._effects.append(Answer(event.request, spec))
            return
        requests.append(event.request)
        self._confirmations.await_registration(name, requests)
        changed = PipelineChanged(number + 1, spec, generation=pipeline.generation)
        self._journal.append_home(changed)
        self._pipelines.will_change(number + 1, spec)

    def _check_change(self, pipeline: Pipeline, known: PipelineSpec, spec: PipelineSpec) -> None:
        """Raises Refused where a pipeline cannot become this."""
        check_spec(spec)
        check_delays(spec)
        self._check_limits(spec)
        self._check_segments(spec, len(spec.segments) - len(known.segments))
        check_change(known, spec)
        opens = spec.open and not known.open
        if (opens or changes_graph(known, spec)) and all(s == FOREVER for s in pipeline.announced):
            raise Refused(
                RefusalCode.COMPLETE,
                f"pipeline {spec.name!r} is complete, which stays true; register another one that goes on from it: lowmark "
                f"pipelines apply --succeeds {spec.name}",
            )
        if opens:
            _check_may_open(pipeline, known, spec)
        if not is_activated(known, spec):
            return
        if pipeline.graph_change.is_under_way or is_activated(pipeline.spec, known):
            away = [*pipeline.change_awaits]
            waits = f"shards {away} have not adopted it" if away else "it is not known everywhere"
            raise Refused(
                RefusalCode.NOT_READY,
                f"pipeline {spec.name!r}: another change of its segments, edges or fronts is under way, and {waits}; ask again",
            )
        before = pipeline.graph_change
        if before.number and (lagging := self._homes.lagging(before.over_at)):
            raise Refused(
                RefusalCode.NOT_READY,
                f"pipeline {spec.name!r}: another change of its segments, edges or fronts has to wait: shards {lagging} may not have "
                "heard all that was logged by the one before; ask again",
            )
        _check_not_fed(pipeline, known, spec)
        _check_not_complete(pipeline, known, spec)

    def restart(self, event: RestartPipeline) -> None:
        """Begins a new generation, once, however often it is asked for."""
        self._homes.need_no_loss(f"pipeline {event.pipeline!r}")
        pipeline = self._pipelines.named(event.pipeline)
        self._homes.need_registrar(event.pipeline, "restarted at")
        if self._pending(PipelineDeleted, event.pipeline) is not None:
            raise Refused.of(ending(event.pipeline))
        newest = self._newest_restart(pipeline)
        generation = 0 if newest is None else newest.generation
        if (
            newest is not None
            and follows(generation, event.generation)
            and event.from_slot in (None, newest.from_slot)
        ):
            self._confirmations.answer(event.request, newest)
            return
        if generation != event.generation:
            raise Refused(
                RefusalCode.CONFLICT,
                f"pipeline {event.pipeline!r} is in generation {generation}, not in "
                f"{event.generation}: it was restarted meanwhile; look at it again",
            )
        from_slot = self._check_restart(pipeline, event.from_slot)
        restart = Restart(_next_generation(pipeline, generation), from_slot, event.at_ms)
        self._journal.append_home(PipelineRestarted(event.pipeline, restart))
        self._confirmations.answer(event.request, restart)

    def delete(self, event: DeletePipeline) -> None:
        """Ends a pipeline, once, however often it is asked for; raises Refused, changing nothing."""
        name = event.pipeline
        self._homes.need_registrar(name, "deleted at")
        ended = self._pipelines.ended.get(name)
        if (
            ended is not None
            and not ended.moved
            and name not in self._pipelines
            and follows(ended.generation, event.generation)
        ):
            self._confirmations.answer(event.request, Restart(ended.generation, 0, event.at_ms))
            return
        pipeline = self._pipelines.named(name)
        deletion = self._pending(PipelineDeleted, name)
        if deletion is not None and follows(deletion.restart.generation, event.generation):
            self._confirmations.answer(event.request, deletion.restart)
            return
        newest = self._newest_restart(pipeline)
        generation = 0 if newest is None else newest.generation
        if generation != event.generation:
            raise Refused(
                RefusalCode.CONFLICT,
                f"pipeline {name!r} is in generation {generation}, not in {event.generation}: it was restarted or "
                "registered anew meanwhile; look at it again",
            )
        if not event.drop_open:
            _check_nothing_open(pipeline)
        self._check_ended(name)
        restart = Restart(
            _next_generation(pipeline, generation), pipeline.spec.start_slot, event.at_ms
        )
        next_shard = self._shards.expected().next_shard
        self._journal.append_home(PipelineDeleted(name, restart, next_shard))
        self._confirmations.answer(event.request, restart)

    def _pending(self, kind: type[Said], name: str) -> Said | None:
        """The newest entry of a kind that is of a pipeline and not durable yet."""
        return next(self._journal.pending_of(kind, name), None)

    def _check_ended(self, name: str) -> None:
        """Raises Refused(FULL) where as many deleted pipelines as are remembered are not over everywhere."""
        shards = self._shards.membership.with_newcomers
        ended = self._pipelines.ended.values()
        unfinished = [e for e in ended if not e.hearsay and e.awaited(shards)]
        if len(unfinished) >= MAX_ENDED:
            raise Refused(
                RefusalCode.FULL,
                f"pipeline {name!r} cannot be deleted: {len(unfinished)} deleted ones are not over at every shard, the "
                f"limit is {MAX_ENDED}; start the shards that are away",
            )

    def _newest_restart(self, pipeline: Pipeline) -> Restart | None:
        """How the newest generation began, durable or not."""
        entry = self._pending(PipelineRestarted, pipeline.spec.name)
        return pipeline.restart if entry is None else entry.restart

    def _check_restart(self, pipeline: Pipeline, asked: int | None) -> int:
        """The slot from which a generation begins; raises Refused where it cannot."""
        name, horizon = pipeline.spec.name, pipeline.spec.horizon_slots
        least = max(pipeline.min_time, min(pipeline.combiner.announced_anywhere))
        held = pipeline.held
        if held is not None and held.from_slot is not None:
            least = max(least, held.from_slot)
        elif held is not None and asked is None:
            raise Refused(
                RefusalCode.INVALID,
                f"pipeline {name!r} stands since shards {[*held.lost]} were declared lost, and it is not known what they had "
                f"announced beyond slot {least}: name a slot above that, by what its subscribers have heard (--from)",
            )
        if least == FOREVER or all(slot == FOREVER for slot in pipeline.announced):
            raise Refused(
                RefusalCode.COMPLETE,
                f"pipeline {name!r} is complete, which stays true; register it under another name to "
                "process its input again",
            )
        from_slot = least if asked is None else asked
        if from_slot > HIGHEST_SLOT:
            raise Refused(
                RefusalCode.INVALID,
                f"pipeline {name!r} cannot begin again from slot {from_slot}; the largest is {HIGHEST_SLOT}",
            )
        if from_slot < least:
            raise Refused(
                RefusalCode.BELOW_MIN_TIME,
                f"pipeline {name!r} cannot begin again from slot {from_slot}: min time {least} is "
                "announced, everything below it is complete; begin there or later",
            )
        if from_slot % pipeline.spec.rounds:
            times = pipeline.spec.times
            raise Refused(
                RefusalCode.INVALID,
                f"pipeline {name!r} cannot begin again from slot {from_slot}, {times.text(from_slot)}: its input "
                "comes in at round 0, below what would begin there; wait until that time is complete, or give up "
                f"what of it goes round, and begin from slot {times.next_whole(from_slot)}",
            )
        is_bounded = held is None or held.from_slot is not None
        if is_bounded and from_slot > least and from_slot >= add_delay(least, horizon):
            raise Refused(
                RefusalCode.BEYOND_HORIZON,
                f"pipeline {name!r} cannot begin again from slot {from_slot}: the limit is its min time "
                f"{least} + horizon_slots {horizon}",
            )
        return from_slot
