"""A worker's handle on its host's local tracker: asks over the socket, with a deadline.

A deadline that passes raises an error that fails the task: an executor without a route to the tracker
must not hang, and must not go on as if nothing was to be acknowledged.
"""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import zip_longest

from local_tracker.worker.protocol import (
    Deadline,
    HandedOver,
    Header,
    Promise,
    check_release,
    connect,
    own_release,
    pack_cells,
    promise_item,
    receive_frame,
    send_frame,
)
from tracker.core.log import Grant
from tracker.core.model import Cells, Heartbeat, HoldMove, TickContent
from tracker.core.model.rounds import Rounds
from tracker.core.model.slots import LOWEST_SLOT
from tracker.errors import Code, HandOverError

_RETRY_S = 0.05
_MARGIN_S = 1.0
"""The local tracker gets a deadline that is a little earlier, so that its reason arrives."""
_MAX_WAIT_MS = 60_000
_NAMES_SHOWN = 5
_OF_ONE_GENERATION = ("step", "join_front", "leave_front")
"""Requests that mean what their sender began in."""
_UNDECIDED = (Code.HAND_OVER_DEADLINE, Code.HAND_OVER_UNREACHABLE)

NO_JOINING = 0, 0
"""Of a front of which nobody has said by which tick it joined."""

Start = Callable[[Deadline], None]


@dataclass(frozen=True, slots=True)
class Welcome:
    """How a local tracker describes itself. The index of a segment is its number."""

    pipeline: str
    segments: tuple[str, ...]
    slack_ns: int
    mode: str
    node_id: str
    spool: str
    """The name of its durable record of steps; empty where it has none."""
    generation: int | None
    """How often the pipeline had been restarted when it joined; None where it does not join."""
    rounds: int
    """How many slots each time of the pipeline has."""


@dataclass(frozen=True, slots=True)
class Relayed:
    """Min times as a local tracker has heard them last: of segments, by number, and of the whole
    pipeline. The version grows with each change."""

    version: int
    segments: tuple[int, ...]
    pipeline: int
    generation: int | None = None
    """The newest of the pipeline in which any of them was heard; None where the local tracker does not say."""

    def not_before(self, other: Relayed | None) -> Relayed:
        """These, where none is below what was heard before in this generation."""
        if other is None or self.generation is None or self.generation != other.generation:
            return self
        of_each = zip_longest(self.segments, other.segments, fillvalue=LOWEST_SLOT)
        pipeline = max(self.pipeline, other.pipeline)
        return Relayed(self.version, tuple(map(max, of_each)), pipeline, self.generation)


class _NotTaken(ConnectionError):
    """The local tracker has ended in order, before it took the request."""


class ElsewhereError(HandOverError):
    """A step that was not handed over yet is for another record than that of the local tracker that is there now."""

    def __init__(self, address: str) -> None:
        super().__init__(f"another local tracker listens at {address}", Code.HAND_OVER_UNREACHABLE)


