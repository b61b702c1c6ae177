"""What an operator has a pipeline become: its segments, its edges, and everything else that may change (rule 12)."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from tracker.core.model import Edge, PipelineSpec, SilentFront, TimeKind

MAX_SEGMENTS = 6
"""Of a simulated pipeline that has grown."""
LIMITS = (1, 2, 10, 1_000)

Draw = Callable[[PipelineSpec], PipelineSpec]


class Forms:
    """Draws what a pipeline becomes next, of what it is. What cannot be drawn of it stays as it is."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.fed: Collection[int] = ()
        """Segments that fronts feed, or may come to feed: they are not removed."""

    # --- segments and edges -----------------------------------------------------------------------

    def there(self, spec: PipelineSpec) -> list[str]:
        """The segments that are not removed."""
        return [name for name in spec.segments if name not in spec.removed]

    def _new_name(self, spec: PipelineSpec) -> str:
        """One that was never given, be it by a pipeline of the same name."""
        name = f"n{len(spec.segments)}"
        return name if name not in spec.segments else f"{name}-of-{spec.start_slot}"

    def grown(self, spec: PipelineSpec) -> PipelineSpec:
        """A segment behind one that is there; it may lead on."""
        if len(spec.segments) >= MAX_SEGMENTS:
            return spec
        name, source = self._new_name(spec), self.rng.choice(self.there(spec))
        delay = self._fitting(spec, self.rng.choice([0, 0, 1, 3]))
        edges = [Edge(source, name, delay)]
        if self.rng.random() < 0.6:
            target = self.rng.choice(self.there(spec))
            edges.append(Edge(name, target, self._fitting(spec, self.rng.choice([0, 0, 2]))))
        return replace(spec, segments=(*spec.segments, name), edges=(*spec.edges, *edges))

    def with_source(self, spec: PipelineSpec) -> PipelineSpec:
        """A segment that a new front is to feed, and that may lead to others."""
        if len(spec.segments) >= MAX_SEGMENTS:
            return spec
        name = self._new_name(spec)
        edges: tuple[Edge, ...] = ()
        if self.rng.random() < 0.7:
            target = self.rng.choice(self.there(spec))
            edges = (Edge(name, target, self._fitting(spec, self.rng.choice([0, 2]))),)
        return replace(spec, segments=(*spec.segments, name), edges=spec.edges + edges)

    def with_sources(self, spec: PipelineSpec) -> PipelineSpec:
        """A segment that a new front is to feed, and one behind it that nothing else leads to."""
        if len(spec.segments) + 2 > MAX_SEGMENTS:
            return spec
        source = self._new_name(spec)
        spec = replace(spec, segments=(*spec.segments, source))
        name = self._new_name(spec)
        edge = Edge(source, name, self._fitting(spec, self.rng.choice([0, 2])))
        return replace(spec, segments=(*spec.segments, name), edges=(*spec.edges, edge))

    def apart(self, spec: PipelineSpec) -> PipelineSpec:
        """Without the edge that was added last."""
        edges = spec.edges[:-1]
        return (
            spec
            if spec.edges[-1:] and spec.edges[-1].source in spec.removed
            else replace(spec, edges=edges)
        )

    def cut(self, spec: PipelineSpec) -> PipelineSpec:
        if not spec.edges:
            return spec
        gone = self.rng.choice(spec.edges)
        if gone.source in spec.removed:
            return spec
        return replace(spec, edges=tuple(edge for edge in spec.edges if edge != gone))

    def slowed(self, spec: PipelineSpec) -> PipelineSpec:
        if not spec.edges:
            return spec
        slow = self.rng.choice(spec.edges)
        more = self.rng.choice([1, 4])
        later = replace(slow, delay=self._fitting(spec, slow.delay + more))
        if slow.source in spec.removed:
            return spec
        return replace(spec, edges=tuple(later if e == slow else e for e in spec.edges))

    def shrunk(self, spec: PipelineSpec) -> PipelineSpec:
        """Without a segment that no front feeds."""
        names = [name for name in self.there(spec) if spec.segments.index(name) not in self.fed]
        targets = {edge.target for edge in spec.edges}
        names = [name for name in names if name in targets]
        if not names or len(self.there(spec)) < 2:
            return spec
        gone = self.rng.choice(names)
        edges = tuple(e for e in spec.edges if e.target != gone)
        return replace(spec, edges=edges, removed=(*spec.removed, gone))

    def shortcut(self, spec: PipelineSpec) -> PipelineSpec:
        """By a way between segments that are there, be it shorter than any before."""
        return self.into(spec, self.rng.choice(self.there(spec)))

    def into(self, spec: PipelineSpec, target: str, of: Collection[int] = ()) -> PipelineSpec:
        """By a way into this segment, if it is not removed; from one of these, if any is given."""
        some = [name for name in self.there(spec) if spec.segments.index(name) in of]
        source = self.rng.choice(some or self.there(spec))
        edge = Edge(source, target, self._fitting(spec, self.rng.choice([0, 0, 1, 4])))
        known = {(edge.source, edge.target) for edge in spec.edges}
        if (edge.source, edge.target) in known or target in spec.removed:
            return spec
        return replace(spec, edges=(*spec.edges, edge))

    def back(self, spec: PipelineSpec, earlier: PipelineSpec, *, adds_only: bool) -> PipelineSpec:
        """As it was, as far as a pipeline can become that again: segments that were removed stay so, and those that
        fronts feed stay there. What is newer than that goes, unless it may only grow."""
        newer = [name for name in self.there(spec) if name not in earlier.segments]
        kept = {name for name in newer if adds_only or spec.segments.index(name) in self.fed}
        removed = tuple(n for n in spec.segments if n in spec.removed or n in {*newer} - kept)
        then = [e for e in earlier.edges if not {e.source, e.target} & {*removed}]
        if adds_only:
            pairs = {(edge.source, edge.target) for edge in spec.edges}
            then = [edge for edge in then if (edge.source, edge.target) not in pairs]
            return replace(spec, edges=(*spec.edges, *then))
        stay = [e for e in spec.edges if {e.source, e.target} & kept and e.target not in removed]
        leading_out = [edge for edge in spec.edges if edge.source in removed]
        edges = tuple(dict.fromkeys((*then, *stay, *leading_out)))
        return replace(spec, edges=edges, removed=removed)

    @staticmethod
    def _fitting(spec: PipelineSpec, delay: int) -> int:
        """A delay that a pipeline with rounds may have: within a time, or whole times."""
        return delay if delay <= spec.rounds else spec.times.next_whole(delay)

    # --- everything else --------------------------------------------------------------------------

    def limited(self, spec: PipelineSpec) -> PipelineSpec:
        return replace(
            spec,
            max_open_cells=self.rng.choice(LIMITS),
            max_open_units=self.rng.choice([1, 2, 1_000]),
            horizon_slots=self.rng.choice([900_000, 1_000_000]),
        )

    def opened_or_closed(self, spec: PipelineSpec) -> PipelineSpec:
        """Who is evicted while it is open is not waited for when that ends; in which order a process hears of both may be
        any."""
        declares = spec.fronts or spec.front_count
        return replace(spec, open=not spec.open) if declares else spec

    def awaiting_others(self, spec: PipelineSpec, names: Sequence[str]) -> PipelineSpec:
        """Some of these fronts are waited for before it begins, by name or by number."""
        some = self.rng.sample(names, self.rng.randint(1, len(names)))
        if self.rng.random() < 0.6:
            return replace(spec, fronts=tuple(some), front_count=0)
        return replace(spec, fronts=(), front_count=len(some))

    def more_or_less_patient(self, spec: PipelineSpec) -> PipelineSpec:
        """With fronts that may be silent for longer, or shorter."""
        if spec.silent_front is not SilentFront.EVICT:
            return spec
        return replace(spec, evict_after_ms=self.rng.choice([8, 12, 20, 30]))

    def holding_or_evicting(self, spec: PipelineSpec) -> PipelineSpec:
        """Silent fronts are waited for, or no more."""
        if spec.silent_front is SilentFront.EVICT:
            return replace(spec, silent_front=SilentFront.HOLD, evict_after_ms=0)
        return replace(
            spec, silent_front=SilentFront.EVICT, evict_after_ms=self.rng.choice([12, 20])
        )

    def later(self, spec: PipelineSpec) -> PipelineSpec:
        """With items that may carry earlier times, or not."""
        if spec.time is TimeKind.ARRIVAL:
            return spec
        return replace(spec, lateness_slots=self.rng.choice([0, 1, 7]))


