"""What workers send over the socket of a local tracker, and what its spool gives back after a crash.

The local tracker flushes into a real home. Whatever arrives, it answers or ends the connection, and
serves the next one; what it has refused is not staged, and not committed.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from local_tracker.agent.flushing import Flusher
from local_tracker.agent.server import Listener, Server
from local_tracker.agent.spool import Spool
from local_tracker.agent.staging import Stager
from local_tracker.agent.uplink import MinTimes
from local_tracker.core.window import Step
from local_tracker.worker.protocol import (
    Deadline,
    HandedOver,
    Header,
    connect,
    pack_cells,
    receive_frame,
)
from tests.core.driver import plain
from tests.fuzz.examples import fuzz
from tests.fuzz.mangling import damaged, int64s
from tests.fuzz.wired import SPEC, Wired
from tests.local_tracker.fakes import FakeUplink, one_cell
from tests.waits import HANG_S
from tracker.client.node import _message
from tracker.core.log import Grant, StageContributions, TickRefused
from tracker.core.model import (
    Batch,
    Cells,
    FrontJoin,
    Heartbeat,
    Refusal,
    StagedContribution,
    TickContent,
)
from tracker.errors import Code, HandOverError, RefusedError, refused_code
from tracker.wire.ticks import content_from_pb, contribution_from_pb, contribution_to_pb

IN_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""Where files are synced without a disk, so that there is time for more examples."""
WINDOW_MS = 0.01
CODES = {code.value for code in Code if code.partition(".")[0] in ("refused", "hand_over")}


class HomeUplink(FakeUplink):
    """Straight to the home of node `w`, by way of the messages that would travel."""

    segments = SPEC.segments

    def __init__(self) -> None:
        super().__init__()
        self.cluster = Wired()
        self.node = self.cluster.node(SPEC, "w")
        self.node.join_front("G")

    def stage(self, node_id: str, contributions: Sequence[HandedOver], deadline: Deadline) -> None:
        parts = [contribution_to_pb(handed.contribution) for handed in contributions]
        told = tuple(contribution_from_pb(part) for part in parts)
        home = self.cluster.routing.home("p", node_id)
        answer = self.cluster.ask(home, StageContributions, "p", node_id, told)
        if isinstance(answer, Refusal):
            raise HandOverError(answer.message, refused_code(answer.code))

    def record_above(self) -> str:
        return ""

    def flush(
        self, number: int, content: TickContent, fingerprint: bytes, again: bool, above: str
    ) -> None:
        content.batch = Batch("flushes", number, fingerprint)
        self._commit(content)

    def join_front(self, front: str, segment: str, deadline: Deadline) -> Grant:
        if segment not in self.segments:
            raise HandOverError(f"there is no segment {segment!r}", Code.REFUSED_UNKNOWN_SEGMENT)
        number = self.segments.index(segment)
        self._commit(TickContent(joins=(FrontJoin(front, number),)))
        return Grant(front, number, 7, 7, True)

    def leave_front(self, front: str, joining: tuple[int, int], deadline: Deadline) -> None:
        self._commit(TickContent(leaves=(front,)))

    def _commit(self, content: TickContent) -> None:
        try:
            told = content_from_pb(_message("p", content))
        except RefusedError as error:
            raise HandOverError(error.refusal.message, error.code) from None
        effects = self.node.send(self.node.last + 1, told)
        for refused in effects:
            if isinstance(refused, TickRefused):
                raise HandOverError(refused.refusal.message, refused_code(refused.refusal.code))
        self.node.last += 1
        self.cluster.settle()
        assert self.node.durable == self.node.last

    def watch(self, heard: MinTimes) -> None:
        for segment in range(len(self.segments)):
            heard.put(segment, 5)
        heard.put(None, 5)


class LocalTracker:
    """A local tracker in this process, at a socket of its own."""

    def __init__(self, directory: str) -> None:
        self.uplink = HomeUplink()
        self.address = f"unix:{directory}/s"
        self._spool = Spool(f"{directory}/spool")
        self.flusher = Flusher(self.uplink, self._spool, WINDOW_MS)
        self._listener = Listener(self.address)
        self._server = Server(
            self._listener, self.uplink, Stager(self.uplink), self.flusher, "host"
        )

    def ask(self, data: bytes) -> list[Header]:
        """Sends bytes on a connection of their own and closes its half; what comes back."""
        connection = connect(self.address, Deadline(HANG_S))
        with connection:
            connection.settimeout(HANG_S)
            try:
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
                answers = []
                while (answer := receive_frame(connection)) is not None:
                    answers.append(answer[0])
            except (BrokenPipeError, ConnectionResetError):
                return []  # refused before it had been sent to its end, and its answer is lost
            return answers

    def close(self) -> None:
        assert self._server.stop(HANG_S), "a request hangs"
        assert self.flusher.close(HANG_S), self.flusher.failure
        self._spool.close()
        self._listener.close()
        self._server.join_watching()


