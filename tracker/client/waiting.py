"""Waiting for a moment to be complete, and giving up where nobody is left who could complete it.

Min time waits for a silent front as long as the pipeline's policy says `hold`, which may be for ever.
A script that waits should not: once a front that has not promised enough has been silent for a while,
the wait is over, and says which front it is.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from tracker.client.admin import Admin, PipelineInfo
from tracker.client.errors import UnavailableError
from tracker.client.subscriber import Subscriber
from tracker.client.updates import slot_until
from tracker.core.graph import SegmentGraph
from tracker.core.model import SilentFront
from tracker.core.slots import add_delay

SILENT_AFTER_S = 60.0
"""How long a front may say nothing before a wait for it is given up, unless the caller says so."""
LOOK_INTERVAL_S = 1.0
"""How often it is looked who is silent."""
LOOK_TIMEOUT_S = 5.0


class Outcome(Enum):
    """How a wait ended."""

    REACHED = "reached"
    TIMED_OUT = "timed out"
    HELD = "held"
    """It will not be reached until somebody acts: a front is silent, or none is there."""


@dataclass(frozen=True, slots=True)
class Waited:
    """How a wait ended. slot: what was waited for; why: what holds it, for people; empty unless HELD."""

    outcome: Outcome
    slot: int
    why: str = ""


def wait_complete(
    target: str | Sequence[str],
    pipeline: str,
    until: int | datetime,
    segment: str | None = None,
    *,
    timeout_s: float | None = None,
    silent_after_s: float | None = SILENT_AFTER_S,
) -> Waited:
    """Waits until min time, of a segment or of the whole pipeline, has reached a slot, or until
    everything labelled before a moment is complete.

    timeout_s: TIMED_OUT after so many seconds (None: no limit). silent_after_s: HELD once a front that
    it depends on, and that the pipeline does not evict, has said nothing for so long, or has not joined
    while this waited so long (None: waits on). Raises RefusedError if the pipeline or segment is unknown.
    """
    deadline_s = float("inf") if timeout_s is None else time.monotonic() + timeout_s
    with Subscriber(target, pipeline) as subscriber, Admin(target, LOOK_TIMEOUT_S) as admin:
        slot = until if isinstance(until, int) else slot_until(until, subscriber.slack_ns())
        watch = _Silence(slot, segment)
        while True:
            left_s = deadline_s - time.monotonic()
            pause_s = max(
                0.0, min(left_s, LOOK_INTERVAL_S if silent_after_s is not None else left_s)
            )
            finite_s = None if pause_s == float("inf") else pause_s
            if subscriber.wait_until(slot, segment, finite_s):
                return Waited(Outcome.REACHED, slot)
            if time.monotonic() >= deadline_s:
                return Waited(Outcome.TIMED_OUT, slot)
            if silent_after_s is not None and (why := watch.look(admin, pipeline, silent_after_s)):
                # It may have been reached while this looked.
                reached = subscriber.wait_until(slot, segment, 0.0) or (
                    subscriber.min_time(segment) >= slot
                )
                return Waited(Outcome.REACHED, slot) if reached else Waited(Outcome.HELD, slot, why)


class _Silence:
    """For how long fronts have been silent, by what the tracker says and by what was seen here: a
    process that has just started knows of no silence before."""

    def __init__(self, slot: int, segment: str | None) -> None:
        self._slot, self._segment = slot, segment
        self._seen: dict[
            tuple[str, str], tuple[int, float]
        ] = {}  # promise, and when it was first seen

    def look(self, admin: Admin, pipeline: str, silent_after_s: float) -> str:
        """What will hold the slot until somebody acts, for people; empty if there is hope."""
        try:
            info, shards = admin.pipeline(pipeline), admin.shards()
        except UnavailableError:
            self._seen.clear()
            return ""
        if not all(shard.state.connected for shard in shards):
            # What fronts say may not have arrived: nothing can be said of their silence.
            self._seen.clear()
            return ""
        now_s = time.monotonic()
        silent = []
        missing = self._missing(info)
        holding = {} if missing else self._holding(info)
        if missing:
            holding = {("", missing): (info.spec.start_slot, 0.0)}
        self._seen = {key: seen for key, seen in self._seen.items() if key in holding}
        for (node_id, front), (promise, silent_s) in holding.items():
            if self._seen.get((node_id, front), (None,))[0] != promise:
                self._seen[node_id, front] = (promise, now_s)
            silent_s = max(silent_s, now_s - self._seen[node_id, front][1])
            if silent_s >= silent_after_s:
                silent.append(
                    f"front {front!r} of node {node_id!r} has been silent for {silent_s:.0f} s and has "
                    f"promised slot {promise}"
                    if node_id
                    else f"{front}, for {silent_s:.0f} s"
                )
        return "; ".join(silent)

    def _missing(self, info: PipelineInfo) -> str:
        """What keeps the pipeline from beginning, or from going on though nothing is in it."""
        here = {front.front for front in info.state.fronts}
        if not info.state.begun:
            names = [name for name in info.spec.fronts if name not in here]
            return f"not all declared fronts have joined ({', '.join(names) or 'some'} have not)"
        return "the pipeline is open and no front feeds it" if info.spec.open and not here else ""

    def _holding(self, info: PipelineInfo) -> dict[tuple[str, str], tuple[int, float]]:
        """The fronts that have not promised enough: their promises, and how long they were silent."""
        spec = info.spec
        # A node is evicted when all of its fronts may be: one that must not keeps the others.
        patient = {
            front.node_id
            for front in info.state.fronts
            if spec.policy(front.front).silent_front is SilentFront.HOLD
        }
        graph, names = SegmentGraph(spec), spec.segments
        asked = range(len(names)) if self._segment is None else [names.index(self._segment)]
        return {
            (front.node_id, front.front): (front.heartbeat, front.silent_ms / 1000)
            for front in info.state.fronts
            if front.node_id in patient
            and any(
                add_delay(front.heartbeat, graph.distance(names.index(front.segment), w))
                < self._slot
                for w in asked
            )
        }
