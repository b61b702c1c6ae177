"""Committing as a node: join, commit ticks in order, go on through reconnects and redirects (rule 3).

One background thread holds the stream to the node's home. A tick's future resolves when it is durable;
until then the client keeps it and sends it again after a reconnect.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, TypeAlias

import grpc

from acker.v1 import node_service_pb2 as node_pb
from acker.v1 import node_service_pb2_grpc as node_grpc
from acker.v1 import types_pb2 as pb
from tracker.client.closing import Closing
from tracker.client.connection import (
    REDIRECT_FIRST_S,
    Backoff,
    Connection,
    describe_failure,
    is_retried,
)
from tracker.client.holds import Hold, HoldBook, below_grant
from tracker.client.known import Acknowledged, Known, known_at
from tracker.client.refusals import refusal_of
from tracker.client.updates import slot_at
from tracker.core.home.window import TickWindow
from tracker.core.log import Grant, Joined
from tracker.core.log.sizes import pieces
from tracker.core.model import (
    HOLD_FRONT,
    FrontJoin,
    HoldMove,
    NodeKind,
    PipelineSpec,
    Refusal,
    RefusalCode,
    StagedContribution,
    TickContent,
)
from tracker.core.model.slots import FOREVER
from tracker.core.model.waits import MAX_WAIT_CHARACTERS, MAX_WAITS, WaitCause
from tracker.errors import (
    ClosedError,
    Code,
    FencedError,
    InvalidError,
    LowmarkError,
    RefusedError,
    StateError,
    UnavailableError,
)
from tracker.wire.grpc_options import MAX_TICK_BYTES
from tracker.wire.nodes import grant_from_pb, joined_from_pb, wait_to_pb
from tracker.wire.pipelines import spec_from_pb
from tracker.wire.refusals import refusal_from_pb
from tracker.wire.ticks import content_to_pb, contribution_from_pb, contribution_to_pb, key_to_pb

MAX_UNACKNOWLEDGED = 10_000
"""Ticks that wait for their acknowledgement, before `commit` waits."""
MAX_UNACKNOWLEDGED_BYTES = 256 * 1024 * 1024
"""The same, in bytes on the wire."""
COMMIT_TIMEOUT_S = 60.0
"""How long `commit` waits for room."""
JOIN_TIMEOUT_S = 30.0

_MESSAGE_BYTES = 256 * 1024
"""Ticks that have gathered share messages of this size; a larger tick has one of its own."""
_STREAM_RETRIED = {RefusalCode.NOT_HOME, RefusalCode.NOT_READY, RefusalCode.FULL}
"""Refusals of a stream after which another one may go on."""

_Future: TypeAlias = Future[int]
_Outcome: TypeAlias = tuple[_Future, int | LowmarkError]


class NodeClient(Closing):
    """A node of a pipeline. Safe for use by several threads, in one process: make it before a fork if
    you like, and `join` after it. Don't wait for a tick in a callback of a future of another one.

    target: host:port of one process of the tracker or of several (with commas, or a sequence).
    """

    def __init__(
        self,
        target: str | Sequence[str],
        pipeline: str,
        node_id: str,
        kind: str = NodeKind.OTHER,
        *,
        max_unacknowledged: int = MAX_UNACKNOWLEDGED,
        max_unacknowledged_bytes: int = MAX_UNACKNOWLEDGED_BYTES,
        known: str | os.PathLike[str] | Known | None = None,
    ) -> None:
        """known: a file beside the node's own durable record, here or in a store, in which it records what
        was acknowledged; a tracker that has lost that refuses it when it joins again."""
        self.pipeline = pipeline
        self.node_id = node_id
        self.kind = kind
        self._connection = Connection(target)
        self._limits = (max_unacknowledged, max_unacknowledged_bytes)
        self._known = known_at(known) if isinstance(known, str | os.PathLike) else known
        self.never_left = False
        """Whether by its record it has not left in order: a home that does not know it has forgotten its batches, and refuses it."""
        self.left_in = -1
        """The generation in which it left in order last, by its record; -1 where that says nothing. In a later one it has not."""
        self._changed = threading.Condition()
        # All below is read and written while holding `_changed`.
        self._home: str = self._connection.targets[0]
        self._joined: Joined | None = None
        self._window: TickWindow[_Future, pb.TickContent] = TickWindow(max_unacknowledged)
        self._bytes: dict[_Future, int] = {}
        self._waiting_bytes = 0
        self._grants: dict[str, Grant] = {}
        self._leaving: dict[str, _Future] = {}
        self._holds: HoldBook | None = None
        self._waits: tuple[WaitCause, ...] = ()
        self._waits_untold = False
        """Whether the home has not heard of them on the present stream."""
        self._max_ticks = 1
        """How many a message may have, by the home's answer to attach."""
        self._failure: LowmarkError | None = None
        self._closed = False
        self._keep_alive_s = 0.0
        """How long a stream may be without a message; 0: for ever."""
        self._stream = 0
        """Grows with each stream and each end of one: who holds an older number has been replaced."""
        self._call: Any = None
        self._thread: threading.Thread | None = None
        self._process = 0
        # Of the thread that serves the stream:
        self._redirected = False
        """Whether the last stream ended because the node is at home elsewhere, or about to be here."""

    # --- joining ----------------------------------------------------------------------------------

    def check_join(
        self, timeout_s: float = JOIN_TIMEOUT_S, *, owner: str = "", take_over: bool = False
    ) -> Joined:
        """What `join` would get now, or why it would be refused; changes nothing. `key` is the
        newest of this id, of incarnation 0 if it has none. (A tracker of before this was there joins.)
        """
        return self._ask_to_join(timeout_s, owner, take_over, check_only=True)[0]

    def join(
        self, timeout_s: float = JOIN_TIMEOUT_S, *, owner: str = "", take_over: bool = False
    ) -> Joined:
        """Gets a new incarnation, which closes the one before; returns what the tracker last heard
        of this id. May be called again, say when the node was fenced: what still waits fails then.
        owner: what the node runs for, such as a query's id; while a session of this id lives for
        another owner the join is refused, unless it takes over.
        Raises RefusedError, UnavailableError, ClosedError."""
        joined, home = self._ask_to_join(timeout_s, owner, take_over, check_only=False)
        with self._changed:
            if self._closed:
                raise self._closed_error()
            self._end_stream()
            dropped = self._drain()
            self._home, self._joined, self._failure = home, joined, None
            self._window = TickWindow(self._limits[0])
            self._leaving = {}
            self._grants = {grant.front: grant for grant in joined.fronts if grant.granted}
            self._holds = HoldBook(self.pipeline, lambda: self.joined, self.commit)
            self._note_durable()
            if self._thread is None:
                self._process = os.getpid()
                thread = threading.Thread(
                    target=self._run, name=f"lowmark-node-{self.node_id}", daemon=True
                )
                thread.start()  # raises where there may be no more threads: whoever joins again begins one
                self._thread = thread
            self._changed.notify_all()
        anew = LowmarkError(f"node {self.node_id!r} joined anew before they were durable")
        _resolve([(future, anew) for future in dropped])
        # A hold was to begin by them when an earlier process ended.
        for front in (grant.front for grant in joined.fronts if grant.front.startswith(HOLD_FRONT)):
            self.leave_front(front)
        return joined

    def _ask_to_join(
        self, timeout_s: float, owner: str, take_over: bool, *, check_only: bool
    ) -> tuple[Joined, str]:
        """The answer, and the address of the home that gave it."""
        known = Acknowledged() if self._known is None else self._known.read()
        request = node_pb.JoinNodeRequest(
            pipeline=self.pipeline, node_id=self.node_id, kind=self.kind, owner=owner,
            take_over=take_over, check_only=check_only,
            known_incarnation=known.incarnation, known_ticks=known.ticks, known_generation=known.generation,
            joining=uuid.uuid4().hex,
            never_left=self.never_left or 0 <= self.left_in < known.generation,
        )  # fmt: skip
        try:
            answer, home = self._connection.call(
                lambda channel: node_grpc.NodeServiceStub(channel).JoinNode, request, timeout_s
            )
        except RefusedError as error:
            if error.refusal.code is not RefusalCode.LOST or self._known is None:
                raise
            raise _lost(error, self._known) from None
        return joined_from_pb(answer), home

    def _note_durable(self) -> None:
        """What the tracker has of this node is recorded, if it is to be; `_changed` is held."""
        if self._known is not None and self._joined is not None:
            joined, durable = self._joined, self._window.durable
            self._known.record(Acknowledged(joined.key.incarnation, durable, joined.generation))

    @property
    def joined(self) -> Joined:
        """The answer to `join`; raises LowmarkError before it."""
        if self._joined is None:
            raise StateError(
                f"node {self.node_id!r} has not joined; call join() first", Code.STATE_ORDER
            )
        return self._joined

    @property
    def spec(self) -> PipelineSpec:
        """The pipeline as the node has heard of it last: the same object until it changes."""
        return self.joined.spec

    def segment(self, name: str) -> int:
        """The number of a segment; raises LowmarkError if the pipeline has none of that name."""
        return segment_number(self.spec, name)

    # --- ticks ------------------------------------------------------------------------------------

    def commit(self, content: TickContent, timeout_s: float = COMMIT_TIMEOUT_S) -> Future[int]:
        """Commits a tick; the future resolves with its number when it is durable, or raises
        RefusedError, or FencedError when the key is closed meanwhile. Ticks are applied in the order of their commits. When one is refused, those
        behind it go on, but for those with heartbeats or leaving fronts, which are refused with it:
        they would promise beyond its items.

        Waits for room when too many ticks are unacknowledged; raises UnavailableError if there is
        none after `timeout_s` seconds, FencedError when the key is closed, ClosedError, and
        RefusedError where what is handed over cannot be sent."""
        message = _message(self.pipeline, content)
        size = message.ByteSize()
        # What a hold stood for may be emitted no more once it has moved.
        promises = bool(content.heartbeats or content.leaves or content.holds)
        future: _Future = Future()
        future.set_running_or_notify_cancel()  # a tick is not taken back: nobody can cancel it from here on
        with self._changed:
            self._await(lambda: self._has_room(size), timeout_s, "none was acknowledged")
            if content.holds:
                self._commit_holds(content.holds, future)
            self._window.add(future, message, promises=promises)
            self._bytes[future] = size
            self._waiting_bytes += size
            for front in content.leaves:
                self._leaving[front] = future
            self._changed.notify_all()
        for front in content.leaves:
            future.add_done_callback(partial(self._has_left, front))
        return future

    def _commit_holds(self, moves: tuple[HoldMove, ...], future: _Future) -> None:
        """What a tick does to holds counts as done unless it is refused; `_changed` is held."""
        book = self._holds
        assert book is not None
        book.check(moves)
        moved = book.committed(moves)

        def settled(done: _Future) -> None:
            with self._changed:
                error = done.exception()
                min_times = error.refusal.min_times if isinstance(error, RefusedError) else ()
                book.settled(moved, durable=error is None, min_times=min_times)

        future.add_done_callback(settled)

    def _has_room(self, size: int) -> bool:
        fits = not self._bytes or self._waiting_bytes + size <= self._limits[1]
        return fits and not self._window.full

    def _await(self, ready: Any, timeout_s: float, otherwise: str) -> None:
        """Waits, while holding `_changed`; raises what ended the node, or UnavailableError."""
        self.joined  # noqa: B018 - raises before joining
        timeout_s = max(0.0, timeout_s)
        if self._process != os.getpid():
            raise ClosedError(
                f"node {self.node_id!r} joined in process {self._process}, which forked this one; "
                "join after the fork, under another id"
            )
        done = self._changed.wait_for(
            lambda: self._closed or self._failure is not None or ready(), timeout_s
        )
        if self._failure is not None:
            raise self._failure
        if self._closed:
            raise self._closed_error()
        if not done:
            raise UnavailableError(
                f"node {self.node_id!r}: {len(self._window)} ticks of {self._waiting_bytes} bytes "
                f"are unacknowledged (the limits are {self._limits[0]} and {self._limits[1]}), and "
                f"{otherwise} within {timeout_s:g} s; is the tracker at "
                f"{', '.join(self._connection.targets)} running?"
            )

    def join_front(self, front: str, segment: str, timeout_s: float = JOIN_TIMEOUT_S) -> Grant:
        """Lets a front of this node feed a segment; returns when every shard has answered. The front
        may label from `grant.slot` on, and from its own last label. Raises RefusedError, or
        UnavailableError if some shard does not answer."""
        deadline = time.monotonic() + timeout_s
        return self._granted(front, segment, self._join(front, segment, timeout_s), deadline)

    def _join(self, front: str, segment: str, timeout_s: float) -> Future[int]:
        leaving = self._leaving.get(front)
        if leaving is not None:  # the grant that it had before counts no more
            self._result(leaving, timeout_s)
            self._has_left(front, leaving)
        content = TickContent(joins=(FrontJoin(front, self.segment(segment)),))
        return self.commit(content, timeout_s)

    def _granted(self, front: str, segment: str, joining: Future[int], deadline: float) -> Grant:
        self._result(joining, deadline - time.monotonic())
        with self._changed:
            self._await(
                lambda: front in self._grants,
                deadline - time.monotonic(),
                f"not every shard has answered the joining of front {front!r}",
            )
            grant = self._grants[front]
        if grant.slot == FOREVER:
            raise RefusedError(
                Refusal(
                    RefusalCode.COMPLETE,
                    f"pipeline {self.pipeline!r}: segment {segment!r} completed while front "
                    f"{front!r} joined; register the pipeline as open if fronts come late",
                )
            )
        return grant

    def _result(self, future: _Future, timeout_s: float) -> int:
        timeout_s = max(0.0, timeout_s)
        try:
            return future.result(timeout_s)
        except FutureTimeout:
            raise UnavailableError(
                f"node {self.node_id!r}: a tick was not durable within {timeout_s:g} s"
            ) from None

    def leave_front(self, front: str, content: TickContent | None = None) -> Future[int]:
        """Lets a front end: nothing more is labelled by it. Commit its items before. content: the rest of the
        tick by which it leaves."""
        content = TickContent() if content is None else content
        return self.commit(replace(content, leaves=(*content.leaves, front)))

    def _has_left(self, front: str, done: _Future) -> None:
        """The tick by which a front leaves is durable, or will not be: a grant of before counts no more."""
        with self._changed:
            if self._leaving.get(front) is done:
                del self._leaving[front]
                if done.exception() is None:
                    self._grants.pop(front, None)

    @property
    def holds(self) -> dict[str, Hold]:
        """What this node holds, by name: also what it held when it joined, by ticks of earlier processes."""
        with self._changed:
            return {} if self._holds is None else dict(self._holds.holds)

    def hold(
        self,
        segment: str,
        slot: int | datetime | None,
        name: str = "hold",
        *,
        content: TickContent | None = None,
        timeout_s: float = JOIN_TIMEOUT_S,
    ) -> Hold:
        """Holds min time of a segment at a slot, at that of a moment, or, with None, at the lowest where it may begin, until it
        is moved or let go of; durable on return. Whoever asks for a name again that the node holds there, at this slot or below, gets it as it stands;
        but one that min time has passed (`Hold.is_late`) begins anew, by a front.

        name: the hold's own, which the same work has in all runs; content: the rest of the tick by which it
        begins. If that consumes what the hold stands for, at the slot or below, they change places in one step.
        Else a front joins for it, and leaves again by that tick: it begins only where nothing is announced yet
        that it would break.

        Raises RefusedError (BELOW_MIN_TIME where the slot is too low, with the lowest possible one), what
        `commit` and `join_front` raise."""
        number, known = self.segment(segment), self.holds.get(name)
        if slot is not None:
            slot = slot_at(slot, self.joined.spec.slack_ns, self.joined.spec.rounds)
        content = TickContent() if content is None else content
        at_most = FOREVER - 1 if slot is None else slot
        if known is not None and known.number == number and known.slot <= at_most:
            again = HoldMove(name, number, known.slot)
            try:
                self._result(self.commit(_with_hold(content, again)), timeout_s)
                return known
            except RefusedError:
                if not known.is_late:
                    raise
        stands = known is not None and known.slot < FOREVER and not known.is_late
        if slot is not None and (stands or len(content.consumed)):
            future = self.commit(_with_hold(content, HoldMove(name, number, slot)))
        else:
            future = self._begin_by_front(segment, slot, name, content, timeout_s)
        self._result(future, timeout_s)
        return self.holds[name]

    def _begin_by_front(
        self, segment: str, slot: int | None, name: str, content: TickContent, timeout_s: float
    ) -> Future[int]:
        """The tick by which a front leaves, so that a hold may begin where it was granted, or at a slot above."""
        front = f"{HOLD_FRONT}{name}"
        deadline = time.monotonic() + timeout_s
        joining = self._join(front, segment, timeout_s)
        try:
            granted = self._granted(front, segment, joining, deadline).slot
        except LowmarkError:  # who is told of that knows of no front, which would hold on for ever
            if not joining.done() or joining.exception() is None:
                self._leave_untold(front)
            raise
        if slot is not None and granted > slot:
            self._result(self.leave_front(front), timeout_s)
            raise below_grant(self.pipeline, name, segment, slot, granted)
        begun = HoldMove(name, self.segment(segment), granted if slot is None else slot)
        future = self.leave_front(front, _with_hold(content, begun))
        try:
            self._result(future, timeout_s)
        except RefusedError:
            self._leave_untold(front)  # it would hold on for what does not begin
            raise
        except UnavailableError:  # it may be refused yet

            def leave_if_refused(done: _Future) -> None:
                if isinstance(done.exception(), RefusedError):
                    self._leave_untold(front)

            future.add_done_callback(leave_if_refused)
            raise
        return future

    def _leave_untold(self, front: str) -> None:
        """Lets a front leave of which nobody has heard: again, where that is refused with a tick before it."""

        def leave_again(done: _Future) -> None:
            error = done.exception()
            if isinstance(error, RefusedError) and error.behind:
                self._leave_untold(front)

        with suppress(LowmarkError):
            self.commit(TickContent(leaves=(front,)), 0.0).add_done_callback(leave_again)

    def flush(self, timeout_s: float = COMMIT_TIMEOUT_S) -> None:
        """Returns when every tick committed so far is durable or refused. Raises UnavailableError if
        some is neither after `timeout_s` seconds, or what ended the node."""
        with self._changed:
            waiting = set(self._bytes)
            self._await(
                lambda: waiting.isdisjoint(self._bytes), timeout_s, "not all became durable"
            )

    def leave(self, timeout_s: float = JOIN_TIMEOUT_S) -> None:
        """Closes the key for good, after all ticks are durable, and this object; the node's fronts
        must have left. Raises RefusedError, UnavailableError."""
        deadline = time.monotonic() + timeout_s
        self.flush(timeout_s)
        request = node_pb.LeaveNodeRequest(
            pipeline=self.pipeline,
            key=key_to_pb(self.joined.key),
            generation=self.joined.generation,
        )
        try:
            left_s = max(0.001, deadline - time.monotonic())
            self._ask_home(lambda stub: stub.LeaveNode, request, left_s)
        except RefusedError as error:
            # An answer that was lost, and asked for again: the key is closed.
            if error.refusal.code is not RefusalCode.UNKNOWN_NODE:
                raise
        self.close()

    def report_waits(self, causes: Sequence[WaitCause]) -> None:
        """Says what this node waits for or is refused, so that explanations, dashboards and metrics name
        it; `()` says that it waits for nothing. It replaces what was reported before, is sent in the
        background, and again after a reconnect; saying the same again costs nothing. It ends with the
        node's stream, and decides nothing.

            node.report_waits([WaitCause(WaitKind.UNKNOWN_ITEMS, "1 file that no tick has created: "
                              "stray.csv", node.segment("parse"), batch=7)])

        Say it when a wait has lasted longer than usual, a second say, and `()` when it is over. Texts are
        cut at MAX_WAIT_CHARACTERS, causes at MAX_WAITS. Raises ValueError for a cause without text or
        with a segment number that the pipeline has not, LowmarkError before joining."""
        segments = len(self.spec.segments)
        for cause in causes:
            if not cause.text or not -1 <= cause.segment < segments:
                raise ValueError(
                    f"pipeline {self.pipeline!r}: {cause} must have a text and a segment number within "
                    f"-1 and {segments - 1}"
                )
        waits = tuple(
            replace(cause, text=cause.text[:MAX_WAIT_CHARACTERS]) for cause in causes[:MAX_WAITS]
        )
        with self._changed:
            if waits != self._waits:
                self._waits, self._waits_untold = waits, True
                self._changed.notify_all()

    @property
    def waits(self) -> tuple[WaitCause, ...]:
        """What was reported last."""
        return self._waits

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
        """Stages contributions at the home of `node_id` (of this node, if not given); they are
        durable on return. Needs no `join`. Raises RefusedError or UnavailableError."""
        request = node_pb.StageContributionsRequest(
            pipeline=self.pipeline,
            node_id=node_id or self.node_id,
            contributions=[contribution_to_pb(c) for c in contributions],
        )
        if request.ByteSize() > MAX_TICK_BYTES:
            raise RefusedError(
                Refusal(
                    RefusalCode.INVALID,
                    f"pipeline {self.pipeline!r}: {len(contributions)} contributions of "
                    f"{request.ByteSize()} bytes are over the limit of {MAX_TICK_BYTES} bytes a "
                    "call; stage them by several calls",
                )
            )
        self._ask_home(lambda stub: stub.StageContributions, request, timeout_s)

    def list_contributions(
        self, query: str, batch: int, timeout_s: float = JOIN_TIMEOUT_S
    ) -> list[StagedContribution]:
        """What is staged for one batch of a query of this node."""
        request = node_pb.ListContributionsRequest(
            pipeline=self.pipeline, node_id=self.node_id, query=query, batch=batch, by_pages=True
        )
        found: dict[tuple[Any, ...], StagedContribution] = {}
        while True:
            answer = self._ask_home(lambda stub: stub.ListContributions, request, timeout_s)
            # One that has come since may have moved another one to the next page.
            found |= ((c.key, c) for c in map(contribution_from_pb, answer.contributions))
            request.skip += len(answer.contributions)
            if not answer.more:
                return [*found.values()]

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
            for index, (name, slot) in enumerate(zip(names, answer.slots, strict=True))
            if index not in missing
        }

    def _ask_home(self, method: Callable[[Any], Any], request: Any, timeout_s: float) -> Any:
        """What the home that is known answers, or another one if it is there by now."""
        return self._connection.call(
            lambda channel: method(node_grpc.NodeServiceStub(channel)),
            request, timeout_s, prefer=self._home,
        )[0]  # fmt: skip

    def close(self) -> None:
        """Ends the stream. Ticks that are not durable fail; the key stays, for a later incarnation
        (`flush` before, or `leave` instead, where that is not what you want)."""
        with self._changed:
            self._closed = True
            self._end_stream()
            dropped = self._drain()
            thread = self._thread
            self._changed.notify_all()
        _resolve([(future, self._closed_error()) for future in dropped])
        self._connection.close()
        if self._known is not None:
            self._known.close()
        here = self._process == os.getpid()
        if here and thread is not None and thread is not threading.current_thread():
            thread.join()

    def _closed_error(self) -> ClosedError:
        return ClosedError(f"node {self.node_id!r} is closed; what was not durable has failed")

    # --- the background thread --------------------------------------------------------------------

    def _run(self) -> None:
        backoff, redirected = Backoff(), Backoff(REDIRECT_FIRST_S)
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._failure is None)
                if self._closed:
                    return
                stream, call = self._open_stream()
            self._redirected = False
            failure = self._serve_stream(stream, call, (backoff, redirected))
            with self._changed:
                if self._stream == stream:
                    self._end_stream()
                    dropped = self._fail(failure) if failure is not None else []
                else:
                    failure, dropped = None, []  # replaced by a newer incarnation, or closed
            if failure is not None:
                _resolve([(future, failure) for future in dropped])
            else:
                with self._changed:
                    ended = self._stream
                    self._changed.wait_for(
                        lambda ended=ended: self._closed or self._stream != ended,  # type: ignore[misc]
                        (redirected if self._redirected else backoff).pause_s(),
                    )

    def _open_stream(self) -> tuple[int, Any]:
        """A new stream to the home; `_changed` is held."""
        self._stream += 1
        self._window.detached()
        self._waits_untold = bool(self._waits)
        stub = node_grpc.NodeServiceStub(self._connection.channel(self._home))
        self._call = stub.CommitTicks(self._requests(self._stream, self.joined))
        return self._stream, self._call

    def _end_stream(self) -> None:
        """Whoever serves or feeds the present stream stops; `_changed` is held."""
        self._stream += 1
        self._window.detached()
        # A process that was forked off shares the connection: what it cancels, the other one waits for in vain.
        if self._call is not None and self._process == os.getpid():
            self._call.cancel()
            self._call = None
        self._changed.notify_all()

    def _serve_stream(
        self, stream: int, call: Any, backoffs: Sequence[Backoff]
    ) -> LowmarkError | None:
        """Takes what the home says until the stream ends. Returns why the node cannot go on; None if
        another stream may."""
        attached = False
        try:
            for response in call:
                attached = True
                for backoff in backoffs:
                    backoff.reset()
                self._connection.answered(self._home)
                outcomes = self._take(stream, response)
                _resolve(outcomes)
        except FencedError as error:
            return error
        except grpc.RpcError as error:
            return self._stream_broke(error, attached)
        except ValueError as error:
            return LowmarkError(f"pipeline {self.pipeline!r}, node {self.node_id!r}: {error}")
        return None

    def _stream_broke(self, error: grpc.RpcError, attached: bool) -> LowmarkError | None:
        refused = refusal_of(error)
        if refused is None:
            if is_retried(error):
                with self._changed:
                    self._home = self._connection.next_target()
                return None
            return LowmarkError(f"node {self.node_id!r}: {describe_failure(error)}")
        if refused.refusal.code in _STREAM_RETRIED:
            with self._changed:
                self._home = refused.home_address or self._connection.next_target()
            self._connection.redirected(refused.home_address)
            self._redirected = True
            return None
        if refused.refusal.code is RefusalCode.FENCED and attached:
            # Perhaps only by an older stream of ours that arrived late: attaching again tells.
            return None
        if refused.refusal.code is RefusalCode.UNKNOWN_NODE:
            return _closed_and_forgotten(refused.refusal)
        return refused

    def _requests(self, stream: int, joined: Joined) -> Iterator[node_pb.CommitTicksRequest]:
        """What is sent on one stream; ends with it. Runs in a thread of gRPC's."""
        key = key_to_pb(joined.key)
        attach = node_pb.Attach(pipeline=self.pipeline, key=key, generation=joined.generation)
        yield node_pb.CommitTicksRequest(attach=attach)
        while True:
            ticks, waits = self._next_news(stream)
            yield from messages_of(ticks, self._max_ticks)
            if waits is not None:
                status = node_pb.NodeStatus(waits=[wait_to_pb(wait) for wait in waits])
                yield node_pb.CommitTicksRequest(status=status)
            if self._stream != stream:
                return
            if not ticks and waits is None:
                yield node_pb.CommitTicksRequest(keep_alive=node_pb.KeepAlive())

    def _next_news(
        self, stream: int
    ) -> tuple[list[tuple[int, pb.TickContent]], tuple[WaitCause, ...] | None]:
        """Waits until there are ticks to send, or the node waits for something else (else None). Returns
        nothing where it is time to say that the node lives, whatever its owner does meanwhile, and where
        the stream has ended."""
        sent_s = time.monotonic()
        with self._changed:
            while self._stream == stream:
                ticks = self._window.to_send()
                waits = self._waits if self._waits_untold else None
                if ticks or waits is not None:
                    self._waits_untold = self._waits_untold and waits is None
                    return ticks, waits
                left_s = None
                if self._keep_alive_s:
                    left_s = sent_s + self._keep_alive_s - time.monotonic()
                    if left_s <= 0:
                        break
                self._changed.wait(left_s)
            return [], None

    def _take(self, stream: int, response: node_pb.CommitTicksResponse) -> list[_Outcome]:
        """What a message of the home makes of ticks. Raises ValueError if it cannot be right, and
        FencedError if the home takes no more of this key."""
        outcomes: list[_Outcome] = []
        with self._changed:
            if self._stream != stream:
                return []
            match response.WhichOneof("message"):
                case "attached":
                    self._keep_alive_s = response.attached.keep_alive_ms / 1000
                    self._window.attached(response.attached.last_number)
                    self._max_ticks = response.attached.max_ticks_per_message
                    self._hear_of(response.attached.spec)
                case "changed":
                    self._hear_of(response.changed)
                case "committed":
                    outcomes += self._window.committed(response.committed.number)
                    self._note_durable()
                case "refused":
                    refusal = refusal_from_pb(response.refused.refusal)
                    if refusal.code is RefusalCode.FENCED:
                        # Of the key, not of this tick: it may arrive before the end of the stream.
                        raise FencedError(refusal)
                    if refusal.code is RefusalCode.UNKNOWN_NODE:
                        raise _closed_and_forgotten(refusal)
                    refused = self._window.refused(response.refused.number, refusal)
                    for nth, (future, why) in enumerate(refused):
                        outcomes.append((future, RefusedError(why, of_tick=True, behind=nth > 0)))
                case "grant":
                    grant = grant_from_pb(response.grant, self.spec)
                    if grant.granted:
                        self._grants[grant.front] = grant
            for future, _ in outcomes:
                self._waiting_bytes -= self._bytes.pop(future)
            self._changed.notify_all()
        return outcomes

    def _hear_of(self, message: pb.PipelineSpec) -> None:
        """The pipeline is so now; `_changed` is held. A segment keeps its number for good."""
        joined = self.joined
        if message.name and (spec := spec_from_pb(message)) != joined.spec:
            self._joined = replace(joined, spec=spec)

    def _fail(self, failure: LowmarkError) -> list[_Future]:
        """The node can commit no more; returns the futures that fail. `_changed` is held."""
        self._failure = failure
        self._changed.notify_all()
        return self._drain()

    def _drain(self) -> list[_Future]:
        self._bytes.clear()
        self._waiting_bytes = 0
        return self._window.drain()