@contextmanager
def local_tracker() -> Iterator[LocalTracker]:
    """Each of its threads must end in order."""
    failed: list[BaseException | None] = []
    before, threading.excepthook = threading.excepthook, lambda args: failed.append(args.exc_value)
    try:
        with tempfile.TemporaryDirectory(dir=IN_MEMORY) as directory:
            running = LocalTracker(directory)
            yield running
            running.close()
    finally:
        threading.excepthook = before
    assert not failed, failed


# --- frames ---------------------------------------------------------------------------------------

CREATED, CONSUMED = Cells.of([(1, 30, 5, 1), (0, 31, 6, 2)]), Cells.of([(0, 2, 3, 1)])
BODY = pack_cells((CREATED, CONSUMED))
COUNTS = {"created": len(CREATED), "consumed": len(CONSUMED)}
REQUESTS: list[tuple[Header, bytes]] = [
    ({"type": "hello", "pipeline": "p"}, b""),
    (
        {
            "type": "stage", "node_id": "w", "deadline_ms": 20_000,
            "contributions": [
                {
                    "nonce": "1", "query": "q", "run": "r", "batch": 3, "execution": 1,
                    "operator": "op", "stage": 2, "partition": 0, "attempt": 7, **COUNTS,
                }
            ],
        },
        BODY,
    ),
    (
        {
            "type": "step", "sender": "s", "number": 1, "again": False, "deadline_ms": 20_000,
            **COUNTS, "heartbeats": [["G", 20]],
        },
        BODY,
    ),
    ({"type": "min_times", "after": -1, "wait_ms": 0}, b""),
    ({"type": "join_front", "front": "H", "segment": "in", "deadline_ms": 20_000}, b""),
    ({"type": "leave_front", "front": "G", "deadline_ms": 20_000}, b""),
]  # fmt: skip
ODD_TEXTS = st.sampled_from(["", "\ud800", "x", "p", "G", "out", "x" * 3_000, "\x00"])
ODD_NUMBERS = int64s | st.sampled_from([2**63, -(2**63) - 1, 10**400])
ODD_LISTS = st.sampled_from(
    [
        [],
        [["G"]],
        [["G", 2**63]],
        [["\udfff", 3]],
        [["G", 30], ["G", 25]],
        [[]] * 2_000,
        [[["G"], 3]],
    ]
)
ODD: st.SearchStrategy[Any] = st.one_of(
    ODD_TEXTS, ODD_NUMBERS, ODD_LISTS, st.sampled_from([None, True, 1.5, {}])
)


def odd(value: object) -> st.SearchStrategy[Any]:
    """What may stand where a value should, most often of its type."""
    like = {str: ODD_TEXTS, int: ODD_NUMBERS, list: ODD_LISTS}.get(type(value), ODD)
    return like | like | ODD


MOST_WAIT_MS = 20


def framed(header: bytes, body: bytes) -> bytes:
    return struct.pack(">II", len(header), len(body)) + header + body


@st.composite
def sent_frames(draw: st.DrawFn) -> bytes:
    """A request with something about it that is not as it should be, or nothing."""
    header, body = draw(st.sampled_from(REQUESTS))
    header = json.loads(json.dumps(header))
    for _ in range(draw(st.integers(0, 2))):
        part = header
        if header.get("contributions") and draw(st.booleans()):
            part = header["contributions"][0]
        name = draw(st.sampled_from([*part, "type", "again", "first_to"]))
        match draw(st.sampled_from(("set", "set", "remove", "twice"))):
            case "set":
                part[name] = draw(odd(part.get(name)))
            case "remove":
                part.pop(name, None)
            case "twice" if header.get("contributions"):
                header["contributions"].append(dict(header["contributions"][0]))
                body *= 2
    if isinstance(header.get("wait_ms"), int):  # what is waited for never comes
        header["wait_ms"] = min(header["wait_ms"], MOST_WAIT_MS)
    if draw(st.booleans()):
        body = draw(damaged(body))
    text = draw(
        st.just(json.dumps(header).encode())
        | st.sampled_from([b"[" * 100_000, b'{"a":' * 50_000, b"9" * 10_000, b"\xff", b"null", b""])
    )
    data = framed(text, body)
    return draw(damaged(data)) if draw(st.integers(0, 4)) == 0 else data


