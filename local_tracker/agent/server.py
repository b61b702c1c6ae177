"""The socket of a local tracker: one thread for each connection, one request at a time on each.

`worker.protocol` says what goes over it.
"""

from __future__ import annotations

import fcntl
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from local_tracker.agent.flushing import Flusher
from local_tracker.agent.receiving import (
    FRAME_TIMEOUT_S,
    IDLE_S,
    MAX_CONNECTIONS,
    MAX_CONNECTIONS_PER_PEER,
    Peers,
    Room,
    begun,
    content,
    peer_of,
)
from local_tracker.agent.staging import Stager
from local_tracker.agent.stats import Stats
from local_tracker.agent.uplink import ClosedError, MinTimes, Uplink
from local_tracker.core.window import Step
from local_tracker.worker.handle import NO_JOINING
from local_tracker.worker.protocol import (
    FAREWELL,
    MAX_CELLS,
    CellReader,
    Deadline,
    Fields,
    HandedOver,
    Header,
    check_release,
    checked_text,
    own_release,
    parse_address,
    promise_of,
    send_frame,
)
from tracker.core.model import HoldMove
from tracker.errors import Code, HandOverError

MAX_CONTRIBUTIONS_PER_FRAME = 1_024
MAX_HEARTBEATS_PER_STEP = 1_000
MAX_HOLDS_PER_STEP = 1_000
MAX_WAIT_MS = 60_000
"""A request is given up after this long, whatever its deadline says."""
OWNER_WAIT_S = 10.0
"""How long a local tracker waits for one whose socket was removed to end."""
_OWNER_POLL_S = 0.05
_BACKLOG = 128
_NO_THREAD = (
    "no thread can be begun for one more worker: the limit of processes of the user, or of the container, is reached; raise "
    "it, or start another local tracker"
)
_FIRST_MIN_TIMES_S = 10.0

log = logging.getLogger("lowmark.local-tracker")


