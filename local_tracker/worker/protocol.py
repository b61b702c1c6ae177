"""What goes between workers and local trackers over a socket.

A frame is: the length of its header (4 bytes, big-endian), the length of its body (4 bytes,
big-endian), the header (JSON, UTF-8), the body. Requests and answers alternate: a client sends a frame
and reads one. Cells travel in the body, in the order in which the header counts them; each set of n
cells is 4 n bytes of segments (int32), 8 n of slots (int64), 8 n of checksums (uint64), 8 n of counts
(int64), all little-endian. Segments are numbers: their indices in the list of the welcome.

Requests, by `type`, and the fields of their answers:

- `hello` {pipeline, segment, farewell, protocol, release}: {pipeline, segments: [name], slack_ns, rounds, mode, node_id, spool,
  generation, protocol, release}. `protocol` is the sender's PROTOCOL (1 where it is missing), and `release` its release, for
  people: a worker and a local tracker may be one protocol apart. `segment`, if given, is looked up at the tracker where it is not known yet; `farewell`: the worker
  understands FAREWELL. `generation` is how often the pipeline had been restarted, where the local tracker is eager: a
  worker is of one generation, and hands over nothing in another
- `stage` {node_id, deadline_ms, contributions: [{nonce, query, run, batch, execution, operator, stage,
  partition, attempt, created: n, consumed: n}]}: answered when durable. A nonce is one hand-over; it
  may be repeated, another one for the same key is refused.
- `step` {sender, number, again, first_to, created: n, consumed: n, heartbeats: [[front, slot, incarnation, number]],
  holds: [[name, segment, slot]]}: answered when durable; a promise names the joining of its front (without the two
  last, it is of whichever front has the name), and counts for no other one; a hold at the highest int64 is let go of. `again` says that it may have arrived before, and `first_to` at which `spool`: in another one
  it would not be found, and is refused.
- `last_step` {sender}: {number}, of the sender's last step that is known; 0 if none is
- `min_times` {after, wait_ms}: {version, min_times: [slot], pipeline_min_time: slot, generation} as soon as the
  version is above `after` or `wait_ms` have passed. The whole pipeline's own is no minimum of the others:
  after a restart, those of segments may be of two generations.
- `holds` {}: {holds: [[name, segment, slot]]}, those of the local tracker's node that are durable
- `join_front` {front, segment: name, deadline_ms}: {slot, heartbeat, incarnation, number}, of which the last two
  are its joining; `leave_front` {front, incarnation, number, again}: ends the front of that joining, and no later
  one of its name. Without a joining it ends whichever has the name, and is not taken `again`.

An answer with `error` (a code, as in `HandOverError.code`) and `message` says that nothing was done.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracker import __version__
from tracker.core.model import Cells, Heartbeat, StagedContribution
from tracker.errors import Code, HandOverError

PROTOCOL = 1
"""The number of what is written here. A release that changes it so that the release before could not read it raises it by
one, and still speaks the one before."""
MAX_HEADER_BYTES = 1 << 20
MAX_BODY_BYTES = 1 << 24
MAX_CELLS = 65_536
"""Cells of one step, or of one contribution; a widest frame of them stays below 4 MiB."""

MAX_TEXT_CHARACTERS = 1_024
"""Of names in a header."""
_SHOWN_CHARACTERS = 80

_LENGTHS = struct.Struct(">II")
LENGTHS_BYTES = _LENGTHS.size
"""Of the lengths that a frame begins with."""
_COLUMNS = (("<i4", 4), ("<i8", 8), ("<u8", 8), ("<i8", 8))
_CELL_BYTES = sum(width for _, width in _COLUMNS)

Header = dict[str, Any]

FAREWELL: Header = {
    "error": Code.HAND_OVER_UNREACHABLE, "farewell": True,
    "message": "the local tracker ends the connection, and has taken no request since its last answer",
}  # fmt: skip
"""The last frame to a worker whose hello has asked for it: what it sends then, or has sent, was not taken, and may be
handed over anew as if it never had been."""


def own_release() -> Header:
    """What a hello, or a welcome, has of the release of whoever sends it."""
    return {"protocol": PROTOCOL, "release": __version__}


def check_release(header: Header, who: str) -> None:
    """Raises HandOverError if the release of the other side, by its hello or welcome, is too far away. who: the other side."""
    protocol = header.get("protocol", 1)
    if not isinstance(protocol, int) or abs(protocol - PROTOCOL) > 1:
        release = checked_text("field 'release'", str(header.get("release", "unknown")))
        raise HandOverError(
            f"{who} is of release {release} and speaks hand-over protocol {_shown(protocol)}, this side is of release "
            f"{__version__} and speaks {PROTOCOL}; they may be one apart: use one release for the archive of the executors "
            "(--py-files) and their local trackers, or go from release to release",
            Code.HAND_OVER_PROTOCOL,
        )


class Deadline:
    """A moment by which something must be over; hands out what is left of it."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    def end(self) -> float:
        """The moment, by the monotonic clock of this process."""
        return self._end

    def left_s(self) -> float:
        """Seconds that are left; raises TimeoutError when there are none."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"not done within {self.seconds:g} s")
        return left


def parse_address(text: str) -> tuple[socket.AddressFamily, str | tuple[str, int]]:
    """(family, address) of `unix:/path`, `/path` or `tcp:host:port`. Raises ValueError."""
    if text.startswith("tcp:"):
        host, _, port = text.removeprefix("tcp:").rpartition(":")
        if host and port.isdigit():
            return socket.AF_INET6 if ":" in host else socket.AF_INET, (host.strip("[]"), int(port))
    path = text.removeprefix("unix:")
    if path.startswith("/"):
        return socket.AF_UNIX, path
    raise ValueError(f"{text!r} is not the address of a local tracker: unix:/path or tcp:host:port")


def is_local_tracker(target: str) -> bool:
    """Whether a target names a local tracker, by its socket, and not a tracker process."""
    return target.startswith(("unix:", "tcp:", "/"))


def connect(address: str, deadline: Deadline) -> socket.socket:
    """A connection; raises OSError (TimeoutError when the deadline passes)."""
    family, location = parse_address(address)
    connection = socket.socket(family, socket.SOCK_STREAM)
    try:
        connection.settimeout(deadline.left_s())
        connection.connect(location)
        if family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except BaseException:
        connection.close()
        raise
    return connection


def pack_cells(sets: Iterable[Cells]) -> bytes:
    """The body for sets of cells."""
    parts = []
    for cells in sets:
        columns: tuple[NDArray[Any], ...] = (
            cells.segments, cells.slots, cells.checksums, cells.counts,
        )  # fmt: skip
        for column, (code, _) in zip(columns, _COLUMNS, strict=True):
            parts.append(column.astype(code, copy=False).tobytes())
    return b"".join(parts)


class CellReader:
    """Reads the sets of cells of a body, in order."""

    def __init__(self, body: bytes) -> None:
        self._body, self._at = body, 0

    def read(self, count: object) -> Cells:
        """The next `count` cells; raises HandOverError if the body doesn't hold them."""
        if not isinstance(count, int) or not 0 <= count <= MAX_CELLS:
            raise HandOverError(
                f"{count!r} is not a number of cells up to {MAX_CELLS}", Code.HAND_OVER_PROTOCOL
            )
        if self._at + count * _CELL_BYTES > len(self._body):
            raise HandOverError(
                f"a body of {len(self._body)} bytes ends within its cells", Code.HAND_OVER_PROTOCOL
            )
        columns: list[Any] = []
        for code, width in _COLUMNS:
            columns.append(np.frombuffer(self._body, code, count, self._at))
            self._at += count * width
        return Cells(*columns)

    def end(self) -> None:
        """Raises HandOverError if the body holds more than was read."""
        if self._at != len(self._body):
            raise HandOverError(
                f"{len(self._body) - self._at} bytes follow the cells of a body",
                Code.HAND_OVER_PROTOCOL,
            )


