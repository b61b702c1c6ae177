"""Frames, and what is said to those who send others."""

from __future__ import annotations

import pickle
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from local_tracker.worker.handle import Handle
from local_tracker.worker.protocol import (
    MAX_BODY_BYTES,
    MAX_HEADER_BYTES,
    PROTOCOL,
    CellReader,
    Deadline,
    Fields,
    Header,
    check_release,
    connect,
    is_local_tracker,
    pack_cells,
    parse_address,
    receive_frame,
    send_frame,
)
from tests.waits import HANG_S
from tracker import __version__
from tracker.core.model import Cells
from tracker.errors import Code, HandOverError

CELLS = Cells.of([(0, -5, 2**64 - 1, 3), (1, 2**62, 1, -1)])


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    one.settimeout(HANG_S)
    other.settimeout(HANG_S)
    with one, other:
        yield one, other


Pair = tuple[socket.socket, socket.socket]


def test_a_frame_arrives_as_it_was_sent(pair: Pair) -> None:
    send_frame(pair[0], {"type": "ü", "n": 2}, pack_cells([CELLS, Cells.empty(), CELLS]))
    frame = receive_frame(pair[1])
    assert frame is not None
    assert frame[0] == {"type": "ü", "n": 2}
    reader = CellReader(frame[1])
    assert [reader.read(n).rows() for n in (2, 0, 2)] == [CELLS.rows(), [], CELLS.rows()]
    reader.end()


def test_an_end_between_frames_is_an_end_and_within_one_an_error(pair: Pair) -> None:
    send_frame(pair[0], {}, b"")
    pair[0].sendall(b"\0\0")
    pair[0].shutdown(socket.SHUT_WR)
    assert receive_frame(pair[1]) == ({}, b"")
    with pytest.raises(ConnectionError, match="within a frame"):
        receive_frame(pair[1])
    pair[1].shutdown(socket.SHUT_WR)
    assert receive_frame(pair[0]) is None


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        (struct.pack(">II", MAX_HEADER_BYTES + 1, 0), f"header of {MAX_HEADER_BYTES + 1} bytes"),
        (struct.pack(">II", 2, MAX_BODY_BYTES + 1), f"body of {MAX_BODY_BYTES + 1} bytes"),
        (struct.pack(">II", 3, 0) + b"nay", "not JSON"),
        (struct.pack(">II", 2, 0) + b"[]", "not a JSON object"),
        (struct.pack(">II", 1, 0) + b"\xff", "not JSON"),
        (struct.pack(">II", 100_000, 0) + b"[" * 100_000, "not JSON"),  # nested without end
    ],
)
def test_a_frame_that_makes_no_sense_is_refused(pair: Pair, sent: bytes, message: str) -> None:
    pair[0].sendall(sent)
    with pytest.raises(HandOverError, match=message) as refused:
        receive_frame(pair[1])
    assert refused.value.code == "hand_over.protocol"


@pytest.mark.parametrize(
    ("text", "message"),
    [("\ud800", "no Unicode text"), ("x" * 2_000, "2000 characters; the limit is 1024")],
)
def test_a_text_that_could_not_travel_on_is_refused(text: str, message: str) -> None:
    with pytest.raises(HandOverError, match=message) as refused:
        Fields({"sender": text}).text("sender")
    assert refused.value.code == "hand_over.protocol"


def test_a_frame_that_is_too_large_is_not_sent(pair: Pair) -> None:
    with pytest.raises(HandOverError, match="over the limit"):
        send_frame(pair[0], {}, bytes(MAX_BODY_BYTES + 1))
    send_frame(pair[0], {"next": 1})
    assert receive_frame(pair[1]) == ({"next": 1}, b"")


@pytest.mark.parametrize("count", [3, -1, 2**40, "2", None, 1.0])
def test_a_body_must_hold_the_cells_that_its_header_counts(count: object) -> None:
    with pytest.raises(HandOverError):
        CellReader(pack_cells([CELLS])).read(count)


