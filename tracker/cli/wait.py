"""`lowmark wait`: for scripts that depend on completeness."""

from __future__ import annotations

import math
from typing import Annotated

import typer

from tracker.cli.common import (
    ANSWER_TIMEOUT_S,
    EXIT_HELD,
    EXIT_TIMED_OUT,
    PipelineName,
    SegmentName,
    fail,
    show,
    wrong_usage,
)
from tracker.cli.durations import lasting
from tracker.cli.reaching import reach
from tracker.cli.shared import Shared
from tracker.client import Admin, RefusedError, Subscriber, UnavailableError
from tracker.client.moments import parse_slot
from tracker.client.waiting import SILENT_AFTER_S, Outcome, wait_complete
from tracker.core.model import PipelineSpec
from tracker.core.model.rounds import Rounds
from tracker.core.model.slots import FOREVER
from tracker.view.pipelines import min_time_json


def _show_min_time(
    context: typer.Context, spec: PipelineSpec, segment: str | None, slot: int, **more: object
) -> None:
    shown = min_time_json(slot, spec)
    text = "complete" if slot == FOREVER else shown["time"] or f"slot:{slot}"
    if spec.rounds > 1 and slot != FOREVER:
        text = f"{shown['time'] or 'time:' + str(shown['whole_time'])} round {shown['round']}"
    show(context, {"pipeline": spec.name, "segment": segment, **shown, **more}, text)


def wait(
    context: typer.Context,
    pipeline: PipelineName,
    until: Annotated[
        str,
        typer.Option(
            help="an ISO date or time (UTC unless it has an offset), now, slot:N, or time:N of one with rounds"
        ),
    ],
    segment: SegmentName = None,
    after_round: Annotated[
        int | None,
        typer.Option(
            "--round",
            min=0,
            help="until this round of the time in which the moment lies is over, no more",
        ),
    ] = None,
    timeout_s: Annotated[
        float | None, lasting("--timeout", help="how long it waits; if not given: for ever")
    ] = None,
    silent_after_s: Annotated[
        float,
        lasting(
            "--silent-after", may_be_never=True, show_default=f"{SILENT_AFTER_S:g}s",
            help="give up when a front that it depends on has sent nothing for so long; never: wait for it however long",
        ),
    ] = SILENT_AFTER_S,
) -> None:  # fmt: skip
    """Wait until everything before a moment is processed, and print min time.

    Exit status: 0 reached; 3 not within --timeout; 5 it will not be, as things are: a front that it
    depends on is silent, or has not joined, or was evicted; 1 refused (an unknown pipeline, say); 2 wrong usage; 4 no
    process of the tracker answered at first.
    """
    with wrong_usage():
        parse_slot(until, 1, 1)
    shared = Shared.of(context)
    target = shared.target
    reach(target, shared.retry_s if timeout_s is None else timeout_s)
    first_s = ANSWER_TIMEOUT_S if timeout_s is None else max(timeout_s, 1.0)
    with Admin(target, first_s) as admin:
        info = admin.pipeline(pipeline)
    slot, generation = _awaited(until, after_round, info.spec), info.state.generation
    waited = wait_complete(
        target, pipeline, slot, segment, timeout_s=timeout_s,
        silent_after_s=None if math.isinf(silent_after_s) else silent_after_s,
        heard_generation=generation,
    )  # fmt: skip
    reached, now = waited.outcome is Outcome.REACHED, slot
    with Subscriber(target, pipeline) as subscriber:
        subscriber.goes_on_since(generation)
        try:
            now = subscriber.min_time(segment, first_s)
        # What was reached stays so, whatever has become of the pipeline, or of its tracker, since.
        except RefusedError:
            if not reached:
                raise
        except UnavailableError:  # it was there before, so this is about time
            if not reached:
                fail(f"{until} was not reached: the tracker has gone", EXIT_TIMED_OUT)
    more = {"reached": reached, "outcome": waited.outcome.value.replace(" ", "_")}
    _show_min_time(context, info.spec, segment, now, **more)
    if waited.outcome is Outcome.TIMED_OUT:
        fail(f"{until} (slot {slot}) was not reached within {timeout_s:g} s", EXIT_TIMED_OUT)
    if waited.outcome is Outcome.HELD:
        fail(f"{until} (slot {slot}) will not be reached: {waited.why}", EXIT_HELD)


def _awaited(until: str, after_round: int | None, spec: PipelineSpec) -> int:
    """The min time that is waited for."""
    times = Rounds(spec.rounds)
    with wrong_usage():
        slot = parse_slot(until, spec.slack_ns, times.per_time, up=after_round is None)
        return slot if after_round is None else times.over(times.split(slot)[0], after_round)
