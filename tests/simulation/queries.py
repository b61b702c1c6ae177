"""A simulated query: a transactional node whose ticks are composed from what its tasks staged.

A batch is planned (what it reads is written down), evaluated by tasks that stage what they consumed and
created, published whole, and only then composed and committed, by the functions that do so in
production. Tasks are tried again, stages are evaluated twice or again in part, and the query dies at
any point: a batch that was planned is evaluated again as it was, one that was published is not.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from local_tracker.core.merge import merge_cells
from local_tracker.spark.query.compose import (
    BatchUnits,
    CreatedUnit,
    Evaluations,
    compose,
    count_contributions,
    fingerprint,
    label_slots,
)
from tests.simulation.checkers import Failure
from tests.simulation.nodes import (
    ANSWER_TIMEOUT_NS,
    JOIN_AGAIN,
    RETRY_NS,
    TRY_AGAIN,
    Node,
    children,
    is_resolved,
    read_only,
)
from tests.simulation.world import Item, World
from tracker.core.log import Answer, Effect, Joined, StageContributions
from tracker.core.model import Cells, Refusal, RefusalCode, StagedContribution, Unit

if TYPE_CHECKING:
    from tests.simulation.simulator import Simulator


@dataclass(eq=False)
class _BatchPlan:
    """One micro-batch as written down: `rows` by partition, each item with its children."""

    number: int
    rows: list[list[tuple[Item, list[Item]]]]
    units: list[Item]
    unit_children: list[Item]
    labels: dict[int, int]
    """By segment the slot under which it creates, by the edges that there were when it was planned."""
    published_by: str | None = None
    stage_tasks: dict[int, int] = field(default_factory=dict)
    """Of the last run, by stage the number of tasks of its first attempt."""

    @property
    def consumed(self) -> list[Item]:
        return [*self.units, *(item for part in self.rows for item, _ in part)]

    @property
    def created(self) -> list[Item]:
        made = [child for part in self.rows for _, group in part for child in group]
        return [*self.unit_children, *made]


class QueryNode(Node):
    """Reads some segments in micro-batches."""

    kind = "query"

    def __init__(self, sim: Simulator, world: World, name: str, reads: set[int]) -> None:
        super().__init__(sim, world, name)
        self.reads = reads
        self.batch: _BatchPlan | None = None
        """What is written down: planned, perhaps published, not composed yet."""
        self.runs: list[str] = []
        self.busy = False
        self._tasks: dict[object, StagedContribution] = {}
        self._execution = 0

    # --- life -------------------------------------------------------------------------------------

    @property
    def settled(self) -> bool:
        return super().settled and self.batch is None

    def die(self) -> None:
        self.busy = False
        self._tasks = {}

    def renew(self) -> None:
        self.batch = None

    def joined(self, joined: Joined) -> None:
        self.runs.append(f"{self.name}-run{self.life}")
        if self.batch is None:
            self.wake()
            return
        self.sim.count("batches_taken_up_again")
        self.busy = True
        if self.batch.published_by is None:
            self._evaluate()
        else:
            self._compose()

    def wake(self) -> None:
        """There may be something to do."""
        if self.alive and self.key is not None and not self.busy:
            self.busy = True
            self.later(self.sim.pause(), self._plan)

    # --- a batch ----------------------------------------------------------------------------------

    def _plan(self) -> None:
        """Takes input and writes down that this batch has it."""
        rng = self.sim.rng
        ready = [
            item
            for item in self.world.takeable(self.reads, late=False)
            if is_resolved(self.sim, self.world, item)
        ]
        if not ready:
            self.busy = False
            if self.world.takeable(self.reads, late=False):
                self.later(RETRY_NS, self.wake)  # for units that the tracker does not know yet
            return
        taken = rng.sample(ready, min(len(ready), rng.choice([1, 2, 4])))
        for item in taken:
            item.claimed = True
        self.next_batch += 1 if rng.random() < 0.9 else 3
        units = [item for item in taken if item.unit is not None]
        rows: list[list[tuple[Item, list[Item]]]] = [[] for _ in range(rng.choice([1, 1, 2]))]
        for item in taken:
            if item.unit is None:
                made = [c for c in self._children(item) if c.unit is None]
                rng.choice(rows).append((item, made))
        labels = self._label_slots(units)
        made_of = self._unit_children(units, labels)
        self.batch = _BatchPlan(self.next_batch, rows, units, made_of, labels)
        self.later(self.sim.pause(), self._evaluate)

    def _children(self, item: Item) -> list[Item]:
        return children(self.sim, self.world, item, f"{self.name}-step")

    def _unit_children(self, units: list[Item], labels: dict[int, int]) -> list[Item]:
        """Files that the batch writes for the next segments, under the slot that all of it gets."""
        hops = min((item.hops for item in units), default=0)
        if not hops:
            return []
        targets = [t for t in sorted(labels) if self.sim.rng.random() < 0.7]
        return [self.sim.new_unit(target, labels[target], hops - 1) for target in targets]

    def _label_slots(self, units: list[Item]) -> dict[int, int]:
        delays, floors = {}, dict[int, int]()
        for source, ways in enumerate(self.world.ways_out):
            for target, delay, floor in ways:
                delays[source, target] = delay
                floors[target] = max(floor, floors.get(target, floor))
        labels = label_slots(_as_units(units), delays, self.world.spec.times)
        # Queries label by what they take; what may not be created there is not written.
        return {target: slot for target, slot in labels.items() if slot >= floors[target]}

    # --- its tasks --------------------------------------------------------------------------------

    def _evaluate(self) -> None:
        """Starts the tasks of all stages; the batch is published when all that count have ended."""
        assert self.batch is not None
        sim, batch = self.sim, self.batch
        batch.stage_tasks = {}
        every = list(range(len(batch.rows)))
        stages = [every]
        if sim.chance("doubly_evaluated_batches", 0.15):
            stages.append(every)
        if len(every) > 1 and sim.chance("stages_run_again_in_part", 0.3):
            stages.append(every[:1])
        for partitions in stages:
            self._execution += 1
            stage = self._execution
            batch.stage_tasks[stage] = len(every)
            for partition in partitions:
                attempts = 1 + sim.chance("retried_tasks", 0.15)
                for attempt in range(attempts):
                    self._start_task(stage, partition, attempt)

    def _start_task(self, stage: int, partition: int, attempt: int) -> None:
        assert self.batch is not None
        rows = self.batch.rows[partition]
        contribution = StagedContribution(
            query=self.name,
            run=self.runs[-1],
            batch=self.batch.number,
            execution=0,
            operator="step",
            stage=stage,
            partition=partition,
            attempt=attempt,
            created=_cells([child for _, group in rows for child in group]),
            consumed=_cells([item for item, _ in rows]),
        )
        self._tasks[id(contribution)] = contribution
        self.later(self.sim.pause(), lambda: self._stage(contribution))

    def _stage(self, contribution: StagedContribution) -> None:
        """A task hands over what it did; it does not end before that is durable."""
        self._tasks.pop(id(contribution), None)
        self._requests += 1
        request = (self.name, self.life, self._requests)
        self._tasks[request] = contribution
        event = StageContributions(request, self.world.spec.name, self.name, (contribution,))
        self.sim.call(self, self.home, event)
        self.later(ANSWER_TIMEOUT_NS, lambda: self._stage_again(request))

    def _stage_again(self, request: object) -> None:
        contribution = self._tasks.pop(request, None)
        if contribution is not None:
            self._stage(contribution)

    def hear(self, effect: Effect) -> None:
        if self.alive and isinstance(effect, Answer) and effect.request in self._tasks:
            contribution = self._tasks.pop(effect.request)
            if isinstance(effect.result, Refusal):
                code = effect.result.code
                if code is RefusalCode.NOT_HOME:
                    self.sent_to(effect.result.home)
                elif self.sim.asks_elsewhere(effect.result):
                    self.follows()
                elif code not in (*TRY_AGAIN, *JOIN_AGAIN):
                    raise Failure("broken", f"{self.name}: not staged: {effect.result.message}")
                self.note_refusal(effect.result)
                self._tasks[id(contribution)] = contribution
                self.later(RETRY_NS, lambda: self._stage(contribution))
            elif not self._tasks:
                self._publish()
            return
        super().hear(effect)

    # --- publishing and committing ----------------------------------------------------------------

    def _publish(self) -> None:
        """The sink has the batch: from here on it is not evaluated again."""
        assert self.batch is not None
        self.batch.published_by = self.runs[-1]
        self.sim.consumes(self.world, self.batch.consumed)
        self.world.step(self.batch.consumed, self.batch.created)
        self.sim.items_appeared(self.world)
        self.later(self.sim.pause(), self._compose)

    def _compose(self) -> None:
        """Reads what is staged and commits the batch's tick."""
        assert self.batch is not None
        batch = self.batch
        staged = self.sim.read_staged(self, batch.number)
        if staged is None:
            self.later(RETRY_NS, self._compose)  # its home is away
            return
        noted = batch.published_by if self.sim.rng.random() < 0.5 else None
        same_run = batch.published_by == self.runs[-1]
        evaluations = Evaluations(
            self.runs,
            published_by=noted,
            stage_tasks=batch.stage_tasks.get if same_run else lambda stage: None,
        )
        contributions = count_contributions(self.name, batch.number, staged, evaluations)
        self._check(batch, contributions)
        created = tuple(
            CreatedUnit(item.unit, (item.segment,))
            for item in batch.unit_children
            if item.unit is not None
        )
        read: dict[int, list[str]] = {}
        for unit in _as_units(batch.units):
            read.setdefault(unit.segment, []).append(unit.name)
        content = compose(
            BatchUnits(
                query=self.name,
                batch=batch.number,
                fingerprint=fingerprint(str(batch.number), read, created),
                consumed=_as_units(batch.units),
                created=created,
                label_slots=batch.labels,
            ),
            contributions,
        )
        self.batch = None
        self.busy = False
        read_only(content.created)
        read_only(content.consumed)
        self.publish(content)
        if self.sim.chance("bad_ticks", 0.1):
            self.commit_bad()
        self.wake()

    def _check(self, batch: _BatchPlan, contributions: tuple[Cells, Cells]) -> None:
        """However often tasks ran, what they did counts once."""
        rows = [pair for part in batch.rows for pair in part]
        true = (
            _cells([child for _, group in rows for child in group]),
            _cells([item for item, _ in rows]),
        )
        for what, counted, once in zip(("created", "consumed"), contributions, true, strict=True):
            if counted.rows() != merge_cells(once).rows():
                raise Failure(
                    "broken",
                    f"batch {batch.number} of {self.name} {what} {once.rows()}, counted were "
                    f"{counted.rows()}",
                )


def _cells(items: list[Item]) -> Cells:
    return Cells.of((item.segment, item.slot, item.value, 1) for item in items)


def _as_units(items: list[Item]) -> tuple[Unit, ...]:
    return tuple(Unit(i.segment, i.unit, i.slot) for i in items if i.unit is not None)
