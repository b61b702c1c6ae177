"""What pipelines and nodes do in a year: each a story of its own, told from one step of the clock to the next."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from benchmarks.scale import Node
from tests.year.world import JUMP_NS, Tracker
from tracker.core.log import (
    DeletePipeline,
    DetachSession,
    Event,
    LeaveNode,
    RegisterPipeline,
    RestartPipeline,
    RetireNode,
    StageContributions,
)
from tracker.core.model import (
    Batch,
    Cells,
    Edge,
    FrontJoin,
    Heartbeat,
    HoldMove,
    PipelineSpec,
    SilentFront,
    StagedContribution,
    TickContent,
    Unit,
)
from tracker.core.model.ack_values import hold_value
from tracker.core.model.slots import FOREVER

SOURCE, SINK = 0, 1
"""Numbers of the first segments of each pipeline."""
PATIENCE_STEPS = 3
"""A source that is silent for longer is evicted, where the pipeline says so; that takes two more looks."""
GONE_STEPS = 3 * (PATIENCE_STEPS + 2)
"""By then it must have been, though a process that was started again begins to listen anew."""
AWAY_STEPS = 40
"""So long after it was evicted a node comes back, or an operator retires it."""
IDS = 6
"""Guests of a common pipeline come under so many ids, over and over; those of a crowded one each under its own."""
BUSY_EVERY, QUIET_EVERY = 1, 12
"""So many steps lie between two batches of a busy pipeline, and of a quiet one."""

Story = Generator[None, None, None]
"""It goes on with each step."""
Row = tuple[int, int, int, int]
"""(segment, slot, checksum, items)"""


@dataclass(frozen=True)
class Scale:
    """How much there is of everything."""

    pipelines: int
    steps: int
    nodes: int
    """That come and go, all together."""
    busy: int
    """The first pipelines: they work in every step, and evict silent sources."""
    crowded: int
    """Of those the first: half of all nodes come to them."""
    changing: int
    """The last pipelines: their segments come and go."""
    deleted: int
    """Pipelines that are deleted, and those that are restarted, in each twentieth of a year."""


@dataclass(eq=False)
class Life:
    """One pipeline. since: how often it began anew; whoever is of an earlier time has no say."""

    name: str
    spec: PipelineSpec
    number: int
    since: int = 0
    generation: int = 0
    source: Node | None = None
    query: Node | None = None
    batches: int = 0
    open: list[Row] = field(default_factory=list)
    """Cells of the first segment that the query has not consumed."""
    out: list[Row] = field(default_factory=list)
    given_up: list[Row] = field(default_factory=list)
    """Cells that were written off, and that the query consumes nevertheless."""
    units: list[Unit] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
    """Of guests that are here, or were evicted and are to come back."""


class Lives:
    """All of them at one tracker."""

    def __init__(self, tracker: Tracker, scale: Scale, seed: int = 7) -> None:
        self.tracker, self.scale = tracker, scale
        self.did: Counter[str] = Counter()
        self._random = random.Random(seed)
        self.steps = self._serial = self._used = 0
        self._names = 0
        self._stories: list[tuple[Life, int, Story]] = []
        self._guests: dict[Node, None] = {}
        self._due = 0.0
        self.lives = [self._new(number) for number in range(scale.pipelines)]

    # --- pipelines --------------------------------------------------------------------------------

    def _new(self, number: int) -> Life:
        self._names += 1
        return self._begin(Life(f"p{self._names}", PipelineSpec("", ("",)), number))

    def _begin(self, life: Life) -> Life:
        """Registers a pipeline, and its own nodes join."""
        busy = life.number < self.scale.busy
        policy = SilentFront.EVICT if busy else SilentFront.HOLD
        life.spec = self._ask_registrar(
            life.name,
            partial(
                RegisterPipeline,
                spec=PipelineSpec(
                    life.name, ("in", "out"), (Edge("in", "out"),), front_count=1, open=bool(life.number % 2),
                    start_slot=self.tracker.slot, horizon_slots=1 << 40, silent_front=policy,
                    evict_after_ms=PATIENCE_STEPS * JUMP_NS // 10**6 if busy else 0,
                ),
            ),
        )  # fmt: skip
        self._settle_in(life)
        self.did["registered"] += 1
        return life

    def _settle_in(self, life: Life) -> None:
        """The nodes of a pipeline join, in a generation that has just begun."""
        life.since += 1
        life.batches, life.ids = 0, set()
        life.open, life.out, life.given_up, life.units = [], [], [], []
        life.source = self._join(life, "source")
        self._tick(life.source, TickContent(joins=(FrontJoin("f", SOURCE),)))
        life.query = self._join(life, "query")
        self.tracker.rest()
        life.generation = self.generation(life.name)

    def generation(self, name: str) -> int:
        return self.tracker.processes[0].describe(name, self.tracker.now_ns).generation

    def _ask_registrar(self, name: str, event: Callable[[int], Event]) -> Any:
        """The answer to a request of that number."""
        return self.tracker.ask([(self.tracker.routing.registrar(name), event)])[0]

    def _delete(self, life: Life) -> None:
        """A pipeline is deleted with all that is open; another one begins in its place, half of them under its name."""
        at_ms = self.tracker.now_ns // 10**6
        self._ask_registrar(
            life.name, lambda request: DeletePipeline(request, life.name, life.generation, True, at_ms)
        )  # fmt: skip
        self.tracker.rest()
        self.did["deleted"] += 1
        self._forget_nodes(life)
        if self._random.random() < 0.5:
            self._names += 1
            life.name = f"p{self._names}"
        else:
            self.did["named_again"] += 1
        self._begin(life)

    def _restart(self, life: Life) -> None:
        at_ms = self.tracker.now_ns // 10**6
        self._ask_registrar(
            life.name, lambda request: RestartPipeline(request, life.name, life.generation, None, at_ms)
        )  # fmt: skip
        self.tracker.rest()
        self.did["restarted"] += 1
        self._forget_nodes(life)
        self._settle_in(life)

    def _forget_nodes(self, life: Life) -> None:
        """Streams of a time that is over."""
        gone = [node for node in self._guests if node.pipeline == life.name]
        for node in [*gone, life.source, life.query]:
            if node is not None:
                self._part(node)

    def _change(self, life: Life) -> None:
        """Segments come and go at some pipelines, limits change at all."""
        spec, names = life.spec, [n for n in life.spec.segments if n not in life.spec.removed]
        kept = tuple(e for e in spec.edges if e.target in names)
        if life.number < self.scale.pipelines - self.scale.changing:
            asked = replace(spec, max_staged=spec.max_staged + 1)
            self.did["changed"] += 1
        elif len(names) > 2:
            edges = tuple(e for e in kept if e.target != names[-1])
            asked = replace(spec, segments=tuple(names[:-1]), edges=edges, removed=())
            self.did["segments_removed"] += 1
        else:
            name = f"also{len(spec.segments)}"
            edges = (*kept, Edge("in", name))
            asked = replace(spec, segments=(*names, name), edges=edges, removed=())
            self.did["segments_added"] += 1
        event = partial(RegisterPipeline, spec=asked, change=True)
        life.spec = self._ask_registrar(life.name, event)

    # --- nodes ------------------------------------------------------------------------------------

    def _join(self, life: Life, node_id: str) -> Node:
        self.did["joined"] += 1
        return self.tracker.join([(life.name, node_id)])[0]

    def _tick(self, node: Node, content: TickContent) -> None:
        self.did["ticks"] += 1
        self.tracker.tick(node, content)

    def _slot(self) -> int:
        """A slot of its own in this step."""
        self._used += 1
        return self.tracker.slot + self._used

    def _row(self, slot: int, segment: int = SOURCE) -> Row:
        return segment, slot, self._random.randrange(1, 2**63), 100

    def _part(self, node: Node) -> None:
        """The stream of a node ends."""
        self._guests.pop(node, None)
        self.tracker.handle(node.home, DetachSession(node))
        self.tracker.ended.discard(node)
        self.tracker.granted.discard(node)

    def _label(self, life: Life) -> None:
        """A source publishes a batch, and promises what is below it."""
        assert life.source is not None
        row = self._row(self._slot())
        unit = Unit(SOURCE, f"file-{row[1]}", row[1])
        self._tick(
            life.source,
            TickContent(
                created=Cells.of([row]), units_created=(unit,),
                heartbeats=(Heartbeat("f", row[1] - 1),),
            ),
        )  # fmt: skip
        life.open.append(row)
        if life.batches % 20:
            life.units.append(unit)  # of the others no reader ever says the name

    def _take(self, life: Life) -> None:
        """A query takes what is there, and what it has made of the batch before is read elsewhere."""
        assert life.query is not None
        taken, life.open = life.open, []
        units, life.units = life.units, []
        created = [self._row(min(row[1] for row in taken), SINK)] if taken else []
        late, life.given_up = life.given_up, []
        if life.batches % 10 == 9:
            late.append(self._row(life.spec.start_slot))
        life.batches += 1
        batch = Batch("query", life.batches, life.batches.to_bytes(16, "little"))
        consumed = Cells.of([*taken, *life.out, *late])
        self.did["late"] += len(late)
        self._stage(life, life.query, life.batches)
        self._tick(
            life.query,
            TickContent(
                created=Cells.of(created), consumed=consumed, batch=batch, units_consumed=tuple(units)
            ),
        )  # fmt: skip
        life.out = created

    def _stage(self, life: Life, node: Node, batch: int) -> None:
        if self._random.random() < 0.1:
            none = Cells.empty()
            staged = StagedContribution("query", "run", batch, 1, "tap", 1, 0, 0, none, none)
            event = partial(
                StageContributions,
                pipeline=life.name, node_id=node.key.node_id, contributions=(staged,),
            )  # fmt: skip
            self.tracker.ask([(node.home, event)])
            self.did["staged"] += 1

    # --- guests -----------------------------------------------------------------------------------

    def _guest(self, life: Life, node_id: str) -> Story:
        """A source comes, labels, and goes in one of the ways in which they do."""
        node = yield from self._come(life, node_id)
        holds = self._random.random() < 0.3
        row, held = self._row(self._slot()), self._slot()
        moves = (HoldMove("h", SOURCE, held),) if holds else ()
        self.did["held"] += holds
        self._tick(
            node,
            TickContent(
                created=Cells.of([row]), holds=moves, heartbeats=(Heartbeat("g", held - 1),)
            ),
        )  # fmt: skip
        began = node.number
        yield
        chance = self._random.random()
        evicts = life.number < self.scale.busy
        if chance < 0.3 and evicts:
            life.open.append(row)
            yield from self._fall_silent(life, node, holds=holds)
        elif chance < 0.5 and life.number < self.scale.crowded:
            cells = [row]
            if holds:
                value = hold_value(node.key.node_id, "h", node.key.incarnation, began)
                cells.append((SOURCE, held, value, 1))
            self._retire(life, node, Cells.of(cells))
            if self._random.random() < 0.3:
                life.given_up.append(row)  # it was not lost after all
                self.did["written_off_and_consumed"] += 1
        elif chance < 0.5 and not holds:
            life.open.append(row)  # which is waited for
            self._retire(life, node, Cells.empty())
        else:
            life.open.append(row)
            if chance < 0.7:
                self._part(node)  # a newer one takes its place
                node = yield from self._come(life, node_id)
                self.did["came_again"] += 1
            yield
            self._leave(life, node)
        life.ids.discard(node_id)

    def _come(self, life: Life, node_id: str) -> Generator[None, None, Node]:
        node = self._join(life, node_id)
        self._guests[node] = None
        front = (FrontJoin("g", SOURCE),)
        self._tick(node, TickContent(joins=front))
        self._stage(life, node, 1)
        yield
        while node not in self.tracker.granted:
            yield
        return node

    def _leave(self, life: Life, node: Node) -> None:
        """It lets go of what it holds, be it what one of its id held that was retired."""
        moves = (HoldMove("h", SOURCE, FOREVER),)
        self._tick(node, TickContent(leaves=("g",), holds=moves))
        leave = partial(LeaveNode, pipeline=life.name, key=node.key)
        self.tracker.ask([(node.home, leave)])
        self._part(node)
        self.did["left"] += 1

    def _fall_silent(self, life: Life, node: Node, *, holds: bool) -> Story:
        """Nothing more is heard of it: it is evicted, and comes back, or is retired, or neither."""
        for _ in range(GONE_STEPS):
            if node in self.tracker.ended:
                break
            yield
        else:
            raise RuntimeError(f"{node.key} of {life.name} is silent, and was not evicted")
        self._part(node)
        self.did["evicted"] += 1
        for _ in range(AWAY_STEPS):
            yield
        # Of so many no one is remembered for long, but by its vacant place.
        forgotten = life.spec.open and node.key.node_id.startswith("n")
        if holds or forgotten or self._random.random() < 0.5:
            node = yield from self._come(life, node.key.node_id)
            self.did["came_back"] += 1
            self._leave(life, node)
        else:
            self._retire(life, node, Cells.empty())

    def _retire(self, life: Life, node: Node, cells: Cells) -> None:
        event = partial(
            RetireNode, pipeline=life.name, node_id=node.key.node_id, write_off=cells,
            at_ms=self.tracker.now_ns // 10**6,
        )  # fmt: skip
        self.tracker.ask([(node.home, event)])
        self._part(node)
        self.did["retired"] += 1

    # --- the clock --------------------------------------------------------------------------------

    def step(self) -> None:
        """Some hours."""
        self.tracker.jump()
        self.steps, self._used = self.steps + 1, 0
        for life in self.lives:
            every = BUSY_EVERY if life.number < self.scale.busy else QUIET_EVERY
            if (self.steps + life.number) % every == 0:
                self._take(life)
                self._label(life)
        self._go_on()
        self._invite()
        self._listeners()
        self.tracker.rest()
        if self.steps % max(1, self.scale.steps // 20) == 0:
            self._operate()

    def _go_on(self) -> None:
        going = []
        for life, since, story in self._stories:
            if since == life.since and next(story, self) is not self:
                going.append((life, since, story))
        self._stories = going

    def _invite(self) -> None:
        """As many guests come as are due."""
        scale = self.scale
        self._due += scale.nodes / scale.steps
        while self._due >= 1:
            self._due -= 1
            crowded = self._random.random() < 0.5
            life = self.lives[self._random.randrange(scale.crowded if crowded else scale.pipelines)]
            self._serial += 1
            free = [f"g{n}" for n in range(IDS) if f"g{n}" not in life.ids]
            if crowded:
                node_id = f"n{self._serial}"
            elif free:
                node_id = self._random.choice(free)
            else:
                continue
            life.ids.add(node_id)
            story = self._guest(life, node_id)
            next(story)
            self._stories.append((life, life.since, story))

    def _listeners(self) -> None:
        """Subscribers come, and those leave that have been there longest."""
        most = max(1, self.scale.pipelines // 10)
        for listeners in self.tracker.listeners:
            for life in self._random.sample(self.lives, 3):
                listeners.come(life.name)
            listeners.leave_beyond(most)

    def _operate(self) -> None:
        """Operators change, restart and delete pipelines."""
        common = self.lives[self.scale.busy :]
        for life in self._random.sample(common, min(self.scale.deleted, len(common))):
            self._delete(life)
        for life in self._random.sample(common, min(self.scale.deleted, len(common))):
            self._restart(life)
        changing = self.lives[len(self.lives) - self.scale.changing :]
        for life in [*self._random.sample(self.lives, len(self.lives) // 10), *changing]:
            self._change(life)
            self.tracker.rest()

    def restarted(self) -> None:
        """Every process of the tracker was started again: nodes attach anew."""
        for life in self.lives:
            for node in (life.source, life.query):
                assert node is not None
                self.tracker.attach(node)
        for node in self._guests:
            if node not in self.tracker.ended:
                self.tracker.attach(node)
        self.tracker.rest()
