"""Whoever reaches a local tracker's port keeps nobody else out: half frames, silence and crowds have an end."""

from __future__ import annotations

import errno
import socket
import struct
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest

from local_tracker.agent import receiving
from local_tracker.agent import server as server_module
from local_tracker.agent.receiving import Room
from local_tracker.agent.server import Listener, Server
from local_tracker.agent.staging import Stager
from local_tracker.agent.stats import Stats
from local_tracker.agent.uplink import MinTimes
from local_tracker.worker.handle import Handle
from local_tracker.worker.protocol import (
    FAREWELL,
    MAX_BODY_BYTES,
    Deadline,
    connect,
    receive_frame,
    send_frame,
)
from tests.local_tracker.fakes import FakeUplink
from tests.waits import HANG_S
from tracker.errors import HandOverError

IN_TIME_S = HANG_S / 2
"""So long a worker waits that nobody is to keep waiting."""
HALF = struct.pack(">II", 100, MAX_BODY_BYTES) + b'{"type":'


@pytest.fixture
def connected() -> SimpleQueue[int]:
    """How many workers are connected, after each that has come or gone."""
    return SimpleQueue()


@pytest.fixture
def address(connected: SimpleQueue[int]) -> Iterator[str]:
    """Where a local tracker listens that takes staged contributions alone."""
    listener = Listener("tcp:127.0.0.1:0")
    uplink = FakeUplink()

    def changed() -> None:
        connected.put(server.connections)

    server = Server(listener, uplink, Stager(uplink, Stats()), None, "lt", changed)
    yield listener.address
    assert server.stop(HANG_S)
    server.join_watching()
    listener.close()


def come(address: str) -> socket.socket:
    connection = connect(address, Deadline(HANG_S))
    connection.settimeout(HANG_S)
    return connection


def served(address: str) -> bool:
    handle = Handle(address, "p", HANG_S)
    with closing(handle):
        return handle.welcome().pipeline == "p"


@pytest.mark.parametrize("begin", [HALF[:1], HALF[:8], HALF])
def test_a_frame_that_is_begun_and_not_ended_ends_its_connection(
    address: str, begin: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiving, "FRAME_TIMEOUT_S", 0.05)
    with come(address) as connection:
        connection.sendall(begin)
        answer = receive_frame(connection)
        assert answer is not None and answer[0]["error"] == "hand_over.deadline"
        assert receive_frame(connection) is None, "it is closed"


@pytest.mark.parametrize("begin", [HALF[:1], HALF[:8], HALF])
def test_a_request_that_has_not_come_whole_by_the_end_was_not_taken(begin: bytes) -> None:
    with closing(Listener("tcp:127.0.0.1:0")) as listener, come(listener.address) as connection:
        uplink = FakeUplink()
        server = Server(listener, uplink, Stager(uplink, Stats()), None, "lt")
        send_frame(connection, {"type": "hello", "pipeline": "p", "farewell": True})
        assert receive_frame(connection) is not None
        connection.sendall(begin)
        assert server.stop(HANG_S)
        assert receive_frame(connection) == (FAREWELL, b"")
        server.join_watching()


def test_half_frames_of_all_connections_that_there_may_be_lock_nobody_out(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "MAX_CONNECTIONS", 20)
    with ExitStack() as stack:
        halves = [stack.enter_context(come(address)) for _ in range(20)]
        with come(address) as late:
            turned_away = receive_frame(late)
            assert turned_away is not None and turned_away[0]["error"] == "refused.full"
        monkeypatch.setattr(receiving, "FRAME_TIMEOUT_S", 0.2)
        for half in halves:
            half.sendall(HALF)
        for half in halves:
            ended = receive_frame(half)
            assert ended is not None and ended[0]["error"] == "hand_over.deadline"
        monkeypatch.setattr(receiving, "FRAME_TIMEOUT_S", HANG_S)
        until_served(address)


def until_served(address: str) -> None:
    """Returns when somebody is let in: each attempt waits for its answer."""
    while True:
        try:
            assert served(address)
            return
        except HandOverError as error:
            assert error.code == "refused.full"


def test_one_address_does_not_take_all_connections(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiving, "MAX_CONNECTIONS_PER_PEER", 3)
    with ExitStack() as stack:
        handles = [stack.enter_context(closing(Handle(address, "p", HANG_S))) for _ in range(3)]
        for handle in handles:
            handle.welcome()
        with pytest.raises(HandOverError, match=r"from 127\.0\.0\.1, the limit for one"):
            served(address)
        port = int(address.rpartition(":")[2])
        another = ("127.0.0.2", 0)
        with socket.create_connection(("127.0.0.1", port), HANG_S, another) as connection:
            connection.sendall(struct.pack(">II", 2, 0) + b"{}")
            answer = receive_frame(connection)
            assert answer is not None and answer[0]["error"] == "hand_over.protocol", (
                "it is answered"
            )
    until_served(address)


