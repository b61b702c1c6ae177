"""The way up from a local tracker: to the tracker, or to another local tracker."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import count, takewhile
from typing import Protocol
from urllib.parse import quote

from local_tracker.worker.handle import NO_JOINING, ElsewhereError, Handle, Relayed
from local_tracker.worker.protocol import Deadline, HandedOver, Promise
from tracker.client import (
    Admin,
    LowmarkError,
    NodeClient,
    RefusedError,
    Subscriber,
    UnavailableError,
)
from tracker.core.log import Grant
from tracker.core.model import Batch, Heartbeat, HoldMove, NodeKind, PipelineSpec, TickContent
from tracker.core.model.slots import FOREVER
from tracker.errors import Code, HandOverError

FLUSHES = "flushes"
"""The scope of the batch keys of a local tracker's ticks: the numbers of its flushes."""

_OPEN_TIMEOUT_S = 20.0
_COMMIT_TIMEOUT_S = 60.0
_MIN_TIMES_WAIT_S = 20.0
_RECONNECT_S = 1.0
_UNDECIDED = (Code.HAND_OVER_DEADLINE, Code.HAND_OVER_UNREACHABLE, Code.REFUSED_FENCED)
_OVER = (Code.HAND_OVER_RESTARTED, Code.REFUSED_UNKNOWN_PIPELINE)
"""What the one above says when nothing more will be heard of the pipeline that it began with."""


class ClosedError(HandOverError):
    """The local tracker's own key is closed: another one runs under its node id. It must end."""

    def __init__(self, message: str, code: str = Code.REFUSED_FENCED) -> None:
        super().__init__(message, code)


class Uplink(Protocol):
    """What a local tracker needs of whatever is above it. All methods raise HandOverError."""

    pipeline: str
    segments: tuple[str, ...]
    """Those that the pipeline had when it was looked up last: it may have got more since."""
    slack_ns: int
    rounds: int
    """How many slots each time has."""

    def look_again(self, segment: str) -> None:
        """Looks the pipeline's segments up again: somebody names one that is not known."""

    def stage(self, node_id: str, contributions: Sequence[HandedOver], deadline: Deadline) -> None:
        """Stages contributions at the home of a query's node; they are durable on return."""

    def open(self) -> tuple[int, int | None]:
        """Joins, for flushing; returns the number of the last flush that whoever is above has (0 for
        none), and how often the pipeline was restarted (None if whoever is above does not say)."""

    def record_above(self) -> str:
        """The name of the record by which whoever is above knows a flush that arrives again; empty
        where it is the tracker itself."""

    def flush(
        self, number: int, content: TickContent, fingerprint: bytes, again: bool, above: str
    ) -> None:
        """Commits a flush; it is durable on return. One that is durable already is passed over;
        `again` says that it may be, and `above` what `record_above` was when it was sent first.
        Raises HandOverError where it is refused, TimeoutError where nothing answers: then it may be
        durable or not. Raises ClosedError where nothing can be committed any more, ElsewhereError where `above` is not what
        `record_above` is now, and it was not sent."""

    def join_front(self, front: str, segment: str, deadline: Deadline) -> Grant:
        """Lets a front begin; returns when it may label."""

    def leave_front(self, front: str, joining: tuple[int, int], deadline: Deadline) -> None:
        """Ends the front of this joining (NO_JOINING: whichever has the name); durable on return. Where another one
        has the name by now, it has left already."""

    def holds(self, deadline: Deadline) -> tuple[HoldMove, ...]:
        """What the node holds, by ticks that are durable."""

    def watch(self, heard: MinTimes) -> None:
        """Keeps min times up to date until `close`; called once, in a thread of its own."""

    def close(self, leave: bool) -> None:
        """`leave`: for good, where nothing keeps the node open."""


