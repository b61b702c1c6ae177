"""Receiving the frames of workers, with bounds on what one that is begun and not ended can take: time, and room.

A frame is whole in FRAME_TIMEOUT_S from its first byte on, or its connection ends. What large ones take is
counted from before they are read until they are answered; one that has no room waits within its time, and the
worker's bytes wait in its socket.
"""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from local_tracker.worker.protocol import (
    LENGTHS_BYTES,
    Deadline,
    Header,
    frame_header,
    frame_lengths,
)
from tracker.errors import Code, HandOverError

FRAME_TIMEOUT_S = 10.0
"""How long a frame may take from its first byte to its last, and its answer to be taken."""
IDLE_S = 300.0
"""How long a connection over TCP may be without a request; a worker that comes later connects again."""
MAX_CONNECTIONS = 512
MAX_CONNECTIONS_PER_PEER = 256
"""Over TCP, of one address: whoever has it cannot keep all others out."""
MAX_BYTES_IN_FLIGHT = 256 << 20
"""Of large frames that are being received or answered."""
SMALL_FRAME_BYTES = 64 << 10
"""Frames up to here are not counted: MAX_CONNECTIONS bounds them."""
_HEADER_WEIGHT = 16
"""How much more memory JSON takes when it is read."""
_CHUNK_BYTES = 1 << 18


class Room:
    """The bytes that large frames may take at a time."""

    def __init__(self, most_bytes: int = MAX_BYTES_IN_FLIGHT) -> None:
        self._left, self._changed = most_bytes, threading.Condition()

    @contextmanager
    def held(self, header_bytes: int, body_bytes: int, deadline: Deadline) -> Iterator[None]:
        """While a frame of these lengths is received and answered. Raises HandOverError("deadline") where it has
        no room before its deadline: what it holds may have been taken before, when it came first."""
        size = _HEADER_WEIGHT * header_bytes + body_bytes
        if size <= SMALL_FRAME_BYTES:
            yield
            return
        with self._changed:
            left_s = deadline.end() - time.monotonic()
            if not self._changed.wait_for(lambda: self._left >= size, left_s):
                raise HandOverError(
                    f"a frame of {header_bytes + body_bytes} bytes found no room beside others within "
                    f"{deadline.seconds:g} s, the limit is {MAX_BYTES_IN_FLIGHT}; hand over in smaller steps",
                    Code.HAND_OVER_DEADLINE,
                )
            self._left -= size
        try:
            yield
        finally:
            with self._changed:
                self._left += size
                self._changed.notify_all()


class Peers:
    """How many connections each address has. Those of a Unix socket are of one user, and not told apart."""

    def __init__(self) -> None:
        self._count: Counter[str] = Counter()
        self._lock = threading.Lock()

    def come(self, peer: str) -> bool:
        """Whether one more may come; then it counts until `gone`."""
        with self._lock:
            if peer and self._count[peer] >= MAX_CONNECTIONS_PER_PEER:
                return False
            self._count[peer] += 1
            return True

    def gone(self, peer: str) -> None:
        with self._lock:
            self._count[peer] -= 1
            if not self._count[peer]:
                del self._count[peer]


def peer_of(connection: socket.socket, address: object) -> str:
    """The address that a connection came from, as `accept` told it; empty for one of a Unix socket."""
    if connection.family == socket.AF_UNIX or not isinstance(address, tuple):
        return ""
    return str(address[0])


def begun(connection: socket.socket, idle_s: float | None) -> tuple[int, int, Deadline] | None:
    """The lengths of header and body of the next frame, and by when it is to be whole; None where the other
    side has closed, or has been silent for idle_s (None: as long as it likes). Raises HandOverError where there
    can be no such frame, or its lengths do not come in time; OSError."""
    connection.settimeout(idle_s)
    try:
        first = connection.recv(1)
    except TimeoutError:
        return None
    if not first:
        return None
    deadline = Deadline(FRAME_TIMEOUT_S)
    lengths = frame_lengths(first + received(connection, LENGTHS_BYTES - 1, deadline))
    return *lengths, deadline


def content(
    connection: socket.socket, header_bytes: int, body_bytes: int, deadline: Deadline
) -> tuple[Header, bytes]:
    """The rest of a frame. Raises HandOverError where it is malformed or late, OSError."""
    text = received(connection, header_bytes, deadline)
    body = received(connection, body_bytes, deadline)
    return frame_header(text), body


def received(connection: socket.socket, size: int, deadline: Deadline) -> bytes:
    """So many bytes. Raises HandOverError("deadline") where they do not come in time, OSError."""
    chunks = bytearray()
    try:
        while len(chunks) < size:
            connection.settimeout(deadline.left_s())
            chunk = connection.recv(min(size - len(chunks), _CHUNK_BYTES))
            if not chunk:
                raise ConnectionError("the connection ended within a frame")
            chunks += chunk
    except TimeoutError:
        raise HandOverError(
            f"a frame that was begun was not whole within {deadline.seconds:g} s; connect again, and repeat it",
            Code.HAND_OVER_DEADLINE,
        ) from None
    return bytes(chunks)
