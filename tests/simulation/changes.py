"""Pipelines that an operator changes while they run: segments and edges come and go (rule 12).

Who is to create no more along an edge stops before that is asked, and what it has written down by then is in its
home's log; what other shards know of that is as it may be. Along what is new somebody creates once the operator has
been answered. The truth knows of what is new as soon as that is durable, and of what goes as soon as nobody will use
it any more.
"""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from tests.core.graphs import NumberedEdge, numbered_edges
from tests.simulation.checkers import Failure
from tests.simulation.local_trackers import EagerWorker
from tests.simulation.nodes import FrontNode, WorkerNode
from tests.simulation.plan import MS, PipelinePlan, Plan
from tests.simulation.queries import QueryNode
from tracker.core.log import PipelineChanged, RegisterPipeline
from tracker.core.model import Edge, PipelineSpec, Refusal, RefusalCode

if TYPE_CHECKING:
    from tests.simulation.operators import Operator
    from tests.simulation.world import World

LOOK_AGAIN_NS = MS
REFUSED_FOR_NOW = (RefusalCode.NOT_READY, RefusalCode.NOT_HOME)
"""What passes while shards, or pipelines, change."""
WAITS_FOR_AT_MOST = 60
"""How often it looks whether what is to go is used no more, before it leaves it as it is."""
MAX_SEGMENTS = 6
"""Of a simulated pipeline that has grown."""


def changes_of(plan: Plan, pipeline: PipelinePlan) -> int:
    """How often a pipeline's segments or edges change in a run."""
    beside = pipeline.limit_changes or pipeline.write_offs or pipeline.spec.rounds > 1
    if plan.story or beside:
        return 0
    rng = random.Random(f"changes {plan.seed} {pipeline.spec.name}")
    return rng.choice([0, 0, 0, 1, 2, 3])


