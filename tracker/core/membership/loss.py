"""A declaration that shards are lost, while it is under way: what each shard that is left has logged of it (rule 10)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from tracker.core.log.losses import (
    LossDeclared,
    LossHeard,
    PipelineKnown,
    ShardsKnown,
    generation_after,
)
from tracker.core.model import DroppedCells, Restart
from tracker.core.model.placements import Placement
from tracker.core.model.slots import FOREVER


@dataclass(slots=True)
class Loss:
    """As one process has applied it; it follows from the entries of home logs. heard: by home, the number of its last
    `LossHeard`, and what it knows of the shards."""

    declared: LossDeclared
    leader: int
    number: int
    """Of the entry of the leader's log that declares it."""
    heard: dict[int, tuple[int, ShardsKnown]] = field(default_factory=dict)
    pipelines: list[PipelineKnown] = field(default_factory=list)
    """What all have logged of theirs; several for each, also from one home, which logs them again after a crash."""
    ended: dict[str, int] = field(default_factory=dict)
    placed: dict[str, Placement] = field(default_factory=dict)
    """By name the newest placement that any knows."""
    heard_before: frozenset[int] = frozenset()
    """Homes that had logged what they know by a declaration whose place this one takes: they may have gone on by that."""

    @property
    def lost(self) -> tuple[int, ...]:
        return self.declared.lost

    def copy(self) -> Loss:
        """The same, for a snapshot."""
        return replace(
            self,
            heard=dict(self.heard),
            pipelines=list(self.pipelines),
            ended=dict(self.ended),
            placed=dict(self.placed),
        )

    def has_gone_on(self, home: int) -> bool:
        """Whether what a home logs is of how all go on, which has not come here: by this declaration, or by one before, while it
        has not logged what it knows by this one."""
        return home != self.leader if home in self.heard else home in self.heard_before

    def hear(self, entry: LossHeard, home: int, number: int) -> None:
        """Takes an entry that is of this declaration."""
        self.pipelines += entry.pipelines
        for name, generation in entry.ended:
            self.ended[name] = max(generation, self.ended.get(name, 0))
        for placement in entry.placed:
            known = self.placed.get(placement.pipeline, placement)
            self.placed[placement.pipeline] = max(known, placement, key=lambda each: each.version)
        if entry.shards is not None:
            self.heard[home] = number, entry.shards

    def settled_pipelines(self) -> Iterable[PipelineKnown]:
        """All pipelines that are not over, each as the shards that are left know it together."""
        known: dict[str, PipelineKnown] = {}
        for each in self.pipelines:
            name = each.spec.name
            if each.generation > self.ended.get(name, -1):
                known[name] = _together(known[name], each) if name in known else each
        return map(_rounded, known.values())


def _together(one: PipelineKnown, other: PipelineKnown) -> PipelineKnown:
    """What two shards know of a pipeline. Each bound holds, so the smaller one does; and nobody goes back behind what
    either has announced."""
    bounds = [bound for bound in (one.bound, other.bound) if bound is not None]
    begun = max(one, other, key=lambda known: known.generation)
    restarts = {
        r.generation: r for known in (one, other) for r in (*known.before, known.restart) if r
    }
    before = tuple(r for number, r in sorted(restarts.items()) if number < begun.generation)
    changed = max(one, other, key=lambda known: known.changes)
    return PipelineKnown(
        begun.spec, begun.restart, changed.changed, changed.changes, max(one.least, other.least),
        min(bounds, default=None), _most(one.open + other.open), max(one.placed, other.placed),
        begun.base, before,
    )  # fmt: skip


def _most(reported: Iterable[DroppedCells]) -> tuple[DroppedCells, ...]:
    """By segment the most that was reported of it: the shards have heard of one another at different moments."""
    found: dict[int, DroppedCells] = {}
    for each in reported:
        known = found.get(each.segment, each)
        found[each.segment] = DroppedCells(
            each.segment, max(each.cells, known.cells), max(each.items, known.items),
            min(each.lowest, known.lowest), max(each.highest, known.highest),
        )  # fmt: skip
    return tuple(found.values())


def _rounded(known: PipelineKnown) -> PipelineKnown:
    """With the slot in `bound` from which a new generation may begin: nothing that anyone announced is above it, and a
    time begins there."""
    if known.bound is None or known.least == FOREVER:
        return known
    spec = known.changed or known.spec
    first = max(known.bound, known.least)
    return replace(known, bound=first if first % spec.rounds == 0 else spec.times.next_whole(first))


def begun_again(known: PipelineKnown, declared: LossDeclared) -> Restart | None:
    """The generation by which a pipeline goes on where what was open is written off; None where it is complete, or an
    operator has to name the slot."""
    if known.bound is None or known.least == FOREVER:
        return None
    generation = generation_after(known.base, declared.lost, known.generation)
    return Restart(generation, known.bound, declared.at_ms)
