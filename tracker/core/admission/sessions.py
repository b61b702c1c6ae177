"""Streams of ticks from nodes at home here (rules 2, 9)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from tracker.core.admission.nodes import Nodes
from tracker.core.admission.ticks import TickJudge
from tracker.core.home.home import HomeNode
from tracker.core.log import (
    AttachSession,
    Effect,
    FrontGranted,
    NodeAlive,
    ReportWaits,
    SessionAttached,
    SessionRefused,
    SubmitTick,
    TickRefused,
    TicksDurable,
)
from tracker.core.log.journal import Journal
from tracker.core.model import NodeKey, Refusal, RefusalCode, Refused
from tracker.core.model import durable as d
from tracker.core.model.waits import check_waits
from tracker.core.pipeline.homes import Homes
from tracker.core.pipeline.pipeline import Pipeline
from tracker.core.pipeline.pipelines import Pipelines


@dataclass(slots=True, eq=False)
class Sessions:
    """The attached streams, by their names. Not durable: nodes attach again."""

    _journal: Journal
    _pipelines: Pipelines
    _homes: Homes
    _nodes: Nodes
    _ticks: TickJudge
    _effects: list[Effect]
    _sessions: dict[Hashable, tuple[str, NodeKey]] = d.forgotten(d.ASKS_AGAIN, dict)
    _durable_ticks: dict[Hashable, int] = d.forgotten(d.ASKS_AGAIN, dict)
    """Ticks that became durable by the event that is being handled, to be reported at its end."""

    def items(self) -> list[tuple[Hashable, tuple[str, NodeKey]]]:
        """(session, (pipeline, key)) of all."""
        return [*self._sessions.items()]

    def tick_durable(self, session: Hashable, number: int) -> None:
        """A tick of this stream is durable."""
        self._durable_ticks[session] = number

    def report_durable_ticks(self) -> None:
        """Each stream hears of its last durable tick, once."""
        for session, number in self._durable_ticks.items():
            self._effects.append(TicksDurable(session, number))
        self._durable_ticks.clear()

    def forget_durable_ticks(self) -> None:
        """Recovery has applied ticks that nobody waits for."""
        self._durable_ticks.clear()

    def attach(self, event: AttachSession, now_ns: int) -> None:
        """Begins a stream of a node's current key, instead of an older one; or refuses it."""
        try:
            pipeline = self._homes.at_home(event.pipeline, event.key.node_id)
            # A key of an earlier generation may be another group's, and is judged by that alone.
            is_older = event.generation is not None and event.generation < pipeline.generation
            node = None if is_older else self._nodes.current(pipeline, event.key, event.generation)
            if node is None or event.generation not in (None, pipeline.generation):
                raise Refused.of(self._nodes.restarted(pipeline, event.key))
        except Refused as refused:
            self._effects.append(SessionRefused(event.session, refused.refusal))
            return
        if node.session is not None and node.session != event.session:
            self.end(
                node,
                Refusal(
                    RefusalCode.FENCED,
                    f"pipeline {event.pipeline!r}: a newer stream of node {event.key} has begun",
                ),
            )
        node.session = event.session
        node.lives(now_ns)
        self._sessions[event.session] = (event.pipeline, event.key)
        self._effects.append(SessionAttached(event.session, node.accepted))
        if node.durable:
            self._effects.append(TicksDurable(event.session, node.durable))
        for front in node.fronts:
            if node.granted(front) is not None:
                self._effects.append(FrontGranted(event.session, pipeline.grant(node, front)))

    def end(self, node: HomeNode, refusal: Refusal) -> None:
        """Ends the stream of a node, and says why."""
        self._effects.append(SessionRefused(node.session, refusal))
        self.detach(node.session)

    def end_all(self, pipeline: str, refusal: Refusal) -> None:
        """Ends the streams of all nodes of a pipeline, and says why."""
        for session, (name, _) in [*self._sessions.items()]:
            if name == pipeline:
                self._effects.append(SessionRefused(session, refusal))
                self.detach(session)

    def detach(self, session: Hashable) -> None:
        """A stream is gone; without one, this does nothing."""
        attached = self._sessions.pop(session, None)
        self._durable_ticks.pop(session, None)
        if attached is None:
            return
        name, key = attached
        node = self._pipelines[name].home.nodes.get(key.node_id)
        if node is not None and node.session == session:
            node.session, node.waits = None, ()

    def hear_alive(self, event: NodeAlive, now_ns: int) -> None:
        """A node says that it lives. Of a session that is over it says so too late, which is no harm."""
        attached = self._sessions.get(event.session)
        if attached is None:
            return
        name, key = attached
        node = self._pipelines[name].home.nodes.get(key.node_id)
        if node is not None and node.key == key:
            node.lives(now_ns)

    def submit(self, ticks: Sequence[SubmitTick], now_ns: int) -> None:
        """Takes the ticks of a message, one after the other: one that is refused is not passed over, so that
        those behind it are out of order."""
        session = ticks[0].session
        attached = self._sessions.get(session)
        if attached is None:
            refusal = Refusal(RefusalCode.FENCED, "this stream of ticks is over; attach again")
            self._effects.append(SessionRefused(session, refusal))
            return
        name, key = attached
        pipeline = self._pipelines[name]
        try:
            node = self._nodes.current(pipeline, key, pipeline.generation)
        except Refused as refused:
            for tick in ticks:
                self._effects.append(TickRefused(session, tick.number, refused.refusal))
            return
        node.heard(now_ns)
        for tick in ticks:
            self._submit(tick, pipeline, node)

    def _submit(self, event: SubmitTick, pipeline: Pipeline, node: HomeNode) -> None:
        """Judges a tick and appends what it becomes, or refuses it (rule 1); a repeated one is answered again."""
        accepted = node.accepted
        if event.number <= accepted:
            if event.number <= node.durable:
                self._effects.append(TicksDurable(event.session, node.durable))
            return
        try:
            entry = self._ticks.judge(pipeline, node, event, accepted + 1)
        except Refused as refused:
            if refused.refusal.code is not RefusalCode.OUT_OF_ORDER:
                node.record_refused(refused.refusal.message, event.content)
            self._effects.append(TickRefused(event.session, event.number, refused.refusal))
            return
        if node.refused:
            node.record_accepted()
        self._journal.append_home(entry)

    def report_waits(self, event: ReportWaits, now_ns: int) -> None:
        """Keeps what the node of a stream waits for, for people; ends a stream that says too much."""
        attached = self._sessions.get(event.session)
        if attached is None:
            return  # a newer session speaks for the node, or it has left
        name, key = attached
        pipeline = self._pipelines[name]
        try:
            node = self._nodes.current(pipeline, key, pipeline.generation)
            check_waits(name, len(pipeline.spec.segments), event.waits)
        except Refused as refused:
            self._effects.append(SessionRefused(event.session, refused.refusal))
            self.detach(event.session)
            return
        node.lives(now_ns)
        node.record_waits(event.waits, now_ns)
