"""Serving metrics over HTTP: `GET /metrics`, and nothing else.

One short answer a connection, within limits, so that whoever reaches the port cannot hold the process
up: what is asked for too often is answered with what was gathered last.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable

PATH = "/metrics"
MAX_CONNECTIONS = 32
"""More are closed without an answer."""
MAX_REQUEST_BYTES = 16_384
REQUEST_TIMEOUT_S = 10.0
"""How long a request may take to come in, and its answer to be taken."""
LEAST_INTERVAL_S = 0.2
"""Within it, the answer is the one before."""
START_TIMEOUT_S = 30.0

_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class MetricsServer:
    """Listens at one address, in the loop that starts it."""

    def __init__(self, listen: str, render: Callable[[], Awaitable[bytes]]) -> None:
        """listen: host:port (port 0: any); `render` is asked for the whole text."""
        host, _, port = listen.rpartition(":")
        if not host or not port.isdigit():
            raise ValueError(f"metrics: {listen!r} is not host:port")
        self._listen = listen
        self._render = render
        self._server: asyncio.Server | None = None
        self._connections = 0
        self._last = b""
        self._last_s = 0.0
        self._rendering = asyncio.Lock()
        self.address = listen

    async def start(self) -> None:
        """Raises OSError if it cannot listen there."""
        host, _, port = self._listen.rpartition(":")
        try:
            self._server = await asyncio.start_server(
                self._serve, host.strip("[]"), int(port), limit=MAX_REQUEST_BYTES
            )
        except OSError as error:
            raise OSError(f"metrics: cannot listen on {self._listen}: {error}") from error
        bound = self._server.sockets[0].getsockname()[1]
        self.address = f"{host}:{bound}"

    async def stop(self) -> None:
        """Takes no more connections; those that there are end by themselves."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._connections >= MAX_CONNECTIONS:
            writer.close()
            return
        self._connections += 1
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                writer.write(await self._answer(await reader.readuntil(b"\r\n\r\n")))
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # it came to no request, or nobody takes the answer
        finally:
            self._connections -= 1
            writer.close()

    async def _answer(self, request: bytes) -> bytes:
        method, _, rest = request.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if method not in (b"GET", b"HEAD"):
            return _response("405 Method Not Allowed", b"only GET is answered\n", b"Allow: GET\r\n")
        if path != PATH.encode():
            return _response("404 Not Found", f"the metrics are at {PATH}\n".encode())
        return _response("200 OK", await self._text(), body_is_sent=method == b"GET")

    async def _text(self) -> bytes:
        async with self._rendering:
            if not self._last or time.monotonic() - self._last_s >= LEAST_INTERVAL_S:
                self._last = await self._render()
                self._last_s = time.monotonic()
            return self._last


def _response(
    status: str, body: bytes, headers: bytes = b"", *, body_is_sent: bool = True
) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {_CONTENT_TYPE}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n"
    ).encode()
    return head + headers + b"\r\n" + (body if body_is_sent else b"")


class MetricsThread:
    """A `MetricsServer` in a thread with a loop of its own, for programs that have none."""

    def __init__(self, listen: str, render: Callable[[], bytes]) -> None:
        """Returns when it listens. Raises OSError if it cannot."""
        self._stop: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._started = threading.Event()
        self._failure: BaseException | None = None
        self.address = listen

        async def run() -> None:
            async def gather() -> bytes:
                return render()

            self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
            try:
                server = MetricsServer(listen, gather)
                await server.start()
                self.address = server.address
            except BaseException as error:
                self._failure = error
                return
            finally:
                self._started.set()
            await self._stop.wait()
            await server.stop()

        self._thread = threading.Thread(
            target=lambda: asyncio.run(run()), name="lowmark-metrics", daemon=True
        )
        self._thread.start()
        self._started.wait(START_TIMEOUT_S)
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        if self._loop is not None and self._stop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
