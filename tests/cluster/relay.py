"""A stretch of network between two processes, in which messages can be held back, and be lost."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

from tests.waits import HANG_S

_CHUNK = 1 << 16


class Relay:
    """Passes bytes between whoever connects and one address, on this host."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = host, int(port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._changed = threading.Condition()
        self._connections: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._holding: set[str] = set()
        self._held = b""
        self._mark = b""
        self._start(self._accept)

    def hold(self, *directions: str) -> None:
        """From here on keeps back what goes `up` (to the target), or what comes `down`."""
        with self._changed:
            self._holding = set(directions)

    def hold_from(self, mark: bytes) -> None:
        """From the first message to the target on that has these bytes in it, keeps back what goes up; that
        message too."""
        with self._changed:
            self._mark = mark

    def until_held(self, text: bytes, timeout_s: float = HANG_S) -> None:
        """Waits until something that was to go up, with these bytes in it, is held back."""
        with self._changed:
            assert self._changed.wait_for(lambda: text in self._held, timeout_s), "nothing comes"

    @property
    def held(self) -> bytes:
        """What was to go up, and is held back."""
        with self._changed:
            return self._held

    def lose(self) -> None:
        """What is held back is lost, and the connections with it; new ones are passed on."""
        with self._changed:
            self._holding, self._held, self._mark = set(), b"", b""
            lost, self._connections = self._connections, []
        _end(lost)

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.lose()
        for thread in self._threads:
            thread.join(HANG_S)

    def _start(self, run: object, *arguments: object) -> None:
        thread = threading.Thread(target=run, args=arguments)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                below, _ = self._listener.accept()
            except OSError:
                return
            try:
                above = socket.create_connection(self._target)
            except OSError:
                below.close()
                continue
            with self._changed:
                self._connections += [below, above]
            self._start(self._pass, below, above, "up")
            self._start(self._pass, above, below, "down")

    def _pass(self, source: socket.socket, sink: socket.socket, direction: str) -> None:
        with suppress(OSError):
            while chunk := source.recv(_CHUNK):
                with self._changed:
                    if direction == "up" and self._mark and self._mark in chunk:
                        self._holding.add("up")
                    held = direction in self._holding
                    if held and direction == "up":
                        self._held += chunk
                        self._changed.notify_all()
                if not held:
                    sink.sendall(chunk)
        with self._changed:
            # One that was held back has no end either: only `lose` ends it.
            ended = [] if direction in self._holding else [source, sink]
        _end(ended)


def _end(connections: list[socket.socket]) -> None:
    for connection in connections:
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        connection.close()
