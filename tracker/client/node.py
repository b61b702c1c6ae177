"""Committing as a node: join, commit ticks in order, go on through reconnects and redirects (rule 3).

One background thread holds the stream to the node's home. A tick's future resolves when it is durable;
until then the client keeps it and sends it again after a reconnect.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from typing import Any

import grpc

from acker.v1 import node_service_pb2 as node_pb
from acker.v1 import node_service_pb2_grpc as node_grpc
from tracker import convert
from tracker.client.connection import Backoff, Connection
from tracker.client.errors import (
    FencedError,
    LowmarkError,
    RefusedError,
    TickRefusedError,
    UnavailableError,
    refusal_of,
)
from tracker.core.messages import Grant, Joined
from tracker.core.model import (
    FrontJoin,
    PipelineSpec,
    Refusal,
    RefusalCode,
    StagedContribution,
    TickContent,
)
from tracker.core.node import TickWindow
from tracker.core.slots import FOREVER

MAX_UNACKNOWLEDGED = 10_000
COMMIT_TIMEOUT_S = 60.0
"""How long `commit` waits for room in the window."""
JOIN_TIMEOUT_S = 30.0
_ENDS = {RefusalCode.FENCED, RefusalCode.UNKNOWN_NODE, RefusalCode.UNKNOWN_PIPELINE}
"""Refusals of a stream after which its key can never commit again."""


class NodeClient:
    """A node of a pipeline. Safe for use by several threads; make it in the process that uses it, or
    make it before a fork and `join` after it."""

    def __init__(
        self,
        target: str | Sequence[str],
        pipeline: str,
        node_id: str,
        kind: str = "other",
        *,
        max_unacknowledged: int = MAX_UNACKNOWLEDGED,
    ) -> None:
        self.pipeline = pipeline
        self.node_id = node_id
        self.kind = kind
        self._connection = Connection(target)
        self._home: str | None = None
        self._joined: Joined | None = None
        self._window = TickWindow(max_unacknowledged)
        self._changed = threading.Condition()
        self._futures: dict[int, Future[int]] = {}
        self._tokens = itertools.count()
        self._grants: dict[str, Grant] = {}
        self._failure: LowmarkError | None = None
        self._closing = False
        self._stream = 0
        self._attached = False
        self._call: Any = None
        self._thread: threading.Thread | None = None

    # --- joining ----------------------------------------------------------------------------------

    def join(self, timeout_s: float = JOIN_TIMEOUT_S) -> Joined:
        """Gets a new incarnation, which closes the one before; returns what the tracker last heard
        of this id. Raises RefusedError or UnavailableError."""
        request = node_pb.JoinNodeRequest(
            pipeline=self.pipeline, node_id=self.node_id, kind=self.kind
        )
        answer, self._home = self._connection.call(
            lambda channel: node_grpc.NodeServiceStub(channel).JoinNode, request, timeout_s
        )
        self._joined = convert.joined_from_pb(answer)
        self._thread = threading.Thread(
            target=self._run, name=f"lowmark-node-{self.node_id}", daemon=True
        )
        self._thread.start()
        return self._joined

    @property
    def joined(self) -> Joined:
        """The answer to `join`; raises LowmarkError before it."""
        if self._joined is None:
            raise LowmarkError(f"node {self.node_id!r} has not joined; call join() first")
        return self._joined

    @property
    def spec(self) -> PipelineSpec:
        """The pipeline as registered."""
        return self.joined.spec

    def segment(self, name: str) -> int:
        """The number of a segment; raises LowmarkError if the pipeline has none of that name."""
        try:
            return self.spec.segments.index(name)
        except ValueError:
            raise LowmarkError(
                f"pipeline {self.pipeline!r} has no segment {name!r}; "
                f"it has {list(self.spec.segments)}"
            ) from None

    # --- ticks ------------------------------------------------------------------------------------

    def commit(self, content: TickContent, timeout_s: float = COMMIT_TIMEOUT_S) -> Future[int]:
        """Commits a tick; the future resolves with its number when it is durable, or raises
        TickRefusedError. Waits for room when too many ticks are unacknowledged; raises
        UnavailableError when there is none after `timeout_s` seconds, FencedError when the key is
        closed."""
        self.joined  # noqa: B018 - raises before joining
        future: Future[int] = Future()
        with self._changed:
            room = self._changed.wait_for(
                lambda: self._failure or self._closing or not self._window.full, timeout_s
            )
            if self._failure is not None:
                raise self._failure
            if self._closing:
                raise LowmarkError(f"node {self.node_id!r} is closed; nothing more is committed")
            if not room:
                raise UnavailableError(
                    f"node {self.node_id!r}: {len(self._window)} ticks are unacknowledged, the limit "
                    f"is {self._window.limit}, and none was acknowledged within {timeout_s:g} s"
                )
            token = next(self._tokens)
            self._futures[token] = future
            self._window.add(token, content)
            self._changed.notify_all()
        return future

    def join_front(self, front: str, segment: str, timeout_s: float = JOIN_TIMEOUT_S) -> Grant:
        """Lets a front of this node feed a segment; returns when every shard has answered. The front
        may label from `grant.slot` on. Raises TickRefusedError, or UnavailableError if some shard
        does not answer."""
        deadline = time.monotonic() + timeout_s
        content = TickContent(joins=(FrontJoin(front, self.segment(segment)),))
        self.commit(content, timeout_s).result(timeout_s)
        with self._changed:
            self._changed.wait_for(
                lambda: self._failure or front in self._grants, deadline - time.monotonic()
            )
            if self._failure is not None:
                raise self._failure
            grant = self._grants.get(front)
        if grant is None:
            raise UnavailableError(
                f"front {front!r} of node {self.node_id!r} was not granted within {timeout_s:g} s: "
                "some shard has not answered its joining; are all shards running?"
            )
        if grant.slot == FOREVER:
            raise RefusedError(
                Refusal(
                    RefusalCode.COMPLETE,
                    f"pipeline {self.pipeline!r}: segment {segment!r} completed while front "
                    f"{front!r} joined; register the pipeline as open if fronts come late",
                )
            )
        return grant

    def leave_front(self, front: str) -> Future[int]:
        """Lets a front end: nothing more is labelled by it. Commit its items before."""
        with self._changed:
            self._grants.pop(front, None)
        return self.commit(TickContent(leaves=(front,)))

    def leave(self, timeout_s: float = JOIN_TIMEOUT_S) -> None:
        """Closes the key for good, after all ticks are durable; its fronts must have left."""
        self.flush(timeout_s)
        request = node_pb.LeaveNodeRequest(
            pipeline=self.pipeline, key=convert.key_to_pb(self.joined.key)
        )
        with self._changed:
            self._closing = True
        self._connection.call(
            lambda channel: node_grpc.NodeServiceStub(channel).LeaveNode,
            request,
            timeout_s,
            prefer=self._home,
        )
        self.close()

    def flush(self, timeout_s: float = COMMIT_TIMEOUT_S) -> None:
        """Returns when all committed ticks are durable or refused; raises UnavailableError if they
        are not after `timeout_s` seconds."""
        with self._changed:
            done = self._changed.wait_for(lambda: self._failure or not len(self._window), timeout_s)
            if self._failure is not None:
                raise self._failure
            if not done:
                raise UnavailableError(
                    f"node {self.node_id!r}: {len(self._window)} ticks are not durable after "
                    f"{timeout_s:g} s"
                )

    @property
    def durable(self) -> int:
        """Number of the last tick that is known to be durable."""
        return self._window.durable

    @property
    def failure(self) -> LowmarkError | None:
        """Why the node can commit no more, if so."""
        return self._failure

    # --- staging and units ------------------------------------------------------------------------

    def stage(
        self,
        contributions: Sequence[StagedContribution],
        node_id: str | None = None,
        timeout_s: float = JOIN_TIMEOUT_S,
    ) -> None:
        """Stages contributions at the home of `node_id` (of this node, if not said); they are
        durable on return. Needs no `join`. Raises RefusedError or UnavailableError."""
        request = node_pb.StageContributionsRequest(
            pipeline=self.pipeline,
            node_id=node_id or self.node_id,
            contributions=[convert.contribution_to_pb(c) for c in contributions],
        )
        self._connection.call(
            lambda channel: node_grpc.NodeServiceStub(channel).StageContributions,
            request,
            timeout_s,
            prefer=self._home,
        )

    def list_contributions(
        self, query: str, batch: int, timeout_s: float = JOIN_TIMEOUT_S
    ) -> list[StagedContribution]:
        """What is staged for one batch of a query of this node."""
        request = node_pb.ListContributionsRequest(
            pipeline=self.pipeline, node_id=self.node_id, query=query, batch=batch
        )
        answer, _ = self._connection.call(
            lambda channel: node_grpc.NodeServiceStub(channel).ListContributions,
            request,
            timeout_s,
            prefer=self._home,
        )
        return [convert.contribution_from_pb(c) for c in answer.contributions]

    def resolve_units(self, segment: str, names: Sequence[str], wait_ms: int = 0) -> dict[str, int]:
        """The slots of open units by name; names that have not arrived after `wait_ms` are absent."""
        request = node_pb.ResolveUnitsRequest(
            pipeline=self.pipeline, segment=segment, names=names, wait_ms=wait_ms
        )
        timeout_s = JOIN_TIMEOUT_S + wait_ms / 1000
        answer, _ = self._connection.call(
            lambda channel: node_grpc.NodeServiceStub(channel).ResolveUnits,
            request,
            timeout_s,
            call_timeout_s=timeout_s,
        )
        missing = set(answer.missing)
        return {
            name: slot
            for place, (name, slot) in enumerate(zip(names, answer.slots, strict=True))
            if place not in missing
        }

    def close(self) -> None:
        """Ends the stream. Ticks that are not durable fail; the key stays, for a later incarnation."""
        with self._changed:
            self._closing = True
            call = self._call
            self._changed.notify_all()
        if call is not None:
            call.cancel()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        self._give_up(LowmarkError(f"node {self.node_id!r} was closed before they were durable"))
        self._connection.close()

    def __enter__(self) -> NodeClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- the background thread --------------------------------------------------------------------

    def _run(self) -> None:
        backoff = Backoff()
        while not self._closing and self._failure is None:
            try:
                self._hold_stream(backoff)
            except grpc.RpcError as error:
                self._stream_broke(error)
            except ValueError as error:
                self._give_up(LowmarkError(f"node {self.node_id!r}: {error}"))
            with self._changed:
                if not self._closing and self._failure is None:
                    self._changed.wait_for(lambda: self._closing, backoff.pause_s())

    def _stream_broke(self, error: grpc.RpcError) -> None:
        refused = refusal_of(error)
        if refused is None:
            self._home = self._connection.next_target()
            return
        code = refused.refusal.code
        if code is RefusalCode.NOT_HOME and refused.home_address:
            self._home = refused.home_address
        elif code in _ENDS:
            self._give_up(FencedError(refused.refusal))

    def _hold_stream(self, backoff: Backoff) -> None:
        """Opens a stream to the home and serves it until it breaks."""
        assert self._home is not None
        stub = node_grpc.NodeServiceStub(self._connection.channel(self._home))
        with self._changed:
            self._stream += 1
            self._attached = False
            self._window.detached()
            call = self._call = stub.CommitTicks(self._requests(self._stream))
        try:
            for response in call:
                backoff.reset()
                self._take(response)
        finally:
            call.cancel()
            with self._changed:
                self._stream += 1
                self._changed.notify_all()

    def _requests(self, stream: int) -> Iterator[node_pb.CommitTicksRequest]:
        """What is sent on one stream; ends with it. Runs in a thread of gRPC's."""
        key = convert.key_to_pb(self.joined.key)
        yield node_pb.CommitTicksRequest(attach=node_pb.Attach(pipeline=self.pipeline, key=key))
        while True:
            with self._changed:
                fresh: list[tuple[int, TickContent]] = []

                def ready(fresh: list[tuple[int, TickContent]] = fresh) -> bool:
                    if self._attached and self._stream == stream:
                        fresh.extend(self._window.to_send())
                    return bool(fresh) or self._stream != stream or self._closing

                self._changed.wait_for(ready)
                if self._stream != stream or (self._closing and not fresh):
                    return
            for number, content in fresh:
                tick = node_pb.NumberedTick(number=number, content=convert.content_to_pb(content))
                yield node_pb.CommitTicksRequest(tick=tick)

    def _take(self, response: node_pb.CommitTicksResponse) -> None:
        outcomes: list[tuple[int, int | LowmarkError]] = []
        with self._changed:
            match response.WhichOneof("message"):
                case "attached":
                    self._window.attached(response.attached.last_number)
                    self._attached = True
                case "committed":
                    done = self._window.committed(response.committed.number)
                    outcomes.extend((int(str(token)), number) for token, number in done)
                case "refused":
                    refusal = convert.refusal_from_pb(response.refused.refusal)
                    token = self._window.refused(response.refused.number, refusal)
                    if token is not None:
                        outcomes.append((int(str(token)), TickRefusedError(refusal)))
                case "grant":
                    grant = convert.grant_from_pb(response.grant, self.spec)
                    if grant.granted:
                        self._grants[grant.front] = grant
            futures = [(self._futures.pop(token), outcome) for token, outcome in outcomes]
            self._changed.notify_all()
        for future, outcome in futures:
            _resolve(future, outcome)

    def _give_up(self, failure: LowmarkError) -> None:
        with self._changed:
            if self._failure is None and not self._closing:
                self._failure = failure
            self._window.drain()
            futures = list(self._futures.values())
            self._futures.clear()
            self._changed.notify_all()
        for future in futures:
            _resolve(future, failure)


def _resolve(future: Future[int], outcome: int | LowmarkError) -> None:
    try:
        if isinstance(outcome, int):
            future.set_result(outcome)
        else:
            future.set_exception(outcome)
    except InvalidStateError:
        pass  # cancelled by whoever waited; the tick stays committed