def test_a_connection_that_says_nothing_is_closed_and_its_worker_comes_again(
    address: str, connected: SimpleQueue[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "IDLE_S", 0.05)
    with come(address) as silent:
        assert receive_frame(silent) is None
    with closing(Handle(address, "p", HANG_S)) as handle:
        handle.welcome()
        while connected.get(timeout=HANG_S):
            pass  # until the worker's is closed, too
        handle.stage("n", [])


def test_large_frames_wait_for_room_and_small_ones_do_not() -> None:
    soon = Deadline(0.01)  # expires: there is no room
    room, late = Room(100 << 10), Deadline(HANG_S)
    let_in = threading.Event()

    def wait() -> None:
        with room.held(0, 90 << 10, late):
            let_in.set()

    waiting = threading.Thread(target=wait)
    with room.held(0, 90 << 10, late):
        with pytest.raises(HandOverError, match="found no room beside others") as refused:
            room.held(0, 90 << 10, soon).__enter__()
        assert refused.value.code == "hand_over.deadline"
        with room.held(1 << 10, 1 << 10, soon):
            pass
        waiting.start()
        assert not let_in.is_set()
    assert let_in.wait(HANG_S), "there is room again"
    waiting.join()
    with pytest.raises(HandOverError, match="found no room"):
        room.held(8 << 10, 0, soon).__enter__()  # JSON takes more than its bytes


class Threads:
    """Those that may be begun: none of a name, for so many attempts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str, refused: int) -> None:
        start, self.refused = threading.Thread.start, refused

        def starts(thread: threading.Thread) -> None:
            if thread.name == name and self.refused:
                self.refused -= 1
                raise RuntimeError("can't start new thread")
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", starts)


def test_a_worker_for_whom_no_thread_can_be_begun_keeps_no_other_out(
    address: str, monkeypatch: pytest.MonkeyPatch, connected: SimpleQueue[int]
) -> None:
    """The thread that takes connections had ended by that, and the local tracker stood with a worker that nobody served."""
    threads = Threads(monkeypatch, "lowmark-worker", 1)
    with come(address) as connection:
        answer = receive_frame(connection)
        assert answer is not None and answer[0]["error"] == "refused.full"
        assert receive_frame(connection) is None, "it is closed"
    assert (threads.refused, connected.get(timeout=HANG_S)) == (0, 0)
    assert served(address)


class Full:
    """A listening socket of a process that has as many descriptors as it may, for so many attempts to take a connection."""

    def __init__(self, taking: socket.socket, refused: int) -> None:
        self._taking, self.refused = taking, refused

    def __getattr__(self, name: str) -> Any:
        return getattr(self._taking, name)

    def accept(self) -> Any:
        if self.refused:
            self.refused -= 1
            raise OSError(errno.EMFILE, "too many open files")
        return self._taking.accept()


def test_a_process_without_a_free_descriptor_looks_again_after_a_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It had looked as often as it could, and left the threads of its workers nothing of the processor."""
    pauses: list[float] = []
    clock = SimpleNamespace(sleep=pauses.append, monotonic=time.monotonic)
    monkeypatch.setattr(server_module, "time", clock)
    with closing(Listener("tcp:127.0.0.1:0")) as listener:
        uplink, taking = FakeUplink(), Full(listener.socket, 3)
        listener.socket = taking  # type: ignore[assignment]
        server = Server(listener, uplink, Stager(uplink, Stats()), None, "lt")
        assert served(listener.address)
        assert (taking.refused, len(pauses)) == (0, 3)
        assert server.stop(HANG_S)


def test_who_asks_for_min_times_when_no_thread_can_be_begun_is_told_them_the_next_time(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def watch(_: FakeUplink, heard: MinTimes) -> None:
        for segment in (0, 1, None):
            heard.put(segment, 5)

    Threads(monkeypatch, "lowmark-watch", 1)
    monkeypatch.setattr(FakeUplink, "watch", watch)
    with closing(Handle(address, "p", HANG_S)) as handle:
        with pytest.raises(HandOverError, match="can't start new thread"):
            handle.min_times(-1, 0)
        assert handle.min_times(-1, 0).segments == (5, 5)


def test_whoever_names_a_segment_that_there_is_not_keeps_no_other_waiting(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tracker is away, and each look takes the time that it may: all others had waited for it as they connected."""
    looks, over = threading.Event(), threading.Event()

    def look_again(_: FakeUplink, segment: str) -> None:
        looks.set()
        assert over.wait(HANG_S)

    monkeypatch.setattr(FakeUplink, "look_again", look_again)
    with closing(Handle(address, "p", HANG_S)) as wrong, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(wrong.segment_number, "c")
        assert looks.wait(HANG_S)
        with closing(Handle(address, "p", IN_TIME_S)) as right:
            assert right.segment_number("b") == 1
        over.set()
        with pytest.raises(HandOverError, match="no segment 'c'"):
            asked.result(HANG_S)
