"""Pipelines that an operator changes while they run: segments and edges come and go (rule 12).

Who is to create no more along an edge stops before that is asked, and what it has written down by then is in its
home's log; what other shards know of that is as it may be. Along what is new somebody creates once the operator has
been answered. The truth knows of what is new as soon as that is durable, and of what goes as soon as nobody will use
it any more.

An operator asks for one thing after the other, each time for what the pipeline is by then and one thing more. What is
no matter of segments and edges it may ask for while a change of these is under way.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from tests.core.graphs import NumberedEdge, numbered_edges
from tests.simulation.checkers import Failure
from tests.simulation.forms import Draw, Forms, declared
from tests.simulation.local_trackers import EagerWorker
from tests.simulation.nodes import FrontNode, LateFeeder, WorkerNode
from tests.simulation.plan import MS, PipelinePlan, Plan
from tests.simulation.queries import QueryNode
from tracker.core.home.registration import differs
from tracker.core.log import PipelineChanged, RegisterPipeline
from tracker.core.model import PipelineSpec, Refusal, RefusalCode
from tracker.core.model.slots import FOREVER
from tracker.core.pipeline.change import changes_graph

if TYPE_CHECKING:
    from tests.simulation.operators import Operator
    from tests.simulation.world import World

LOOK_AGAIN_NS = MS
LATE_FEEDERS_SHARE = 0.8
"""How often, in a storm, a front joins a segment that is about to be removed."""
LED_INTO_SHARE = 0.5
"""How often an edge is to lead into a segment of which one process has just announced that it is complete."""
REFUSED_FOR_NOW = (RefusalCode.NOT_READY, RefusalCode.NOT_HOME)
"""What passes while shards, or pipelines, change."""
WAITS_FOR_AT_MOST = 60
"""How often it looks whether what is to go is used no more, before it leaves it as it is."""


def changes_of(plan: Plan, pipeline: PipelinePlan) -> int:
    """How often a pipeline's segments or edges change in a run without a storm."""
    beside = pipeline.limit_changes or pipeline.write_offs or pipeline.spec.rounds > 1
    if plan.story or plan.storm or beside:
        return 0
    rng = random.Random(f"changes {plan.seed} {pipeline.spec.name}")
    return rng.choice([0, 0, 0, 1, 2, 3])


def front_changes_of(plan: Plan, pipeline: PipelinePlan) -> list[int]:
    """When a pipeline comes to wait for other fronts in a run without a storm, in nanoseconds: most often as its first ones
    join."""
    if plan.story or plan.storm:
        return []
    rng = random.Random(f"fronts {plan.seed} {pipeline.spec.name}")
    most = rng.choice([5 * MS, 5 * MS, plan.faults_for_ns])
    return [rng.randrange(most) for _ in range(rng.choice([0, 0, 0, 1, 2]))]


