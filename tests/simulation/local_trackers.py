"""Simulated eager local trackers, in a tree of two levels, and the workers that hand steps to them.

Steps gather and are merged by the functions that do so in production. What a worker hands over is
published already: it keeps the step until it is told that it is durable, and hands it over again
under the same number until then. A local tracker keeps its spool over a crash: which steps it took in
which flush, and which it has recorded of the next one ahead of the end of its window. A lower one hands
its flushes to the upper one as steps; the upper one's are ticks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from local_tracker.core.window import FlushWindow, Step, merged_content
from tests.simulation.checkers import Failure
from tests.simulation.nodes import Life, Node, children, read_only
from tests.simulation.plan import MS
from tests.simulation.world import Item, World
from tracker.core.log import Joined
from tracker.core.model import Batch, Cells, HoldMove, TickContent
from tracker.core.model.slots import FOREVER

if TYPE_CHECKING:
    from tests.simulation.simulator import Simulator

WINDOWS_MS = (2.0, 8.0)
MAX_CELLS_PER_FLUSH = 12
MAX_GATHERED_CELLS = 2
RECORD_NS = 500_000
"""So long before the end of a window it records what has gathered."""
ANSWER_TIMEOUT_NS = 20 * MS


class Upper(Protocol):
    """Whoever takes steps: a local tracker. It is of one generation of its pipeline, takes the steps of
    that one alone, and calls `refuse` where a step is of an older one."""

    world: World

    def take_step(
        self, step: Step, generation: int, answer: Callable[[], None], refuse: Callable[[], None]
    ) -> None: ...


class Gatherer:
    """What each local tracker does: takes steps, each once, flushes one after the other. `commit`
    sends a flush on; `settle` is to be called when it is durable."""

    def __init__(self, sim: Simulator, commit: Callable[[int, TickContent], None]) -> None:
        self._sim, self._commit = sim, commit
        self._window_ms = sim.rng.choice(WINDOWS_MS)
        # In the spool, which outlives a crash:
        self.flush: tuple[int, tuple[Step, ...]] | None = None
        """The flush that is on its way."""
        self._ahead: tuple[Step, ...] = ()
        """What is recorded of the flush that comes next."""
        self._last_number = 0
        self._settled: dict[str, int] = {}
        """By sender its last step that is durable."""
        self.forget()

    def forget(self) -> None:
        """What a crash takes: steps that are in no flush yet, and who waits for an answer. What is recorded ahead is
        a flush of its own from then on."""
        if self._ahead:
            self._begin(self._ahead)
        self._window = FlushWindow(self._window_ms, MAX_CELLS_PER_FLUSH, MAX_GATHERED_CELLS)
        self._gathered: dict[tuple[str, int], None] = {}
        self._waiting: dict[tuple[str, int], list[Callable[[], None]]] = {}

    def begin_generation(self) -> None:
        """The pipeline was restarted: the record begins anew, and only its numbers go on."""
        if self.flush is not None:
            self._sim.count("flushes_of_an_older_generation")
        self.flush, self._ahead = None, ()
        self._settled.clear()
        self.forget()

    @property
    def idle(self) -> bool:
        return self.flush is None and not len(self._window)

    def take_step(self, step: Step, answer: Callable[[], None]) -> None:
        """Takes a step; answers once it is durable. One that is handed over again is known."""
        mark = (step.sender, step.number)
        if self._settled.get(step.sender, 0) >= step.number:
            self._sim.count("steps_handed_over_again")
            answer()
            return
        in_flush = self.flush is not None and any(
            (s.sender, s.number) == mark for s in self.flush[1]
        )
        if mark in self._gathered or in_flush:
            self._sim.count("steps_handed_over_again")
        elif self._window.full:
            self._sim.count("full_local_trackers")
            return  # it is handed over again later
        else:
            self._gathered[mark] = None
            self._window.add(step, self._sim.now)
        self._waiting.setdefault(mark, []).append(answer)
        self._window.validate()

    def due_ns(self) -> int | None:
        """When the next flush may be made."""
        return None if self.flush is not None else self._window.due_ns()

    def ahead_ns(self) -> int | None:
        """When what has gathered may be recorded, ahead of its flush."""
        return None if self.flush is not None else self._window.ahead_ns(RECORD_NS)

    def record_ahead(self) -> bool:
        """Records what has gathered, if it is time: the first steps of the next flush."""
        ahead = self.ahead_ns()
        if ahead is None or ahead > self._sim.now:
            return False
        self._ahead = self._window.record_ahead()
        self._window.validate()
        self._sim.count("flushes_recorded_ahead")
        return True

    def flush_now(self) -> None:
        """Merges what has gathered and sends it on: what is recorded, and what has come after it."""
        due = self.due_ns()
        if due is None or due > self._sim.now:
            return
        steps = self._window.take(self._sim.now)
        for step in steps:
            del self._gathered[step.sender, step.number]
        if len(steps) > 1:
            self._sim.count("merged_flushes")
        late = steps[len(self._ahead) :]
        if self._ahead and late:
            self._sim.count("steps_after_those_recorded")
        self._begin(self._ahead + late)
        self.send()

    def _begin(self, steps: tuple[Step, ...]) -> None:
        self._last_number += 1
        self.flush, self._ahead = (self._last_number, steps), ()

    def send(self) -> None:
        """Sends the flush on, where it has not been sent."""
        assert self.flush is not None
        number, steps = self.flush
        self._commit(number, merged_content(steps))

    def settle(self) -> None:
        """The flush is durable."""
        assert self.flush is not None
        _, steps = self.flush
        self.flush = None
        for step in steps:
            self._settled[step.sender] = step.number
            for answer in self._waiting.pop((step.sender, step.number), []):
                answer()


class Gathering(Life):
    """A local tracker: what is the same of one that commits ticks and of one that hands steps on."""

    gatherer: Gatherer

    def die(self) -> None:
        self.gatherer.forget()

    def renew(self) -> None:
        self.gatherer.begin_generation()

    def take_step(
        self, step: Step, generation: int, answer: Callable[[], None], refuse: Callable[[], None]
    ) -> None:
        if self.alive and generation != self.world.generation:
            refuse()
        elif self.alive:
            self.gatherer.take_step(step, answer)
            self.flush_when_due()

    def flush_when_due(self) -> None:
        due, ahead = self.gatherer.due_ns(), self.gatherer.ahead_ns()
        if not self.can_flush():
            return
        if ahead is not None:
            self.later(max(0, ahead - self.sim.now), self._record_ahead)
        if due is not None:
            self.later(max(0, due - self.sim.now), self.gatherer.flush_now)

    def _record_ahead(self) -> None:
        if self.gatherer.record_ahead() and self.sim.chance("flushes_left_recorded", 0.2):
            self.sim.let_die(self)

    def can_flush(self) -> bool:
        return True


class LocalTrackerNode(Gathering, Node):
    """The upper local tracker: each of its flushes is a tick."""

    kind = "local-tracker"

    def __init__(self, sim: Simulator, world: World, name: str) -> None:
        super().__init__(sim, world, name)
        self.gatherer = Gatherer(sim, self._commit_flush)
        self._held_after: dict[int, dict[str, HoldMove]] = {0: {}}
        """By flush, what the node holds after it, on behalf of the workers."""

    @property
    def settled(self) -> bool:
        return super().settled and self.gatherer.idle

    def renew(self) -> None:
        super().renew()
        self._held_after = {0: {}}

    def can_flush(self) -> bool:
        return self.key is not None

    def joined(self, joined: Joined) -> None:
        """It must be told just what it holds by the flushes that the tracker has."""
        last = max((batch.id for batch in joined.last_batches), default=0)
        expected = self._held_after[max(n for n in self._held_after if n <= last)]
        told = {held.name: HoldMove(held.name, held.segment, held.slot) for held in joined.holds}
        if told != expected:
            raise Failure("broken", f"{self.name} holds {expected}, and was told {told}")
        if expected:
            self.sim.count("eager_holds_found_again")
        flush = self.gatherer.flush
        if not self.journal and flush is not None:
            if flush[0] <= last:
                self.gatherer.settle()  # it had become durable just before the end
            else:
                self.gatherer.send()  # it was recorded, and no more
        self.flush_when_due()

    def _commit_flush(self, number: int, content: TickContent) -> None:
        read_only(content.created)
        read_only(content.consumed)
        content.batch = Batch(self.name, number, number.to_bytes(8, "big"))
        held = dict(self._held_after[max(self._held_after)])
        for move in content.holds:
            held[move.name] = move
            if move.slot == FOREVER:
                del held[move.name]
        self._held_after[number] = held
        self.publish(content)

    def tick_is_durable(self, content: TickContent) -> None:
        flush = self.gatherer.flush
        if flush is not None and content.batch is not None and content.batch.id == flush[0]:
            self.gatherer.settle()
            if self.sim.chance("bad_ticks", 0.1):
                self.commit_bad()
            self.flush_when_due()


class Actor(Life):
    """Somebody who is not a node of the tracker: has a life, and hands steps to a local tracker."""

    def __init__(self, sim: Simulator, world: World, name: str, upper: Upper) -> None:
        super().__init__(sim, world, name)
        self.upper = upper
        self._handing: Step | None = None
        """Handed over and not known to be durable; kept over a crash."""

    def start(self) -> None:
        if not self.alive:
            self.alive = True
            self.life += 1
            if self.world is not self.upper.world:
                self.world = self.upper.world
                self._handing = None
                self.renew()
            self._hand_over()
            self.resume()

    def crash(self) -> None:
        self.alive = False
        self.die()

    def resume(self) -> None:
        """A subclass goes on."""

    def hand_over(self, step: Step) -> None:
        assert self._handing is None
        self._handing = step
        self._hand_over()

    def _hand_over(self) -> None:
        """Hands the step over, and again until it is durable."""
        step = self._handing
        if step is None:
            return
        sim, generation = self.sim, self.world.generation

        def arrive() -> None:
            self.upper.take_step(
                step,
                generation,
                lambda: sim.after(sim.latency(), self._answered, step),
                lambda: sim.after(sim.latency(), self._refused, step),
            )

        if not sim.chance("lost_steps", sim.plan.loss):
            sim.after(sim.latency(), arrive)
        life = self.life
        sim.after(ANSWER_TIMEOUT_NS, lambda: self._again(step, life))

    def _again(self, step: Step, life: int) -> None:
        if self._handing is step and self.alive and self.life == life:
            self._hand_over()
        else:
            self.sim.not_a_step()

    def _answered(self, step: Step) -> None:
        if self._handing is step and self.alive:
            self._handing = None
            self.step_is_durable()

    def _refused(self, step: Step) -> None:
        """The pipeline was restarted, and the step counts for nothing: it ends, and begins anew."""
        if self._handing is step and self.alive:
            self.sim.count("steps_of_an_older_generation")
            self.crash()
            self.start()

    def step_is_durable(self) -> None:
        """A subclass goes on."""

    @property
    def settled(self) -> bool:
        return self.alive and self._handing is None

    def wake(self) -> None:
        """There may be something to do."""


class LowerTracker(Gathering, Actor):
    """A local tracker that flushes into another one."""

    def __init__(self, sim: Simulator, world: World, name: str, upper: Upper) -> None:
        super().__init__(sim, world, name, upper)
        self.gatherer = Gatherer(sim, self._commit_flush)

    @property
    def settled(self) -> bool:
        return super().settled and self.gatherer.idle

    def crash(self) -> None:
        self.sim.count("local_tracker_crashes")
        super().crash()

    def resume(self) -> None:
        if self.gatherer.flush is not None and self._handing is None:
            self.gatherer.send()  # it was recorded, and no more

    def _commit_flush(self, number: int, content: TickContent) -> None:
        self.hand_over(
            Step(
                self.name, number, created=content.created, consumed=content.consumed,
                holds=content.holds,
            )
        )  # fmt: skip

    def step_is_durable(self) -> None:
        self.gatherer.settle()
        self.flush_when_due()


class EagerWorker(Actor):
    """A long-running process that takes items one after another and acknowledges whole steps."""

    def __init__(
        self, sim: Simulator, world: World, name: str, upper: Upper, reads: set[int]
    ) -> None:
        super().__init__(sim, world, name, upper)
        self.reads = reads
        self._number = 0
        self._busy = False
        self._claimed: deque[Item] = deque()

    def crash(self) -> None:
        self.sim.count("worker_crashes")
        super().crash()

    def die(self) -> None:
        for item in self._claimed:
            item.claimed = False
        self._claimed.clear()
        self._busy = False

    def resume(self) -> None:
        self.wake()

    def wake(self) -> None:
        if self.free:
            self._busy = True
            self.later(self.sim.pause(), self._claim)

    @property
    def free(self) -> bool:
        """Whether it lives, does nothing, and waits for nothing."""
        return self.alive and not self._busy and self._handing is None

    def _claim(self) -> None:
        rng = self.sim.rng
        ready = self.world.takeable(self.reads)
        if not ready:
            self._busy = False
            self.found_nothing()
            return
        self._claimed.extend(rng.sample(ready, min(len(ready), rng.choice([1, 1, 2]))))
        for item in self._claimed:
            item.claimed = True
        self.later(self.sim.pause(), self._finish)

    def _finish(self) -> None:
        consumed, created = list(self._claimed), []
        self._claimed.clear()
        for item in consumed:
            created += children(self.sim, self.world, item, f"{self.name}-step")
        self.sim.consumes(self.world, consumed)
        created, holds = self.put_aside(consumed, created)
        self._busy = False
        self.step(consumed, created, holds)

    def found_nothing(self) -> None:
        """It waits to be woken."""

    def put_aside(
        self, consumed: list[Item], created: list[Item]
    ) -> tuple[list[Item], tuple[HoldMove, ...]]:
        """What of the items that a step makes comes into being by it, and what is held for the rest."""
        return created, ()

    def step(
        self, consumed: list[Item], created: list[Item], holds: tuple[HoldMove, ...] = ()
    ) -> None:
        """A step is done: it can no longer be undone, and is handed over."""
        self.world.step(consumed, created)
        self._number += 1
        self.hand_over(
            Step(
                self.name, self._number, created=_cells(created), consumed=_cells(consumed),
                holds=holds,
            )
        )  # fmt: skip
        self.sim.items_appeared(self.world)

    def step_is_durable(self) -> None:
        self.wake()


def _cells(items: list[Item]) -> Cells:
    return Cells.of((item.segment, item.slot, item.value, 1) for item in items)
