"""What the client tests share: a small pipeline, and steps of a front and a worker."""

from __future__ import annotations

import queue
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

import tracker
from tests.waits import HANG_S, until
from tracker.client import Admin, NodeClient, RefusedError, Subscriber, UnavailableError, Update
from tracker.client.connection import parse_targets
from tracker.core.model import (
    Cells,
    Edge,
    Heartbeat,
    PipelineSpec,
    RefusalCode,
    TickContent,
    TimeKind,
)
from tracker.core.model.slots import FOREVER

if (
    TYPE_CHECKING
):  # a part of this folder runs where the client is installed alone (`make install-matrix`)
    from tracker import EmbeddedTracker

TWO_SEGMENTS = PipelineSpec(
    "two", ("first", "second"), (Edge("first", "second"),), fronts=("front",)
)
FIRST, SECOND = 0, 1


def create(slot: int, value: int, segment: int = FIRST) -> TickContent:
    """An item appears."""
    return TickContent(created=Cells.of([(segment, slot, value, 1)]))


def consume(slot: int, value: int, segment: int = FIRST) -> TickContent:
    """An item is done."""
    return TickContent(consumed=Cells.of([(segment, slot, value, 1)]))


def promise(slot: int) -> TickContent:
    """The front will label nothing below a slot."""
    return TickContent(heartbeats=(Heartbeat("front", slot),))


def heard_everywhere(
    target: str | Sequence[str], pipeline: str, slot: int, segment: str | None = None
) -> None:
    """Returns when whichever process is asked says that min time is there: each announces for itself, and who looks
    asks one of them."""
    for address in parse_targets(target):
        with Subscriber(address, pipeline) as subscriber:
            assert subscriber.wait_until(slot, segment, HANG_S)


def expires_because(ask: Callable[[], object], reason: str) -> None:
    """Returns when a request that expires says why: on a busy machine it may do so before that is known."""

    def says_why() -> bool:
        with pytest.raises(UnavailableError) as error:
            ask()
        return re.search(reason, str(error.value)) is not None

    until(says_why)


SHORTLY_S = 0.5  # expires: of a shard that is away


def shards_have(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """So long each has for its answer to what all are asked. With SHORTLY_S also one that lives may not answer in time."""
    assert Admin.explain.__kwdefaults__ and Admin.ask_shards.__defaults__
    monkeypatch.setitem(Admin.explain.__kwdefaults__, "shard_timeout_s", seconds)
    monkeypatch.setattr(Admin.ask_shards, "__defaults__", (seconds,))


def joined_front(node: NodeClient) -> NodeClient:
    """The node, with its front feeding the first segment."""
    node.join(HANG_S)
    node.join_front("front", "first", HANG_S)
    return node


def done(future: Future[int]) -> int:
    return future.result(HANG_S)


HOUR = 360_000  # in slots of 10 ms


@contextmanager
def various_pipelines(shards: int) -> Iterator[EmbeddedTracker]:
    """Pipelines that are complete, held by an item that nobody consumes, waiting for their front, and one whose
    slots are numbers."""
    with tracker.embedded(shards=shards) as embedded:
        for name in ("complete", "held", "waiting"):
            embedded.register(replace(TWO_SEGMENTS, name=name))
        embedded.register(
            replace(TWO_SEGMENTS, name="numbers", time=TimeKind.NUMBER, slack_ns=1, rounds=2)
        )
        over = joined_front(embedded.node("complete", "n", "front"))
        done(over.leave_front("front"))
        held = joined_front(embedded.node("held", "n", "front"))
        done(held.commit(create(HOUR, 1)))
        done(held.commit(promise(3 * HOUR)))
        numbers = joined_front(embedded.node("numbers", "n", "front"))
        done(numbers.commit(promise(7)))
        for name, slot in (("complete", FOREVER), ("held", HOUR), ("numbers", 7)):
            heard_everywhere(embedded.target, name, slot)
        yield embedded


class Listener:
    """Reads a subscriber's updates in a thread, as a program that reacts to them does."""

    def __init__(self, subscriber: Subscriber) -> None:
        self.subscriber = subscriber
        self.heard: list[Update] = []
        self._queue: queue.SimpleQueue[Update | BaseException | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        try:
            for update in self.subscriber.updates():
                self._queue.put(update)
            self._queue.put(None)
        except BaseException as error:
            self._queue.put(error)

    def until(self, wanted: Callable[[Update], bool]) -> Update:
        """Reads on to the first update that is wanted; raises what ended the updates."""
        for update in self._read():
            if wanted(update):
                return update
        raise AssertionError(f"the updates ended; heard {self.heard}")

    def _read(self) -> Iterator[Update]:
        while True:
            update = self._queue.get(timeout=HANG_S)
            if isinstance(update, BaseException):
                raise update
            if update is None:
                return
            self.heard.append(update)
            yield update

    def close(self) -> None:
        self.subscriber.close()
        self._thread.join(HANG_S)
        assert not self._thread.is_alive()


def never_back(updates: list[Update]) -> bool:
    """Whether no segment's min time, and not the pipeline's, went back or was said twice."""
    last: dict[str | None, int] = {}
    for update in updates:
        if update.min_time <= last.get(update.segment, update.min_time - 1):
            return False
        last[update.segment] = update.min_time
    return True


def reaches(slot: int, segment: str | None = None) -> Callable[[Update], bool]:
    return lambda update: update.segment == segment and update.min_time >= slot


def delete(running: EmbeddedTracker) -> None:
    """The pipeline `two`, with all that is open in it."""
    admin = running.admin()
    admin.delete("two", admin.pipeline("two").state.generation, drop_open=True)


def use_again(running: EmbeddedTracker) -> None:
    """Deletes the pipeline `two`, and registers another one under its name."""
    delete(running)

    def is_free() -> bool:
        try:
            running.register(TWO_SEGMENTS)
        except RefusedError as error:
            assert error.refusal.code is RefusalCode.NOT_READY
            return False
        return True

    until(is_free)
