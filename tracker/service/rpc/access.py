"""Who may call what: every call is judged by its token, and a process by its certificate or token.

What is not named here is for those alone who may administer every pipeline: a method that is added and
forgotten is closed, not open. Without tokens nothing of this runs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextvars import ContextVar
from functools import partial
from typing import Any, NoReturn, TypeVar

import grpc
import structlog

from tracker.errors import InvalidError
from tracker.service.rpc.errors import Context
from tracker.service.rpc.revoking import CallsUnderWay, Revoked
from tracker.service.rpc.tokens import Right, Token, Tokens
from tracker.service.rpc.wrapping import Interceptor, Wrapped, wrapped
from tracker.service.stats import CALLS_REFUSED

log = structlog.get_logger(__name__)
T = TypeVar("T")

RELOAD_INTERVAL_S = 1.0
"""How often the file of tokens is looked at."""
MAX_LOGGED_REFUSALS = 20
"""Within LOGGED_PERIOD_S; those beyond are counted."""
LOGGED_PERIOD_S = 10.0

CLIENT: ContextVar[str] = ContextVar("lowmark_client", default="")
"""Within a call: the name of its token, if it has one."""

TOKEN: ContextVar[Token | None] = ContextVar("lowmark_token", default=None)
"""... and the token itself, as it was when the call began."""

_OPEN = ("/grpc.health.v1.Health/", "/grpc.reflection.")
"""Probes have no tokens, and the contract is no secret."""
_PEER = ("/acker.v1.PeerService/", "/acker.v1.GroupService/Ask")
ANY_TOKEN = {
    "/acker.v1.PipelineService/ListPipelines", "/acker.v1.PipelineService/ListShards",
    "/acker.v1.GroupService/ListGroups",
}  # fmt: skip
"""A list of pipelines has those that the caller knows."""
WHOLE_TRACKER = {
    "/acker.v1.PipelineService/RescaleShards", "/acker.v1.PipelineService/FinishUpgrade",
    "/acker.v1.PipelineService/DeclareLost", "/acker.v1.GroupService/CordonGroup",
}  # fmt: skip
"""They concern every pipeline: for those who may administer all of them."""
_LOST = "the call's token has lost its right"
_LOOK = None
"""In place of a right: any right that one has to the pipeline."""

CALLS: dict[str, tuple[Right | None, Callable[[Any], str]]] = {
    "/acker.v1.PipelineService/RegisterPipeline": (Right.REGISTER, lambda r: r.spec.name),
    "/acker.v1.PipelineService/GetPipeline": (_LOOK, lambda r: r.pipeline),
    "/acker.v1.PipelineService/ExplainPipeline": (_LOOK, lambda r: r.pipeline),
    "/acker.v1.PipelineService/GetFreshness": (_LOOK, lambda r: r.pipeline),
    "/acker.v1.PipelineService/RetireNode": (Right.ADMINISTER, lambda r: r.pipeline),
    "/acker.v1.PipelineService/RestartPipeline": (Right.ADMINISTER, lambda r: r.pipeline),
    "/acker.v1.PipelineService/DeletePipeline": (Right.ADMINISTER, lambda r: r.pipeline),
    "/acker.v1.GroupService/MovePipeline": (Right.ADMINISTER, lambda r: r.pipeline),
    "/acker.v1.NodeService/JoinNode": (Right.COMMIT, lambda r: r.pipeline),
    "/acker.v1.NodeService/LeaveNode": (Right.COMMIT, lambda r: r.pipeline),
    "/acker.v1.NodeService/StageContributions": (Right.COMMIT, lambda r: r.pipeline),
    "/acker.v1.NodeService/ListContributions": (Right.COMMIT, lambda r: r.pipeline),
    "/acker.v1.NodeService/ResolveUnits": (Right.COMMIT, lambda r: r.pipeline),
    "/acker.v1.ProgressService/GetMinTime": (Right.SUBSCRIBE, lambda r: r.pipeline),
    "/acker.v1.ProgressService/GetHistory": (Right.SUBSCRIBE, lambda r: r.pipeline),
    "/acker.v1.ProgressService/WaitUntil": (Right.SUBSCRIBE, lambda r: r.pipeline),
}


STREAMS = {
    "/acker.v1.NodeService/CommitTicks": (Right.COMMIT, "attach"),
    "/acker.v1.ProgressService/Subscribe": (Right.SUBSCRIBE, "subscribe"),
}
"""With the field that a message has which names a pipeline."""


def caller_knows(pipeline: str) -> bool:
    """Within a call: whether whoever makes it may look at a pipeline."""
    token = TOKEN.get()
    return token is None or token.knows(pipeline)


def is_open(method: str) -> bool:
    """Whether a method is not for clients, but for probes or other processes."""
    return method.startswith((*_OPEN, *_PEER))


class Denied(Exception):
    """A call that may not be made."""

    def __init__(self, status: grpc.StatusCode, message: str, token: str = "") -> None:
        super().__init__(message)
        self.status, self.token = status, token


def unauthenticated(why: str) -> Denied:
    return Denied(
        grpc.StatusCode.UNAUTHENTICATED, f"{why}; name a file with one by LOWMARK_TOKEN_FILE"
    )


def forbidden(token: Token, what: str) -> Denied:
    return Denied(
        grpc.StatusCode.PERMISSION_DENIED,
        f"token {token.name!r} may not {what}; ask whoever keeps the tracker's tokens for the right",
        token.name,
    )


def token_in(metadata: Any, tokens: Tokens) -> Token:
    """The token of a call. Raises Denied if it has none that is known."""
    given = [value for key, value in metadata or () if key == "authorization"]
    scheme, _, secret = str(given[0]).partition(" ") if given else ("", "", "")
    if not given:
        raise unauthenticated("this tracker asks for a token, and the call has none")
    if len(given) > 1 or scheme.lower() != "bearer" or not secret:
        raise unauthenticated("the call's authorization is not one bearer token")
    token = tokens.find(secret)
    if token is None:
        raise unauthenticated("the call's token is not known here, or not any more")
    return token


class _Log:
    """Says who was refused, but not more often than anybody can read."""

    def __init__(self) -> None:
        self._since_s, self._said, self._left_out = 0.0, 0, 0

    def refused(self, context: Context, method: str, denied: Denied) -> None:
        CALLS_REFUSED[denied.status.name.lower()] += 1
        now = time.monotonic()
        if now - self._since_s >= LOGGED_PERIOD_S:
            self._since_s, self._said = now, 0
        if self._said >= MAX_LOGGED_REFUSALS:
            self._left_out += 1
            return
        self._said += 1
        more = {"left_out": self._left_out} if self._left_out else {}
        self._left_out = 0
        log.warning(
            "call_refused", status=denied.status.name, method=method, peer=context.peer(),
            token=denied.token or None, reason=str(denied), **more,
        )  # fmt: skip


REFUSALS = _Log()


async def deny(context: Context, method: str, denied: Denied) -> NoReturn:
    """Logs it, and ends the call."""
    REFUSALS.refused(context, method, denied)
    await context.abort(denied.status, str(denied))
    raise AssertionError("abort returns never")


class Access(Interceptor):
    """Judges calls by their tokens."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self.calls = CallsUnderWay(tokens)

    async def watch(self) -> None:
        """Takes changes of the file, until it is cancelled."""
        while True:
            await asyncio.sleep(RELOAD_INTERVAL_S)
            self.reload()

    def reload(self) -> None:
        """Reads the file if it has changed, and ends the calls that have lost their right."""
        try:
            if not self._tokens.reload():
                return
        except InvalidError as error:
            log.error("tokens_not_read", reason=str(error))
            return
        log.info("tokens_read", file=self._tokens.path, tokens=len(self._tokens))
        self.calls.check()

    def intercepted(self, call: grpc.HandlerCallDetails, handler: Wrapped) -> Wrapped:
        method = call.method
        if is_open(method):
            return handler  # a process is judged where it says which shard it is
        try:
            token = token_in(call.invocation_metadata, self._tokens)
            CLIENT.set(token.name)  # for all of the call, which is one task
            TOKEN.set(token)
            if method not in CALLS and method not in STREAMS and method not in ANY_TOKEN:
                _administers(method, token)
        except Denied as denied:
            return _denying(method, denied)
        return wrapped(
            handler, partial(self._unary, method, token), partial(self._stream, method, token)
        )

    def _unary(self, method: str, token: Token, serve: Any) -> Any:
        async def served(request: Any, context: Context) -> Any:
            may = _asked_for(method, request)
            try:
                may(token)
                return await self.calls.serve(token, _yes_or_no(may), serve(request, context))
            except Denied as denied:
                await deny(context, method, denied)
            except Revoked:
                await deny(context, method, unauthenticated(_LOST))

        return served

    def _stream(self, method: str, token: Token, serve: Any) -> Any:
        if method not in STREAMS:
            return serve  # one that is added is for administrators, who were let in
        right, naming = STREAMS[method]

        async def served(requests: AsyncIterator[Any], context: Context) -> None:
            pipelines: dict[str, None] = {}

            def may(now: Token) -> bool:
                return all(now.may(right, pipeline) for pipeline in pipelines)

            async def checked() -> AsyncIterator[Any]:
                async for request in requests:
                    if request.HasField(naming):
                        pipeline = getattr(request, naming).pipeline
                        _check(self._tokens.current(token) or token, right, pipeline)
                        pipelines[pipeline] = None
                    yield request

            try:
                await self.calls.serve(token, may, serve(checked(), context))
            except Denied as denied:
                await deny(context, method, denied)
            except Revoked:
                await deny(context, method, unauthenticated(_LOST))

        return served


