"""The small move: one front, one node that reads, two groups of one shard, and whatever can happen in between.

Every step is of the production core and of its driver. After each the processes are what their stores hold, as if both had crashed
and come back: whatever a process only remembers is gone at any moment, and a step that writes several records may end behind any
of them. Questions of a driver get lost, and answers do; a driver forgets how far it was; an operator has a move given up; nodes
try either group. In no state is the pipeline in two groups, is a tick missing or counted twice, or a min time announced that is not
true or was higher before; and from each the end can be reached, at which all is processed in one group.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import GeneratorType
from typing import Any, NamedTuple

from tests import inside
from tests.model.digests import digest
from tests.model.explore import Explored
from tracker.core import log as m
from tracker.core.log.losses import Move
from tracker.core.model import (
    Cells,
    FrontJoin,
    Heartbeat,
    PipelineSpec,
    Refusal,
    Refused,
    TickContent,
)
from tracker.core.model.placements import DIRECTORY_GROUP
from tracker.core.model.routing import RoutingTable
from tracker.core.model.slots import FOREVER
from tracker.core.moving.driver import (
    AWAY,
    FOR_NOW,
    Ask,
    Members,
    Pause,
    Piece,
    PieceWanted,
    Where,
    follow,
)
from tracker.core.moving.parts import in_pieces
from tracker.core.process import Process
from tracker.core.process.snapshot import ProcessSnapshot

SPEC = PipelineSpec("p", ("s",), fronts=("a",))
TABLE = RoutingTable.uniform(1, 1)
NOW_NS, LATER_NS = 10**9, 10**10
PROGRESS_STATES = 5_000


def _cells(slot: int, value: int) -> Cells:
    return Cells.of([(0, slot, value, 1)])


SCRIPTS = {
    "front": (
        TickContent(joins=(FrontJoin("a", 0),)),
        TickContent(created=_cells(3, 77)),
        TickContent(heartbeats=(Heartbeat("a", 8),)),
        TickContent(leaves=("a",)),
    ),
    "reader": (TickContent(consumed=_cells(3, 77)),),
}
"""The ticks of each node. The reader may have read what its front has published, and not committed yet."""
PROMISED = (0, 0, 0, 8, FOREVER)
"""By number of ticks what the front promises."""
PUBLISHED_AT = 1
"""By so many ticks of the front, what it is about to commit can be read."""


def truth(front: int, reader: int) -> int:
    """The lowest slot at which something is open, or may come, after so many ticks of each node."""
    return min(PROMISED[front], 3 if front > PUBLISHED_AT and not reader else FOREVER)


class State(NamedTuple):
    """stores: by group what is durable there; drives: by group the answers that its driver has had; both by number.
    acknowledged: by node; asked, given_up: how often the operator did; announced: the most that anyone has heard."""

    stores: tuple[int, int]
    drives: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    acknowledged: tuple[int, int] = (0, 0)
    asked: int = 0
    given_up: int = 0
    announced: int = 0


@dataclass(frozen=True)
class Facts:
    """What the process of a store knows. ticks: by node, as far as they are durable; least: announced of the pipeline."""

    process: Process
    move: Move | None
    goes_on: bool
    ticks: tuple[int, int]
    least: int


@dataclass(frozen=True)
class SmallMove:
    """What may happen. moves: how often the operator asks for one, there and back; gives_up: how often that one be given up;
    attempts: how often a driver asks for what has to wait, before it gives up itself; begins: the ticks of each node that are
    committed before."""

    moves: int
    gives_up: int
    attempts: int
    begins: tuple[int, int] = (0, 0)

    @property
    def name(self) -> str:
        return f"a move, {self.moves} asked for, {self.gives_up} given up from outside"


MOVES = (SmallMove(1, 1, attempts=2),)
"""Those that `make model` explores."""


class _Things:
    """Things that are equal by their digests, by number."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        self._things: list[Any] = []

    def number(self, thing: Any, like: Any = None) -> int:
        name = digest(thing if like is None else like)
        if name not in self._numbers:
            self._numbers[name] = len(self._things)
            self._things.append(thing)
        return self._numbers[name]

    def __getitem__(self, number: int) -> Any:
        return self._things[number]