@dataclass(frozen=True, slots=True)
class HandedOver:
    """A contribution, and the mark of its hand-over: the same where it is repeated."""

    nonce: str
    contribution: StagedContribution

    def header(self) -> Header:
        """Its part of the header of a frame."""
        c = self.contribution
        return {
            "nonce": self.nonce, "query": c.query, "run": c.run, "batch": c.batch,
            "execution": c.execution, "operator": c.operator, "stage": c.stage,
            "partition": c.partition, "attempt": c.attempt,
            "created": len(c.created), "consumed": len(c.consumed),
        }  # fmt: skip

    @classmethod
    def of(cls, header: object, cells: CellReader) -> HandedOver:
        """From its part of a header, and the next cells. Raises HandOverError."""
        fields = Fields(header)
        contribution = StagedContribution(
            query=fields.text("query"), run=fields.text("run"), batch=fields.integer("batch"),
            execution=fields.integer("execution"), operator=fields.text("operator"),
            stage=fields.integer("stage"), partition=fields.integer("partition"),
            attempt=fields.integer("attempt"),
            created=cells.read(fields.integer("created")),
            consumed=cells.read(fields.integer("consumed")),
        )  # fmt: skip
        return cls(fields.text("nonce"), contribution)


@dataclass(frozen=True, slots=True)
class Promise(Heartbeat):
    """A promise of one joining of a front, whose incarnation and number these are: of no later one of its name."""

    incarnation: int
    number: int

    @property
    def joining(self) -> tuple[int, int]:
        return self.incarnation, self.number


def promise_item(heartbeat: Heartbeat) -> list[str | int]:
    """A promise as it stands in a header."""
    joining = heartbeat.joining if isinstance(heartbeat, Promise) else ()
    return [heartbeat.front, heartbeat.slot, *joining]


