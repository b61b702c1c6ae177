"""What a local tracker says to a request that comes again says nothing of the step unless it has looked whether it has that."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from local_tracker.agent import server as server_module
from local_tracker.agent.flushing import Flusher
from local_tracker.agent.receiving import Room
from local_tracker.agent.server import Listener, Server
from local_tracker.agent.spool import Spool
from local_tracker.agent.staging import Stager
from local_tracker.agent.uplink import ClosedError, LocalTrackerUplink
from local_tracker.core.window import Flush, Step
from local_tracker.worker.handle import Handle
from local_tracker.worker.protocol import Deadline
from tests.local_tracker.fakes import FakeUplink, hands_over, one_cell
from tests.waits import HANG_S
from tracker.core.model import TickContent
from tracker.errors import Code, HandOverError


class Wire:
    """Between one side and another: cut, the one that connects finds its connection ended, and the other hears nothing, as
    where a host on the way has forgotten it."""

    def __init__(self, address: str, stack: ExitStack) -> None:
        self._to = address.removeprefix("tcp:").split(":")
        self._listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.address = f"tcp:127.0.0.1:{self._listener.getsockname()[1]}"
        self._near: list[socket.socket] = []
        self._far: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()
        stack.callback(self._end)

    def cut(self) -> None:
        cut, self._near = self._near, []
        for near in cut:
            with suppress(OSError):
                near.shutdown(socket.SHUT_RDWR)

    def _end(self) -> None:
        self.cut()
        for far in self._far:
            far.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection((self._to[0], int(self._to[1])))
                self._near.append(near)
                self._far.append(far)
                for source, target in ((near, far), (far, near)):
                    threading.Thread(target=self._pass, args=(source, target), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
        if source not in self._near:
            return
        with suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)


class Upper:
    """A local tracker whose way up lets nothing pass until it is told to."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.above, self.may_pass, self.taken = FakeUplink(), threading.Event(), threading.Event()

        def after(number: int) -> None:
            self.taken.set()
            assert self.may_pass.wait(HANG_S)

        self.above.after_flush = after
        listener, spool = Listener("tcp:127.0.0.1:0"), Spool(f"{folder}/upper.spool")
        self.address = listener.address
        self.flusher = Flusher(self.above, spool, 1)
        self.server = Server(listener, self.above, Stager(self.above), self.flusher, "upper")
        for end in (spool.close, lambda: self.flusher.close(HANG_S), lambda: self.server.stop(1),
                    self.may_pass.set):  # fmt: skip
            stack.callback(end)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def upper(tmp_path: Path, stack: ExitStack) -> Upper:
    return Upper(tmp_path, stack)


@contextmanager
def no_more_connections(upper: Upper, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as full:
        full.setattr(server_module, "MAX_CONNECTIONS", upper.server.connections)
        yield


def two_steps_from_below(upper: Upper, wire: Wire, folder: Path, stack: ExitStack) -> Flusher:
    """A lower local tracker that has handed over a flush of two steps, and has heard nothing of it yet."""
    spool = Spool(f"{folder}/lower.spool")
    uplink = LocalTrackerUplink(wire.address, "p", lambda: spool.identity, "lower")
    lower = Flusher(uplink, spool, 50, flush=Flush.AT_WINDOW_END)
    for end in (spool.close, lambda: uplink.close(leave=False), lambda: lower.close(HANG_S)):
        stack.callback(end)
    for number, item in enumerate((1, 2), 1):
        lower.submit(Step(f"w{number}", 1, one_cell(0, 5, item)), False, Deadline(HANG_S))
    assert upper.taken.wait(HANG_S)
    return lower


def test_a_flush_whose_connection_breaks_counts_once_though_the_one_above_has_no_room_for_another(
    upper: Upper, tmp_path: Path, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one above keeps a connection of which it has not heard that it is over, for minutes: whoever comes again may
    be one too many. That says nothing of the flush, which it has."""
    wire = Wire(upper.address, stack)
    lower = two_steps_from_below(upper, wire, tmp_path, stack)
    turned_away, turn_away = threading.Event(), upper.server._turn_away  # noqa: SLF001 - who comes is one too many

    def noted(connection: socket.socket, message: str) -> None:
        turn_away(connection, message)
        turned_away.set()

    monkeypatch.setattr(upper.server, "_turn_away", noted)
    with no_more_connections(upper, monkeypatch):
        wire.cut()
        assert turned_away.wait(HANG_S)
    upper.may_pass.set()
    assert lower.close(HANG_S)
    assert upper.above.sums() == {(0, 5): 1 ^ 2}


def test_no_flush_is_given_up_since_the_one_above_is_fenced(upper: Upper, stack: ExitStack) -> None:
    """One stands in that one's record, and is committed by the next with it; one that comes behind it is taken by that, too."""

    def fenced(number: int, content: TickContent) -> None:
        raise ClosedError("another one has its node")

    upper.above.before_flush = fenced
    uplink = LocalTrackerUplink(upper.address, "p", lambda: "lower", "lower")
    stack.callback(lambda: uplink.close(leave=False))
    content = TickContent(consumed=one_cell(0, 5, 1))
    for number in (1, 2):
        with pytest.raises(TimeoutError, match="another one has its node"):
            uplink.flush(number, content, b"", again=False, above=uplink.record_above())


def test_a_worker_whose_connection_breaks_is_not_told_that_its_step_was_refused(
    upper: Upper, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is told so does it again."""
    wire = Wire(upper.address, stack)
    handle = Handle(wire.address, "p", 2.0)  # expires: no place comes free
    stack.callback(handle.close)
    worker, told = hands_over(handle, one_cell(0, 5, 1))
    assert upper.taken.wait(HANG_S)
    with no_more_connections(upper, monkeypatch):
        wire.cut()
        worker.join(HANG_S)
    assert upper.above.sums() == {(0, 5): 1}
    assert not any(code.startswith("refused.") for code in told), told


def test_a_large_frame_that_comes_again_and_finds_no_room_is_not_said_to_be_refused() -> None:
    """Its first time it may have been taken: that is not looked for before it is read."""
    room = Room(most_bytes=1 << 17)
    with (
        room.held(0, 1 << 17, Deadline(HANG_S)),
        pytest.raises(HandOverError) as told,
        room.held(0, 1 << 17, Deadline(0.01)),  # expires: no room comes free
    ):
        pass
    assert not told.value.code.startswith("refused."), told.value.code


def test_a_step_that_is_in_the_spool_is_not_said_to_be_refused_while_a_local_tracker_ends(
    upper: Upper, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its disk is full: what it has recorded, the next one with its spool goes on with. Whoever asks again in the moment before it
    has ended hears the same as who asked before."""
    handle = Handle(upper.address, "p", HANG_S)
    stack.callback(handle.close)
    append = Spool._append  # noqa: SLF001 - the disk is full

    def full(spool: Spool, header: dict[str, object], *rest: object, **more: object) -> None:
        if header["kind"] == "done":
            raise HandOverError("no space left", Code.REFUSED_FULL)
        append(spool, header, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Spool, "_append", full)
    upper.may_pass.set()
    content = TickContent(created=one_cell(0, 5, 1))
    codes = []
    for again in (False, True):
        with pytest.raises(HandOverError, match="no space left") as told:
            handle.step_as("lower", 1, content, again, upper.flusher.spool_identity, HANG_S)
        codes.append(told.value.code)
    assert upper.above.sums() == {(0, 5): 1}
    assert codes == [Code.HAND_OVER_UNREACHABLE] * 2
