"""Serving metrics over HTTP: `GET /metrics`, and nothing else.

One answer a connection, and what is asked for too often is answered with what was gathered last: whoever
reaches the port cannot hold the process up.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable

from tracker.http import HttpServer, Request, Response, text

PATH = "/metrics"
MAX_CONNECTIONS = 32
LEAST_INTERVAL_S = 0.2
"""Within it, the answer is the one before."""

_CONTENT_TYPE = ("content-type", "text/plain; version=0.0.4; charset=utf-8")


def metrics_server(listen: str, render: Callable[[], Awaitable[bytes]]) -> HttpServer:
    """A server of what `render` gives, which is the whole text. Raises ValueError if `listen` is not
    host:port."""
    rendering = asyncio.Lock()
    last, last_s = b"", 0.0

    async def answer(request: Request) -> Response:
        nonlocal last, last_s
        if request.path != PATH:
            return text(404, f"the metrics are at {PATH}")
        async with rendering:
            if not last or time.monotonic() - last_s >= LEAST_INTERVAL_S:
                last = await render()
                last_s = time.monotonic()
            return Response(200, [_CONTENT_TYPE], last)

    close = [("connection", "close")]
    return HttpServer("metrics", listen, answer, headers=close, max_connections=MAX_CONNECTIONS)


class MetricsThread:
    """A server of metrics in a thread with a loop of its own, for programs that have none."""

    def __init__(self, listen: str, render: Callable[[], bytes]) -> None:
        """Returns when it listens. Raises OSError if it cannot, ValueError if `listen` is not host:port."""

        async def gather() -> bytes:
            return render()

        self._server = metrics_server(listen, gather)
        self._loop = asyncio.new_event_loop()
        try:
            self._loop.run_until_complete(self._server.start())
        except BaseException:
            self._loop.close()
            raise
        self.address = self._server.address
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="lowmark-metrics", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._server.stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