def segment_number(spec: PipelineSpec, name: str) -> int:
    """The number of a segment; raises LowmarkError if the pipeline has none of that name."""
    try:
        return spec.segments.index(name)
    except ValueError:
        raise InvalidError(
            f"pipeline {spec.name!r} has no segment {name!r}; it has {list(spec.segments)}"
        ) from None


def messages_of(
    ticks: Iterable[tuple[int, pb.TickContent]], most: int
) -> Iterator[node_pb.CommitTicksRequest]:
    """Numbered ticks in messages of up to `most` and about _MESSAGE_BYTES. Nothing waits for company: they are what has gathered."""
    numbered = (node_pb.NumberedTick(number=number, content=content) for number, content in ticks)
    for together in pieces(numbered, node_pb.NumberedTick.ByteSize, _MESSAGE_BYTES, most):
        if len(together) == 1:
            yield node_pb.CommitTicksRequest(tick=together[0])
        else:
            yield node_pb.CommitTicksRequest(ticks=node_pb.NumberedTicks(ticks=together))


def _message(pipeline: str, content: TickContent) -> pb.TickContent:
    """A tick on the wire; raises RefusedError where it cannot be put there."""
    for what, cells in (("created", content.created), ("consumed", content.consumed)):
        columns = (cells.segments, cells.slots, cells.checksums, cells.counts)
        lengths = [len(column) for column in columns]
        if len(set(lengths)) != 1:
            raise _invalid(
                f"pipeline {pipeline!r}: {what} cells have {lengths[0]} segments, {lengths[1]} "
                f"slots, {lengths[2]} checksums and {lengths[3]} counts; the arrays must be of one "
                "length"
            )
    try:
        message = content_to_pb(content)
    except (ValueError, TypeError, OverflowError) as error:
        raise _invalid(f"pipeline {pipeline!r}: a tick cannot be written down: {error}") from error
    if message.ByteSize() > MAX_TICK_BYTES:
        raise _invalid(
            f"pipeline {pipeline!r}: a tick of {message.ByteSize()} bytes is over the limit of "
            f"{MAX_TICK_BYTES} bytes; commit smaller ticks"
        )
    return message


def _with_hold(content: TickContent, move: HoldMove) -> TickContent:
    return replace(content, holds=(*content.holds, move))


def _lost(error: RefusedError, known: Known) -> RefusedError:
    """The same, and what this side can do."""
    advice = (
        f"; or, where the loss has been accepted or the tracker was begun anew on purpose, remove {known.where}, "
        "which says so"
    )
    return RefusedError(replace(error.refusal, message=error.refusal.message + advice))


def _closed_and_forgotten(refusal: Refusal) -> FencedError:
    """What a home means that does not know the key of a stream: the key was given, so it was closed."""
    return FencedError(replace(refusal, code=RefusalCode.FENCED))


def _invalid(message: str) -> RefusedError:
    return RefusedError(Refusal(RefusalCode.INVALID, message), of_tick=True)


def _resolve(outcomes: list[_Outcome]) -> None:
    """Tells those who wait. `_changed` is not held: their callbacks may commit."""
    for future, outcome in outcomes:
        if isinstance(outcome, int):
            future.set_result(outcome)
        else:
            future.set_exception(outcome)