class Handle:
    """One connection to a local tracker. Used by one thread at a time (others wait); a forked child
    opens a connection of its own."""

    def __init__(
        self,
        address: str,
        pipeline: str,
        deadline_s: float,
        start: Start | None = None,
        hears_one_generation: bool = False,
    ) -> None:
        """`start` starts the local tracker where nobody listens at the address; without it, that is
        waited for until the deadline. hears_one_generation: min times are those of the generation in which it
        began, too; a pipeline that has got the name of another one since is in another."""
        self.address, self.pipeline, self.deadline_s = address, pipeline, deadline_s
        self._start = start
        self._of_one_generation = {*_OF_ONE_GENERATION}
        if hears_one_generation:
            self._of_one_generation.add("min_times")
        self._lock = threading.Lock()
        self._generation: int | None = None
        """That of the first local tracker that reported one."""
        self._relayed: Relayed | None = None
        """What was heard last: another local tracker may begin at a process that has announced less."""
        self._joinings: dict[str, tuple[int, int]] = {}
        """By which each front was joined here last: incarnation and number, as its grant says."""
        self._hung_up = False
        self._own_process()

    def _own_process(self) -> None:
        self._pid = os.getpid()
        self._connection: socket.socket | None = None
        self._welcome: Welcome | None = None
        self._sender, self._number = uuid.uuid4().hex, 0
        self._has_other_segments = False
        """Whether the local tracker is of a pipeline in which the numbers that were used before mean others."""

    def welcome(self) -> Welcome:
        """How the local tracker describes itself. Raises HandOverError."""
        if self._welcome is None or self._pid != os.getpid():
            hello: Header = {"type": "hello", "pipeline": self.pipeline, **own_release()}
            self._ask(hello, b"", "joining")
        assert self._welcome is not None
        return self._welcome

    def segment_number(self, name: str) -> int:
        """A segment's number, its index in the pipeline, which may have got it since. Raises HandOverError for an
        unknown one."""
        segments = self.welcome().segments
        if name not in segments:
            segments = self._look_again(name).segments
        if name not in segments:
            raise HandOverError(
                f"pipeline {self.pipeline!r} has no segment {name!r}; its segments are: "
                f"{', '.join(segments)}",
                Code.REFUSED_UNKNOWN_SEGMENT,
            )
        return segments.index(name)

    def segment_name(self, number: int) -> str:
        """The name of a segment that the local tracker knows. Raises HandOverError."""
        if number >= len(self.welcome().segments):
            self._look_again("")
        return self.welcome().segments[number]

    def _look_again(self, segment: str) -> Welcome:
        """How the local tracker describes itself now, once it has looked whether there is that segment by now."""
        header: Header = {
            "type": "hello", "pipeline": self.pipeline, "segment": segment, **own_release(),
        }  # fmt: skip
        answer, _ = self._ask(header, b"", f"segment {segment!r}")
        self._welcome = _welcome(answer)
        return self._welcome

    def rounds(self) -> Rounds:
        """How the pipeline's slots are packed. Raises HandOverError."""
        return Rounds(self.welcome().rounds)

    def stage(
        self, node_id: str, contributions: Sequence[HandedOver], deadline_s: float | None = None
    ) -> None:
        """Hands over what operators did in task attempts; returns when all of it is durable. Raises
        HandOverError, and none of it is staged."""
        parts = [handed.contribution for handed in contributions]
        header: Header = {
            "type": "stage",
            "node_id": node_id,
            "contributions": [handed.header() for handed in contributions],
        }
        names = ", ".join(sorted({repr(c.operator) for c in parts})[:_NAMES_SHOWN])
        body = pack_cells(cells for c in parts for cells in (c.created, c.consumed))
        self._ask(header, body, f"the acks of operator {names}", deadline_s)

    def step(
        self,
        created: Cells,
        consumed: Cells,
        heartbeats: tuple[Heartbeat, ...] = (),
        what: str = "a step",
        holds: tuple[HoldMove, ...] = (),
    ) -> None:
        """Hands over a whole step; returns when it is durable. Raises HandOverError; after one with
        code `hand_over.deadline` or `hand_over.unreachable` the step may still become durable."""
        with self._lock:
            self._check_process()
            self._number += 1
            promises = tuple(self._promise(heartbeat) for heartbeat in heartbeats)
            content = TickContent(created, consumed, promises, holds=holds)
            frame = _step_frame(self._sender, self._number, content)
            self._ask_locked(*frame, what)

    def step_as(
        self,
        sender: str,
        number: int,
        content: TickContent,
        again: bool,
        first_to: str,
        deadline_s: float,
    ) -> None:
        """A step under a name and number of the caller's own, as one local tracker flushes into
        another. It may be repeated under the same number; `again` says that it is, and `first_to` what
        `Welcome.spool` was then. Raises HandOverError, ElsewhereError where that is another one now."""
        header, body = _step_frame(sender, number, content)
        header |= {"again": again, "first_to": first_to}
        self._ask(header, body, f"flush {number}", deadline_s)

    def last_step(self, sender: str) -> int:
        """The number of the last step of a sender that the local tracker knows; 0 if it knows none, or is of a release that
        does not say. Raises HandOverError."""
        try:
            answer, _ = self._ask({"type": "last_step", "sender": sender}, b"", "the last step")
        except HandOverError as error:
            if error.code != Code.HAND_OVER_PROTOCOL:
                raise
            return 0
        return int(answer["number"])

    def min_times(self, after: int = -1, wait_s: float = 0.0) -> Relayed:
        """What was heard last, as soon as the version is above `after` or the time is up (then an older
        version comes back). Raises HandOverError."""
        wait_ms = min(int(wait_s * 1000), _MAX_WAIT_MS)
        header: Header = {"type": "min_times", "after": after, "wait_ms": wait_ms}
        answer, _ = self._ask(header, b"", "min time", self.deadline_s + wait_s)
        heard = Relayed(
            int(answer["version"]),
            tuple(int(slot) for slot in answer["min_times"]),
            int(answer["pipeline_min_time"]),
            answer.get("generation"),
        )
        with self._lock:
            self._relayed = heard = heard.not_before(self._relayed)
        return heard

    def min_time(self, segment: str | None = None) -> int:
        """Min time of a segment, or of the whole pipeline: a slot, exclusive, as the local tracker has
        heard it last. Raises HandOverError, also for an unknown segment."""
        number = None if segment is None else self.segment_number(segment)
        heard = self.min_times()
        if number is None:
            return heard.pipeline
        if number >= len(heard.segments):
            raise HandOverError(
                f"segment {segment!r} is new, and its min time has not been heard from the tracker yet; ask again",
                Code.HAND_OVER_UNREACHABLE,
            )
        return heard.segments[number]

    def join_front(self, front: str, segment: str, deadline_s: float | None = None) -> Grant:
        """Lets a front of the local tracker's node begin; returns when it may label. Raises
        HandOverError."""
        number = self.segment_number(segment)
        header: Header = {"type": "join_front", "front": front, "segment": segment}
        answer, _ = self._ask(header, b"", f"joining front {front!r}", deadline_s)
        slot, heartbeat = int(answer["slot"]), int(answer["heartbeat"])
        joining = int(answer.get("incarnation", 0)), int(answer.get("number", 0))
        self._joinings[front] = joining
        return Grant(front, number, slot, heartbeat, True, *joining)

    def leave_front(self, front: str, deadline_s: float | None = None) -> None:
        """Ends a front, after its last items have become durable: the one that was joined here, or whichever
        has the name where none was. Raises HandOverError."""
        self.leave_joining(front, self._joinings.get(front, NO_JOINING), deadline_s)

    def leave_joining(
        self, front: str, joining: tuple[int, int], deadline_s: float | None = None
    ) -> None:
        """The same, of a joining that the caller names. Raises HandOverError."""
        header: Header = {"type": "leave_front", "front": front}
        if joining != NO_JOINING:
            header |= {"incarnation": joining[0], "number": joining[1]}
        self._ask(header, b"", f"the leaving of front {front!r}", deadline_s)

    def holds(self, deadline_s: float | None = None) -> tuple[HoldMove, ...]:
        """What the local tracker's node holds, by ticks that are durable. Raises HandOverError."""
        answer, _ = self._ask({"type": "holds"}, b"", "holds", deadline_s)
        return tuple(HoldMove(str(name), int(s), int(slot)) for name, s, slot in answer["holds"])

    def close(self) -> None:
        """Ends the connection; the next call opens another."""
        with self._lock:
            self._drop()

    def hang_up(self) -> None:
        """Ends for good what another thread asks for here: that raises HandOverError at once, and asks for nothing again."""
        self._hung_up = True
        connection = self._connection
        if connection is not None:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    # --- inside -----------------------------------------------------------------------------------

    def _ask(
        self, header: Header, body: bytes, what: str, deadline_s: float | None = None
    ) -> tuple[Header, bytes]:
        with self._lock:
            self._check_process()
            return self._ask_locked(header, body, what, deadline_s)

    def _promise(self, heartbeat: Heartbeat) -> Heartbeat:
        joining = self._joinings.get(heartbeat.front, NO_JOINING)
        if joining == NO_JOINING:
            return heartbeat
        return Promise(heartbeat.front, heartbeat.slot, *joining)

    def _check_process(self) -> None:
        if self._pid != os.getpid():
            # The parent's connection and numbers; closing this copy of it does not end the parent's.
            inherited = self._connection
            self._own_process()
            if inherited is not None:
                inherited.close()

    def _ask_locked(
        self, header: Header, body: bytes, what: str, deadline_s: float | None = None
    ) -> tuple[Header, bytes]:
        """Asks until there is an answer or the deadline has passed. A request may arrive twice:
        nonces, numbers and the joinings of fronts make the second one harmless."""
        deadline = Deadline(self.deadline_s if deadline_s is None else deadline_s)
        trouble: Exception | None = None
        tries, unsent = 0, dict(header)
        while True:
            if self._hung_up:
                raise HandOverError(f"{what}: this side has hung up", Code.HAND_OVER_UNREACHABLE)
            before, is_new = tries, self._connection is None
            try:
                connection = self._connected_for(deadline, sent=bool(tries or header.get("again")))
                self._check_generation(header["type"])
                if not tries:
                    self._check_record(header)
                if is_new and "after" in header:  # another process counts its versions anew
                    header["after"] = -1
                left = deadline.left_s()
                header["deadline_ms"] = max(1, int((left - min(_MARGIN_S, left / 2)) * 1000))
                if tries:
                    header["again"] = True
                elif header["type"] == "step" and self._welcome is not None:
                    header.setdefault("first_to", self._welcome.spool)
                tries += 1
                return self._exchange(connection, header, body, deadline)
            except _NotTaken as ended:
                self._drop()
                trouble, tries = ended, before
                header = header if tries else dict(unsent)
            except TimeoutError as error:
                self._drop()
                raise HandOverError(
                    self._late(what, deadline, trouble or error), Code.HAND_OVER_DEADLINE
                ) from None
            except OSError as error:
                self._drop()
                trouble = error
            except BaseException:
                # An answer may still come: it must not be taken for that of the next request.
                self._drop()
                raise
            self._pause(deadline, what, trouble)

    def _check_generation(self, request: str) -> None:
        """What was read before the pipeline was restarted is read again by whoever begins in the new
        generation; handed over in that one, it would count twice."""
        assert self._welcome is not None
        if self._has_other_segments and request in ("stage", "step"):
            self._has_other_segments = False
            raise HandOverError(
                f"pipeline {self.pipeline!r} is another one, with other segments, than when this began; do it again",
                Code.HAND_OVER_RESTARTED,
            )
        now = self._welcome.generation
        if self._generation is None:
            self._generation = now
        elif now not in (None, self._generation) and request in self._of_one_generation:
            raise HandOverError(
                f"pipeline {self.pipeline!r} was restarted: this process began in its generation "
                f"{self._generation}, and generation {now} goes on without what it does; start it again, "
                "over input from the slot on at which that one begins (lowmark explain)",
                Code.HAND_OVER_RESTARTED,
            )

    def _check_record(self, header: Header) -> None:
        """Where a step comes again it is looked for in the record that it names, and nowhere else."""
        assert self._welcome is not None
        if (
            not header.get("again")
            and header.get("first_to", self._welcome.spool) != self._welcome.spool
        ):
            raise ElsewhereError(self.address)

    def _pause(self, deadline: Deadline, what: str, trouble: Exception) -> None:
        try:
            time.sleep(min(_RETRY_S, deadline.left_s()))
        except TimeoutError:
            raise HandOverError(
                self._late(what, deadline, trouble), Code.HAND_OVER_DEADLINE
            ) from None

    def _late(self, what: str, deadline: Deadline, trouble: Exception) -> str:
        return (
            f"{what}: not durable within {deadline.seconds:g} s (LOWMARK_DEADLINE_S): the local "
            f"tracker at {self.address} of pipeline {self.pipeline!r} does not answer ({trouble}); "
            f"does it run, and has this host a route to the tracker?"
        )

    def _connected_for(self, deadline: Deadline, *, sent: bool) -> socket.socket:
        """A connection for a request. sent: whether that may have been taken before: who is turned away at the door has not heard
        of that, and asks again."""
        try:
            return self._connected(deadline)
        except HandOverError as error:
            if not sent or error.code in _UNDECIDED:
                raise
            raise ConnectionError(str(error)) from error

    def _connected(self, deadline: Deadline) -> socket.socket:
        if self._connection is not None:
            return self._connection
        try:
            connection = connect(self.address, deadline)
        except (FileNotFoundError, ConnectionRefusedError):
            if self._start is None:
                raise
            self._start(deadline)
            connection = connect(self.address, deadline)
        self._connection = connection
        answer, _ = self._exchange(
            connection,
            {"type": "hello", "pipeline": self.pipeline, "farewell": True, **own_release()},
            b"",
            deadline,
        )
        check_release(answer, "the local tracker")
        before, self._welcome = self._welcome, _welcome(answer)
        if before is not None:
            both = zip(before.segments, self._welcome.segments, strict=False)
            self._has_other_segments |= any(old != new for old, new in both)
        return connection

    def _exchange(
        self, connection: socket.socket, header: Header, body: bytes, deadline: Deadline
    ) -> tuple[Header, bytes]:
        connection.settimeout(deadline.left_s())
        with suppress(ConnectionError):  # it may have said before that it ends
            send_frame(connection, header, body)
        connection.settimeout(deadline.left_s())
        answer = receive_frame(connection)
        if answer is None:
            raise ConnectionError("it has closed the connection")
        if answer[0].get("farewell") is True:
            raise _NotTaken(str(answer[0].get("message", "")))
        if "error" in answer[0]:
            raise HandOverError(str(answer[0].get("message", "")), str(answer[0]["error"]))
        return answer

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _welcome(answer: Header) -> Welcome:
    return Welcome(
        answer["pipeline"], tuple(answer["segments"]), answer["slack_ns"],
        answer["mode"], answer["node_id"], answer["spool"], answer["generation"], answer["rounds"],
    )  # fmt: skip


def _step_frame(sender: str, number: int, content: TickContent) -> tuple[Header, bytes]:
    header: Header = {
        "type": "step", "sender": sender, "number": number,
        "created": len(content.created), "consumed": len(content.consumed),
        "heartbeats": [promise_item(each) for each in content.heartbeats],
    }  # fmt: skip
    if content.holds:
        header["holds"] = [[h.name, h.segment, h.slot] for h in content.holds]
    return header, pack_cells((content.created, content.consumed))
