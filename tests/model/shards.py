"""Shards that come and go (rule 10): what an operator and a newcomer do, beside all that can happen in any story.

A story begins with one shard or two, and ends with two or one. A process asks to be a shard whenever one is to come that nobody
knows of; it takes what another process knows, and begins with that some time later; the operator asks for so many shards
whenever the sequencer has not accepted that. So whoever asked and was not answered, since the sequencer has died, asks again.
A node whose home has changed goes where it is sent, and asks there until it is taken up. A process that has left ends.

To end at all, a shard reports when nothing that it has sent is under way (what it would report behind that, it can report then);
a frame that asks for a report gets lost where a report that says everything comes anyway; and in some stories the stores do not
wait: what is appended is durable at once.

What is checked is what is checked everywhere, told by the script and by what is durable of the home logs (`tests/model/logs.py`).
From every state the end must be reached: there all is announced that can be, and the shards are those that there are to be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from tests.model.invariants import Violation, check_announced, check_step
from tests.model.logs import Logs, check_cells, check_cut, check_visible
from tests.model.script import (
    FRONT,
    ITEMS,
    NODE_IDS,
    PIPELINE,
    SCRIPTS,
    Item,
    System,
    frontier,
    is_ready,
)
from tests.model.transitions import Done, Facts, Transitions
from tracker.core import log as m

Numbers = tuple[int, ...]
AWAY = -1
"""Of a process: that it is not there. Of a node: that it has no stream. Of a newcomer: that it has taken nothing up yet."""
SHARDS = (0, 1)
LINKS = ((0, 1), (1, 0))
NEWCOMER = 1
SEQUENCER = 0
JOIN_SHARD = m.JoinShard("newcomer", "host:1")


@dataclass(frozen=True, slots=True)
class ShardStory:
    """From so many shards to so many others, with a part of the script. there: how many there are as it begins, and as it ends;
    owning: how many of them own slots. done, last, crashes: as of a `Story`."""

    name: str
    there: tuple[int, int]
    owning: tuple[int, int]
    done: tuple[int, ...]
    last: tuple[int, ...]
    crashes: int = 0
    is_decided: bool = False
    """Whether it begins when the sequencer has decided on the table, and nobody has heard of that."""
    stores_wait: bool = True
    """Whether what is appended becomes durable some time later; else at once."""


JOINS = ShardStory("a shard joins, a crash", (1, 2), (1, 1), (2, 0), (2, 0), 1)
LEAVES = ShardStory(
    "a shard leaves and hands over what is open", (2, 1), (2, 1), (2, 1), (2, 1), stores_wait=False
)
SHARD_STORIES: tuple[ShardStory, ...] = (
    JOINS,
    LEAVES,
    ShardStory("a shard joins, the worker's first tick", (1, 2), (1, 1), (2, 0), (2, 1)),
    ShardStory(
        "the worker moves its hold while a shard leaves",
        (2, 1), (2, 1), (2, 1), (2, 2), is_decided=True, stores_wait=False,
    ),
    ShardStory(
        "a shard that has joined owns slots, the worker's first tick",
        (2, 2), (1, 2), (1, 0), (1, 1), stores_wait=False,
    ),
    ShardStory(
        "a shard that has joined owns slots, a crash",
        (2, 2), (1, 2), (1, 0), (1, 0), 1, is_decided=True, stores_wait=False,
    ),
    ShardStory(
        "a shard leaves and hands over what is open, a crash",
        (2, 1), (2, 1), (2, 1), (2, 1), 1, is_decided=True, stores_wait=False,
    ),
)  # fmt: skip


class ShardState(NamedTuple):
    """The whole system. processes: by shard; links: frames under way, by `LINKS`; homes: by node where it commits; streams: and
    whether it has a stream there; handed: by node the scripted ticks that its home has been given; durable: those that it knows to
    be durable; epochs: by shard; taken: the number of the snapshot that the newcomer is to begin with; logs: by home the number of
    what is durable of its log."""

    processes: Numbers
    links: tuple[Numbers, ...]
    homes: Numbers
    streams: tuple[bool, ...]
    handed: Numbers
    durable: Numbers
    epochs: Numbers
    crashes_left: int
    taken: int
    logs: Numbers
    front: int = 0
    """How it is with the front, in stories in which that is evicted."""
    granted: int = AWAY
    """From which slot on the front may label that has joined again."""


class ShardWorld:
    """Makes the steps of states, and checks them; keeps what it has worked out of processes."""

    may_turn = True
    spec = PIPELINE

    def __init__(self, story: ShardStory) -> None:
        self.story = story
        self.system = self.system_of(story)
        self.known, self.logs = (
            Transitions(self.system, SCRIPTS, counts_reports=False, stores_wait=story.stores_wait),
            Logs(),
        )
        self._checked: set[tuple[int, Numbers]] = set()

    def system_of(self, story: ShardStory) -> System:
        return System.of(story.owning[0], len(SHARDS))

    def items_of(self, state: ShardState) -> tuple[Item, ...]:
        """What the script has nodes create and consume."""
        return ITEMS

    def facts(self, state: ShardState) -> dict[int, Facts]:
        """By shard, of the processes that are there."""
        known = self.known.facts
        return {shard: known[p] for shard, p in enumerate(state.processes) if p != AWAY}

    def initial(self) -> ShardState:
        """Everything registered, joined, attached and granted, the ticks before the story processed
        and announced everywhere, and nothing under way."""
        there = range(self.story.owning[0])
        nothing = (0,) * len(self.system.keys)
        state = ShardState(
            processes=tuple(self.known.start(s) if s in there else AWAY for s in SHARDS),
            links=((), ()), homes=self.system.homes, streams=(True,) * len(nothing), handed=nothing,
            durable=nothing, epochs=tuple(int(shard in there) for shard in SHARDS), crashes_left=0,
            taken=AWAY, logs=(0, 0),
        )  # fmt: skip
        for shard in there:
            for other in there:
                if other != shard:
                    state = self._event(state, shard, m.PeerConnected(other))
        register = m.RegisterPipeline("register", self.spec)
        state = self._settle(self._event(state, self.system.routing.registrar("p"), register))
        for node, home in enumerate(self.system.homes[: len(NODE_IDS)]):
            join = m.JoinNode(node, "p", NODE_IDS[node], "model")
            state = self._attach(self._settle(self._event(state, home, join)), node)
        home = self.system.homes[FRONT]
        joined = self.known.tick(state.processes[home], FRONT, -1)
        state = self._settle(self._carry_out(state, home, joined))
        for node, count in enumerate(self.story.done):
            while state.handed[node] < count:
                state = self._settle(self._hand_over(state, node))
        if self.story.there[0] > self.story.owning[0]:
            state = self._settle(self._event(state, SEQUENCER, JOIN_SHARD))
        if self.story.is_decided:
            state = self._settle(self._ask(state), until=self._is_decided)
        return self.renumbered(state)._replace(crashes_left=self.story.crashes)

    # --- what can happen --------------------------------------------------------------------------

    def steps(self, state: ShardState) -> Iterator[tuple[str, Callable[[], ShardState]]]:
        """All that can happen next, by name."""
        yield from self._of_nodes(state)
        for shard, facts in self.facts(state).items():
            if facts.pending:
                name = f"shard {shard} makes {facts.pending} records durable"
                yield name, partial(self._commit, state, shard)
            if facts.has_news and not state.links[LINKS.index((shard, 1 - shard))]:
                yield f"shard {shard} reports", partial(self._report, state, shard)
            if state.crashes_left:
                name = f"shard {shard} crashes and comes back"
                yield name, partial(self._crash, state, shard)
        for link, (sender, receiver) in enumerate(LINKS):
            if state.links[link]:
                what = type(self.known.frames.things[state.links[link][0]].body).__name__
                name = f"shard {receiver} hears {what} of shard {sender}"
                yield name, partial(self._deliver, state, link)
        yield from self._of_shards(state)

    def _is_reporting(self, state: ShardState, link: int, *, whole: bool = False) -> bool:
        """Whether a report is under way on a link. whole: one that says everything."""
        bodies = (self.known.frames.things[frame].body for frame in state.links[link])
        return any(isinstance(body, m.ShardReport) and body.whole >= whole for body in bodies)

    def _of_nodes(self, state: ShardState) -> Iterator[tuple[str, Callable[[], ShardState]]]:
        yield from (step for _, step in self._steps_of_nodes(state))

    def _steps_of_nodes(
        self, state: ShardState
    ) -> Iterator[tuple[int, tuple[str, Callable[[], ShardState]]]]:
        """By node what those of the script do."""
        for node, tick in enumerate(state.handed[: len(NODE_IDS)]):
            if not state.streams[node]:
                name = f"node {node} turns to shard {state.homes[node]}"
                yield node, (name, partial(self._attach, state, node))
            elif tick < self.story.last[node] and is_ready(node, state.handed, state.durable):
                name = f"node {node} hands over its tick {tick}"
                yield node, (name, partial(self._hand_over, state, node))

    def _of_shards(self, state: ShardState) -> Iterator[tuple[str, Callable[[], ShardState]]]:
        """What a newcomer and the operator do."""
        expected = self.known.facts[state.processes[SEQUENCER]].expected
        if max(self.story.there) > self.story.owning[0] and state.processes[NEWCOMER] == AWAY:
            if expected.next_shard == NEWCOMER:
                name = "a process asks to be a shard"
                yield name, partial(self._event, state, SEQUENCER, JOIN_SHARD)
            elif state.taken != AWAY:
                yield "the newcomer begins", partial(self._begin, state)
            else:
                taken = self.known.bootstrap(state.processes[SEQUENCER], NEWCOMER)
                if taken is not None:
                    name = f"the newcomer takes what shard {SEQUENCER} knows"
                    yield name, partial(state._replace, taken=taken)
        if self._may_ask(state):
            yield "the operator asks for another number of shards", partial(self._ask, state)

    def _may_ask(self, state: ShardState) -> bool:
        """Whether the sequencer would accept what the operator asks for, and has not yet."""
        facts = self.known.facts[state.processes[SEQUENCER]]
        known, expected = facts.membership, facts.expected
        has_joined = len(known.members) == len(SHARDS)
        changes = self.story.owning[0] != self.story.owning[1]
        return changes and has_joined and not expected.table.version and expected.asked is None

    # --- steps ------------------------------------------------------------------------------------

    def _hand_over(self, state: ShardState, node: int) -> ShardState:
        home, tick = state.homes[node], state.handed[node]
        done = self.known.tick(state.processes[home], node, tick)
        return self._carry_out(
            state._replace(handed=_with(state.handed, node, tick + 1)), home, done
        )

    def _attach(self, state: ShardState, node: int) -> ShardState:
        home = state.homes[node]
        if state.processes[home] == AWAY:
            return state
        asked = state._replace(streams=_with(state.streams, node, True))
        return self._event(asked, home, m.AttachSession(node, "p", self.system.keys[node]))

    def _commit(self, state: ShardState, shard: int) -> ShardState:
        process = state.processes[shard]
        return self._carry_out(
            state, shard, self.known.commit(process, self.known.facts[process].pending)
        )

    def _report(self, state: ShardState, shard: int) -> ShardState:
        return self._carry_out(state, shard, self.known.report(state.processes[shard]))

    def _ask(self, state: ShardState) -> ShardState:
        ask = m.RescaleShards("operator", self.story.owning[1], evacuate=True)
        return self._event(state, SEQUENCER, ask)

    def _deliver(self, state: ShardState, link: int) -> ShardState:
        frame, *rest = state.links[link]
        receiver = LINKS[link][1]
        done = self.known.frame(state.processes[receiver], frame)
        under_way = state._replace(links=_with(state.links, link, tuple(rest)))
        return self._carry_out(under_way, receiver, done)

    def _begin(self, state: ShardState) -> ShardState:
        return self._come_back(state._replace(taken=AWAY), NEWCOMER, state.taken)

    def _crash(self, state: ShardState, shard: int) -> ShardState:
        durable = self.known.durable(state.processes[shard])
        after = self._come_back(state, shard, durable)
        for node, home in enumerate(state.homes):
            if home == shard:
                after = self._attach(
                    after._replace(streams=_with(after.streams, node, False)), node
                )
        return after._replace(crashes_left=state.crashes_left - 1)

    def _come_back(self, state: ShardState, shard: int, snapshot: int) -> ShardState:
        """The shard's process begins with what was durable; nothing is left of what was under way to it, and from it."""
        epoch, other = state.epochs[shard] + 1, 1 - shard
        after = state._replace(links=((), ()), epochs=_with(state.epochs, shard, epoch))
        after = self._carry_out(after, shard, self.known.recover(shard, epoch, snapshot))
        if state.processes[other] != AWAY:
            after = self._event(after, other, m.PeerDisconnected(shard))
            after = self._event(after, other, m.PeerConnected(shard))
            after = self._event(after, shard, m.PeerConnected(other))
        return after

    # --- effects ----------------------------------------------------------------------------------

    def _event(self, state: ShardState, shard: int, event: m.Event) -> ShardState:
        return self._carry_out(state, shard, self.known.other(state.processes[shard], event))

    def _carry_out(self, state: ShardState, shard: int, done: Done) -> ShardState:
        state = state._replace(
            processes=_with(state.processes, shard, done.process),
            logs=_with(state.logs, shard, self.logs.longer(state.logs[shard], done.logged)),
        )
        for to, frame in done.frames:
            link = LINKS.index((shard, to))
            if state.processes[to] != AWAY and not self._is_needless(state, link, frame):
                frames = (*state.links[link], frame)
                state = state._replace(links=_with(state.links, link, frames))
        for node, count in done.durable:
            most = max(count, state.durable[node])
            state = state._replace(durable=_with(state.durable, node, most))
        for node, count in done.attached:
            state = state._replace(handed=_with(state.handed, node, count))
        for node, home in done.refused:
            home = state.homes[node] if home < 0 else home
            state = state._replace(
                streams=_with(state.streams, node, False), homes=_with(state.homes, node, home)
            )
        for to, frame in done.confirmations:
            if state.processes[to] != AWAY:
                state = self._carry_out(state, to, self.known.frame(state.processes[to], frame))
        if done.has_left:
            self._check_left(state, shard)
            state = state._replace(processes=_with(state.processes, shard, AWAY), links=((), ()))
        return state

    def _is_needless(self, state: ShardState, link: int, frame: int) -> bool:
        """Whether a frame asks for a report where a whole one comes anyway: it gets lost."""
        wanted = isinstance(self.known.frames.things[frame].body, m.ReportWanted)
        return wanted and self._is_reporting(state, 1 - link, whole=True)

    def renumbered(self, state: ShardState) -> ShardState:
        """The same state: there is nothing to number anew, since reports have no numbers."""
        return state

    def _is_decided(self, state: ShardState) -> bool:
        return any(entry.table is not None for entry in self.logs[state.logs[SEQUENCER]])

    def _settle(
        self, state: ShardState, until: Callable[[ShardState], bool] = lambda _: False
    ) -> ShardState:
        """Lets everything under way finish, in one order, or until something holds."""
        words = ("hands over", "crashes", "asks", "evicted")
        while not until(state):
            following = (
                take for name, take in self.steps(state) if not any(w in name for w in words)
            )
            take = next(following, None)
            if take is None:
                break
            state = take()
        return state

    # --- what must hold ---------------------------------------------------------------------------

    def _counts(self, state: ShardState) -> Numbers:
        """By node the scripted ticks that are durable."""
        ticks = [e.tick for log in state.logs for e in self.logs[log] if e.tick is not None]
        return tuple(
            sum(n == node and t >= 0 for n, t in ticks) for node in range(len(state.handed))
        )

    def truth(self, state: ShardState) -> tuple[int, ...]:
        """By segment the lowest slot at which something is, or can come to be."""
        return frontier(self._counts(state), self.story.last)

    def check(self, state: ShardState, *, from_outside: bool = False) -> None:
        """Raises Violation where an invariant does not hold. from_outside: of what is announced alone."""
        facts = self.facts(state)
        check_announced([*facts.values()], self.truth(state))
        if from_outside:
            return
        logs, items = [self.logs[number] for number in state.logs], self.items_of(state)
        check_cut(facts, logs)
        for shard, each in facts.items():
            seen = (state.processes[shard], state.logs)
            if seen not in self._checked:
                self._checked.add(seen)
                check_cells(shard, each, logs, self.system, items)
                check_visible(shard, each, logs, items)

    def check_step(self, before: ShardState, after: ShardState) -> None:
        """What a step must not undo."""
        was, now = self.facts(before), self.facts(after)
        both = was.keys() & now.keys()
        check_step([was[shard] for shard in both], [now[shard] for shard in both])

    def _check_left(self, state: ShardState, shard: int) -> None:
        """Whoever is left has announced as much as a shard that is gone: who listened to that one hears nothing less."""
        facts = self.facts(state)
        gone = facts.pop(shard)
        for other, each in facts.items():
            if gone.said and (
                not each.said or any(a < b for a, b in zip(each.said, gone.said, strict=True))
            ):
                raise Violation(
                    f"shard {shard} had said {gone.said}, and shard {other} says {each.said}"
                )

    def wrong_end(self, state: ShardState) -> str:
        """What is wrong with a state in which nothing is left to do; empty if it is the end that there should be."""
        due, facts = self.truth(state), self.facts(state)
        said = {shard: each.said for shard, each in facts.items()}
        if any(min_times != due for min_times in said.values()):
            return f"min times are {said} and should be {due}"
        for shard, each in facts.items():
            known = each.membership
            if (
                known.is_busy
                or known.members != facts.keys()
                or len(known.table.owning) != self.story.owning[1]
            ):
                return f"and shard {shard} knows {known}"
        return ""


def _with(values: tuple, at: int, value: object) -> tuple:  # type: ignore[type-arg]
    return (*values[:at], value, *values[at + 1 :])
