"""The state of the small system, and every step that can come next.

Nothing is random: a node hands over its next tick, a shard's store finishes a commit, a frame arrives, a
shard reports, a process crashes and recovers; each is a step that some state offers, and the explorer
takes them all. Frames arrive in the order of their link, but for the confirmations of home logs, which
arrive at once: they do nothing but trim what would be sent again. A crash loses what was not durable and
the frames on the links of the process; it comes back with what was durable, both ends connect anew, and
its nodes attach again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from tests.model.invariants import check_announced, check_cut, check_process, check_step
from tests.model.script import (
    CUT,
    FRONT,
    NODE_IDS,
    PIPELINE,
    SCRIPTS,
    SYSTEMS,
    Story,
    frontier,
    is_ready,
)
from tests.model.transitions import Done, Facts, Transitions
from tracker.core import log as m
from tracker.core.model import PipelineSpec

Numbers = tuple[int, ...]
NOT_ASKED, LOST, ASKED, ANSWERED = range(4)
"""Of the story's change. Lost is it where the process that was asked has died; it may be durable all the same."""


class State(NamedTuple):
    """The whole system. processes: by shard; links: frames under way, by `World.links`; handed: by node the
    scripted ticks that its home has been given; durable: those whose acknowledgement was heard; epochs:
    by shard; crashes_left: how many may still come."""

    processes: Numbers
    links: tuple[Numbers, ...]
    handed: Numbers
    durable: Numbers
    epochs: Numbers
    crashes_left: int
    change: int = NOT_ASKED
    """Whether the operator has asked for the story's change, and was answered."""


