"""Takes every step from every state, breadth first, each state once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.model.invariants import (
    Violation,
    check_announced,
    check_cut,
    check_process,
    check_step,
)
from tests.model.script import CUT, Story, frontier
from tests.model.world import NOT_ASKED, State, World
from tracker.core.model import PipelineSpec

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


def explore(
    story: Story,
    *,
    most_states: int,
    from_outside: bool = False,
    progress: Callable[[Explored], None] = lambda _: None,
) -> Explored:
    """Explores until there is nothing new, `most_states` were seen, or an invariant fails. A state
    without a next step must be an end: everything announced that can be. `from_outside`: only what is
    announced is judged, not what the processes hold."""
    return _Search(story, most_states, from_outside, progress).run()


class _Search:
    def __init__(
        self,
        story: Story,
        most_states: int,
        from_outside: bool,
        progress: Callable[[Explored], None],
    ) -> None:
        self.world, self.story = World(story), story
        self.seen = Explored(story.name)
        self.most_states, self.from_outside = most_states, from_outside
        self.progress = progress
        first = self.world.initial()
        self.came_from: dict[State, tuple[State | None, str]] = {first: (None, "")}
        self.level = [first]
        self.checked = 0

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
        return seen

    def _next_level(self, level: list[State]) -> list[State]:
        following: list[State] = []
        for state in level:
            taken = 0
            for name, take in self.world.steps(state):
                taken += 1
                try:
                    after = self.world.renumbered(take())
                    if after not in self.came_from:
                        self.came_from[after] = (state, name)
                        following.append(after)
                        self._check(after)
                    check_step(self.world.facts(state), self.world.facts(after))
                except (Violation, AssertionError) as violation:
                    self._found(str(violation), state, name)
                    return []
            self.seen.steps += taken
            if not taken and not self._is_end(state):
                return []
        return following

    def _check(self, state: State) -> None:
        facts, last = self.world.facts(state), self.story.last
        check_announced(facts, frontier(state.durable, last, self._change(state)))
        if self.from_outside:
            return
        check_cut(facts)
        known = self.world.known
        while self.checked < len(known.facts):  # processes that no state had before
            number, self.checked = self.checked, self.checked + 1
            shard = known.processes.things[number].shard
            check_process(shard, known.facts[number], self.world.system, self.story.change)

    def _change(self, state: State) -> PipelineSpec | None:
        """What the pipeline becomes, as far as that was asked for; what is added has no items before."""
        return None if state.change == NOT_ASKED and self.story.change is CUT else self.story.change

    def _is_end(self, state: State) -> bool:
        """Whether a state in which nothing is left to do is one in which everything is done."""
        self.seen.ends += 1
        said = [facts.said for facts in self.world.facts(state)]
        due = frontier(self.story.last, self.story.last, self._change(state))
        if all(min_times == due for min_times in said):
            return True
        self._found(f"nothing is left to do, min times are {said} and should be {due}", state)
        return False

    def _found(self, violation: str, state: State, *last: str) -> None:
        steps = list(last)
        at: State | None = state
        while at is not None:
            at, step = self.came_from[at]
            steps.insert(0, step)
        self.seen.violation, self.seen.trace = violation, steps[1:]