def _administers(method: str, token: Token) -> None:
    """Raises Denied."""
    if not token.may_everywhere(Right.ADMINISTER):
        raise forbidden(token, f"call {method}, which is for administrators of *")


def _asked_for(method: str, request: Any) -> Callable[[Token], None]:
    """Raises Denied for a token that may not make this call."""
    if method in ANY_TOKEN:
        return lambda token: None
    if method not in CALLS:
        return partial(_administers, method)
    right, pipeline_of = CALLS[method]
    pipeline = pipeline_of(request)
    return lambda token: _check(token, right, pipeline)


def _yes_or_no(check: Callable[[Token], None]) -> Callable[[Token], bool]:
    def may(token: Token) -> bool:
        try:
            check(token)
        except Denied:
            return False
        return True

    return may


def _check(token: Token, right: Right | None, pipeline: str) -> None:
    if right is None:
        if not token.knows(pipeline):
            raise forbidden(token, f"look at pipeline {pipeline[:200]!r}")
    elif not token.may(right, pipeline):
        raise forbidden(token, f"{right.value} in pipeline {pipeline[:200]!r}")


def _denying(method: str, denied: Denied) -> Any:
    async def refuse(requests: AsyncIterator[bytes], context: Any) -> None:
        await deny(context, method, denied)

    return grpc.stream_stream_rpc_method_handler(refuse)


