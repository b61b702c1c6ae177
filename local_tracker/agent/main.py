"""Putting a local tracker together, and ending it in order."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from local_tracker.agent import lifetime
from local_tracker.agent.flushing import Flusher
from local_tracker.agent.lifetime import Lifetime
from local_tracker.agent.server import Listener, Server
from local_tracker.agent.spool import Spool
from local_tracker.agent.staging import Stager
from local_tracker.agent.stats import Stats
from local_tracker.agent.uplink import LocalTrackerUplink, TrackerUplink, Uplink
from local_tracker.core.window import Flush
from local_tracker.worker.protocol import is_local_tracker
from local_tracker.worker.settings import EAGER, TRANSACTIONAL
from local_tracker.worker.starting import READY, java_ancestor
from tracker.client.credentials import is_loopback
from tracker.errors import Code, HandOverError

LOOK_INTERVAL_S = 0.5
"""How often a local tracker looks whether its socket is still there."""
LOOK_FOR_PIPELINE_S = 1.0
"""How often a local tracker that no worker has started asks whether its pipeline is registered."""
STOP_GRACE_S = 10.0
"""How long requests and the last flush may take when the local tracker is to end."""

log = logging.getLogger("lowmark.local-tracker")


@dataclass(frozen=True, slots=True)
class Options:
    """What a local tracker is started with; see `--help`."""

    target: str
    pipeline: str
    node_id: str
    socket: str
    mode: str
    flush_window_ms: float
    flush: Flush
    spool: str
    follow_pid: int
    idle_exit_s: float
    ready_descriptor: int
    metrics_listen: str = ""


def parse(arguments: Sequence[str]) -> Options:
    """Options from the command line; exits with a message where they make no sense."""
    parser = argparse.ArgumentParser(
        prog="lowmark local-tracker",
        description="Merges the acks of a host's Python workers and hands them to the tracker.",
    )
    add = parser.add_argument
    add("--target", required=True,
        help="the tracker as host:port (several: with commas), or another local tracker that this "
        "one flushes into: unix:/path or tcp:host:port")  # fmt: skip
    add("--pipeline", required=True)
    add("--node-id", required=True,
        help="eager: the id under which it commits, its own; transactional: for logs")  # fmt: skip
    add("--socket", required=True, help="where workers connect: unix:/path or tcp:host:port")
    add("--mode", choices=(TRANSACTIONAL, EAGER), default=TRANSACTIONAL,
        help="eager: take steps and commit them; transactional: stage acks of Spark tasks only")  # fmt: skip
    add("--flush-window-ms", type=float, default=5.0, help="how long steps may gather (default 5)")
    add("--flush", choices=[flush.value for flush in Flush], default=Flush.WHEN_IDLE.value,
        help="what becomes of steps after a pause: flushed at once (when-idle: less latency), or with what "
        "else comes within a window (at-window-end: fewer messages)")  # fmt: skip
    add("--spool", default="",
        help="eager: file of its durable record (default: beside the socket)")  # fmt: skip
    add("--follow-pid", type=int, default=0, help="end when this process ends")
    add("--follow-jvm", action="store_true", help="end when the first ancestor that is a JVM ends")
    add("--idle-exit-s", type=float, default=0.0,
        help="end when unused for so long (default: never)")  # fmt: skip
    add("--metrics-listen", default="",
        help="host:port where Prometheus reads metrics over HTTP; none if not given")  # fmt: skip
    add("--ready-descriptor", type=int, default=-1, help=argparse.SUPPRESS)
    given = vars(parser.parse_args(arguments))
    if given.pop("follow_jvm") and not given["follow_pid"]:
        given["follow_pid"] = java_ancestor()
        if not given["follow_pid"]:
            parser.error("--follow-jvm: none of this process's ancestors is a JVM")
    if not 0 < given["flush_window_ms"] <= 60_000:
        parser.error(f"--flush-window-ms {given['flush_window_ms']:g} is not within 0 to 60000")
    given["flush"] = Flush(given["flush"])
    path = given["socket"].removeprefix("unix:")
    if given["mode"] == EAGER and not given["spool"] and not path.startswith("/"):
        parser.error("--spool is needed where the socket is not a path")
    given["spool"] = given["spool"] or f"{path}.spool"
    return Options(**given)


def main(arguments: Sequence[str]) -> int:
    """Runs a local tracker until a signal or the end of what it follows; returns the exit code: 0
    when all that it took is durable, 1 when it could not start, 3 when not all became durable."""
    options = parse(arguments)
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s"
    )
    life = Lifetime(options.follow_pid, options.idle_exit_s)
    with ExitStack() as stack:
        try:
            agent = Agent(options, life, stack)
            _serve_metrics(options, agent, stack)
        except (HandOverError, OSError, ValueError) as error:
            _report(options, f"{error}\n".encode())
            log.error("cannot start: %s", error)
            return 1
        _report(options, READY)
        log.info(
            "local tracker of pipeline %s (%s) listens at %s and flushes to %s",
            options.pipeline, options.mode, agent.listener.address, options.target,
        )  # fmt: skip
        exposed = agent.listener.address.removeprefix("tcp:")
        if exposed != agent.listener.address and not is_loopback(exposed):
            log.warning(
                "insecure: it listens at %s and takes acks from whoever reaches that; let it listen on "
                "a Unix socket, or on loopback within a pod", exposed,
            )  # fmt: skip
        reason = agent.wait(life)
        log.info("ending because of %s", reason)
        drained = agent.stop()
    return 0 if drained else 3


class Agent:
    """The parts of a running local tracker."""

    def __init__(self, options: Options, life: Lifetime, stack: ExitStack) -> None:
        """Raises HandOverError, OSError or ValueError; `stack` then closes what was opened."""
        self.stats = Stats()
        self.listener = Listener(options.socket)
        stack.callback(self.listener.close)
        spool = None
        if options.mode == EAGER:
            spool = Spool(options.spool, _flushes_of(options))
            stack.callback(spool.close)
        self.uplink = _uplink(options, spool)
        self.flusher: Flusher | None = None
        try:
            if spool is not None:
                self.flusher = Flusher(
                    self.uplink,
                    spool,
                    options.flush_window_ms,
                    life.changed,
                    self.stats,
                    options.flush,
                )
        except BaseException:
            self.uplink.close(leave=False)
            raise
        life.take_signals()
        self.server = Server(
            self.listener, self.uplink, Stager(self.uplink, self.stats), self.flusher,
            options.node_id, on_change=life.changed, stats=self.stats,
        )  # fmt: skip
        if self.flusher is None:  # which would hear of it by its node
            self.server.listen()
        self._life = life
        self._ended = threading.Event()
        threading.Thread(target=self._look, name="lowmark-look", daemon=True).start()

    def _look(self) -> None:
        """Workers that cannot find the socket start another local tracker: this one makes room."""
        while not self._ended.wait(LOOK_INTERVAL_S):
            if not self.listener.reachable:
                self._life.changed()
                return

    def wait(self, life: Lifetime) -> str:
        """Waits for a reason to end and returns it, for people."""
        while True:
            reason = life.wait(self.server.connections > 0)
            if reason != lifetime.CHANGED and not (
                reason == lifetime.UNUSED and self.server.connections
            ):
                return reason
            if self.flusher is not None and self.flusher.failure is not None:
                return str(self.flusher.failure)
            if self.server.is_over:
                return "the end of its pipeline"
            if not self.listener.reachable:
                return "the removal of its socket"

    def stop(self) -> bool:
        """Answers the last requests and flushes what was taken; whether all of it is durable."""
        self._ended.set()
        answered = self.server.stop(STOP_GRACE_S)
        drained = self.flusher is None or self.flusher.close(STOP_GRACE_S)
        self.uplink.close(leave=drained)
        self.server.join_watching()
        return answered and drained


def _flushes_of(options: Options) -> str:
    above = "a local tracker" if is_local_tracker(options.target) else "the tracker"
    return f"node {options.node_id!r} of pipeline {options.pipeline!r} at {above}"


def _serve_metrics(options: Options, agent: Agent, stack: ExitStack) -> None:
    """Raises OSError or HandOverError where that cannot be."""
    if not options.metrics_listen:
        return
    try:
        from local_tracker.agent import metrics
    except ImportError as missing:  # an executor installs the client alone
        raise HandOverError(
            f"--metrics-listen needs {missing.name}: pip install 'lowmark[server]'",
            Code.REFUSED_INVALID,
        ) from None
    try:
        served = metrics.listen(
            options.metrics_listen, agent.server, agent.flusher, agent.stats, options.mode
        )
    except (OSError, ValueError):
        agent.stop()
        raise
    stack.callback(served.stop)
    log.info("metrics are told at %s", served.address)


def _uplink(options: Options, spool: Spool | None) -> Uplink:
    """What a worker has started fails where the pipeline is not registered, and the worker hears of it. Else that is
    waited for: a cluster starts this beside what registers the pipeline, which may wait until all are up."""
    if is_local_tracker(options.target):

        def sender() -> str:
            return options.node_id if spool is None else spool.identity

        return LocalTrackerUplink(options.target, options.pipeline, sender, options.node_id)
    known, waits = None if spool is None else f"{options.spool}.known", False
    while True:
        try:
            return TrackerUplink(options.target, options.pipeline, options.node_id, known)
        except HandOverError as error:
            heard = options.ready_descriptor >= 0 or options.follow_pid
            if heard or error.code is not Code.REFUSED_UNKNOWN_PIPELINE:
                raise
            if not waits:
                log.warning("%s; waiting until it is", error)
            waits = True
        time.sleep(LOOK_FOR_PIPELINE_S)


def _report(options: Options, message: bytes) -> None:
    """Reports to the worker that waits for the start, if one does."""
    if options.ready_descriptor >= 0:
        try:
            os.write(options.ready_descriptor, message)
        finally:
            os.close(options.ready_descriptor)