class Search:
    """Takes every step from every state."""

    def __init__(self, story: SmallMove) -> None:
        self._story = story
        self._stores, self._answers = _Things(), _Things()
        self._waited = self._answers.number(None, ("NoneType", None))
        self._facts: dict[int, Facts] = {}
        self._taken: dict[tuple[int, bytes], tuple[list[int], list[m.Effect]]] = {}

    # --- processes --------------------------------------------------------------------------------

    def _recovered(self, store: int) -> Process:
        """A process that has come back, and has nothing more to write about that."""
        return _come_back(pickle.loads(self._stores[store]), ())

    def _number(self, process: Process) -> int:
        """Of what is durable of a process, however many records that took."""
        snapshot = process.snapshot()
        like = {name: getattr(snapshot, name) for name in snapshot.__slots__ if name != "position"}
        return self._stores.number(pickle.dumps(snapshot), like)

    def facts(self, store: int) -> Facts:
        if store not in self._facts:
            process = self._recovered(store)
            move = process.membership.moving.get("p")
            pipeline = inside.pipelines(process).get("p")
            numbers = {} if pipeline is None else pipeline.shard.keys
            ticks = [
                sum(state.number for key, state in numbers.items() if key.node_id == node)
                for node in SCRIPTS
            ]
            if pipeline is not None:  # a node that has left is known no more, nor is that needed
                ticks = [
                    number or (len(SCRIPTS[node]) if node not in pipeline.home.nodes else 0)
                    for node, number in zip(SCRIPTS, ticks, strict=True)
                ]
            self._facts[store] = Facts(
                process, move, pipeline is not None and move is None, (ticks[0], ticks[1]),
                -1 if pipeline is None else min(pipeline.durable),
            )  # fmt: skip
        return self._facts[store]

    def _take(self, store: int, *events: m.Event) -> tuple[list[int], list[m.Effect]]:
        """What a process makes of events that come one upon the other, and of the time that passes then: by how many of its
        records are durable, what its store is; and what it says where all are."""
        key = store, digest(events)
        if key not in self._taken:
            self._taken[key] = self._take_anew(store, events)
        return self._taken[key]

    def _take_anew(
        self, store: int, events: tuple[m.Event, ...]
    ) -> tuple[list[int], list[m.Effect]]:
        before, process = pickle.loads(self._stores[store]), self._recovered(store)
        records: list[tuple[int, m.Record]] = []
        said: list[m.Effect] = []
        for event in events:
            _carry_out(process, process.handle(event, NOW_NS), NOW_NS, records, said)
        _carry_out(process, process.handle(m.Wake(), LATER_NS), LATER_NS, records, said)
        process.validate()
        partly = (_come_back(before, records[:count]) for count in range(len(records)))
        return [*map(self._number, partly), self._number(process)], said

    # --- states -----------------------------------------------------------------------------------

    def first(self) -> State:
        """Registered in group 0, whose nodes have keys and nothing else."""
        empty = store = self._number(_come_back(None, ()))
        store = self._take(store, m.RegisterPipeline("r", SPEC))[0][-1]
        for node in SCRIPTS:
            store = self._take(store, m.JoinNode("j", "p", node, "other", node))[0][-1]
        state = State((store, empty))
        while (ticks := self.facts(state.stores[0]).ticks) != self._story.begins:
            place = 0 if ticks[0] < self._story.begins[0] else 1
            taken = self._ticks(state, 0, self.facts(state.stores[0]))
            name = f"tick {ticks[place] + 1} of {[*SCRIPTS][place]} is acknowledged"
            state = next(after for said, after in taken if said == name)
        return state

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """All that can come next."""
        for group in (0, 1):
            facts = self.facts(state.stores[group])
            if facts.goes_on:
                yield from self._ticks(state, group, facts)
                if state.asked < self._story.moves:
                    there = 1 - group
                    placed = inside.pipeline(facts.process).placed
                    event = m.MovePipeline("o", "p", placed, there)
                    for _, after in self._happens(state, group, event):
                        yield (
                            f"a move to group {there} is asked for",
                            after._replace(asked=state.asked + 1),
                        )
            if facts.move is not None:
                if not facts.move.arrives and state.given_up < self._story.gives_up:
                    keep = m.PlacePipeline("g", "p", group, facts.move.version)
                    for _, after in self._happens(state, DIRECTORY_GROUP, keep):
                        yield (
                            f"group {group} is to keep it",
                            after._replace(given_up=state.given_up + 1),
                        )
                yield from self._goes_on(state, group, facts.move)
                if state.drives[group]:
                    yield (
                        f"group {group} forgets how far it was",
                        self._with_drive(state, group, ()),
                    )

    def _happens(
        self, state: State, group: int, *events: m.Event
    ) -> Iterator[tuple[list[m.Effect] | None, State]]:
        """Each state that there may be then, and what was said; None where the process died before, whose driver has
        forgotten all then."""
        stores, said = self._take(state.stores[group], *events)
        for count, store in enumerate(stores):
            whole = count == len(stores) - 1
            after = (store, state.stores[1]) if group == 0 else (state.stores[0], store)
            changed = state._replace(stores=after)
            yield (
                said if whole else None,
                changed if whole else self._with_drive(changed, group, ()),
            )

    @staticmethod
    def _with_drive(state: State, group: int, answers: tuple[int, ...]) -> State:
        one, other = state.drives
        return state._replace(drives=(answers, other) if group == 0 else (one, answers))

    def _ticks(self, state: State, group: int, facts: Facts) -> Iterator[tuple[str, State]]:
        """Each node goes on where it was, which its home says."""
        for place, (node, script) in enumerate(SCRIPTS.items()):
            number = facts.ticks[place]
            if number >= len(script) or (node == "reader" and facts.ticks[0] < PUBLISHED_AT):
                continue
            key = next(k for k in inside.pipeline(facts.process).shard.keys if k.node_id == node)
            attach = m.AttachSession(node, "p", key)
            submit = m.SubmitTick(node, number + 1, script[number])
            for said, after in self._happens(state, group, attach, submit):
                yield f"tick {number + 1} of {node} at group {group}", after
                durable = (e.number for e in said or () if isinstance(e, m.TicksDurable))
                if max(durable, default=0) > number:
                    heard = list(state.acknowledged)
                    heard[place] = number + 1
                    yield (
                        f"tick {number + 1} of {node} is acknowledged",
                        after._replace(acknowledged=(heard[0], heard[1])),
                    )

    def _goes_on(self, state: State, group: int, move: Move) -> Iterator[tuple[str, State]]:
        """The driver of a group asks the next thing."""
        answers = state.drives[group]
        steps = follow(move, group, self._story.attempts)
        assert isinstance(steps, GeneratorType)
        asks: list[Any] = []
        try:
            asked: Any = next(steps)
            for answer in answers:
                asks.append(asked)
                asked = steps.send(self._answers[answer])
        except StopIteration:
            return
        if isinstance(asked, Pause):
            # It asks its own group to end the move for ever: then it is where it was.
            ends = isinstance(asks[-1].what, m.EndMove) and asks[-1].group == group
            waited = answers[:-1] if ends else (*answers, self._waited)
            yield "it waits", self._with_drive(state, group, waited)
            return
        looks_between = (
            steps.gi_yieldfrom is not None
        )  # whether the move was decided on, while it is asked to wait
        if isinstance(asked.what, Where) and answers and not looks_between:
            # From here on it does the same as one that has just begun.
            yield "it looks again", self._with_drive(state, group, ())
            return
        is_look = isinstance(asked.what, Where) and looks_between
        before = answers if is_look else answers[: len(answers) - _tried(asks, asked)]
        name = f"group {group} asks {type(asked.what).__name__} of group {asked.group}"
        yield f"{name}, in vain", self._answered(state, group, AWAY, before)
        read = self._read(state, asked)
        if read is not None:
            yield name, self._answered(state, group, read[0], before)
            return
        event = replace(asked.what, request="d")
        for said, after in self._happens(state, asked.group, event):
            found = [e.result for e in said or () if isinstance(e, m.Answer) and e.request == "d"]
            if found:
                yield name, self._answered(after, group, found[0], before)
            dies_too = said is None and asked.group == group
            yield (
                f"{name}, and hears nothing",
                after if dies_too else self._answered(after, group, AWAY, before),
            )

    def _read(self, state: State, asked: Ask) -> tuple[Any] | None:
        """What is answered to a question that changes nothing."""
        process = self.facts(state.stores[asked.group]).process
        try:
            match asked.what:
                case Members():
                    return (tuple(sorted(process.membership.members)),)
                case Where():
                    return (process.placement("p"),)
                case PieceWanted():
                    part, given = process.part("p", asked.what.version)
                    cut = [*in_pieces(part)]
                    return (Piece(cut[asked.what.number], len(cut), given),)
        except Refused as refused:
            return (refused.refusal,)
        return None

    def _answered(self, state: State, group: int, answer: Any, before: tuple[int, ...]) -> State:
        """How often the driver had asked before it was answered is nothing any more then. before: the answers without those."""
        number = self._answers.number(answer, (type(answer).__name__, answer))
        so_far = state.drives[group] if self._is_for_now(number) else before
        return self._with_drive(state, group, (*so_far, number))

    def _is_for_now(self, number: int) -> bool:
        answer = self._answers[number]
        return answer is AWAY or (isinstance(answer, Refusal) and answer.code in FOR_NOW)

    # --- the search -------------------------------------------------------------------------------

    def run(self, most_states: int, progress: Callable[[Explored], None]) -> Explored:
        """Explores until there is nothing new, or too much."""
        seen, first = Explored(self._story.name), self.first()
        came_from: dict[State, tuple[State | None, str]] = {first: (None, "")}
        before: dict[State, list[State]] = {first: []}
        level, ends = [first], []
        while level:
            following = []
            for state in level:
                if self._is_end(state):
                    ends.append(state)
                for name, taken in self.steps(state):
                    seen.steps += 1
                    after = self._settled(taken)
                    if after not in came_from:
                        came_from[after] = (state, name)
                        before[after] = []
                        following.append(after)
                        seen.violation = self._wrong(after)
                        if seen.violation:
                            seen.states, seen.trace = len(came_from), _way(came_from, after)
                            return seen
                    before[after].append(state)
            if len(came_from) // PROGRESS_STATES > seen.states // PROGRESS_STATES:
                progress(seen)
            seen.states, level = len(came_from), following
            seen.depth += bool(level)
            if seen.states > most_states:
                return seen
        reached = _reached(ends, before)
        seen.ends, seen.whole = len(ends), len(reached) == seen.states
        seen.processes = len(self._facts)
        if lost := next((state for state in came_from if state not in reached), None):
            seen.violation, seen.trace = "the end cannot be reached", _way(came_from, lost)
        return seen

    def _settled(self, state: State) -> State:
        """Nobody goes on with a move that is over; and whoever listens hears what was announced."""
        facts = [self.facts(store) for store in state.stores]
        for group in (0, 1):
            if facts[group].move is None and state.drives[group]:
                state = self._with_drive(state, group, ())
        least = max(
            each.least for each in facts if each.goes_on or not each.move or not each.move.arrives
        )
        return state._replace(announced=max(state.announced, least))

    def _wrong(self, state: State) -> str:
        """What must not be in any state."""
        facts = [self.facts(store) for store in state.stores]
        there = [group for group in (0, 1) if facts[group].goes_on]
        if len(there) > 1:
            return "it is in both groups"
        has = (
            there[0]
            if there
            else next(
                (g for g in (0, 1) if facts[g].move is not None and facts[g].least >= 0), None
            )
        )
        if has is None:
            coming = any(each.move is not None and each.move.arrives for each in facts)
            return "" if coming else "it is in no group"
        ticks = facts[has].ticks
        if any(heard > number for heard, number in zip(state.acknowledged, ticks, strict=True)):
            return f"ticks {state.acknowledged} were acknowledged, and {ticks} are there"
        if state.announced > (true := truth(*ticks)):
            return f"{state.announced} was announced, and {true} is true"
        if facts[has].least < state.announced:
            return f"{state.announced} was announced, and now {facts[has].least}"
        return ""

    def _is_end(self, state: State) -> bool:
        facts = [self.facts(store) for store in state.stores]
        return (
            all(each.move is None for each in facts)
            and any(each.goes_on and each.ticks == (4, 1) for each in facts)
            and state.announced == FOREVER
        )