class Peers:
    """Who may act as a shard: whoever has a certificate that is valid for the host of one, or a token
    that says so. With neither certificates nor tokens: everybody."""

    def __init__(
        self,
        reached: Callable[[], Iterable[str]],
        *,
        by_certificate: bool,
        calls: CallsUnderWay | None,
    ) -> None:
        """`reached`: where the shards are, also those that come later; calls: of those who have tokens, where
        there are any."""
        self._reached = reached
        self._by_certificate, self._calls = by_certificate, calls

    async def serve(self, context: Context, method: str, serving: Coroutine[Any, Any, T]) -> T:
        """What the call of a shard comes to; it ends when its token is taken away. Ends the call of anybody
        else."""
        try:
            token = self._token(context)
            if token is None:
                return await serving
            assert self._calls is not None
            answer: T = await self._calls.serve(token, lambda now: now.peer, serving)
            return answer
        except Denied as denied:
            await deny(context, method, denied)
        except Revoked:
            await deny(context, method, unauthenticated(_LOST))
        finally:
            serving.close()  # where it was not begun

    def _token(self, context: Context) -> Token | None:
        """That by which the call is let in; None if it is by its certificate, or like everybody. Raises
        Denied."""
        if not self._by_certificate and self._calls is None:
            return None
        if self._by_certificate and self._has_certificate(context):
            return None
        if self._calls is None:
            raise Denied(
                grpc.StatusCode.PERMISSION_DENIED,
                "this call is for processes of the tracker: their certificate is valid for the host of a "
                "shard, or their token has the right peer",
            )
        token = token_in(context.invocation_metadata(), self._calls.tokens)
        if not token.peer:
            raise forbidden(token, "act as a process of the tracker: it has not the right peer")
        return token

    def _has_certificate(self, context: Context) -> bool:
        names = context.auth_context().get("x509_subject_alternative_name", ())
        return any(self._is_valid_for_a_shard(name.decode(errors="replace")) for name in names)

    def _is_valid_for_a_shard(self, name: str) -> bool:
        name = name.lower()
        hosts = {a.rpartition(":")[0].strip("[]").lower() for a in self._reached()}
        if name.startswith("*."):
            return any(host.partition(".")[2] == name[2:] for host in hosts)
        return name in hosts
