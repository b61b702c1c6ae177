"""Declaring shards lost, for an operator: asked until the others go on without them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from acker.v1 import pipeline_service_pb2 as pipeline_pb
from tracker.client.rescaling import Wait
from tracker.core.model import RefusalCode
from tracker.errors import RefusedError

ASK_MS = 5_000
"""How long one attempt waits for the others."""


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


class Losing(Wait[Lost]):
    """One declaration, until the others go on without the shards."""

    def __init__(
        self,
        admin: Asks,
        shards: tuple[int, ...],
        write_off: bool,
        on_progress: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(on_progress, "no shard that is left has answered")
        self._admin, self._shards, self._write_off = admin, shards, write_off

    def _too_late(self, within: str) -> str:
        return (
            f"the others do not go on without shards {[*self._shards]} {within}. It goes on by itself; asking for the same "
            "again waits on. A shard that is away for good, too, is declared lost with these"
        )

    def _step(self, left_s: float) -> Lost | None:
        wait_ms = min(ASK_MS, int(left_s * 1_000))
        try:
            answer = self._admin.ask_to_declare_lost(self._shards, self._write_off, wait_ms)
        except RefusedError as refused:
            if refused.refusal.code is not RefusalCode.NOT_READY:
                raise
            self._say(refused.refusal.message)
            return None
        if answer.done:
            return _lost(answer)
        self._say(f"shards {[*answer.waits_for]} have not logged what they know")
        return None


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
