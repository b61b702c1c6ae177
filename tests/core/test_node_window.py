"""A node's window of ticks against a home that does as rule 2 says, over streams that break."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker.core.home.window import TickWindow
from tracker.core.model import Refusal, RefusalCode

FULL = Refusal(RefusalCode.FULL, "there is no room")


@dataclass(eq=False)
class Content:
    """A tick; the home refuses it the first `refusals` times that it judges it."""

    place: int
    promises: bool
    refusals: int


@dataclass(eq=False)
class Stream:
    """Keeps its order. When broken, what was sent may still arrive, and answers do not come back."""

    up: deque[tuple[int, Content] | None] = field(default_factory=deque)
    down: deque[tuple[str, int, Refusal | None]] = field(default_factory=deque)


class Home:
    """Accepts the ticks of one key in order, makes them durable later, forgets the rest in a crash."""

    def __init__(self) -> None:
        self.log: list[Content] = []
        self.durable = 0
        self.attached: Stream | None = None

    def take(self, stream: Stream) -> None:
        message = stream.up.popleft()
        if message is None:  # attach: ends the stream that was attached before
            if self.attached is not None:
                self.attached.down.append(("ended", 0, None))
            self.attached = stream
            stream.down.append(("attached", len(self.log), None))
            stream.down.append(("committed", self.durable, None))
        elif stream is self.attached:
            self._judge(stream, *message)

    def _judge(self, stream: Stream, number: int, content: Content) -> None:
        due = len(self.log) + 1
        if number < due:
            return
        if number > due:
            late = Refusal(RefusalCode.OUT_OF_ORDER, "not due", expected=due)
            stream.down.append(("refused", number, late))
        elif content.refusals:
            content.refusals -= 1
            stream.down.append(("refused", number, FULL))
        else:
            self.log.append(content)

    def sync(self) -> None:
        self.durable = len(self.log)
        if self.attached is not None:
            self.attached.down.append(("committed", self.durable, None))

    def crash(self) -> None:
        del self.log[self.durable :]
        self.attached = None


class Node:
    """Drives the window, and writes down what becomes of each tick."""

    def __init__(self, window: TickWindow[Content, Content]) -> None:
        self.window = window
        self.committed: list[Content] = []
        self.fate: dict[Content, int | Refusal] = {}
        self.heard_refused_at: dict[Content, int] = {}

    def commit(self, promises: bool, refusals: int) -> None:
        if not self.window.full:
            content = Content(len(self.committed), promises, refusals)
            self.committed.append(content)
            self.window.add(content, content, promises=promises)

    def take(self, stream: Stream) -> None:
        kind, number, refusal = stream.down.popleft()
        if kind == "attached":
            self.window.attached(number)
        elif kind == "committed":
            for content, its_number in self.window.committed(number):
                self._settle(content, its_number)
        else:
            assert refusal is not None
            for content, why in self.window.refused(number, refusal):
                self._settle(content, why)
                self.heard_refused_at[content] = len(self.committed)

    def _settle(self, content: Content, fate: int | Refusal) -> None:
        assert content not in self.fate, "a tick was answered twice"
        self.fate[content] = fate


class World:
    """One node, one home, and the streams between them, of which the last is the node's."""

    def __init__(self, limit: int) -> None:
        self.home = Home()
        self.node = Node(TickWindow(limit))
        self.streams = [self._open()]

    def _open(self) -> Stream:
        stream = Stream()
        stream.up.append(None)
        return stream

    @property
    def stream(self) -> Stream:
        return self.streams[-1]

    def send(self) -> None:
        self.stream.up.extend(self.node.window.to_send())

    def arrive(self, which: int) -> None:
        arriving = [stream for stream in self.streams if stream.up]
        if arriving:
            self.home.take(arriving[which % len(arriving)])

    def answer(self) -> None:
        if self.stream.down and self.stream.down[0][0] == "ended":
            self.reconnect(0)  # an older stream's attach has come late
        elif self.stream.down:
            self.node.take(self.stream)

    def reconnect(self, arrives: int) -> None:
        """The stream breaks behind its first `arrives` messages that are still under way."""
        while len(self.stream.up) > arrives:
            self.stream.up.pop()
        self.node.window.detached()
        self.streams.append(self._open())

    def crash(self) -> None:
        self.home.crash()
        for stream in self.streams:
            stream.up.clear()
        self.reconnect(0)

    def settle(self) -> None:
        """Nothing breaks any more."""
        for _ in range(1_000):
            self.send()
            while any(stream.up for stream in self.streams):
                self.arrive(0)
            self.home.sync()
            while self.stream.down:
                self.answer()
            if not len(self.node.window):
                return
        raise AssertionError("the window does not empty")


