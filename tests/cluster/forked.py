"""Processes that are forked from one that has imported what they need: most of what a process takes to start is imports.

    python -m tests.cluster.forked SOCKET [MODULE ...]

is that one, the template. It has one thread, and makes nothing of gRPC. Each process that it is asked for runs
`python -m MODULE ARGUMENTS` as an interpreter of its own would: with its own environment, signals and standard files. A
keeper between both waits for it and writes down how it has ended. The template ends when the test run does.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NoReturn

from scripts.summary import ROOT

IMPORTED = (
    "local_tracker.agent.main", "local_tracker.worker.handle", "fronts.files", "tests.cluster.told", "tests.waits",
    "tracker.client", "tracker.service.run",
    *(f"tracker.cli.{path.stem}" for path in sorted((ROOT / "tracker/cli").glob("[a-z]*.py"))),
)  # fmt: skip
"""By the template, every command among them. None of them may read, while it is imported, what a test sets for a process
of its own."""
_STATUS_BYTES = 8
_ASKING = threading.Lock()


class Forked:
    """A process that was forked from the template, as `subprocess.Popen` has it."""

    def __init__(self, pid: int, status: int, stdin: Any, stdout: Any, what: Sequence[str]) -> None:
        self.pid, self.stdin, self.stdout, self.args = pid, stdin, stdout, what
        self.returncode: int | None = None
        self._status = status

    def poll(self) -> int | None:
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        if (status := self._ended(timeout)) is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout)
        return status

    def _ended(self, timeout_s: float | None) -> int | None:
        if self.returncode is None and self._is_said(timeout_s):
            said = os.read(self._status, _STATUS_BYTES)
            os.close(self._status)
            self.returncode = int(said) if said else -signal.SIGKILL  # the keeper was killed, too
        return self.returncode

    def _is_said(self, timeout_s: float | None) -> bool:
        poll = select.poll()
        poll.register(self._status, select.POLLIN)
        return bool(poll.poll(None if timeout_s is None else timeout_s * 1000))

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def fork(
    module: str,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    errors: int,
    *,
    output: int | None = None,
    imported: tuple[str, ...] = (),
) -> Forked:
    """Starts `python -m MODULE ARGUMENTS`. errors, output: descriptors of its standard error and output, which is a pipe
    unless it is given, as its input is; imported: modules that its template has imported beside IMPORTED."""
    theirs_in, stdin = os.pipe()
    stdout, theirs_out = os.pipe()
    status, theirs_status = os.pipe()
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    asked = json.dumps([module, list(arguments), dict(environment), ignored]).encode()
    descriptors = [theirs_in, theirs_out if output is None else output, errors, theirs_status]
    with _ASKING:
        template = _template(imported)
        socket.send_fds(template, [len(asked).to_bytes(4, "big")], descriptors)
        template.sendall(asked)
    for descriptor in (theirs_in, theirs_out, theirs_status):
        os.close(descriptor)
    pid = int(os.read(status, _STATUS_BYTES))
    what = [sys.executable, "-m", module, *arguments]
    return Forked(pid, status, os.fdopen(stdin, "w"), os.fdopen(stdout), what)


@cache
def _template(imported: tuple[str, ...]) -> socket.socket:
    """The way to a template of this process, which is started when it is first asked for."""
    ours, theirs = socket.socketpair()
    with theirs:
        subprocess.Popen(
            [sys.executable, "-m", __name__, str(theirs.fileno()), *imported],
            cwd=ROOT, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()],
            # gRPC reads it as it is imported, before a command sets it.
            env={**os.environ, "GRPC_VERBOSITY": "ERROR"},
        )  # fmt: skip
    return ours


# --- in the template ------------------------------------------------------------------------------


def serve(asking: socket.socket, imported: Sequence[str]) -> tuple[str, list[str]]:
    """Forks what it is asked for until nobody can ask any more; returns in the processes that were asked for."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # keepers are let go
    for name in (*IMPORTED, *imported):
        importlib.import_module(name)
    # What is there by now stays: whoever is forked would go through it all, and copy its pages, before it ends.
    gc.collect()
    gc.freeze()
    while True:
        head, descriptors, _, _ = socket.recv_fds(asking, 4, 4)
        if not head:
            os._exit(0)
        length = int.from_bytes(head, "big")
        said = json.loads(asking.recv(length, socket.MSG_WAITALL))
        module, arguments, environment, ignored = said
        if os.fork() == 0:
            asking.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            *standard, status = descriptors
            if pid := os.fork():
                _keep(pid, standard, status)
            os.close(status)
            _become(standard, environment, ignored)
            return module, arguments
        for descriptor in descriptors:
            os.close(descriptor)


def _keep(pid: int, standard: Sequence[int], status: int) -> NoReturn:
    """Waits for the process, and writes down how it has ended."""
    for descriptor in standard:
        os.close(descriptor)
    os.write(status, f"{pid:<{_STATUS_BYTES}}".encode())
    _, ended = os.waitpid(pid, 0)
    os.write(status, f"{os.waitstatus_to_exitcode(ended):<{_STATUS_BYTES}}".encode())
    os._exit(0)


def _become(standard: Sequence[int], environment: Mapping[str, str], ignored: bool) -> None:
    """Has the standard files, the environment and the signals of a process that was just started. ignored: whether whoever
    starts it ignores hang-ups now, not when the template was started."""
    for place, descriptor in enumerate(standard):
        os.dup2(descriptor, place)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)
    sys.stdin, sys.stdout = os.fdopen(0), os.fdopen(1, "w", buffering=1)
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace")


if __name__ == "__main__":
    name, words = serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2:])
    sys.argv = [name, *words]
    runpy.run_module(name, run_name="__main__", alter_sys=True)