def test_a_body_must_hold_nothing_else() -> None:
    reader = CellReader(pack_cells([CELLS]) + b"x")
    reader.read(2)
    with pytest.raises(HandOverError, match="1 bytes follow"):
        reader.end()


def test_addresses() -> None:
    assert parse_address("unix:/a/b") == (socket.AF_UNIX, "/a/b")
    assert parse_address("/a/b") == (socket.AF_UNIX, "/a/b")
    assert parse_address("tcp:localhost:80") == (socket.AF_INET, ("localhost", 80))
    assert parse_address("tcp:[::1]:80") == (socket.AF_INET6, ("::1", 80))
    for bad in ("localhost:80", "tcp:80", "tcp:h:x", "unix:a", ""):
        with pytest.raises(ValueError, match="not the address of a local tracker"):
            parse_address(bad)
    assert [is_local_tracker(t) for t in ("unix:/a", "/a", "tcp:h:1", "h:1")] == [True] * 3 + [
        False
    ]


def test_a_deadline_that_is_over_is_an_error() -> None:
    with pytest.raises(TimeoutError, match="within 0 s"):
        connect("tcp:127.0.0.1:1", Deadline(0))


def test_a_late_answer_is_not_taken_for_that_of_the_next_request(tmp_path: Path) -> None:
    address, late = f"unix:{tmp_path}/s", threading.Event()
    hello: Header = {
        "pipeline": "p", "segments": ["a"], "slack_ns": 1, "mode": "eager", "node_id": "n",
        "spool": "", "generation": 0, "rounds": 1,
    }  # fmt: skip

    def answer(connection: socket.socket, version: int) -> None:
        with connection, suppress(OSError):  # nobody may be there for a late one
            while (request := receive_frame(connection)) is not None:
                if request[0]["type"] == "hello":
                    send_frame(connection, hello, b"")
                    continue
                if version == 1:
                    late.wait(HANG_S)
                found: Header = {
                    "version": version,
                    "min_times": [version],
                    "pipeline_min_time": version,
                }
                send_frame(connection, found, b"")

    def serve() -> None:
        for version in (1, 2):
            connection, _ = listening.accept()
            answering = threading.Thread(target=answer, args=(connection, version), daemon=True)
            answering.start()

    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"{tmp_path}/s")
        listening.listen()
        threading.Thread(target=serve, daemon=True).start()
        handle = Handle(address, "p", HANG_S)
        handle.welcome()
        handle.deadline_s = 0.2
        with pytest.raises(HandOverError, match="not durable within"):
            handle.min_times()
        late.set()
        handle.deadline_s = HANG_S
        assert handle.min_times().version == 2
        handle.close()


def test_errors_survive_their_way_to_the_driver() -> None:
    copy = pickle.loads(pickle.dumps(HandOverError("twice", Code.REFUSED_CONFLICT)))
    assert (type(copy), copy.code, str(copy)) == (HandOverError, "refused.conflict", "twice")


@pytest.mark.parametrize("protocol", [None, PROTOCOL, PROTOCOL + 1])
def test_the_release_before_and_the_next_one_are_understood(protocol: int | None) -> None:
    stated: Header = {} if protocol is None else {"protocol": protocol, "release": "9.9"}
    check_release(stated, "the worker")


@pytest.mark.parametrize("there", [PROTOCOL + 2, -1, "two", None])
def test_a_release_that_is_further_away_is_refused_with_both_and_what_to_do(there: object) -> None:
    with pytest.raises(HandOverError) as refused:
        check_release({"protocol": there, "release": "9.9"}, "the worker")
    assert refused.value.code == Code.HAND_OVER_PROTOCOL
    message = str(refused.value)
    assert "the worker is of release 9.9" in message
    assert f"of release {__version__} and speaks {PROTOCOL};" in message
    assert "use one release" in message
