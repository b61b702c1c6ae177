"""Takes every step from every state, breadth first, each state once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from tests.model.evictions import EvictionStory, EvictionWorld
from tests.model.invariants import Violation
from tests.model.script import Story
from tests.model.shards import ShardStory, ShardWorld
from tests.model.transitions import Transitions
from tests.model.world import World

PROGRESS_STATES = 20_000


@dataclass
class Explored:
    """What was seen. depth: steps to the farthest state; ends: states without a next step; processes:
    different states of single processes; whole: nothing was left to explore; trace: the steps to the
    violation, if there was one."""

    story: str
    states: int = 0
    steps: int = 0
    depth: int = 0
    ends: int = 0
    processes: int = 0
    whole: bool = False
    violation: str = ""
    trace: list[str] = field(default_factory=list)


S = TypeVar("S", bound=Hashable)


class Explorable(Protocol[S]):
    """A small system: what can come next, and what must hold."""

    known: Transitions
    may_turn: bool
    """Whether a step may lead back, so that the end has to be looked for from every state; else one that nothing follows is
    one."""

    def initial(self) -> S: ...

    def steps(self, state: S) -> Iterator[tuple[str, Callable[[], S]]]:
        """All that can happen next, by name."""

    def renumbered(self, state: S) -> S:
        """The same state, with smaller numbers."""

    def check(self, state: S, *, from_outside: bool) -> None:
        """Raises Violation where an invariant does not hold. from_outside: of what is announced alone."""

    def check_step(self, before: S, after: S) -> None:
        """Raises Violation where a step undoes what must stay."""

    def wrong_end(self, state: S) -> str:
        """What is wrong with a state in which nothing is left to do; empty if it is the end that there should be."""


def explore(
    story: Story | ShardStory,
    *,
    most_states: int,
    from_outside: bool = False,
    progress: Callable[[Explored], None] = lambda _: None,
) -> Explored:
    """Explores until there is nothing new, `most_states` were seen, or an invariant fails. A state
    without a next step must be an end: everything announced that can be. `from_outside`: only what is
    announced is judged, not what the processes hold."""
    world: Explorable[Any]
    if isinstance(story, EvictionStory):
        world = EvictionWorld(story)
    else:
        world = ShardWorld(story) if isinstance(story, ShardStory) else World(story)
    return _Search(world, story.name, most_states, from_outside, progress).run()


class _Search:
    def __init__(
        self,
        world: Explorable[Any],
        name: str,
        most_states: int,
        from_outside: bool,
        progress: Callable[[Explored], None],
    ) -> None:
        self.world, self.seen = world, Explored(name)
        self.most_states, self.from_outside = most_states, from_outside
        self.progress = progress
        first = self.world.initial()
        self.came_from: dict[Any, tuple[Any, str]] = {first: (None, "")}
        self.before: dict[Any, list[Any]] = {first: []}
        """By state those that it can follow, where a step may lead back."""
        self.level, self.ends = [first], list[Any]()

    def run(self) -> Explored:
        seen, told = self.seen, 0
        while self.level and seen.states < self.most_states and not seen.violation:
            self.level = self._next_level(self.level)
            seen.depth += bool(self.level)
            seen.states = len(self.came_from)
            seen.processes = len(self.world.known.facts)
            if seen.states >= told + PROGRESS_STATES:
                told = seen.states
                self.progress(seen)
        seen.whole = not self.level and not seen.violation
        if seen.whole and self.world.may_turn:
            self._look_for_the_end()
        return seen

    def _next_level(self, level: list[Any]) -> list[Any]:
        following: list[Any] = []
        for state in level:
            taken = 0
            for name, take in self.world.steps(state):
                taken += 1
                try:
                    after = self.world.renumbered(take())
                    if after not in self.came_from:
                        self.came_from[after] = (state, name)
                        following.append(after)
                        self.world.check(after, from_outside=self.from_outside)
                    self.world.check_step(state, after)
                except (Violation, AssertionError) as violation:
                    self._found(str(violation), state, name)
                    return []
                if self.world.may_turn:
                    self.before.setdefault(after, []).append(state)
            self.seen.steps += taken
            if not taken and not self._is_end(state):
                return []
        return following

    def _is_end(self, state: Any) -> bool:
        """Whether a state in which nothing is left to do is one in which everything is done."""
        self.seen.ends += 1
        self.ends.append(state)
        wrong = self.world.wrong_end(state)
        if wrong:
            self._found(f"nothing is left to do, {wrong}", state)
        return not wrong

    def _look_for_the_end(self) -> None:
        """From every state an end must be reached."""
        reached = {*self.ends}
        level = self.ends
        while level:
            known = {b for state in level for b in self.before.get(state, ())} - reached
            reached |= known
            level = [*known]
        lost = next((state for state in self.came_from if state not in reached), None)
        if lost is not None:
            self.seen.whole = False
            self._found("the end cannot be reached", lost)

    def _found(self, violation: str, state: Any, *last: str) -> None:
        steps = list(last)
        at: Any = state
        while at is not None:
            at, step = self.came_from[at]
            steps.insert(0, step)
        self.seen.violation, self.seen.trace = violation, steps[1:]