class Changes:
    """What an operator changes of one pipeline, one after the other."""

    def __init__(self, operator: Operator, name: str) -> None:
        self.operator, self.sim, self.name = operator, operator.sim, name
        self.rng = random.Random(f"changing {operator.sim.plan.seed} {name}")
        self._late_rng = random.Random(f"feeding late {operator.sim.plan.seed} {name}")
        self.forms = Forms(self.rng)
        self.earlier: list[PipelineSpec] = [self.world.spec]
        """What the pipeline was, first as it was registered."""
        self.forget()

    def forget(self) -> None:
        """The pipeline was deleted: what was asked of it is nothing to the next one of its name."""
        self.earlier = [self.world.spec]
        self.busy = False
        """Whether another graph is asked for, from when that is decided on until the answer."""
        self.undecided = False
        """Whether anything is asked for, or about to be, and is not durable."""
        self.others = 0
        """How much else is asked for and not answered."""
        self.uncertain: list[tuple[int, int, int, bool]] = []
        """The edges that it takes away, and once it is decided on those that it adds: (from, to, delay, new)."""
        self._requests: list[tuple[str, int]] = []
        self.chain: list[Draw] = []
        """What is to follow at once, last first."""
        self.is_chained = False
        """Whether the last change came at once behind another one."""
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

    def begin(self, draw: Draw | None = None) -> None:
        """Decides on a change, and has whoever uses what is to go use it no more."""
        sim, world = self.sim, self.world
        waits = self.undecided or (self.busy and draw is None)
        if waits or sim.resting or self.name not in sim.registered:
            sim.not_a_step()
            return
        self.forms.fed = self._fed()
        spec = (draw or self._draw)(world.spec)
        if spec == world.spec or not changes_graph(world.spec, spec):
            self._ask_at_once(spec)
            return
        if self.busy or self.others:
            return  # a repetition of what is not answered would take it back
        self.busy = self.undecided = True
        edges = {*numbered_edges(spec)}
        gone = frozenset(each for each in world.edges if each not in edges)
        world.stop(gone)
        self.uncertain = [(*edge, False) for edge in sorted(gone)]
        written = {node.name: {number for number, _ in node.journal} for node in sim.nodes.values()}
        self._ask_when_unused(spec, gone, written, WAITS_FOR_AT_MOST, self.earlier)

    def _ask_at_once(self, spec: PipelineSpec) -> None:
        """For what does not change where anybody creates."""
        if not differs(self.world.spec, spec):
            return
        self.undecided = True
        self.others += 1
        self.sim.count("changes_asked_for")
        self._ask(spec, self._hear_of_others)

    def _ask(self, spec: PipelineSpec, hear: Callable[[PipelineSpec, object], bool]) -> None:
        asked = declared(spec) if self.sim.plan.storm and self.rng.random() < 0.5 else spec
        event = RegisterPipeline(None, asked, True)
        self._requests.append(self.operator.ask_to_change(event, partial(hear, spec)))

    def _ask_when_unused(
        self, spec: PipelineSpec, gone: frozenset[NumberedEdge],
        written: dict[str, set[int]], looks: int, of: list[PipelineSpec],
    ) -> None:  # fmt: skip
        sim, world = self.sim, self.world
        if of is not self.earlier:
            return  # it was deleted
        removed = {spec.segments.index(name) for name in spec.removed}
        in_use = any(
            written.get(node.name, set()) & {number for number, _ in node.journal}
            for node in sim.nodes.values()
        ) or any(segment in removed for segment, _ in world.holds.values())
        if in_use and looks and gone:
            sim.after(
                LOOK_AGAIN_NS, self._ask_when_unused, spec, gone, written, looks - 1, of
            )  # fmt: skip
            return
        if in_use and gone:
            self._give_up()
            return
        sim.count("changes_asked_for")
        self._ask(spec, self._hear)
        if sim.plan.storm:
            self._perhaps_feed(removed - {*map(world.spec.segments.index, world.spec.removed)})

    def _perhaps_feed(self, going: set[int]) -> None:
        """A front joins what is to be removed, and nobody knows who is quicker."""
        if going and self._late_rng.random() < LATE_FEEDERS_SHARE:
            name = f"{self.name}-late{len(self.sim.nodes)}"
            feeder = LateFeeder(self.sim, self.world, name, min(going))
            self.sim.add_node(feeder, self._late_rng.randint(0, MS))

    def _give_up(self) -> None:
        """It is left as it was."""
        self.world.use_again()
        self.busy = self.undecided = False
        self.chain.clear()

    # --- what changes -----------------------------------------------------------------------------

    def _fed(self) -> set[int]:
        """The first segment, and what a front feeds, or comes back to feed."""
        fronts = [n for n in self.sim.nodes.values() if isinstance(n, FrontNode)]
        known, segments = {0}, self.world.spec.segments
        for front in [each for each in fronts if each.world.spec.name == self.name]:
            name = front.world.spec.segments[front.segment]  # of the pipeline that it knows
            known |= {segments.index(name)} if name in segments else set()
        return {*known, *(front.segment for front in self.world.fronts.values())}

    @property
    def adds_only(self) -> bool:
        """What others than plain nodes have handed over may lie anywhere."""
        return self.sim.plan_of(self.name).kind != "plain"

    def await_others(self) -> None:
        """The pipeline comes to wait for other fronts, of those that come: if it has begun, when it is restarted."""
        names = [front.name for front in self.sim.plan_of(self.name).fronts if not front.role]
        self.begin(lambda spec: self.forms.awaiting_others(spec, names) if names else spec)

    def lead_into(self, segment: int) -> None:
        """A way is to lead into a segment that is complete somewhere, most of all from one that waits for a front."""
        if self._late_rng.random() < LED_INTO_SHARE and segment < len(self.world.spec.segments):
            known = [self.sim.pipeline_at(shard.number, self.name) for shard in self.sim.present]
            vacant = {
                s for each in known if each is not None for s in each.shard.vacancies.segments()
            }
            self.begin(lambda spec: self.forms.into(spec, spec.segments[segment], vacant))

    def _draw(self, spec: PipelineSpec) -> PipelineSpec:
        forms = self.forms
        kinds: list[Draw] = [forms.grown, forms.shortcut, self._with_source, self._opened_or_closed]
        if not self.adds_only:
            kinds += [forms.cut, forms.cut, forms.slowed, self._shrunk, self._shrunk]
        drawn = spec
        for _ in range(self.rng.choice([1, 1, 2])):
            drawn = self.rng.choice(kinds)(drawn)
        # What nothing leads to any more is fed by a source, which needs a place.
        more = len(drawn.segments) - len(spec.segments)
        return replace(drawn, max_nodes=drawn.max_nodes + more)

    def _with_source(self, spec: PipelineSpec) -> PipelineSpec:
        full = self.sim.plan_of(self.name).visitors or (spec.evicts and not self.sim.plan.storm)
        return spec if full else self.forms.with_source(spec)

    def _shrunk(self, spec: PipelineSpec) -> PipelineSpec:
        return spec if spec != self.world.spec else self.forms.shrunk(spec)

    def _opened_or_closed(self, spec: PipelineSpec) -> PipelineSpec:
        kept = spec.evicts and not self.sim.plan.storm
        return spec if kept else self.forms.opened_or_closed(spec)

    # --- what comes of it -------------------------------------------------------------------------

    def durable(self, entry: PipelineChanged) -> None:
        """It is durable at the registrar."""
        before, self.undecided = self.world.spec, False
        self.operator.ask_for_no_less(self._requests, entry.spec)
        self.earlier.append(before)
        if changes_graph(before, entry.spec):
            self._before, self._segments = numbered_edges(before), len(before.segments)
            self._decided_in = self.world
            self._decided = list(self.sim.checkers[self.name].highest)
        self.world.change(entry.spec, entry.number)
        new = [edge for edge in numbered_edges(entry.spec) if edge not in numbered_edges(before)]
        self.uncertain += [(*edge, True) for edge in new]
        if any(
            target < len(self._decided) and self._decided[target] == FOREVER for _, target, _ in new
        ):
            self.sim.count("edges_into_what_is_complete_elsewhere")
        self.sim.checkers[self.name].grow(len(entry.spec.segments))

    def _look_whether_all_know(self) -> None:
        """A change is answered; another one may be under way."""
        number = self.operator.changes_of(self.name)
        known = [self.sim.pipeline_at(shard.number, self.name) for shard in self.sim.present]
        if all(pipeline is None or pipeline.changes >= number for pipeline in known):
            self.world.changed_everywhere()

    def _is_refused(self, asked: PipelineSpec, result: Refusal) -> bool:
        """Whether it is to be asked for again."""
        if result.code in REFUSED_FOR_NOW:
            return True
        is_fed = result.code is RefusalCode.CONFLICT and "feeds it" in result.message
        known = (RefusalCode.COMPLETE, RefusalCode.UNKNOWN_PIPELINE)
        if result.code not in known and not (is_fed and self.sim.plan.storm):
            raise Failure("broken", f"a change to {asked} was refused: {result}")
        self.sim.count("refused_changes")
        return False

    def _hear_of_others(self, asked: PipelineSpec, result: object) -> bool:
        if isinstance(result, Refusal):
            if self._is_refused(asked, result):
                return True
            self.undecided = False
        elif not isinstance(result, PipelineSpec):
            raise Failure("broken", f"a change to {asked} was answered {result}")
        else:
            self.sim.count("changed_otherwise")
            self._look_whether_all_know()
        self.others -= 1
        if not self.others:
            self.world.all_await_the_same()
        return False

    def _hear(self, asked: PipelineSpec, result: object) -> bool:
        if isinstance(result, Refusal):
            if self._is_refused(asked, result):
                return True
            self._give_up()
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
        self._look_whether_all_know()
        self.sim.counts["segments_removed"] += bool(asked.removed)
        # A new generation may begin below what was announced in the one before.
        decided = self._decided if world is self._decided_in else []
        world.use_what_is_new(self._before, decided, self.sim.announced(self.name))
        self._use(more)
        self.is_chained = bool(self.chain)
        if self.chain:
            self.begin(self.chain.pop())
        if not self.busy:
            self.chain.clear()
        return False

    def _use(self, more: range) -> None:
        """Somebody reads the segments that are new, and feeds those that nothing leads to."""
        workers = [
            each
            for each in (*self.sim.nodes.values(), *self.sim.actors)
            if isinstance(each, WorkerNode | QueryNode | EagerWorker)
            and each.world.spec.name == self.name
        ]
        for segment in more:
            self.rng.choice(workers).reads.add(segment)
        self._feed_what_is_apart()
        for worker in workers:
            worker.wake()

    def _feed_what_is_apart(self) -> None:
        """Of segments that were added, those to which no edge leads, or none any more."""
        spec = self.world.spec
        targets = {target for _, target, _ in self.world.edges}
        for segment in range(len(self.earlier[0].segments), len(spec.segments)):
            if segment not in targets and spec.segments[segment] not in spec.removed:
                self._feed(segment)

    def _feed(self, segment: int) -> None:
        sim, world = self.sim, self.world
        name = f"{self.name}-source{segment}"
        if name in sim.nodes:
            return
        sim.count("sources_added")
        front = FrontNode(sim, world, name, segment, 1, leaves=True, dies=False)
        sim.add_node(front, sim.milliseconds(0, 3))