@fuzz(st.lists(sent_frames(), min_size=1, max_size=3), share=0.8)
def test_a_frame_is_answered_or_ends_its_connection_and_no_other(frames: list[bytes]) -> None:
    with local_tracker() as running:
        cluster = running.uplink.cluster
        for data in frames:
            before = cluster.state()
            answers = running.ask(data)
            for answer in answers:
                if "error" in answer:
                    assert answer["error"] in CODES, answer
                    assert answer["message"]
            if any(answer.get("error") == "hand_over.deadline" for answer in answers):
                break  # it may be on its way still: `before` and what follows would be anything
            if all("error" in answer for answer in answers):
                cluster.settle()
                assert cluster.state() == before, answers
        # Whoever comes next is served.
        header = {
            "type": "step", "sender": "next", "number": 1, "deadline_ms": 20_000, "created": 1,
            "consumed": 0, "heartbeats": [],
        }  # fmt: skip
        data = framed(json.dumps(header).encode(), pack_cells((one_cell(0, 40, 9),)))
        assert running.ask(data) == [{}], "a good step is not taken"
    cluster.check()


# --- staged contributions -------------------------------------------------------------------------


@fuzz(
    st.lists(
        st.tuples(
            st.sampled_from(["1", "2"]), st.sampled_from(["op", "other"]), st.integers(0, 1),
            st.integers(0, 1), int64s,
        ),
        max_size=5,
    )
)  # fmt: skip
def test_a_hand_over_that_is_refused_is_not_staged(
    handed: list[tuple[str, str, int, int, int]],
) -> None:
    """Repeats, conflicts and numbers of items that cannot be, handed over one after the other."""
    uplink = HomeUplink()
    stager = Stager(uplink)
    taken = {}
    for nonce, operator, partition, attempt, items in handed:
        cells = Cells.of([(0, 20, 5, items)])
        contribution = StagedContribution(
            "q", "r", 3, 1, operator, 2, partition, attempt, cells, Cells.empty()
        )
        before = uplink.cluster.state()
        try:
            stager.stage("w", [HandedOver(nonce, contribution)], Deadline(HANG_S))
            taken[contribution.key] = plain(contribution)
        except HandOverError as error:
            assert error.code in CODES and str(error)
            assert uplink.cluster.state() == before
    home = uplink.cluster.processes[uplink.node.home]
    assert {c.key: plain(c) for c in home.staged("p", "w", "q", 3)} == taken


# --- the spool ------------------------------------------------------------------------------------


def written() -> bytes:
    """A spool with every kind of record in it."""
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as directory:
        spool = Spool(f"{directory}/spool")
        steps = tuple(
            Step(sender, 1, one_cell(0, 9, number), Cells.empty(), (Heartbeat("F", 3),))
            for number, sender in enumerate(("v", "w"), 1)
        )
        spool.flush(1, steps)
        spool.split(1)
        spool.done(2)
        spool.done(3, ("refused.below_min_time", "too late"))
        spool.flush(4, (Step("v", 2, one_cell(1, 8, 7)),))
        spool.close()
        return Path(f"{directory}/spool").read_bytes()


WRITTEN = written()


def read_back(data: bytes) -> Any:
    """What a spool says to the next process; None if it is refused."""
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as directory:
        path = f"{directory}/spool"
        Path(path).write_bytes(data)
        try:
            spool = Spool(path)
        except HandOverError as error:
            assert error.code == "refused.invalid" and path in str(error)
            assert Path(path).read_bytes() == data, "it was left alone"
            return None
        said = plain(tuple(spool.pending.items())), dict(spool.senders), spool.last_number
        spool.close()
        return said


CUT = [read_back(WRITTEN[:length]) for length in range(len(WRITTEN) + 1)]
"""What a spool says that was cut off, by its length."""
BEGIN_OF_LAST = CUT.index(CUT[-2])


@fuzz(damaged(WRITTEN))
def test_a_spool_that_was_changed_is_refused_or_was_cut_off(data: bytes) -> None:
    """A file may end early, since its end may not have been written; whatever else is noticed."""
    said = read_back(data)
    assert said is None or said in CUT
    if said is not None and said != CUT[-1] and len(data) >= len(WRITTEN):
        assert data[:BEGIN_OF_LAST] == WRITTEN[:BEGIN_OF_LAST], "a change went unnoticed"


def test_each_flipped_bit_but_those_of_the_last_record_is_noticed() -> None:
    for at in range(BEGIN_OF_LAST):
        changed = bytearray(WRITTEN)
        changed[at] ^= 1 << (at % 8)
        assert read_back(bytes(changed)) is None, f"bit {at % 8} of byte {at}"
