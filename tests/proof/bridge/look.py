"""What can be seen of a process, as plain data: all of its state that the proof's relations speak of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

from tests import inside
from tests.proof.bridge.world import NAME
from tracker.core.log import FrontReport, TouchedRun
from tracker.core.model import FrontId
from tracker.core.pipeline.pipeline import Pipeline
from tracker.core.process import Process

Vector = dict[int, int]
"""By home so many entries of its log."""


@dataclass(frozen=True)
class View:
    """What a process knows of the pipeline at a shard. lows: by segment the lowest open slot, and how many are open."""

    heard: bool
    lows: dict[int, tuple[int, int]]
    fronts: dict[FrontId, FrontReport]


@dataclass(frozen=True)
class Part:
    """The pipeline at a process. pins: of each front that is there, and what it has promised; touched: by segment the lowest slot that is held as
    touched outside of M; runs: of the own shard, held."""

    generation: int
    announced: tuple[int, ...]
    durable: tuple[int, ...]
    told: dict[int, int]
    cells: dict[tuple[int, int], int]
    pins: dict[FrontId, tuple[int | None, int | None]]
    granted: frozenset[tuple[FrontId, int]]
    views: dict[int, View]
    touched: tuple[int | None, ...]
    runs: tuple[TouchedRun, ...]

    @classmethod
    def of(cls, pipeline: Pipeline) -> Part:
        shard, combiner = pipeline.shard, pipeline.combiner
        lowest = map(combiner.lowest_touched, range(pipeline.graph.size))
        return cls(
            generation=pipeline.generation,
            announced=tuple(pipeline.announced),
            durable=tuple(pipeline.durable),
            told=dict(pipeline.told),
            cells={(g, t): x for g, t, x, _ in shard.cells.open_cells().rows()},
            pins={shard.front_id(f): (each.pin, each.promised) for f, each in shard.fronts.items()},
            granted=frozenset(
                (grant.id, grant.slot)
                for node in pipeline.home.nodes.values()
                for grant in node.grants.values()
            ),
            views={
                number: View(
                    view.heard,
                    {low.segment: (low.slot, low.open_slots) for low in view.lows.values()},
                    dict(view.fronts),
                )
                for number, view in combiner.views.items()
            },
            touched=tuple(None if each is None else each[0] for each in lowest),
            runs=tuple(cast(Iterable[TouchedRun], inside.own_runs(combiner))),
        )


@dataclass(frozen=True)
class Look:
    """A process at one moment. heard: by shard the epoch and the number of the last report that was taken, and whether a whole one is
    needed next."""

    shard: int
    committed: int
    applied: Vector
    vectors: dict[int, Vector]
    cut: Vector
    let_go_by: Vector
    reports: int
    heard: dict[int, tuple[int, int, bool]]
    counted: frozenset[int]
    """The shards that count; itself when it has joined."""
    part: Part | None

    @classmethod
    def at(cls, process: Process) -> Look:
        vectors = inside.vectors(process)
        pipeline = inside.pipelines(process).get(NAME)
        return cls(
            shard=process.shard,
            committed=process.committed,
            applied=dict(inside.applied(process)),
            vectors={shard: dict(vectors.vector(shard)) for shard in vectors.shards},
            cut=dict(vectors.cut),
            let_go_by=dict(inside.let_go_by(process)),
            reports=inside.last_report(process),
            heard={
                shard: (link.epoch, link.report_number, link.needs_whole)
                for shard, link in process.links.items()
            },
            counted=frozenset(vectors.shards) - ({process.shard} if not process.counts else set()),
            part=None if pipeline is None else Part.of(pipeline),
        )

    @property
    def own_word(self) -> tuple[Vector, View | None]:
        """What the process goes by of itself."""
        return self.vectors[self.shard], None if self.part is None else self.part.views[self.shard]