STEPS = st.one_of(
    st.tuples(st.just("commit"), st.booleans(), st.sampled_from([0, 0, 0, 1, 3])),
    st.tuples(st.just("commit"), st.just(False), st.just(0)),
    st.just(("send",)),
    st.tuples(st.just("arrive"), st.integers(0, 3)),
    st.tuples(st.just("arrive"), st.integers(0, 3)),
    st.just(("answer",)),
    st.just(("answer",)),
    st.just(("sync",)),
    st.tuples(st.just("reconnect"), st.integers(0, 4)),
    st.just(("crash",)),
)


def run(limit: int, steps: list[tuple[object, ...]]) -> World:
    world = World(limit)
    actions = {
        "commit": world.node.commit,
        "send": world.send,
        "arrive": world.arrive,
        "answer": world.answer,
        "sync": world.home.sync,
        "reconnect": world.reconnect,
        "crash": world.crash,
    }
    for name, *arguments in steps:
        actions[str(name)](*arguments)  # type: ignore[operator]
        assert len(world.node.window) <= limit
    world.settle()
    return world


@given(limit=st.integers(1, 8), steps=st.lists(STEPS, max_size=120))
def test_every_tick_is_accepted_once_in_order_or_refused(
    limit: int, steps: list[tuple[object, ...]]
) -> None:
    world = run(limit, steps)
    places = [content.place for content in world.home.log]
    assert places == sorted(set(places))
    for content in world.node.committed:
        fate = world.node.fate[content]
        if isinstance(fate, int):
            assert world.home.log[fate - 1] is content
        else:
            assert content not in world.home.log


@given(limit=st.integers(2, 8), steps=st.lists(STEPS, max_size=120))
def test_no_promise_goes_on_behind_a_tick_that_was_refused(
    limit: int, steps: list[tuple[object, ...]]
) -> None:
    world = run(limit, steps)
    for refused, committed_by_then in world.node.heard_refused_at.items():
        behind = world.node.committed[refused.place + 1 : committed_by_then]
        assert not [content for content in behind if content.promises and content in world.home.log]


def filled(count: int) -> TickWindow[str, str]:
    window: TickWindow[str, str] = TickWindow(count)
    for place in range(count):
        window.add(f"t{place + 1}", f"c{place + 1}")
    return window


def test_nothing_is_sent_before_the_home_says_where_to_begin() -> None:
    window = filled(2)
    assert window.to_send() == []
    window.attached(0)
    assert window.to_send() == [(1, "c1"), (2, "c2")]
    assert window.to_send() == []


def test_a_stream_that_is_not_answered_carries_no_tick() -> None:
    """So one that comes late, when another one has taken its place, carries none whose number was given again meanwhile."""
    window: TickWindow[str, str] = TickWindow(2)
    window.add("t1", "c1")
    window.attached(0)
    assert window.to_send() == [(1, "c1")]
    window.detached()
    window.add("t2", "c2")
    assert window.to_send() == [], "the next stream is not answered"
    window.attached(0)
    assert window.to_send() == [(1, "c1"), (2, "c2")]


def test_a_window_takes_its_limit_and_no_more() -> None:
    window = filled(3)
    assert window.full
    with pytest.raises(OverflowError, match="3 ticks wait, the limit is 3"):
        window.add("t4", "c4")


def test_after_a_reconnect_sending_goes_on_behind_what_was_accepted() -> None:
    window = filled(3)
    window.attached(0)
    window.to_send()
    window.detached()
    window.attached(2)
    assert window.to_send() == [(3, "c3")]
    assert window.committed(3) == [("t1", 1), ("t2", 2), ("t3", 3)]


def test_a_refused_tick_frees_its_number_for_the_next() -> None:
    window = filled(3)
    window.attached(0)
    window.to_send()
    assert window.refused(1, FULL) == [("t1", FULL)]
    assert window.to_send() == [(1, "c2"), (2, "c3")]
    late = Refusal(RefusalCode.OUT_OF_ORDER, "not due", expected=1)
    assert window.refused(2, late) == window.refused(3, late) == []
    assert window.to_send() == []
    assert window.committed(2) == [("t2", 1), ("t3", 2)]


def test_a_home_that_lost_what_it_acknowledged_is_not_taken_for_the_same() -> None:
    window = filled(2)
    window.attached(0)
    window.to_send()
    window.committed(2)
    with pytest.raises(ValueError, match="lost what it acknowledged"):
        window.attached(1)


def test_a_home_that_knows_more_than_was_sent_has_another_node_of_this_key() -> None:
    window = filled(2)
    with pytest.raises(ValueError, match="another process commits under its key"):
        window.attached(3)
    window.attached(0)
    with pytest.raises(ValueError, match="tick 1 is durable, and only those up to 0"):
        window.committed(1)


def test_giving_up_returns_all_that_waits() -> None:
    window = filled(2)
    assert window.drain() == ["t1", "t2"]
    assert len(window) == 0 and window.to_send() == []
