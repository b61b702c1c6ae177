"""Registering pipelines, changing their limits, beginning them anew (rules 1, 9)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tracker.core.admission.confirmations import Confirmations
from tracker.core.config import ProcessConfig
from tracker.core.home.registration import check_delays, check_spec, differences
from tracker.core.log import (
    Answer,
    Effect,
    LimitsChanged,
    PipelineRegistered,
    PipelineRestarted,
    RegisterPipeline,
    Restart,
    RestartPipeline,
)
from tracker.core.log.journal import Journal
from tracker.core.model import PipelineSpec, RefusalCode, Refused
from tracker.core.model.slots import FOREVER, add_delay
from tracker.core.pipeline.homes import Homes
from tracker.core.pipeline.pipeline import Pipeline
from tracker.core.pipeline.pipelines import Pipelines


def _registered_otherwise(known: PipelineSpec, asked: PipelineSpec) -> Refused:
    advice = "register it under another name"
    if known.with_limits(asked.limits) == asked:
        advice = "to change its limits while it runs: lowmark pipelines apply"
    elif replace(known.with_limits(asked.limits), start_slot=asked.start_slot) == asked:
        advice = (
            f"its start is for good: with `start: slot:{known.start_slot}` it is this one, whose limits may be "
            "changed (`now` is another moment each time); or register another, under another name"
        )
    return Refused(
        RefusalCode.CONFLICT,
        f"pipeline {asked.name!r} is registered otherwise: {differences(known, asked)}; {advice}",
    )


@dataclass(slots=True, eq=False)
class Registrar:
    """What is decided about pipelines at the shard that registers their names. Nothing of its own is kept."""

    _journal: Journal
    _pipelines: Pipelines
    _homes: Homes
    _confirmations: Confirmations
    _config: ProcessConfig
    _effects: list[Effect]

    def register(self, event: RegisterPipeline) -> None:
        """Registers a pipeline, once, however often it is asked for; raises Refused, changing nothing."""
        spec = event.spec
        self._homes.need_registrar(spec.name, "registered with")
        check_spec(spec)
        pipeline = self._pipelines.get(spec.name)
        if pipeline is not None:
            self._register_again(pipeline, event)
            return
        known = self._pipelines.registering.get(spec.name)
        if known is None:
            check_delays(spec)
            self._check_limits(spec)
            if (
                len(self._pipelines) + len(self._pipelines.registering)
                >= self._config.max_pipelines
            ):
                raise Refused(
                    RefusalCode.FULL,
                    f"pipeline {spec.name!r}: {len(self._pipelines)} pipelines are registered, "
                    f"the limit max_pipelines is {self._config.max_pipelines}",
                )
            self._check_segments(spec)
            self._pipelines.registering[spec.name] = spec
            self._confirmations.await_registration(spec.name, [event.request])
            self._journal.append_home(PipelineRegistered(spec))
            return
        if known != spec:
            raise _registered_otherwise(known, spec)
        if spec.name in self._confirmations.registrations:
            self._confirmations.registrations[spec.name][1].append(event.request)
        else:
            self._effects.append(Answer(event.request, spec))

    def _check_segments(self, spec: PipelineSpec) -> None:
        """Raises Refused(FULL) where all pipelines together would have too many segments."""
        registering = self._pipelines.registering.values()
        there = self._pipelines.segments + sum(len(each.segments) for each in registering)
        most = self._config.max_segments
        if there + len(spec.segments) > most:
            raise Refused(
                RefusalCode.FULL,
                f"pipeline {spec.name!r}: {there} segments are registered and {len(spec.segments)} more would "
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
        """A pipeline that is there is registered as it is, or as it was at first; or given other limits."""
        spec = event.spec
        number, known = self._newest_limits(pipeline)
        _, requests = self._confirmations.registrations.get(spec.name, (0, []))
        if known == spec or (spec == pipeline.registered and not event.change_limits):
            if spec.name in self._confirmations.registrations:
                requests.append(event.request)
            else:
                self._effects.append(Answer(event.request, known))
            return
        if not event.change_limits or known.with_limits(spec.limits) != spec:
            raise _registered_otherwise(known, spec)
        check_delays(spec)
        self._check_limits(spec)
        requests.append(event.request)
        self._confirmations.await_registration(spec.name, requests)
        self._journal.append_home(LimitsChanged(spec.name, number + 1, spec.limits))

    def _newest_limits(self, pipeline: Pipeline) -> tuple[int, PipelineSpec]:
        """How often a pipeline's limits were changed, durably or not, and the pipeline under the last."""
        for entry in self._journal.pending_entries():
            if isinstance(entry, LimitsChanged) and entry.pipeline == pipeline.spec.name:
                return entry.number, pipeline.spec.with_limits(entry.limits)
        return pipeline.limits_number, pipeline.spec

    def restart(self, event: RestartPipeline) -> None:
        """Begins a new generation, once, however often it is asked for."""
        pipeline = self._pipelines.named(event.pipeline)
        self._homes.need_registrar(event.pipeline, "restarted at")
        newest = self._newest_restart(pipeline)
        generation = 0 if newest is None else newest.generation
        if (
            newest is not None
            and generation == event.generation + 1
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
        restart = Restart(generation + 1, from_slot, event.at_ms)
        self._journal.append_home(PipelineRestarted(event.pipeline, restart))
        self._confirmations.answer(event.request, restart)

    def _newest_restart(self, pipeline: Pipeline) -> Restart | None:
        """How the newest generation began, durable or not."""
        for entry in self._journal.pending_entries():
            if isinstance(entry, PipelineRestarted) and entry.pipeline == pipeline.spec.name:
                return entry.restart
        return pipeline.restart

    def _check_restart(self, pipeline: Pipeline, asked: int | None) -> int:
        """The slot from which a generation begins; raises Refused where it cannot."""
        name, horizon = pipeline.spec.name, pipeline.spec.horizon_slots
        least = max(pipeline.min_time, min(pipeline.combiner.announced_anywhere))
        if least == FOREVER or all(slot == FOREVER for slot in pipeline.announced):
            raise Refused(
                RefusalCode.COMPLETE,
                f"pipeline {name!r} is complete, which stays true; register it under another name to "
                "process its input again",
            )
        from_slot = least if asked is None else asked
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
        if from_slot > least and from_slot >= add_delay(least, horizon):
            raise Refused(
                RefusalCode.BEYOND_HORIZON,
                f"pipeline {name!r} cannot begin again from slot {from_slot}: the limit is its min time "
                f"{least} + horizon_slots {horizon}",
            )
        return from_slot