def _tried(asks: list[Any], asked: Ask) -> int:
    """How many of the last answers are of tries of the same question: each a refusal, a pause, and for some a look between."""
    for answers in (2, 3):
        tries = 0
        while len(asks) >= answers * (tries + 1) and asks[-answers * (tries + 1)] == asked:
            tries += 1
        if tries:
            return answers * tries
    return 0


def _come_back(
    snapshot: ProcessSnapshot | None, records: Sequence[tuple[int, m.Record]]
) -> Process:
    process = Process(0, TABLE, 1)
    effects = process.recover(snapshot, records, NOW_NS)
    _carry_out(process, effects, NOW_NS, [], [])
    return process


def _carry_out(
    process: Process, effects: list[m.Effect], now_ns: int,
    records: list[tuple[int, m.Record]], said: list[m.Effect],
) -> None:  # fmt: skip
    """All that is written is durable at once, and so is what follows; adds what that was, and what else is said."""
    while effects:
        written = [(e.position, e.record) for e in effects if isinstance(e, m.Append)]
        said.extend(e for e in effects if not isinstance(e, m.Append))
        records.extend(written)
        effects = process.handle(m.Committed(written[-1][0]), now_ns) if written else []


def _way(came_from: dict[State, tuple[State | None, str]], state: State) -> list[str]:
    steps: list[str] = []
    at: State | None = state
    while at is not None:
        at, step = came_from[at]
        steps.insert(0, step)
    return steps[1:]


def _reached(ends: list[State], before: dict[State, list[State]]) -> set[State]:
    """The states from which one of these can be reached."""
    reached, level = set(ends), list(ends)
    while level:
        level = [b for state in level for b in before[state] if b not in reached]
        level = list(dict.fromkeys(level))
        reached.update(level)
    return reached


def explore_move(
    story: SmallMove,
    *,
    most_states: int,
    progress: Callable[[Explored], None] = lambda _: None,
) -> Explored:
    """Explores until there is nothing new, `most_states` were seen, or something is wrong."""
    return Search(story).run(most_states, progress)