def promise_of(item: object) -> Heartbeat:
    """The promise that stands in a header. Raises HandOverError."""
    match item:
        case [str(front), int(slot)] if _are_int64(slot):
            return Heartbeat(checked_text("a front's name", front), slot)
        case [str(front), int(slot), int(incarnation), int(number)] if _are_int64(
            slot, incarnation, number
        ):
            return Promise(checked_text("a front's name", front), slot, incarnation, number)
    raise HandOverError(
        f"{_shown(item)} is not a front's name, a slot and a joining", Code.HAND_OVER_PROTOCOL
    )


def _are_int64(*values: int) -> bool:
    return all(type(value) is int and -(2**63) <= value < 2**63 for value in values)


class Fields:
    """Reads the fields of a JSON object by type; raises HandOverError where one is amiss."""

    def __init__(self, header: object) -> None:
        if not isinstance(header, dict):
            raise HandOverError(f"{_shown(header)} is not a JSON object", Code.HAND_OVER_PROTOCOL)
        self._header = header

    def text(self, name: str, default: str | None = None) -> str:
        value = self._header.get(name, default)
        if not isinstance(value, str):
            raise HandOverError(
                f"field {name!r} is {_shown(value)}, not a text", Code.HAND_OVER_PROTOCOL
            )
        return checked_text(f"field {name!r}", value)

    def integer(self, name: str, default: int | None = None) -> int:
        value = self._header.get(name, default)
        if type(value) is not int or not -(2**63) <= value < 2**63:
            raise HandOverError(
                f"field {name!r} is {_shown(value)}, not an int64", Code.HAND_OVER_PROTOCOL
            )
        return value

    def items(self, name: str, default: list[object] | None = None) -> list[object]:
        value = self._header.get(name, default)
        if not isinstance(value, list):
            raise HandOverError(
                f"field {name!r} is {_shown(value)}, not a list", Code.HAND_OVER_PROTOCOL
            )
        return value

    def flag(self, name: str) -> bool:
        return self._header.get(name) is True


def checked_text(what: str, value: str) -> str:
    """A text that can travel on: not too long, and no half of a character. Raises HandOverError."""
    if len(value) > MAX_TEXT_CHARACTERS:
        raise HandOverError(
            f"{what} has {len(value)} characters; the limit is {MAX_TEXT_CHARACTERS}",
            Code.HAND_OVER_PROTOCOL,
        )
    try:
        value.encode()
    except UnicodeEncodeError:
        raise HandOverError(
            f"{what} is {value!r}, which is no Unicode text", Code.HAND_OVER_PROTOCOL
        ) from None
    return value


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def send_frame(connection: socket.socket, header: Header, body: bytes = b"") -> None:
    """Sends a frame. Raises HandOverError if it is too large (nothing is sent), OSError."""
    text = json.dumps(header, separators=(",", ":")).encode()
    _check_lengths(len(text), len(body))
    connection.sendall(b"".join((_LENGTHS.pack(len(text), len(body)), text, body)))


def receive_frame(connection: socket.socket) -> tuple[Header, bytes] | None:
    """The next frame; None if the other side has closed between frames. Raises HandOverError if it
    is malformed or too large, OSError."""
    lengths = _receive(connection, LENGTHS_BYTES, may_end=True)
    if lengths is None:
        return None
    header_bytes, body_bytes = frame_lengths(lengths)
    text = _receive(connection, header_bytes)
    body = _receive(connection, body_bytes)
    return frame_header(text or b""), body or b""


def frame_lengths(data: bytes) -> tuple[int, int]:
    """How many bytes of header and of body follow the first LENGTHS_BYTES of a frame. Raises HandOverError
    where they are too many."""
    header_bytes, body_bytes = _LENGTHS.unpack(data)
    _check_lengths(header_bytes, body_bytes)
    return header_bytes, body_bytes


def frame_header(text: bytes) -> Header:
    """The header of a frame. Raises HandOverError where it is none."""
    try:
        header = json.loads(text)
    except (RecursionError, ValueError) as error:
        raise HandOverError(
            f"the header of a frame is not JSON: {error}", Code.HAND_OVER_PROTOCOL
        ) from None
    if not isinstance(header, dict):
        raise HandOverError("the header of a frame is not a JSON object", Code.HAND_OVER_PROTOCOL)
    return header


def _check_lengths(header_bytes: int, body_bytes: int) -> None:
    for what, size, limit in (
        ("header", header_bytes, MAX_HEADER_BYTES),
        ("body", body_bytes, MAX_BODY_BYTES),
    ):
        if size > limit:
            raise HandOverError(
                f"a frame's {what} of {size} bytes is over the limit of {limit}",
                Code.HAND_OVER_PROTOCOL,
            )


def _receive(connection: socket.socket, size: int, may_end: bool = False) -> bytes | None:
    chunks = bytearray()
    while len(chunks) < size:
        chunk = connection.recv(min(size - len(chunks), 1 << 18))
        if not chunk:
            if may_end and not chunks:
                return None
            raise ConnectionError("the connection ended within a frame")
        chunks += chunk
    return bytes(chunks)