class MinTimes:
    """The min times of the pipeline's segments, and of the pipeline as a whole, as heard last; a new
    version with each change.

    The whole's is heard like the others, never made of them: after a restart some segments may still
    stand where an older generation had come, which is further than the pipeline is."""

    def __init__(self, segments: int) -> None:
        """segments: how many there are, at least: more may come."""
        self._changed = threading.Condition()
        self._segments = segments
        self._values: dict[int | None, int] = {}
        """By number of the segment; None: of the whole pipeline."""
        self._version = 0
        self._generation: int | None = None
        self._failure: HandOverError | None = None
        self._is_over = False

    def put(self, segment: int | None, min_time: int, generation: int | None = None) -> None:
        """segment: its number; None for the whole pipeline. generation: in which it was heard, if whoever is above says."""
        with self._changed:
            self._generation = generation
            before = self._values.get(segment)
            if before is None or min_time > before:
                self._values[segment] = min_time
                self._version += 1
            self._failure = None
            self._changed.notify_all()

    def begin_anew(self) -> None:
        """What was heard is of another generation than what comes now, which is whole."""
        with self._changed:
            self._values.clear()

    def fail(self, error: HandOverError) -> None:
        """Nothing more will be heard, or nothing until the next `put`."""
        with self._changed:
            self._failure = error
            self._changed.notify_all()

    def end_waits(self) -> None:
        """Whoever waits gets what was heard last, as when the time is up."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def get(self, after: int, first_s: float, wait_s: float) -> Relayed:
        """Waits up to `first_s` seconds for a first value of every segment and of the whole, up to
        `wait_s` for a version above `after`. Of segments that have come since, those of which a value was heard.
        Raises HandOverError."""
        with self._changed:
            self._changed.wait_for(lambda: self._ends() or self._is_whole(), first_s)
            self._changed.wait_for(lambda: self._ends() or self._version > after, wait_s)
            if self._failure is not None:
                raise self._failure
            values = self._values
            if not self._is_whole():
                raise HandOverError(
                    "min time has not been heard from the tracker yet; is it running?",
                    Code.HAND_OVER_UNREACHABLE,
                )
            known = tuple(values[n] for n in takewhile(values.__contains__, count()))
            return Relayed(self._version, known, values[None], self._generation)

    def _ends(self) -> bool:
        return self._is_over or self._failure is not None

    def _is_whole(self) -> bool:
        """Whether the whole pipeline's was heard, and that of each segment of the beginning."""
        return self._values.keys() >= {None, *range(self._segments)}


