"""The dashboard: which paths there are, and who looks at what. One look a second serves all viewers of a pipeline,
and one step a second those who look at all of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from tracker.client import Admin, LowmarkError, RefusedError
from tracker.core.model import RefusalCode
from tracker.dashboard.all_pipelines import AllPipelines
from tracker.dashboard.query import ANSWER_TIMEOUT_S, DashboardQuery
from tracker.http import HttpServer, Request, Response, text

log = structlog.get_logger(__name__)

LOOK_INTERVAL_S = 1.0
MAX_CONNECTIONS = 100
MAX_VIEWERS = 50
"""Pages that may be open at once; further ones are refused, and try again."""
MAX_WATCHED = 20
"""Pipelines that are looked at, at once."""
MAX_ASKING_THREADS = 4
MAX_DIGITS = 9
"""Of a number in an address."""
KEEP_ALIVE_S = 15.0
"""A comment is sent to a viewer for whom there was nothing for so long: a proxy may close what is
silent."""

_STATIC = Path(__file__).parent / "static"
_PAGES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/app.js": ("app.js", "text/javascript; charset=utf-8"),
    "/overview.js": ("overview.js", "text/javascript; charset=utf-8"),
    "/drawing.js": ("drawing.js", "text/javascript; charset=utf-8"),
    "/style.css": ("style.css", "text/css; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
_HEADERS = (
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cache-control", "no-store"),
)


class Dashboard:
    """Serves the page at one address. listen: host:port (port 0: any); target: the tracker that it shows,
    as for any client."""

    def __init__(self, listen: str, target: str | Sequence[str]) -> None:
        """Raises ValueError if `listen` is not host:port."""
        self._http = HttpServer(
            "dashboard", listen, self._answer, headers=_HEADERS, max_connections=MAX_CONNECTIONS
        )
        self._files = {
            path: (kind, (_STATIC / name).read_bytes()) for path, (name, kind) in _PAGES.items()
        }
        self._query = DashboardQuery(lambda: Admin(target, ANSWER_TIMEOUT_S))
        # Threads of its own: those of the loop write leases, and must not wait for a page.
        self._asking = ThreadPoolExecutor(MAX_ASKING_THREADS, "lowmark-dashboard")
        self._all = AllPipelines(lambda: Admin(target, ANSWER_TIMEOUT_S), self._asking)
        self._watched: dict[str, _Watched] = {}
        self.viewers = 0

    @property
    def address(self) -> str:
        return self._http.address

    @property
    def follows_all(self) -> bool:
        """Whether the tracker is asked for all pipelines: somebody looks at them, or did a moment ago."""
        return self._all.is_following

    async def start(self) -> None:
        """Raises OSError if it cannot listen."""
        await self._http.start()
        if not self._http.is_local:
            log.warning(
                "dashboard_is_open",
                address=self.address,
                reason="whoever reaches it sees all pipelines; put a proxy that knows people before it",
            )
        log.info("shows_dashboard", url=f"http://{self.address}/")

    async def stop(self) -> None:
        """Ends all connections. Questions to the tracker that are under way end by themselves."""
        for watched in list(self._watched.values()):
            watched.stop()
        self._all.stop()
        await self._http.stop()
        self._asking.shutdown(wait=False, cancel_futures=True)

    # --- answers ----------------------------------------------------------------------------------

    async def _answer(self, request: Request) -> Response:
        if request.path in self._files:
            kind, body = self._files[request.path]
            return Response(200, [("content-type", kind)], body)
        if request.path == "/api/pipelines":
            return await self._overview(request.query)
        pipeline = request.query.get("pipeline", "")
        if request.path == "/api/look":
            return await self._json(partial(self._query.look, pipeline))
        if request.path == "/api/lags":
            return await self._json(partial(self._query.lags, pipeline))
        if request.path == "/api/events":
            return self._events(pipeline)
        return text(404, "there is no such page")

    async def _overview(self, query: dict[str, str]) -> Response:
        first = query.get("from", "0")
        if not first.isdecimal() or len(first) > MAX_DIGITS:
            return text(400, f"from={first[:MAX_DIGITS]!r} is not a number of rows to leave out")
        return await self._answered(self._all.page(query.get("search", ""), int(first)))

    async def _json(self, ask: Callable[[], dict[str, Any]]) -> Response:
        return await self._answered(self._ask(ask))

    async def _answered(self, answer: Awaitable[dict[str, Any]]) -> Response:
        try:
            told, status = await answer, 200
        except RefusedError as error:
            unknown = error.refusal.code is RefusalCode.UNKNOWN_PIPELINE
            told, status = {"error": str(error)}, 404 if unknown else 400
        except LowmarkError as error:
            told, status = {"error": str(error)}, 503
        return Response(status, [("content-type", "application/json")], json.dumps(told).encode())

    async def _ask(self, ask: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        return await asyncio.get_running_loop().run_in_executor(self._asking, ask)

    def _events(self, pipeline: str) -> Response:
        is_new = pipeline not in self._watched
        if self.viewers >= MAX_VIEWERS or (is_new and len(self._watched) >= MAX_WATCHED):
            return text(
                503,
                f"{self.viewers} of {MAX_VIEWERS} viewers look at {len(self._watched)} of {MAX_WATCHED} "
                "pipelines; close a page that nobody looks at",
                ("retry-after", "10"),
            )
        headers = [("content-type", "text/event-stream"), ("x-accel-buffering", "no")]
        return Response(200, headers, parts=self._stream(pipeline))

    async def _stream(self, pipeline: str) -> AsyncGenerator[bytes, None]:
        """What one viewer is sent: the newest look whenever it is ready for it, so that a slow one
        misses some and holds nothing up."""
        watched = self._watched.get(pipeline)
        if watched is None:
            watched = self._watched[pipeline] = _Watched(
                pipeline, partial(self._ask, partial(self._query.look, pipeline))
            )
        watched.viewers += 1
        self.viewers += 1
        try:
            seen = 0
            yield b"retry: 2000\n\n"
            while True:
                try:
                    async with asyncio.timeout(KEEP_ALIVE_S):
                        seen = await watched.after(seen)
                except TimeoutError:
                    yield b": still here\n\n"
                    continue
                yield watched.event
        finally:
            self.viewers -= 1
            watched.viewers -= 1
            if not watched.viewers:
                watched.stop()
                if self._watched.get(pipeline) is watched:
                    del self._watched[pipeline]


class _Watched:
    """A pipeline that somebody looks at."""

    def __init__(self, pipeline: str, look: Callable[[], Awaitable[dict[str, Any]]]) -> None:
        self.viewers = 0
        self.event = b""
        self._number = 0
        self._news = asyncio.Condition()
        self._task = asyncio.get_running_loop().create_task(self._follow(pipeline, look))

    def stop(self) -> None:
        self._task.cancel()

    async def after(self, seen: int) -> int:
        """Returns when there is a newer look than the one of this number, with its number."""
        async with self._news:
            await self._news.wait_for(lambda: self._number > seen)
            return self._number

    async def _follow(self, pipeline: str, look: Callable[[], Awaitable[dict[str, Any]]]) -> None:
        while True:
            try:
                event = _event("look", await look())
            except LowmarkError as error:
                event = _event("trouble", {"error": str(error)})
            except Exception:
                log.exception("look_failed", pipeline=pipeline)
                event = _event(
                    "trouble", {"error": "the look has failed; the process's log says why"}
                )
            async with self._news:
                self.event = event
                self._number += 1
                self._news.notify_all()
            await asyncio.sleep(LOOK_INTERVAL_S)


def _event(kind: str, told: dict[str, Any]) -> bytes:
    return f"event: {kind}\ndata: {json.dumps(told)}\n\n".encode()
