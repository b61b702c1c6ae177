"""Starting the host's local tracker on first use.

One local tracker serves all workers of one executor (or, outside of Spark, of one node). Whoever
comes first starts it, under a file lock, in a session of its own, so that it outlives the worker. It
reports through a pipe that it listens, or why it doesn't.
"""

from __future__ import annotations

import fcntl
import os
import select
import socket
import stat
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from pathlib import Path

import local_tracker
from local_tracker.worker.protocol import Deadline, connect
from local_tracker.worker.settings import EAGER, Settings
from tracker.errors import Code, HandOverError

READY = b"ready\n"
IDLE_EXIT_S = 30
"""Outside of Spark, a local tracker that workers have started ends when none was there for so long."""
KEPT_S = 7 * 86_400
"""How long the logs of local trackers are kept, from their start, after they have ended."""
_MAX_REPORT_BYTES = 8_192
_LOG_TAIL_BYTES = 2_000
_LOCK_POLL_S = 0.01
_started: list[subprocess.Popen[bytes]] = []
"""Local trackers that this process has started: kept, so that they are not waited for."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a local tracker is, and whose life it shares: the pid of the executor's JVM, else 0."""

    socket: str
    jvm: int
    node_id: str


def endpoint_of(settings: Settings) -> Endpoint:
    """Where the local tracker for these settings is. Of an executor there is one for each pipeline;
    the name has the JVM's pid and start, so that no other application's is met."""
    mode = settings.mode
    if settings.socket:
        return Endpoint(settings.socket, 0, settings.node_id)
    jvm = java_ancestor()
    node_id = settings.node_id
    life = (str(jvm), start_of(jvm)) if jvm else ()
    if mode == EAGER and jvm:
        node_id = f"{node_id}@{socket.gethostname()}-{jvm}-{start_of(jvm)}"
    # Staged contributions name their node; an eager local tracker is one.
    own = (node_id,) if mode == EAGER else ()
    what = "\0".join((socket.gethostname(), settings.target, settings.pipeline, mode, *life, *own))
    name = blake2b(what.encode(), digest_size=8).hexdigest()
    return Endpoint(f"{settings.directory}/{name}.sock", jvm, node_id)


def ensure_started(settings: Settings, endpoint: Endpoint, deadline: Deadline) -> None:
    """Starts the local tracker, unless one listens at the endpoint by now. Raises HandOverError if it
    can't be started, TimeoutError when the deadline passes."""
    private_directory(settings.directory)
    lock = f"{endpoint.socket.removesuffix('.sock')}.lock"
    with _locked(lock, deadline):
        try:
            connect(f"unix:{endpoint.socket}", deadline).close()
        except (FileNotFoundError, ConnectionRefusedError):
            _start(settings, endpoint, deadline)


def _remove_old_files(directory: str) -> None:
    """Removes what local trackers that ended long ago have left, but the spools of eager ones."""
    for lock in Path(directory).glob("*.lock"):
        name = lock.with_suffix("")
        if name.with_suffix(".sock").exists() or time.time() - lock.stat().st_mtime < KEPT_S:
            continue
        for suffix in (".lock", ".log", ".sock.owner"):
            Path(f"{name}{suffix}").unlink(missing_ok=True)


def private_directory(path: str) -> None:
    """Creates a directory for this user alone; raises HandOverError if others could write there."""
    os.makedirs(path, mode=0o700, exist_ok=True)
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise HandOverError(
            f"{path} is not a directory that only this user can write to; remove it, or set "
            f"LOWMARK_DIRECTORY to another place",
            Code.HAND_OVER_UNREACHABLE,
        )


def java_ancestor() -> int:
    """The pid of the first ancestor of this process that is a JVM; 0 if none is."""
    pid = os.getppid()
    while pid > 1:
        name, fields = _status(pid)
        if name == "java":
            return pid
        pid = int(fields[1]) if fields else 0
    return 0


def start_of(pid: int) -> str:
    """When a process started, in clock ticks since boot: with the pid, a name for its life. Empty
    if it is gone."""
    _, fields = _status(pid)
    return fields[19] if fields else ""


def _status(pid: int) -> tuple[str, list[str]]:
    """A process's name, and the fields behind it in /proc; nothing if it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return "", []
    # The name stands in brackets and may hold any character, brackets too.
    before, _, fields = text.rpartition(")")
    return before.partition("(")[2], fields.split()


@contextmanager
def _locked(path: str, deadline: Deadline) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(min(_LOCK_POLL_S, deadline.left_s()))
        yield
    finally:
        os.close(descriptor)


def _start(settings: Settings, endpoint: Endpoint, deadline: Deadline) -> None:
    log_path = f"{endpoint.socket.removesuffix('.sock')}.log"
    _remove_old_files(settings.directory)
    reading, writing = os.pipe()
    try:
        with open(log_path, "ab", opener=partial(os.open, mode=0o600)) as log:
            process = subprocess.Popen(
                _command(settings, endpoint, writing),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True, pass_fds=(writing,), env=_environment(settings),
            )  # fmt: skip
        os.close(writing)
        writing = -1
        _started.append(process)
        try:
            report = _read_report(reading, deadline)
        except TimeoutError:
            process.kill()
            process.wait()
            raise HandOverError(
                f"the local tracker did not start within {deadline.seconds:g} s: has this host a "
                f"route to the tracker at {settings.target}? (log: {log_path})",
                Code.HAND_OVER_UNREACHABLE,
            ) from None
        if report != READY:
            process.kill()
            process.wait()
            tail = Path(log_path).read_bytes()[-_LOG_TAIL_BYTES:].decode(errors="replace")
            raise HandOverError(
                f"the local tracker did not start: {report.decode(errors='replace') or tail.strip()} "
                f"(log: {log_path})",
                Code.HAND_OVER_UNREACHABLE,
            )
    finally:
        os.close(reading)
        if writing >= 0:
            os.close(writing)


def _read_report(reading: int, deadline: Deadline) -> bytes:
    """What the new local tracker reports: READY, or why it doesn't start; until it closes the pipe."""
    report = b""
    while not report.endswith(READY):
        readable, _, _ = select.select([reading], [], [], deadline.left_s())
        chunk = os.read(reading, _MAX_REPORT_BYTES) if readable else None
        if chunk == b"" or len(report) > _MAX_REPORT_BYTES:
            break
        report += chunk or b""
    return report


def _command(settings: Settings, endpoint: Endpoint, report_to: int) -> list[str]:
    command = [
        settings.python, "-m", "local_tracker.agent",
        "--target", settings.target,
        "--pipeline", settings.pipeline,
        "--node-id", endpoint.node_id,
        "--socket", f"unix:{endpoint.socket}",
        "--mode", settings.mode,
        "--flush-window-ms", str(settings.flush_window_ms),
        "--flush", settings.flush.value,
        "--ready-descriptor", str(report_to),
    ]  # fmt: skip
    if endpoint.jvm:
        return [*command, "--follow-pid", str(endpoint.jvm)]
    return [*command, "--idle-exit-s", str(IDLE_EXIT_S)]


def _environment(settings: Settings) -> dict[str, str]:
    """This process's, with the code that the worker runs (a zip, maybe) before any other, and with the
    query's credentials if it has none."""
    root = str(Path(local_tracker.__file__).absolute().parent.parent)
    environment = {**os.environ, **dict(settings.credentials)}
    paths = [root, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    return environment