class TrackerUplink:
    """Straight to the tracker; `node_id` joins when something is to be flushed."""

    def __init__(self, target: str, pipeline: str, node_id: str, known: str | None = None) -> None:
        """known: a file beside the spool, for what was acknowledged. Raises HandOverError if the tracker
        can't be reached or doesn't know the pipeline."""
        self._target = target
        self._node = NodeClient(target, pipeline, node_id, kind=NodeKind.LOCAL_TRACKER, known=known)
        self._subscriber = Subscriber(target, pipeline)
        self._changing = threading.Lock()
        """Held where a tick that joins, promises or leaves is judged by `_fronts` and gets its place."""
        self._fronts: dict[str, tuple[int, int]] = {}
        """The joining of each front that is the node's; NO_JOINING where one is on its way."""
        self._under_way: tuple[int, Future[int]] | None = None
        """The flush that the node was given last, by its number: the node sends it until it is answered."""
        self._joined = False
        self._closed = threading.Event()
        self.pipeline = pipeline
        try:
            spec = self._look()
        except HandOverError:
            self.close(leave=False)
            raise
        self.segments, self.slack_ns, self.rounds = spec.segments, spec.slack_ns, spec.rounds

    def _look(self) -> PipelineSpec:
        with self._translating(), Admin(self._target, _OPEN_TIMEOUT_S) as admin:
            return admin.pipeline(self.pipeline).spec

    def look_again(self, segment: str) -> None:
        found = self._look().segments
        if len(found) > len(self.segments):  # else of a process that is behind
            self.segments = found

    def stage(self, node_id: str, contributions: Sequence[HandedOver], deadline: Deadline) -> None:
        parts = [handed.contribution for handed in contributions]
        with self._translating():
            self._node.stage(parts, node_id, deadline.left_s())

    def open(self) -> tuple[int, int | None]:
        with self._translating():
            joined = self._node.join(_OPEN_TIMEOUT_S)
        self._joined = True
        self._fronts = {each.front: (each.incarnation, each.number) for each in joined.fronts}
        last = max((b.id for b in joined.last_batches if b.scope == FLUSHES), default=0)
        return last, joined.generation

    def record_above(self) -> str:
        return ""

    def flush(
        self, number: int, content: TickContent, fingerprint: bytes, again: bool, above: str
    ) -> None:
        batch = Batch(FLUSHES, number, fingerprint)
        with self._translating():
            try:
                committed = self._given(number)
                if committed is None:
                    with self._changing:
                        promises = self._that_count(content.heartbeats)
                        tick = replace(content, batch=batch, heartbeats=promises)
                        committed = self._node.commit(tick, _COMMIT_TIMEOUT_S)
                    self._under_way = number, committed
                committed.result(_COMMIT_TIMEOUT_S)
            except RefusedError as error:
                if not error.behind:
                    raise
                # It was refused for another one's tick, such as the leaving of a front.
                raise TimeoutError(str(error)) from None
            except UnavailableError as error:
                raise TimeoutError(str(error)) from None

    def _given(self, number: int) -> Future[int] | None:
        """A flush that the node has been given, and has not let go of."""
        last, committed = self._under_way or (0, None)
        if committed is None or last != number:
            return None
        return None if committed.done() and committed.exception() is not None else committed

    def _that_count(self, promises: tuple[Heartbeat, ...]) -> tuple[Heartbeat, ...]:
        """The latest promise of each front, without those of an earlier joining of its name; `_changing` is held.
        They are left out, and not refused: the rest of the flush may count already."""
        latest: dict[str, int] = {}
        for each in promises:
            if not isinstance(each, Promise) or not self._is_another(each.front, each.joining):
                latest[each.front] = max(each.slot, latest.get(each.front, each.slot))
        return tuple(Heartbeat(front, slot) for front, slot in latest.items())

    def _is_another(self, front: str, joining: tuple[int, int]) -> bool:
        """Whether the front of this name is, or will be, of another joining than this."""
        return joining not in (NO_JOINING, self._fronts.get(front, joining))

    def join_front(self, front: str, segment: str, deadline: Deadline) -> Grant:
        with self._changing:
            self._fronts.setdefault(front, NO_JOINING)
        with self._translating():
            grant = self._node.join_front(front, segment, deadline.left_s())
        with self._changing:
            if front not in self._fronts:
                raise HandOverError(
                    f"front {front!r} was let go of while it joined; join it again",
                    Code.HAND_OVER_UNREACHABLE,
                )
            self._fronts[front] = grant.incarnation, grant.number
        return grant

    def leave_front(self, front: str, joining: tuple[int, int], deadline: Deadline) -> None:
        with self._translating():
            with self._changing:
                if self._is_another(front, joining):
                    return
                leaving = self._node.leave_front(front)
                self._fronts.pop(front, None)
            leaving.result(deadline.left_s())

    def holds(self, deadline: Deadline) -> tuple[HoldMove, ...]:
        return tuple(
            HoldMove(held.name, held.number, held.durable_slot)
            for held in self._node.holds.values()
            if held.durable_slot not in (None, FOREVER)
        )

    def watch(self, heard: MinTimes) -> None:
        while not self._closed.is_set():
            try:
                with self._translating():
                    self._hear(heard)
            except HandOverError as error:
                heard.fail(error)
                if error.code in _OVER:
                    return
                self._closed.wait(_RECONNECT_S)  # a token that is not known yet, say

    def _hear(self, heard: MinTimes) -> None:
        for update in self._subscriber.updates():
            name = update.segment
            # It may be the last of a segment that whoever is asked does not know yet.
            while not (name is None or name in self.segments or self._closed.is_set()):
                with suppress(HandOverError):
                    self.look_again(name)
                if name not in self.segments:
                    self._closed.wait(_RECONNECT_S)
            if name is None or name in self.segments:
                number = None if name is None else self.segments.index(name)
                heard.put(number, update.min_time, self._subscriber.heard_generation)

    def close(self, leave: bool) -> None:
        self._closed.set()
        self._subscriber.close()
        joined = [each for each in self._fronts.values() if each != NO_JOINING]
        keeps = joined or self._node.holds
        if leave and self._joined and not keeps and self._node.failure is None:
            try:
                self._node.leave(_OPEN_TIMEOUT_S)
            except LowmarkError:
                pass  # the node stays on the tracker's list, which harms nothing
        self._node.close()

    @contextmanager
    def _translating(self) -> Iterator[None]:
        """The tracker's errors are those of a hand-over within."""
        try:
            yield
        except RefusedError as error:
            if error.code == Code.REFUSED_FENCED:
                raise ClosedError(error.refusal.message) from None
            if self._node.failure is not None:  # not of one tick: it takes none any more
                raise ClosedError(error.refusal.message, error.code) from None
            raise HandOverError(error.refusal.message, error.code) from None
        except LowmarkError as error:
            if self._node.failure is not None:
                raise ClosedError(str(error)) from None
            raise HandOverError(
                f"the tracker at {self._target}: {error}", Code.HAND_OVER_UNREACHABLE
            ) from None


