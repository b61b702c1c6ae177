"""Declaring shards lost, for an operator: asked until the others go on without them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from acker.v1 import pipeline_service_pb2 as pipeline_pb
from tracker.core.model import RefusalCode
from tracker.errors import RefusedError, UnavailableError

ASK_MS = 5_000
PAUSE_S = 0.2


@dataclass(frozen=True, slots=True)
class OpenAtLost:
    """What lost shards had reported to be open in a segment: cells, the items in them (advisory), the lowest slot."""

    segment: str
    cells: int
    items: int
    lowest: int


@dataclass(frozen=True, slots=True)
class LostPipeline:
    """What became of a pipeline: it is complete, or goes on from a slot; where that is None an operator has to name
    one. generation: the one before."""

    pipeline: str
    generation: int
    complete: bool
    from_slot: int | None
    open: tuple[OpenAtLost, ...]


@dataclass(frozen=True, slots=True)
class Lost:
    """Shards are lost: all that ever were, whether what was open is given up, and what became of the pipelines. Who
    repeats a declaration hears of those that stand."""

    shards: tuple[int, ...]
    write_off: bool
    pipelines: tuple[LostPipeline, ...]

    def goes_on(self, pipeline: LostPipeline) -> bool:
        """Whether a pipeline has begun a new generation, and does not stand until an operator restarts it."""
        return self.write_off and not pipeline.complete and pipeline.from_slot is not None


class Asks(Protocol):
    """Whom it is asked of: `Admin`."""

    def ask_to_declare_lost(
        self, shards: tuple[int, ...], write_off: bool, wait_ms: int
    ) -> pipeline_pb.DeclareLostResponse: ...


def declare_lost(
    admin: Asks,
    shards: tuple[int, ...],
    write_off: bool,
    timeout_s: float,
    on_progress: Callable[[str], None] | None,
) -> Lost:
    """Returns when the others go on without them. Raises RefusedError; UnavailableError if they do not in time."""
    deadline, waits_for = time.monotonic() + timeout_s, "no shard that is left has answered"
    while True:
        left_s = max(0.0, deadline - time.monotonic())
        try:
            answer = admin.ask_to_declare_lost(shards, write_off, min(ASK_MS, int(left_s * 1_000)))
            if answer.done:
                return _lost(answer)
            waiting = f"shards {[*answer.waits_for]} have not logged what they know"
        except RefusedError as refused:
            if refused.refusal.code is not RefusalCode.NOT_READY:
                raise
            waiting = refused.refusal.message
        if waiting != waits_for and on_progress is not None:
            on_progress(waiting)
        waits_for = waiting
        if time.monotonic() + PAUSE_S >= deadline:
            raise UnavailableError(
                f"the others do not go on without shards {[*shards]} within {timeout_s:g} s: {waits_for}. It goes on by "
                "itself; asking for the same again waits on. A shard that is away for good, too, is declared lost with these"
            )
        time.sleep(PAUSE_S)


def _lost(answer: pipeline_pb.DeclareLostResponse) -> Lost:
    return Lost(
        tuple(answer.lost),
        answer.write_off,
        tuple(
            LostPipeline(
                each.pipeline,
                each.generation,
                each.complete,
                each.from_slot if each.HasField("from_slot") else None,
                tuple(OpenAtLost(o.segment, o.cells, o.items, o.lowest) for o in each.open),
            )
            for each in answer.pipelines
        ),
    )