class World:
    """Makes the steps of states, and checks them; keeps what it has worked out of processes."""

    may_turn = False

    def __init__(self, story: Story) -> None:
        self.story = story
        self.system = SYSTEMS[story.shards]
        self.shards = range(story.shards)
        self.links = [(one, other) for one in self.shards for other in self.shards if one != other]
        self.known = Transitions(self.system, story.scripts)
        self._checked = 0

    def facts(self, state: State) -> list[Facts]:
        return [self.known.facts[process] for process in state.processes]

    def initial(self) -> State:
        """Everything registered, joined, attached and granted, the ticks before the story processed
        and announced everywhere, and nothing under way."""
        state = State(
            processes=tuple(self.known.start(shard) for shard in self.shards),
            links=((),) * len(self.links),
            handed=(0,) * len(SCRIPTS), durable=(0,) * len(SCRIPTS),
            epochs=(1,) * len(self.shards), crashes_left=0,
        )  # fmt: skip
        for shard in self.shards:
            for other in self.shards:
                if other != shard:
                    state = self._other(state, shard, m.PeerConnected(other))
        registrar = self.system.routing.registrar(PIPELINE.name)
        register = m.RegisterPipeline("register", PIPELINE)
        state = self._settle(self._other(state, registrar, register))
        for node, (home, node_id) in enumerate(zip(self.system.homes, NODE_IDS, strict=True)):
            join = m.JoinNode(node, PIPELINE.name, node_id, "model")
            state = self._settle(self._other(state, home, join))
            attach = m.AttachSession(node, PIPELINE.name, self.system.keys[node])
            state = self._other(state, home, attach)
        joined = self.known.tick(state.processes[self.system.homes[FRONT]], FRONT, -1)
        state = self._settle(self._carry_out(state, self.system.homes[FRONT], joined))
        nothing = (0,) * len(SCRIPTS)
        state = state._replace(handed=nothing, durable=nothing)
        for node, count in enumerate(self.story.done):
            while state.handed[node] < count:
                state = self._settle(self._hand_over(state, node, self.system.homes[node]))
        return self.renumbered(state)._replace(crashes_left=self.story.crashes)

    def steps(self, state: State) -> Iterator[tuple[str, Callable[[], State]]]:
        """All that can happen next, by name."""
        for node, home in enumerate(self.system.homes):
            tick = state.handed[node]
            waits = self.story.waits(node, tick, state.change == ANSWERED)
            if (
                tick < self.story.last[node]
                and is_ready(node, state.handed, state.durable)
                and not waits
            ):
                name = f"node {node} hands over its tick {tick}"
                yield name, partial(self._hand_over, state, node, home)
        if state.change in (NOT_ASKED, LOST) and self.story.may_ask(state.durable):
            yield "the operator asks for the change", partial(self._ask, state)
        for shard in self.shards:
            facts = self.known.facts[state.processes[shard]]
            for records in self._group_commits(facts.pending):
                name = f"shard {shard} makes {records} records durable"
                yield name, partial(self._commit, state, shard, records)
            if facts.has_news:
                yield f"shard {shard} reports", partial(self._report, state, shard)
            if state.crashes_left:
                name = f"shard {shard} crashes and comes back"
                yield name, partial(self._crash, state, shard)
        for link, (sender, receiver) in enumerate(self.links):
            if state.links[link]:
                what = type(self.known.frames.things[state.links[link][0]].body).__name__
                name = f"shard {receiver} hears {what} of shard {sender}"
                yield name, partial(self._deliver, state, link)

    # --- steps ------------------------------------------------------------------------------------

    def _hand_over(self, state: State, node: int, home: int) -> State:
        done = self.known.tick(state.processes[home], node, state.handed[node])
        handed = _with(state.handed, node, state.handed[node] + 1)
        return self._carry_out(state._replace(handed=handed), home, done)

    def _ask(self, state: State) -> State:
        assert self.story.change is not None
        ask = m.RegisterPipeline("change", self.story.change, change=True)
        asked = state._replace(change=ASKED)
        return self._other(asked, self.system.routing.registrar(PIPELINE.name), ask)

    def _group_commits(self, pending: int) -> range:
        """How many of the records that wait may become durable at once: all; one shard by itself, whose
        announcements are told before their records are durable, may also be in the middle of them."""
        return range(1 if len(self.shards) == 1 else max(1, pending), pending + 1)

    def _commit(self, state: State, shard: int, records: int) -> State:
        return self._carry_out(state, shard, self.known.commit(state.processes[shard], records))

    def _report(self, state: State, shard: int) -> State:
        return self._carry_out(state, shard, self.known.report(state.processes[shard]))

    def _deliver(self, state: State, link: int) -> State:
        frame, *rest = state.links[link]
        receiver = self.links[link][1]
        done = self.known.frame(state.processes[receiver], frame)
        under_way = state._replace(links=_with(state.links, link, tuple(rest)))
        return self._carry_out(under_way, receiver, done)

    def _crash(self, state: State, shard: int) -> State:
        epoch = state.epochs[shard] + 1
        durable = self.known.durable(state.processes[shard])
        back = self.known.recover(shard, epoch, durable)
        after = state._replace(
            links=tuple(
                () if shard in link else frames
                for link, frames in zip(self.links, state.links, strict=True)
            ),
            epochs=_with(state.epochs, shard, epoch),
        )
        after = self._carry_out(after, shard, back)
        for other in self.shards:
            if other != shard:
                after = self._other(after, other, m.PeerDisconnected(shard))
                after = self._other(after, other, m.PeerConnected(shard))
                after = self._other(after, shard, m.PeerConnected(other))
        for node, home in enumerate(self.system.homes):
            if home == shard:
                attach = m.AttachSession(node, PIPELINE.name, self.system.keys[node])
                after = self._other(after, shard, attach)
        if state.change == ASKED and shard == self.system.routing.registrar(PIPELINE.name):
            after = after._replace(change=LOST)  # nobody answers any more: it is asked for again
        return after._replace(crashes_left=state.crashes_left - 1)

    # --- effects ----------------------------------------------------------------------------------

    def _other(self, state: State, shard: int, event: m.Event) -> State:
        return self._carry_out(state, shard, self.known.other(state.processes[shard], event))

    def _carry_out(self, state: State, shard: int, done: Done) -> State:
        state = state._replace(processes=_with(state.processes, shard, done.process))
        if done.frames:
            links = list(state.links)
            for to, frame in done.frames:
                links[self.links.index((shard, to))] += (frame,)
            state = state._replace(links=tuple(links))
        if done.changed:
            state = state._replace(change=ANSWERED)
        for node, count in done.durable:
            most = max(count, state.durable[node])
            state = state._replace(durable=_with(state.durable, node, most))
        for node, count in done.attached:
            state = state._replace(handed=_with(state.handed, node, count))
        for to, frame in done.confirmations:
            heard = self.known.frame(state.processes[to], frame)
            state = self._carry_out(state, to, heard)
        return state

    def renumbered(self, state: State) -> State:
        """The same state, with smaller numbers. Reports are numbered, and only how far two numbers are apart matters: where all of a link's
        have arrived, both its ends count from 0 again."""
        processes = list(state.processes)
        for frames, (sender, receiver) in zip(state.links, self.links, strict=True):
            if not frames:
                number = self.known.facts[processes[sender]].reports
                heard = self.known.facts[processes[receiver]].heard_reports[sender]
                if number == heard > 0:
                    processes[sender] = self.known.renumber(processes[sender], None)
                    processes[receiver] = self.known.renumber(processes[receiver], sender)
        return state._replace(processes=tuple(processes))

    # --- what must hold ---------------------------------------------------------------------------

    def check(self, state: State, *, from_outside: bool = False) -> None:
        """Raises Violation where an invariant does not hold. from_outside: of what is announced alone."""
        facts = self.facts(state)
        check_announced(facts, frontier(state.durable, self.story.last, self._change(state)))
        if from_outside:
            return
        check_cut(facts)
        while self._checked < len(self.known.facts):  # processes that no state had before
            number, self._checked = self._checked, self._checked + 1
            shard = self.known.processes.things[number].shard
            check_process(shard, self.known.facts[number], self.system, self.story.change)

    def check_step(self, before: State, after: State) -> None:
        check_step(self.facts(before), self.facts(after))

    def _change(self, state: State) -> PipelineSpec | None:
        """What the pipeline becomes, as far as that was asked for; what is added has no items before."""
        return None if state.change == NOT_ASKED and self.story.change == CUT else self.story.change

    def wrong_end(self, state: State) -> str:
        """What is wrong with a state in which nothing is left to do; empty if everything is announced that can be."""
        said = [facts.said for facts in self.facts(state)]
        due = frontier(self.story.last, self.story.last, self._change(state))
        return "" if all(s == due for s in said) else f"min times are {said} and should be {due}"

    # --- in one order -----------------------------------------------------------------------------

    def _settle(self, state: State) -> State:
        """Lets everything under way finish, in one order."""
        while True:
            for name, take in self.steps(state):
                if not any(word in name for word in ("hands over", "crashes", "asks")):
                    state = take()
                    break
            else:
                return state


def _with(values: tuple, at: int, value: object) -> tuple:  # type: ignore[type-arg]
    return (*values[:at], value, *values[at + 1 :])
