"""The second oracle of rules 8 and 12: what a pipeline waits for at a shard, worked out anew from the homes' logs.

A registrar's decisions stand in one order, and each joining counts from the change on by which its home went, as its log says. So
whether a pipeline has begun, and which new segments wait for their first front, follows from how much of each log a
shard has applied, in whatever order it did.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tests.core.graphs import numbered_edges
from tracker.core.log import (
    Entry,
    KeyTick,
    PipelineChanged,
    PipelineRegistered,
    PipelineRestarted,
)
from tracker.core.model import HOLD_FRONT, PipelineSpec

Place = tuple[int, int]
"""(home, number of an entry of its log)."""


@dataclass(frozen=True, slots=True)
class _Joining:
    at: Place
    generation: int
    change: int
    """The last one that its home had activated."""
    front: tuple[str, str]
    segment: int


@dataclass(slots=True)
class _Decided:
    """What was decided of one pipeline of a name, in that order."""

    spec: PipelineSpec
    """As it was registered."""
    generations: dict[int, tuple[Place, int]]
    """How each began, and behind how many changes."""
    changes: list[PipelineSpec] = field(default_factory=list)
    told: list[tuple[Place, int]] = field(default_factory=list)
    """What says that there is a change: how it was decided, and each activation, which may be heard of before that."""
    activated: dict[int, int] = field(default_factory=dict)
    joinings: list[_Joining] = field(default_factory=list)

    def known(self, applied: Mapping[int, int], since: int) -> dict[int, PipelineSpec]:
        """By number of the change, what it was by a number of changes, and has become by those behind that of which an entry that
        is applied tells."""
        first = self.changes[since - 1] if since else self.spec
        told = {number for at, number in self.told if _is_in(at, applied)}
        behind = enumerate(self.changes[since:], since + 1)
        return {since: first, **{number: spec for number, spec in behind if number in told}}


class Waiting:
    """Of all pipelines."""

    def __init__(self) -> None:
        self._decided: dict[str, _Decided] = {}
        self._seen: dict[tuple[int, str], object] = {}

    def take(self, home: int, number: int, entry: Entry, generation: int | None) -> None:
        """An entry is durable. generation: of its key."""
        at = home, number
        if isinstance(entry, PipelineRegistered):
            begun = 0 if entry.restart is None else entry.restart.generation
            self._decided[entry.spec.name] = _Decided(entry.spec, {begun: (at, 0)})
        elif isinstance(entry, PipelineRestarted) and entry.pipeline in self._decided:
            known = self._decided[entry.pipeline]
            known.generations[entry.restart.generation] = at, len(known.changes)
        elif isinstance(entry, PipelineChanged) and entry.pipeline in self._decided:
            known = self._decided[entry.pipeline]
            known.told.append((at, entry.number))
            if entry.activated:
                known.activated[home] = entry.number
            else:
                known.changes.append(entry.spec)
        elif isinstance(entry, KeyTick) and entry.tick.content.joins and generation is not None:
            tick = entry.tick
            if (pipeline := self._decided.get(tick.pipeline)) is not None:
                change = self.change_of(home, tick.pipeline)
                pipeline.joinings += [
                    _Joining(at, generation, change, (tick.key.node_id, join.front), join.segment)
                    for join in tick.content.joins
                ]

    def came(self, home: int, name: str) -> None:
        """A pipeline was moved to this home, where it goes by its last change: none is under way in a move."""
        if (known := self._decided.get(name)) is not None:
            known.activated[home] = len(known.changes)

    def change_of(self, home: int, name: str) -> int:
        """The last change of a pipeline that a home has activated."""
        known = self._decided.get(name)
        return 0 if known is None else known.activated.get(home, 0)

    def expected(
        self, name: str, generation: int, applied: Mapping[int, int]
    ) -> tuple[bool, set[int]] | None:
        """Whether a pipeline has begun, and the new segments that wait, where so much of each log is applied; None where
        that is nothing to compare with: it was never changed."""
        decided = self._decided.get(name)
        if decided is None or not decided.changes or generation not in decided.generations:
            return None
        at, since = decided.generations[generation]
        if not _is_in(at, applied):
            return None
        known = decided.known(applied, since)
        by_change = defaultdict[int, list[_Joining]](list)
        for each in decided.joinings:
            if each.generation == generation and _is_in(each.at, applied):
                counts_for = max(n for n in known if n <= max(each.change, since))
                by_change[counts_for].append(each)
        begun, joined, waiting, segments = False, set[tuple[str, str]](), set[int](), 0
        for number, spec in known.items():
            more = range(segments, len(spec.segments)) if number > since else ()
            segments = len(spec.segments)
            waiting = {s for s in {*waiting, *more} if spec.segments[s] not in spec.removed}
            waiting -= {
                each.segment
                for each in by_change[number]
                if not each.front[1].startswith(HOLD_FRONT)
            }
            waiting = _unfed(spec, waiting)
            joined |= {each.front for each in by_change[number]}
            begun = begun or _have_come(spec, joined)
        return begun, waiting

    def is_new(self, shard: int, name: str, state: object) -> bool:
        """Whether a shard's state differs from the one that was compared last."""
        if self._seen.get((shard, name)) == state:
            return False
        self._seen[shard, name] = state
        return True


def _is_in(at: Place, applied: Mapping[int, int]) -> bool:
    return applied.get(at[0], 0) >= at[1]


def _have_come(spec: PipelineSpec, joined: Iterable[tuple[str, str]]) -> bool:
    if spec.fronts:
        return {name for _, name in joined}.issuperset(spec.fronts)
    return sum(not name.startswith(HOLD_FRONT) for _, name in joined) >= spec.front_count


def _unfed(spec: PipelineSpec, waiting: set[int]) -> set[int]:
    """Without those to which an edge leads from one that is there and does not wait, again and again."""
    left = set(waiting)
    removed = {spec.segments.index(name) for name in spec.removed}
    changed = True
    while changed:
        fed = {
            target
            for source, target, _ in numbered_edges(spec)
            if target in left and source not in left and source not in removed
        }
        changed, left = bool(fed), left - fed
    return left
