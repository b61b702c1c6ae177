"""Waiting for a moment to be complete, and giving up where nobody is left who could complete it.

Min time waits for a silent front as long as the pipeline's policy says `hold`, and for one that was evicted
until it comes back or is retired, which may be for ever. A script that waits should not: once a front that
has not promised enough has been silent or away for a while, the wait is over, and says which front it is.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from tracker.client.admin import Admin, PipelineInfo
from tracker.client.connection import finished
from tracker.client.subscriber import AsyncSubscriber, Subscriber
from tracker.core.cut.graph import SegmentGraph
from tracker.core.insight.explain import HoldKind
from tracker.core.model import FrontName, RefusalCode, SilentFront
from tracker.core.model.slots import add_delay
from tracker.errors import RefusedError, UnavailableError

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
    """It will not be reached until somebody acts: a front is silent, or was evicted, or none is there."""


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
    heard_generation: int | None = None,
) -> Waited:
    """Waits until min time, of a segment or of the whole pipeline, has reached a slot, or until
    everything labelled before a moment is complete.

    timeout_s: TIMED_OUT after so many seconds (None: no limit). silent_after_s: HELD once a front that
    it depends on, and that the pipeline does not evict, has said nothing for so long, or has not joined,
    or not come back after its eviction, while this waited so long (None: waits on). heard_generation: of the pipeline
    that is meant, where a wait goes on that another process began. Raises RefusedError if the pipeline or segment is
    unknown, and where another pipeline has the name.
    """
    with Subscriber(target, pipeline) as subscriber, Admin(target, LOOK_TIMEOUT_S) as admin:
        subscriber.goes_on_since(heard_generation)
        slot = subscriber.slot_until(until)

        async def wait(seconds: float | None) -> bool:
            return subscriber.wait_until(slot, segment, seconds)

        async def look(watch: _Silence) -> str:
            return watch.look(admin, pipeline)

        watch = _Silence(slot, segment, silent_after_s)
        return finished(_wait_complete(watch, wait, look, timeout_s))


def generation_of(target: str | Sequence[str], pipeline: str) -> int | None:
    """In which generation a pipeline is, for a wait that another process goes on with; None where nobody can say now. What is
    wrong with it the wait says."""
    with Subscriber(target, pipeline) as subscriber:
        try:
            subscriber.min_time(timeout_s=LOOK_TIMEOUT_S)
        except (RefusedError, UnavailableError):
            return None
        return subscriber.heard_generation


async def wait_complete_async(
    target: str | Sequence[str],
    pipeline: str,
    until: int | datetime,
    segment: str | None = None,
    *,
    timeout_s: float | None = None,
    silent_after_s: float | None = SILENT_AFTER_S,
    heard_generation: int | None = None,
) -> Waited:
    """As `wait_complete`, for asyncio: who is silent is asked in a thread."""
    admin = Admin(target, LOOK_TIMEOUT_S)
    try:
        async with AsyncSubscriber(target, pipeline) as subscriber:
            subscriber.goes_on_since(heard_generation)
            slot = await subscriber.slot_until(until)

            async def wait(seconds: float | None) -> bool:
                return await subscriber.wait_until(slot, segment, seconds)

            async def look(watch: _Silence) -> str:
                return await asyncio.to_thread(watch.look, admin, pipeline)

            watch = _Silence(slot, segment, silent_after_s)
            return await _wait_complete(watch, wait, look, timeout_s)
    finally:
        admin.close()


async def _wait_complete(
    watch: _Silence,
    wait: Callable[[float | None], Awaitable[bool]],
    look: Callable[[_Silence], Awaitable[str]],
    timeout_s: float | None,
) -> Waited:
    """What both do. wait: for so many seconds, whether the slot was reached; look: what holds it, for people. Those of a
    caller that blocks never suspend."""
    slot = watch.slot
    deadline_s = float("inf") if timeout_s is None else time.monotonic() + timeout_s
    while True:
        left_s = deadline_s - time.monotonic()
        pause_s = max(0.0, min(left_s, LOOK_INTERVAL_S if watch.looks else left_s))
        if await wait(None if pause_s == float("inf") else pause_s):
            return Waited(Outcome.REACHED, slot)
        if time.monotonic() >= deadline_s:
            return Waited(Outcome.TIMED_OUT, slot)
        if watch.looks and (why := await look(watch)):
            # It may have been reached while this looked.
            reached = await wait(0.0)
            return Waited(Outcome.REACHED, slot) if reached else Waited(Outcome.HELD, slot, why)


@dataclass(frozen=True, slots=True)
class _Holding:
    """What holds the slot that is waited for, for people: at which slot, and for how long, as the tracker
    knows."""

    slot: int
    what: str
    silent_s: float = 0.0


class _Silence:
    """For how long fronts have been silent or away, by what the tracker says and by what was seen here: a
    process that has just started knows of no silence before."""

    def __init__(self, slot: int, segment: str | None, silent_after_s: float | None) -> None:
        self.slot, self._segment = slot, segment
        self.looks = silent_after_s is not None
        """Whether anybody's silence ends the wait."""
        self._silent_after_s = float("inf") if silent_after_s is None else silent_after_s
        self._seen: dict[FrontName, tuple[int, float]] = {}
        """By front where it stands, and when it was first seen there."""

    def look(self, admin: Admin, pipeline: str) -> str:
        """What will hold the slot until somebody acts, for people; empty if there is hope."""
        try:
            info, shards = admin.pipeline(pipeline), admin.shards()
            connected = all(shard.state.connected for shard in shards)
            vacant = self._vacant(admin, info) if connected else None
        except UnavailableError:
            vacant = None
        except RefusedError as refused:
            if refused.refusal.code is not RefusalCode.UNKNOWN_SEGMENT:
                raise
            vacant = None  # whoever waits has heard of it, and who was asked has not yet
        if vacant is None or self._segment not in (None, *info.spec.segments):
            # What fronts report may not have arrived: nothing is known of their silence.
            self._seen.clear()
            return ""
        missing = self._missing(info)
        holding = {("", missing): _Holding(info.spec.start_slot, missing)} if missing else {}
        if not missing:
            holding = {**self._silent(info), **vacant}
        return "; ".join(self._for_so_long(holding))

    def _for_so_long(self, holding: dict[FrontName, _Holding]) -> Iterator[str]:
        now_s = time.monotonic()
        self._seen = {front: seen for front, seen in self._seen.items() if front in holding}
        for front, hold in holding.items():
            if self._seen.get(front, (None,))[0] != hold.slot:
                self._seen[front] = (hold.slot, now_s)
            silent_s = max(hold.silent_s, now_s - self._seen[front][1])
            if silent_s >= self._silent_after_s:
                yield f"{hold.what}, for {silent_s:.0f} s"

    def _missing(self, info: PipelineInfo) -> str:
        """What keeps the pipeline from beginning, or from going on though nothing is in it."""
        here = {front.front for front in info.state.fronts}
        if not info.state.begun:
            names = [name for name in info.spec.fronts if name not in here]
            return f"not all declared fronts have joined ({', '.join(names) or 'some'} have not)"
        return "the pipeline is open and no front feeds it" if info.spec.open and not here else ""

    def _silent(self, info: PipelineInfo) -> dict[FrontName, _Holding]:
        """The fronts that have not promised enough, and are not evicted."""
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
            (front.node_id, front.front): _Holding(
                front.heartbeat,
                f"front {front.front!r} of node {front.node_id!r} has been silent since it promised slot "
                f"{front.heartbeat}",
                front.silent_ms / 1000,
            )
            for front in info.state.fronts
            if front.node_id in patient
            and any(
                add_delay(front.heartbeat, graph.distance(names.index(front.segment), w))
                < self.slot
                for w in asked
            )
        }

    def _vacant(self, admin: Admin, info: PipelineInfo) -> dict[FrontName, _Holding] | None:
        """The fronts that were evicted and have not come back, and without which the slot is not reached,
        as all shards say; None where one of them does not answer."""
        if not info.spec.evicts:
            return {}
        explained = admin.explain(
            info.spec.name,
            self._segment,
            at=self.slot,
            max_cells=0,
            shard_timeout_s=LOOK_TIMEOUT_S,
        )
        if explained.silent_shards:
            return None
        told = [
            {
                (hold.node_id, hold.front): hold.slot
                for segment in part.segments
                for hold in segment.holds
                if hold.kind is HoldKind.VACANT
            }
            for part in explained.parts
        ]
        return {
            (node_id, front): _Holding(
                slot,
                f"front {front!r} of node {node_id!r} was evicted, and its place at slot {slot} is vacant "
                "until it comes back or the node is retired (lowmark nodes retire)",
            )
            for (node_id, front), slot in (told[0] if told else {}).items()
            if all((node_id, front) in others for others in told)
        }