class Changes:
    """What an operator changes of one pipeline, one after the other."""

    def __init__(self, operator: Operator, name: str) -> None:
        self.operator, self.sim, self.name = operator, operator.sim, name
        self.rng = random.Random(f"changing {operator.sim.plan.seed} {name}")
        self.busy = False
        """Whether a change is asked for."""
        self.uncertain: list[tuple[int, int, int, bool]] = []
        """The edges that it takes away, and once it is decided on those that it adds: (from, to, delay, new)."""
        self._before: list[NumberedEdge] = []
        """The edges that there were before the last change."""
        self._decided: list[int] = []
        """What was announced by segment when it was decided on..."""
        self._decided_in: World | None = None
        """... and in which generation that was."""
        self._segments = 0
        """How many segments there were then."""

    @property
    def world(self) -> World:
        return self.sim.worlds[self.name]

    def begin(self) -> None:
        """Decides on a change, and has whoever uses what is to go use it no more."""
        sim, world = self.sim, self.world
        if self.busy or sim.resting or self.name not in sim.registered:
            sim.not_a_step()
            return
        spec = self._draw(world.spec)
        if spec is None:
            return
        self.busy = True
        edges = {*numbered_edges(spec)}
        gone = frozenset(each for each in world.edges if each not in edges)
        world.stop(gone)
        self.uncertain = [(*edge, False) for edge in sorted(gone)]
        written = {node.name: {number for number, _ in node.journal} for node in sim.nodes.values()}
        self._ask_when_unused(spec, gone, written, WAITS_FOR_AT_MOST)

    def _ask_when_unused(
        self, spec: PipelineSpec, gone: frozenset[tuple[int, int, int]],
        written: dict[str, set[int]], looks: int,
    ) -> None:  # fmt: skip
        sim, world = self.sim, self.world
        removed = {spec.segments.index(name) for name in spec.removed}
        in_use = any(
            written.get(node.name, set()) & {number for number, _ in node.journal}
            for node in sim.nodes.values()
        ) or any(segment in removed for segment, _ in world.holds.values())
        if in_use and looks and gone:
            sim.after(LOOK_AGAIN_NS, self._ask_when_unused, spec, gone, written, looks - 1)
            return
        if in_use and gone:
            world.use_again()
            self.busy = False
            return
        sim.count("changes_asked_for")
        event = RegisterPipeline(None, spec, True)
        self.operator.ask_to_change(event, partial(self._hear, spec))

    # --- what changes -----------------------------------------------------------------------------

    def _draw(self, spec: PipelineSpec) -> PipelineSpec | None:
        kinds = [self._grown, self._shortcut, self._with_source, self._opened_or_closed]
        if (
            self.sim.plan_of(self.name).kind == "plain"
        ):  # what others have handed over may lie anywhere
            kinds += [self._cut, self._cut, self._slowed, self._shrunk, self._shrunk]
        drawn = spec
        for _ in range(self.rng.choice([1, 1, 2])):
            drawn = self.rng.choice(kinds)(drawn)
        return None if drawn == spec else drawn

    def _new_name(self, spec: PipelineSpec) -> str:
        return f"n{len(spec.segments)}"

    def _there(self, spec: PipelineSpec) -> list[str]:
        return [name for name in spec.segments if name not in spec.removed]

    def _grown(self, spec: PipelineSpec) -> PipelineSpec:
        """A segment behind one that is there; it may lead on."""
        if len(spec.segments) >= MAX_SEGMENTS:
            return spec
        name, source = self._new_name(spec), self.rng.choice(self._there(spec))
        delay = self.rng.choice([0, 0, 1, 3])
        edges = [Edge(source, name, delay)]
        if self.rng.random() < 0.6:
            edges.append(Edge(name, self.rng.choice(self._there(spec)), self.rng.choice([0, 0, 2])))
        return replace(spec, segments=(*spec.segments, name), edges=(*spec.edges, *edges))

    def _with_source(self, spec: PipelineSpec) -> PipelineSpec:
        """A segment that a new front is to feed, and that may lead to others."""
        full = len(spec.segments) >= MAX_SEGMENTS or self.sim.plan_of(self.name).visitors
        if full or spec.evicts:
            return spec
        name = self._new_name(spec)
        edges = (
            (Edge(name, self.rng.choice(self._there(spec)), self.rng.choice([0, 2])),)
            if self.rng.random() < 0.7
            else ()
        )
        return replace(spec, segments=(*spec.segments, name), edges=spec.edges + edges)

    def _cut(self, spec: PipelineSpec) -> PipelineSpec:
        if not spec.edges:
            return spec
        gone = self.rng.choice(spec.edges)
        if gone.source in spec.removed:
            return spec
        return replace(spec, edges=tuple(edge for edge in spec.edges if edge != gone))

    def _slowed(self, spec: PipelineSpec) -> PipelineSpec:
        if not spec.edges:
            return spec
        slow = self.rng.choice(spec.edges)
        later = replace(slow, delay=slow.delay + self.rng.choice([1, 4]))
        if slow.source in spec.removed:
            return spec
        return replace(spec, edges=tuple(later if e == slow else e for e in spec.edges))

    def _shrunk(self, spec: PipelineSpec) -> PipelineSpec:
        """Without a segment that no front feeds."""
        if spec != self.world.spec:
            return spec
        fed = {plan.segment for plan in self.sim.plan_of(self.name).fronts}
        fed |= {front.segment for front in self.world.fronts.values()}
        names = [name for name in self._there(spec) if spec.segments.index(name) not in fed]
        new_sources = {e.target for e in spec.edges}
        names = [name for name in names if name in new_sources]
        if not names or len(self._there(spec)) < 2:
            return spec
        gone = self.rng.choice(names)
        edges = tuple(e for e in spec.edges if e.target != gone)
        return replace(spec, edges=edges, removed=(*spec.removed, gone))

    def _opened_or_closed(self, spec: PipelineSpec) -> PipelineSpec:
        """Who is evicted while it is open is not waited for when that ends; in which order a process hears of both may be
        any."""
        declares = spec.fronts or spec.front_count
        return spec if spec.evicts or not declares else replace(spec, open=not spec.open)

    def _shortcut(self, spec: PipelineSpec) -> PipelineSpec:
        """By a way between segments that are there, be it shorter than any before."""
        there = self._there(spec)
        edge = Edge(self.rng.choice(there), self.rng.choice(there), self.rng.choice([0, 0, 1, 4]))
        known = {(edge.source, edge.target) for edge in spec.edges}
        if (edge.source, edge.target) in known:
            return spec
        return replace(spec, edges=(*spec.edges, edge))

    # --- what comes of it -------------------------------------------------------------------------

    def durable(self, entry: PipelineChanged) -> None:
        """It is durable at the registrar."""
        self._before, self._segments = (
            numbered_edges(self.world.spec),
            len(self.world.spec.segments),
        )
        self._decided_in = self.world
        self._decided = list(self.sim.checkers[self.name].highest)
        self.world.change(entry.spec)
        new = [edge for edge in numbered_edges(entry.spec) if edge not in self._before]
        self.uncertain += [(*edge, True) for edge in new]
        self.sim.checkers[self.name].grow(len(entry.spec.segments))

    def _hear(self, asked: PipelineSpec, result: object) -> bool:
        if isinstance(result, Refusal):
            if result.code in REFUSED_FOR_NOW:
                return True
            if result.code not in (RefusalCode.COMPLETE, RefusalCode.UNKNOWN_PIPELINE):
                raise Failure("broken", f"a change to {asked} was refused: {result}")
            self.sim.count("refused_changes")
            self.world.use_again()
            self.busy = False
            return False
        left = (
            {e for e in result.edges if e.source not in asked.removed}
            if isinstance(result, PipelineSpec)
            else None
        )
        if left != {e for e in asked.edges if e.source not in asked.removed}:
            raise Failure("broken", f"a change to {asked} was answered {result}")
        self.sim.count("changed_pipelines")
        self.busy = False
        world = self.world
        more = range(self._segments, len(world.spec.segments))
        self.sim.counts["segments_added"] += len(more)
        self.sim.counts["pipelines_opened"] += world.opening
        world.changed_everywhere()
        self.sim.counts["segments_removed"] += bool(asked.removed)
        # A new generation may begin below what was announced in the one before.
        decided = self._decided if world is self._decided_in else []
        world.use_what_is_new(self._before, decided, self.sim.checkers[self.name].highest)
        workers = [
            each
            for each in (*self.sim.nodes.values(), *self.sim.actors)
            if isinstance(each, WorkerNode | QueryNode | EagerWorker)
            and each.world.spec.name == self.name
        ]
        targets = {target for _, target, _ in world.edges}
        for segment in more:
            self.rng.choice(workers).reads.add(segment)
            if segment not in targets:
                self._feed(segment)
        for worker in workers:
            worker.wake()
        return False

    def _feed(self, segment: int) -> None:
        sim, world = self.sim, self.world
        name = f"{self.name}-source{segment}"
        if name in sim.nodes:
            return
        sim.count("sources_added")
        front = FrontNode(sim, world, name, segment, 1, leaves=True, dies=False)
        sim.add_node(front, sim.milliseconds(0, 3))