class LocalTrackerUplink:
    """Into another local tracker, as one of its workers; the upper one merges."""

    def __init__(
        self, address: str, pipeline: str, sender: Callable[[], str], node_id: str
    ) -> None:
        """sender: the name under which flushes are numbered now, never used for others: that of their record, which gets
        another one as a generation begins. node_id: of this local tracker, by
        which its holds are told from those of others that flush into the upper one. Raises HandOverError if the upper
        one can't be reached or is of another pipeline."""
        self._sender, self._own = sender, f"{quote(node_id, safe='')}/"
        self._closed = threading.Event()
        self._flushing, self._staging, self._asking = (
            Handle(address, pipeline, _OPEN_TIMEOUT_S) for _ in range(3)
        )
        self._watching = Handle(address, pipeline, _OPEN_TIMEOUT_S, hears_one_generation=True)
        welcome = self._flushing.welcome()
        self.pipeline, self.segments = pipeline, welcome.segments
        self.slack_ns, self.rounds = welcome.slack_ns, welcome.rounds

    def look_again(self, segment: str) -> None:
        with suppress(HandOverError):
            self._asking.segment_number(segment)
        self.segments = self._asking.welcome().segments

    def stage(self, node_id: str, contributions: Sequence[HandedOver], deadline: Deadline) -> None:
        self._staging.stage(node_id, contributions, deadline.left_s())

    def open(self) -> tuple[int, int | None]:
        # Flushes are numbered under the name of their spool, which knows all of them, unless it is an older copy.
        return self._asking.last_step(self._sender()), self._flushing.welcome().generation

    def record_above(self) -> str:
        return self._flushing.welcome().spool

    def flush(
        self, number: int, content: TickContent, fingerprint: bytes, again: bool, above: str
    ) -> None:
        held = tuple(replace(move, name=self._own + move.name) for move in content.holds)
        content = replace(content, holds=held)
        try:
            self._flushing.step_as(self._sender(), number, content, again, above, _COMMIT_TIMEOUT_S)
        except ElsewhereError:
            raise
        except HandOverError as error:
            if error.code in _UNDECIDED:
                # It may be in the record above, also of one that ends since another has its node: the next
                # with that record knows it by its number.
                raise TimeoutError(str(error)) from None
            if error.code == Code.HAND_OVER_RESTARTED:
                raise ClosedError(str(error), error.code) from None
            raise

    def join_front(self, front: str, segment: str, deadline: Deadline) -> Grant:
        with self._of_one_generation():
            return self._asking.join_front(front, segment, deadline.left_s())

    def leave_front(self, front: str, joining: tuple[int, int], deadline: Deadline) -> None:
        with self._of_one_generation():
            self._asking.leave_joining(front, joining, deadline.left_s())

    @contextmanager
    def _of_one_generation(self) -> Iterator[None]:
        try:
            yield
        except HandOverError as error:
            if error.code == Code.HAND_OVER_RESTARTED:
                raise ClosedError(str(error), error.code) from None
            raise

    def holds(self, deadline: Deadline) -> tuple[HoldMove, ...]:
        return tuple(
            replace(held, name=held.name.removeprefix(self._own))
            for held in self._asking.holds(deadline.left_s())
            if held.name.startswith(self._own)
        )

    def watch(self, heard: MinTimes) -> None:
        version, generation = -1, None
        while not self._closed.is_set():
            try:
                above = self._watching.min_times(version, _MIN_TIMES_WAIT_S)
            except HandOverError as error:
                if error.code in _OVER:
                    heard.fail(error)
                    return
                version = -1  # the upper one may be another process, which counts anew
                self._closed.wait(_RECONNECT_S)
                continue
            if generation not in (
                None,
                above.generation,
            ):  # of which the hello of a transactional one says nothing
                heard.begin_anew()
            version, generation = above.version, above.generation
            for number, min_time in enumerate(above.segments):
                heard.put(number, min_time, above.generation)
            heard.put(None, above.pipeline, above.generation)

    def close(self, leave: bool) -> None:
        self._closed.set()
        self._watching.hang_up()
        for handle in (self._flushing, self._staging, self._asking):
            handle.close()
