"""The dashboard and the API that it asks, at one address. One look a second serves all viewers of a pipeline, and one
step a second those who look at all of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from tracker.client import Admin, LowmarkError, PipelineInfo, RefusedError, SecureTarget
from tracker.core.model import Refusal, RefusalCode
from tracker.core.model.slots import FOREVER
from tracker.dashboard import openapi, routes
from tracker.dashboard.all_pipelines import AllPipelines
from tracker.dashboard.answers import Answer
from tracker.dashboard.badge import badge
from tracker.dashboard.events import Events
from tracker.dashboard.query import ANSWER_TIMEOUT_S, DashboardQuery, min_times
from tracker.dashboard.refusing import Refused, refusal_of, refused
from tracker.dashboard.rights import EVERYBODY, Gate, Viewer, check, let_in
from tracker.dashboard.routes import JSON, Route
from tracker.dashboard.shared import SharedQuestions
from tracker.errors import Code
from tracker.http import HttpServer, Request, Response
from tracker.view.progress import state_of

log = structlog.get_logger(__name__)

MAX_CONNECTIONS = 100
MAX_ASKING_THREADS = 4

_STATIC = Path(__file__).parent / "static"
_PAGES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/app.js": ("app.js", "text/javascript; charset=utf-8"),
    "/asking.js": ("asking.js", "text/javascript; charset=utf-8"),
    "/overview.js": ("overview.js", "text/javascript; charset=utf-8"),
    "/drawing.js": ("drawing.js", "text/javascript; charset=utf-8"),
    "/style.css": ("style.css", "text/css; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
_ASKED_FOR_A_TOKEN = "/"
"""Of the files: so browsers ask for a token where the page is opened. The files hold nothing of a tracker."""
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
ETAG_CHARACTERS = 32
"""Of the hash of a body."""


class Dashboard:
    """Serves the page and the API at one address. listen: host:port (port 0: any); target: the tracker that it shows,
    as for any client, by credentials that may see all of it; gate: what judges tokens, if the tracker has some."""

    def __init__(
        self, listen: str, target: str | Sequence[str] | SecureTarget, gate: Gate | None = None
    ) -> None:
        """Raises ValueError if `listen` is not host:port."""
        self._http = HttpServer(
            "dashboard", listen, self._answer, headers=_HEADERS, max_connections=MAX_CONNECTIONS, refused=refused,
        )  # fmt: skip
        self._gate: Gate = gate or EVERYBODY
        self._files = {
            path: (kind, (_STATIC / name).read_bytes()) for path, (name, kind) in _PAGES.items()
        }
        self._query = DashboardQuery(lambda: Admin(target, ANSWER_TIMEOUT_S))
        # Threads of its own: those of the loop write leases, and must not wait for a page.
        self._asking = ThreadPoolExecutor(MAX_ASKING_THREADS, "lowmark-dashboard")
        self._all = AllPipelines(lambda: Admin(target, ANSWER_TIMEOUT_S), self._asking)
        self._shared = SharedQuestions(self._asking)
        self._document = json.dumps(openapi.document()).encode()
        self.events = Events(target)
        self._ways: dict[str, Callable[..., Awaitable[Response]]] = {
            "pipelines": self._pipelines,
            "pipeline": self._pipeline,
            "min_times": self._min_times,
            "lags": self._lags,
            "events": self._events,
            "badge": self._badge,
        }
        """By the name of a route what answers it."""

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
            log.warning("dashboard_is_open", address=self.address, reason=self._open_to())
        log.info("shows_dashboard", url=f"http://{self.address}/")

    def _open_to(self) -> str:
        if self._gate is EVERYBODY:
            return "whoever reaches it sees all pipelines; put a proxy that knows people before it"
        return "tokens come to it in the clear; put a proxy that speaks TLS before it"

    async def stop(self) -> None:
        """Ends all connections. Questions to the tracker that are under way end by themselves."""
        self.events.stop()
        self._all.stop()
        await self._http.stop()
        self._asking.shutdown(wait=False, cancel_futures=True)

    # --- answers ----------------------------------------------------------------------------------

    async def _answer(self, request: Request) -> Response:
        try:
            return await self._found(request)
        except (Refused, LowmarkError) as error:
            return refusal_of(error)
        except Exception:
            log.exception("answer_failed", path=request.path)
            return refused(
                500, "the answer has failed; the process's log says why", code=Code.FAILED
            )

    async def _found(self, request: Request) -> Response:
        """Raises Refused, LowmarkError."""
        authorization = request.headers.get("authorization", "")
        if request.path in self._files:
            if request.path == _ASKED_FOR_A_TOKEN:
                let_in(self._gate, authorization)
            kind, body = self._files[request.path]
            return Response(200, [("content-type", kind)], body)
        if request.path == routes.ROOT:
            return Response(200, [("content-type", "text/html; charset=utf-8")], openapi.page())
        if request.path == routes.DOCUMENT:
            return self._revalidated(request, JSON, self._document)
        route, in_path = routes.found(request.path)
        viewer = let_in(self._gate, authorization)
        given = route.parsed(request, in_path)
        if "pipeline" in given:
            check(viewer, route.need, given["pipeline"])
        return await self._ways[route.name](route, request, viewer, given)

    def _revalidated(
        self, request: Request, kind: str, body: bytes, *headers: tuple[str, str], cached_s: int = 0
    ) -> Response:
        """A body with its ETag; nothing where the client has it already."""
        etag = f'"{hashlib.sha256(body).hexdigest()[:ETAG_CHARACTERS]}"'
        kept = f"max-age={cached_s}" if cached_s else "no-cache"
        private = [] if self._gate is EVERYBODY else [("vary", "authorization")]
        told = [
            ("etag", etag),
            ("cache-control", f"private, {kept}" if private else kept),
            *private,
            *headers,
        ]
        had = [
            each.strip().removeprefix("W/")
            for each in request.headers.get("if-none-match", "").split(",")
        ]
        if etag in had or "*" in had:
            return Response(304, told)
        return Response(200, [("content-type", kind), *told], body)

    def _json(self, route: Route, request: Request, answer: Answer) -> Response:
        return self._revalidated(request, route.media, answer.model_dump_json().encode() + b"\n")

    async def _pipelines(
        self, route: Route, request: Request, viewer: Viewer, given: dict[str, Any]
    ) -> Response:
        page = await self._all.page(given["search"], given["offset"], viewer.knows)
        return self._json(route, request, page)

    async def _pipeline(
        self, route: Route, request: Request, viewer: Viewer, given: dict[str, Any]
    ) -> Response:
        name = given["pipeline"]
        look = await self._shared.ask("look", name, partial(self._query.look, name))
        return self._json(route, request, look)

    async def _min_times(
        self, route: Route, request: Request, viewer: Viewer, given: dict[str, Any]
    ) -> Response:
        return self._json(route, request, min_times(await self._info(given["pipeline"])))

    async def _lags(
        self, route: Route, request: Request, viewer: Viewer, given: dict[str, Any]
    ) -> Response:
        name = given["pipeline"]
        lags = await self._shared.ask("lags", name, partial(self._query.lags, name))
        return self._json(route, request, lags)

    async def _events(
        self, route: Route, request: Request, viewer: Viewer, given: dict[str, Any]
    ) -> Response:
        name, segment, after = given["pipeline"], given["segment"], given["Last-Event-ID"]
        # What a stream goes by from its beginning to its end is not to be of a pipeline that was deleted just now.
        info = await self._info(name, anew=True)
        _check_segment(info, segment)
        generations = {info.state.generation, *(() if after is None else (after.generation,))}
        for generation in generations:
            await self.events.check_same(name, generation)
        if after is not None and after.slot >= FOREVER:
            return Response(204, [])
        authorization = request.headers.get("authorization", "")

        def may_go_on() -> bool:
            try:
                check(let_in(self._gate, authorization), route.need, name)
            except Refused:
                return False
            return True

        client = viewer.name or request.address
        slot = None if after is None else after.slot
        stream = await self.events.open(
            info.spec, segment, slot, max(generations), client, may_go_on
        )
        headers = [("content-type", route.media), ("x-accel-buffering", "no")]
        return Response(200, headers, parts=stream)

    async def _badge(
        self, route: Route, request: Request, viewer: Viewer, given: dict[str, Any]
    ) -> Response:
        name, segment = given["pipeline"], given["segment"]
        info = await self._info(name)
        _check_segment(info, segment)
        look = await self._shared.ask("look", name, partial(self._query.look, name))
        slot, state = look.min_time, look.state
        if segment is not None:
            slot = next(s.min_time for s in info.state.segments if s.segment == segment)
            state = state_of(info, slot, None)
            for each in look.segments:  # but those that are drained, and those beyond a limit
                if each.segment == segment:
                    slot, state = each.min_time, each.state
        picture = badge(info, segment, slot, state, given["show"], datetime.now(UTC))
        shown = ("cross-origin-resource-policy", "cross-origin")
        return self._revalidated(request, route.media, picture, shown, cached_s=route.cached_s)

    async def _info(self, name: str, *, anew: bool = False) -> PipelineInfo:
        return await self._shared.ask("info", name, partial(self._query.info, name), anew=anew)


def _check_segment(info: PipelineInfo, segment: str | None) -> None:
    """Raises RefusedError for one that the pipeline has not."""
    names = info.spec.segments
    if segment is not None and segment not in names:
        what = f"pipeline {info.spec.name!r} has no segment {segment[:60]!r}; it has {list(names[:20])}"
        raise RefusedError(Refusal(RefusalCode.UNKNOWN_SEGMENT, what))