class Listener:
    """A listening socket. That of a path is held by a lock, so that a socket that a killed process
    left behind is known from one that is in use."""

    def __init__(self, address: str) -> None:
        """Raises HandOverError if another process listens there, OSError, ValueError."""
        family, location = parse_address(address)
        self._owner = -1
        self._path = location if isinstance(location, str) else None
        self.socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            if self._path is not None:
                self._own(self._path)
            else:
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._bind(location)
            self.socket.listen(_BACKLOG)
        except BaseException:
            self.socket.close()
            if self._owner >= 0:
                os.close(self._owner)
            raise
        self._inode = _inode(self._path)
        name = self.socket.getsockname()
        self.address = f"unix:{name}" if self._path else f"tcp:{name[0]}:{name[1]}"

    def _own(self, path: str) -> None:
        self._owner = os.open(f"{path}.owner", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline = time.monotonic() + OWNER_WAIT_S
        while True:
            try:
                fcntl.flock(self._owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                # One whose socket was removed is about to end; one that listens is there to stay.
                if time.monotonic() > deadline or os.path.exists(path):
                    raise HandOverError(
                        f"another local tracker listens at {path}", Code.REFUSED_CONFLICT
                    ) from None
                time.sleep(_OWNER_POLL_S)
        with suppress(FileNotFoundError):
            os.unlink(path)

    def _bind(self, location: str | tuple[str, int]) -> None:
        if isinstance(location, str):
            # Only this user may connect; the mask is the process's, which has no other threads yet.
            before = os.umask(0o177)
            try:
                self.socket.bind(location)
            finally:
                os.umask(before)
        else:
            self.socket.bind(location)

    @property
    def reachable(self) -> bool:
        """Whether workers can still find the socket: somebody may have removed its path."""
        return self._path is None or _inode(self._path) == self._inode

    def stop(self) -> None:
        """Takes no more connections; one that waits in `accept` ends with an OSError."""
        if self._path is not None and self.reachable:
            with suppress(FileNotFoundError):
                os.unlink(self._path)
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()

    def close(self) -> None:
        """Lets another process listen there."""
        if self._owner >= 0:
            os.close(self._owner)
            self._owner = -1


def _inode(path: str | None) -> int:
    try:
        return os.stat(path).st_ino if path is not None else 0
    except FileNotFoundError:
        return 0


class Server:
    """Serves the workers of a host."""

    def __init__(
        self,
        listener: Listener,
        uplink: Uplink,
        stager: Stager,
        flusher: Flusher | None,
        node_id: str,
        on_change: Callable[[], None] = lambda: None,
        stats: Stats | None = None,
    ) -> None:
        """flusher: None where steps are not taken (transactional). on_change is called when a
        connection has come or gone."""
        self._listener, self._uplink, self._stager = listener, uplink, stager
        self._stats = stats or Stats()
        self._flusher, self._node_id, self._on_change = flusher, node_id, on_change
        self._changed = threading.Condition()
        self._busy: dict[socket.socket, bool] = {}
        self._farewells: set[socket.socket] = set()
        """Connections whose workers understand the frame that ends one."""
        self._peers, self._room, self._looking = Peers(), Room(), threading.Lock()
        self._stopping = False
        self._min_times: MinTimes | None = None
        self._watching: threading.Thread | None = None
        self.is_over = False
        """Whether nothing more will be heard of the pipeline: another one may have its name, and other segments."""
        self._requests: dict[str, Callable[[Fields, CellReader], Header]] = {
            "hello": self._hello, "stage": self._stage, "step": self._step,
            "min_times": self._get_min_times, "join_front": self._join_front,
            "leave_front": self._leave_front,
            "holds": self._get_holds, "last_step": self._get_last_step,
        }  # fmt: skip
        self._accepting = threading.Thread(target=self._accept, name="lowmark-accept", daemon=True)
        self._accepting.start()

    @property
    def connections(self) -> int:
        """How many workers are connected."""
        with self._changed:
            return len(self._busy)

    def stop(self, grace_s: float) -> bool:
        """Takes no more requests; returns whether those that were being answered are done in time."""
        with self._changed:
            self._stopping = True
            idle = [connection for connection, busy in self._busy.items() if not busy]
            heard = self._min_times
        if heard is not None:
            heard.end_waits()
        self._listener.stop()
        for connection in idle:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RD)  # what is left is to tell it so
        with self._changed:
            done = self._changed.wait_for(lambda: not self._busy, grace_s)
            rest = list(self._busy)
        for connection in rest:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        return done

    def join_watching(self) -> None:
        """Waits for the end of the subscription; close the uplink before."""
        if self._watching is not None:
            self._watching.join()

    # --- connections ------------------------------------------------------------------------------

    def _accept(self) -> None:
        while True:
            try:
                connection, address = self._listener.socket.accept()
            except OSError:
                if self._stopping:
                    return
                time.sleep(_OWNER_POLL_S)  # no descriptor is free, say: it would fail again at once
                continue
            peer = peer_of(connection, address)
            if peer:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._changed:
                stopping = self._stopping
                refused = "" if stopping else self._refusal(peer)
                if not (stopping or refused):
                    self._busy[connection] = False
            if stopping:
                connection.close()  # as if it had come a moment later
                continue
            if refused:
                self._turn_away(connection, refused)
                continue
            try:
                threading.Thread(
                    target=self._serve, args=(connection, peer), name="lowmark-worker", daemon=True
                ).start()
            except RuntimeError:  # its user, or its container, has as many as it may
                self._turn_away(connection, _NO_THREAD)
                self._let_go(connection, peer)
            self._on_change()

    def _refusal(self, peer: str) -> str:
        """Why one more connection may not come; empty if it may, and then it counts among its peer's."""
        if len(self._busy) >= MAX_CONNECTIONS:
            return (
                f"{MAX_CONNECTIONS} workers are connected, the limit; start another local tracker"
            )
        if not self._peers.come(peer):
            return (
                f"{MAX_CONNECTIONS_PER_PEER} workers are connected from {peer}, the limit for one address; "
                "start a local tracker there"
            )
        return ""

    def _turn_away(self, connection: socket.socket, message: str) -> None:
        connection.settimeout(0)  # whoever does not take it is not waited for
        with connection, suppress(OSError):
            send_frame(connection, {"error": Code.REFUSED_FULL, "message": message})

    def _serve(self, connection: socket.socket, peer: str) -> None:
        try:
            try:
                while self._serve_one(connection, IDLE_S if peer else None):
                    pass
            except OSError:
                if self._busy[connection]:
                    raise  # what was taken is not answered
            if connection in self._farewells:
                connection.settimeout(FRAME_TIMEOUT_S)
                send_frame(connection, FAREWELL)
        except OSError:
            pass  # the worker is gone; what it handed over and what it didn't is known by number
        finally:
            self._let_go(connection, peer)
            self._on_change()

    def _let_go(self, connection: socket.socket, peer: str) -> None:
        with self._changed:
            del self._busy[connection]
            self._farewells.discard(connection)
            self._peers.gone(peer)
            self._changed.notify_all()
        connection.close()

    def _serve_one(self, connection: socket.socket, idle_s: float | None) -> bool:
        """Answers one request; False when the connection is over."""
        try:
            frame = begun(connection, idle_s)
            if frame is None:
                return False
            with self._room.held(*frame):
                return self._serve_request(connection, content(connection, *frame))
        except HandOverError as error:
            # Where the next frame would begin is not known any more.
            connection.settimeout(FRAME_TIMEOUT_S)
            send_frame(connection, {"error": error.code, "message": str(error)})
            return False

    def _serve_request(self, connection: socket.socket, frame: tuple[Header, bytes]) -> bool:
        with self._changed:
            if self._stopping:
                return False
            self._busy[connection] = True
            if frame[0].get("farewell") is True:
                self._farewells.add(connection)
        answer = self._answer(*frame)
        if "error" in answer:
            self._stats.refuse(str(answer["error"]).rpartition(".")[2])
        connection.settimeout(FRAME_TIMEOUT_S)
        send_frame(connection, answer)
        with self._changed:
            self._busy[connection] = False
            return not self._stopping

    def _answer(self, header: Header, body: bytes) -> Header:
        try:
            fields = Fields(header)
            kind = fields.text("type")
            if kind not in self._requests:
                raise HandOverError(
                    f"there is no request of type {kind!r}", Code.HAND_OVER_PROTOCOL
                )
            if kind == "hello":
                check_release(header, "the worker")
            return self._requests[kind](fields, CellReader(body))
        except HandOverError as error:
            return {"error": error.code, "message": str(error)}
        except TimeoutError as error:
            return {
                "error": Code.HAND_OVER_DEADLINE,
                "message": f"the tracker has not confirmed it: {error}; it may be durable or not",
            }
        except Exception as error:
            log.exception("a request failed")
            return {"error": Code.FAILED, "message": f"the local tracker failed: {error!r}"}

    # --- requests ---------------------------------------------------------------------------------

    def _hello(self, fields: Fields, _: CellReader) -> Header:
        asked = fields.text("pipeline")
        if asked != self._uplink.pipeline:
            raise HandOverError(
                f"this local tracker is of pipeline {self._uplink.pipeline!r}, not {asked!r}",
                Code.REFUSED_UNKNOWN_PIPELINE,
            )
        segment = fields.text("segment", "")
        if segment and segment not in self._uplink.segments:
            with self._looking:  # so that many who ask are one question at a time to the tracker
                if segment not in self._uplink.segments:
                    self._uplink.look_again(segment)
        return {
            "pipeline": asked,
            "segments": self._uplink.segments,
            "slack_ns": self._uplink.slack_ns,
            "rounds": self._uplink.rounds,
            "mode": "transactional" if self._flusher is None else "eager",
            "node_id": self._node_id,
            "spool": "" if self._flusher is None else self._flusher.spool_identity,
            "generation": None if self._flusher is None else self._flusher.generation,
            **own_release(),
        }

    def _stage(self, fields: Fields, cells: CellReader) -> Header:
        items = fields.items("contributions")
        if len(items) > MAX_CONTRIBUTIONS_PER_FRAME:
            raise HandOverError(
                f"{len(items)} contributions are over the limit of {MAX_CONTRIBUTIONS_PER_FRAME}",
                Code.HAND_OVER_PROTOCOL,
            )
        contributions = [HandedOver.of(item, cells) for item in items]
        cells.end()
        self._stager.stage(fields.text("node_id"), contributions, _deadline(fields))
        return {}

    def _step(self, fields: Fields, cells: CellReader) -> Header:
        created = cells.read(fields.integer("created"))
        consumed = cells.read(fields.integer("consumed"))
        cells.end()
        if len(created) + len(consumed) > MAX_CELLS:
            raise HandOverError(
                f"a step of {len(created) + len(consumed)} cells is over the limit of {MAX_CELLS}; "
                f"acknowledge in smaller steps",
                Code.REFUSED_FULL,
            )
        items = fields.items("heartbeats")
        if len(items) > MAX_HEARTBEATS_PER_STEP:
            raise HandOverError(
                f"{len(items)} promises are over the limit of {MAX_HEARTBEATS_PER_STEP}",
                Code.HAND_OVER_PROTOCOL,
            )
        step = Step(
            fields.text("sender"), fields.integer("number"), created, consumed,
            tuple(map(promise_of, items)), self._holds(fields),
        )  # fmt: skip
        deadline = _deadline(fields)
        # Also one that has failed: it knows which steps are in its spool, and says so of them.
        flusher, again, first_to = self._eager(), fields.flag("again"), fields.text("first_to", "")
        try:
            self._check_segments_of(step)
        except HandOverError:
            # A process before this one may have known more segments, and have taken the step.
            if not flusher.knows(step, again, first_to):
                raise
        outcome = flusher.submit(step, again, deadline, first_to)
        outcome.result(deadline.left_s())
        return {}

    def _holds(self, fields: Fields) -> tuple[HoldMove, ...]:
        items = fields.items("holds", [])
        if len(items) > MAX_HOLDS_PER_STEP:
            raise HandOverError(
                f"{len(items)} holds are over the limit of {MAX_HOLDS_PER_STEP} a step",
                Code.HAND_OVER_PROTOCOL,
            )
        return tuple(_hold(item) for item in items)

    def _get_holds(self, fields: Fields, _: CellReader) -> Header:
        with self._own_node():
            holds = self._uplink.holds(_deadline(fields))
        return {"holds": [[held.name, held.segment, held.slot] for held in holds]}

    def _get_last_step(self, fields: Fields, _: CellReader) -> Header:
        return {"number": self._required_flusher().last_step(fields.text("sender"))}

    def _get_min_times(self, fields: Fields, _: CellReader) -> Header:
        wait_s = min(max(0, fields.integer("wait_ms")), MAX_WAIT_MS) / 1000
        heard = self._heard().get(fields.integer("after"), _FIRST_MIN_TIMES_S, wait_s)
        return {
            "version": heard.version,
            "min_times": heard.segments,
            "pipeline_min_time": heard.pipeline,
            "generation": heard.generation,
        }

    def _join_front(self, fields: Fields, _: CellReader) -> Header:
        with self._own_node():
            grant = self._uplink.join_front(
                fields.text("front"), fields.text("segment"), _deadline(fields)
            )
        return {
            "slot": grant.slot, "heartbeat": grant.heartbeat,
            "incarnation": grant.incarnation, "number": grant.number,
        }  # fmt: skip

    def _leave_front(self, fields: Fields, _: CellReader) -> Header:
        self._required_flusher()
        front = fields.text("front")
        joining = fields.integer("incarnation", 0), fields.integer("number", 0)
        if joining == NO_JOINING and fields.flag("again"):
            raise HandOverError(
                f"the leaving of front {front!r} may have been done, and it does not say which joining of that name it "
                "is of: the front may be another one by now; look whether it is there (lowmark explain), and let it "
                "leave once more if it should",
                Code.HAND_OVER_UNKNOWN,
            )
        with self._own_node():
            self._uplink.leave_front(front, joining, _deadline(fields))
        return {}

    @contextmanager
    def _own_node(self) -> Iterator[None]:
        """What is asked of the node that flushes: where that is over, so is this local tracker."""
        flusher = self._required_flusher()
        try:
            yield
        except ClosedError as error:
            flusher.end(error)
            raise

    def _required_flusher(self) -> Flusher:
        flusher = self._eager()
        if flusher.failure is not None:
            raise flusher.failure
        return flusher

    def _eager(self) -> Flusher:
        if self._flusher is None:
            raise HandOverError(
                "this local tracker is transactional: it takes acks of micro-batches only; start one "
                "with --mode eager for steps and fronts",
                Code.REFUSED_INVALID,
            )
        return self._flusher

    def listen(self) -> None:
        """Hears min times from now on, and so when the pipeline is over."""
        self._heard()

    def _watch(self, heard: MinTimes) -> None:
        self._uplink.watch(heard)
        self.is_over = True
        self._on_change()

    def _heard(self) -> MinTimes:
        """One subscription for all workers of the host, from the first who asks on."""
        with self._changed:
            if self._min_times is None:
                heard = MinTimes(len(self._uplink.segments))
                watching = threading.Thread(
                    target=self._watch, args=(heard,), name="lowmark-watch", daemon=True
                )
                watching.start()  # raises where there may be no more threads: whoever asks next begins anew
                self._min_times, self._watching = heard, watching
            return self._min_times

    def _check_segments_of(self, step: Step) -> None:
        for part in (step.created, step.consumed):
            self._check_segments(part.segments.tolist() if len(part) < 8 else
                                 (int(part.segments.min()), int(part.segments.max())))  # fmt: skip
        self._check_segments([move.segment for move in step.holds])

    def _check_segments(self, numbers: list[int] | tuple[int, int]) -> None:
        for number in numbers:
            if not 0 <= number < len(self._uplink.segments):
                raise HandOverError(
                    f"pipeline {self._uplink.pipeline!r} has no segment number {number}",
                    Code.REFUSED_UNKNOWN_SEGMENT,
                )


def _deadline(fields: Fields) -> Deadline:
    return Deadline(min(max(1, fields.integer("deadline_ms")), MAX_WAIT_MS) / 1000)


def _hold(item: object) -> HoldMove:
    match item:
        case [str(name), int(segment), int(slot)] if -(2**63) <= slot < 2**63:
            return HoldMove(checked_text("a hold's name", name), segment, slot)
    raise HandOverError(
        f"{item!r} is not a hold's name, a segment's number and a slot", Code.HAND_OVER_PROTOCOL
    )