def declared(spec: PipelineSpec) -> PipelineSpec:
    """A pipeline as its file has it: what was removed is not named in it any more."""
    there = tuple(name for name in spec.segments if name not in spec.removed)
    edges = tuple(edge for edge in spec.edges if {edge.source, edge.target} <= {*there})
    return replace(spec, segments=there, edges=edges, removed=())


def another_of_the_name(spec: PipelineSpec, start_slot: int, rng: random.Random) -> PipelineSpec:
    """A pipeline of other segments that is registered under the name of one that was deleted: in another order, some
    missing, some new, and names that were removed there again."""
    names = [*spec.segments]
    rng.shuffle(names)
    names = names[: rng.randint(1, max(1, min(len(names), MAX_SEGMENTS - 2)))]
    if rng.random() < 0.5:
        names.append(f"of-{start_slot}")
    start = spec.times.next_whole(start_slot) if spec.rounds > 1 else start_slot
    pairs = [*itertools.pairwise(names)]
    pairs += [(rng.choice(names), rng.choice(names))] * (rng.random() < 0.5)
    edges = tuple(Edge(a, b, rng.choice([0, 0, 1])) for a, b in dict.fromkeys(pairs))
    if spec.rounds > 1 and not any(edge.delay for edge in edges):
        edges = tuple(e for e in edges if (e.source, e.target) != (names[-1], names[0]))
        edges += (Edge(names[-1], names[0], 1),)
    return replace(spec, segments=tuple(names), edges=edges, removed=(), start_slot=start)
