"""Runs one check and judges how it ended."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from scripts.check.record import Result, Status, commit
from scripts.check.registry import Form
from scripts.summary import BUILD, ROOT

LOGS = BUILD / "check"
MOST_S = 3 * 3600.0
"""Far more than the longest check takes; one that hangs must not keep the others from running."""
SHOWN_OF_A_FAILURE = 30
"""The last lines of what a check printed, if it is not OK."""
_MARK = "LOWMARK_CHECK_RUN"
"""By this variable of their environment the processes of a run are known."""
_PLACE = re.compile(r"(?<![\w./])(?:/[\w.+-]+)+/([\w.+-]+)")
"""A path on this machine, and its last name, which is what the record keeps of it."""


class Needs:
    """Programs that checks need. Each is looked for once, and installed where that is possible."""

    def __init__(self, scripts: Path = ROOT / "scripts") -> None:
        self._scripts = scripts
        self._missing: dict[str, str] = {}

    def missing(self, program: str) -> str:
        """Why there is no such program; empty if there is one."""
        if program not in self._missing:
            script = self._scripts / f"ensure-{program}"
            done = subprocess.run([script], capture_output=True, text=True, check=False)
            said = done.stderr.strip().splitlines()
            why = said[-1] if said else f"{script.name} ended with {done.returncode}"
            self._missing[program] = why if done.returncode else ""
        return self._missing[program]

    def why_not(self, form: Form) -> str:
        """Why the check can't run here; empty if it can."""
        for program in form.check.wants:
            self.missing(program)
        return next(filter(None, map(self.missing, form.check.needs)), "")


def command_of(form: Form) -> list[str]:
    return [sys.executable, "-m", form.check.module, *form.arguments]


def log_of(form: Form) -> Path:
    return LOGS / f"{form.check.name}-{re.sub(r'[^A-Za-z0-9]+', '-', form.name)}.log"


def run(form: Form, needs: Needs, most_s: float = MOST_S) -> Result:
    """Runs a check to its end, its words into its log. What it has started ends with it."""
    code, begun = commit(), time.monotonic()
    if why := needs.why_not(form):
        return Result(form.check.name, form.name, Status.SKIPPED, why, 0.0, code)
    exit_code, said = _run(command_of(form), log_of(form), most_s)
    status, line = judged(form, exit_code, said)
    after = commit()
    return Result(
        form.check.name, form.name, status, line, round(time.monotonic() - begun, 1),
        code if after == code else f"{code}..{after}",
    )  # fmt: skip


def _run(command: list[str], log: Path, most_s: float) -> tuple[int | None, list[str]]:
    """The exit code, None if its time ended; and its lines."""
    log.parent.mkdir(parents=True, exist_ok=True)
    mark = uuid4().hex
    with log.open("wb") as said:
        process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1", _MARK: mark}, start_new_session=True,
        )  # fmt: skip
        exit_code: int | None = None
        try:
            with suppress(subprocess.TimeoutExpired):
                exit_code = process.wait(most_s)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            _end_all(mark)
    return exit_code, log.read_text(errors="replace").splitlines()


def _end_all(mark: str) -> None:
    """Ends what a check has left in sessions of their own: servers and Spark sessions, where it was ended by a signal."""
    for environment in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # it has ended, or is another user's
            if f"{_MARK}={mark}".encode() in environment.read_bytes():
                os.kill(int(environment.parent.name), signal.SIGKILL)


def judged(form: Form, exit_code: int | None, said: list[str]) -> tuple[Status, str]:
    """What a run came to, by its summary line and its exit code together, and the line that shows it."""
    begin = f"{form.check.name}: "
    summary = next((line for line in reversed(said) if line.startswith(begin)), "")
    word = summary.removeprefix(begin).partition(" ")[0]
    if exit_code is None:
        return Status.BROKEN, "it did not end in its time"
    if word not in ("OK", "FAILED", "SKIPPED") or (exit_code == 0) != (word == "OK"):
        last = _PLACE.sub(r"\1", said[-1]) if said else "it said nothing"
        return Status.BROKEN, f"it ended with {exit_code} and no summary of that: {last}"
    if not form.sabotage or word == "SKIPPED":
        return Status(word), summary
    if word == "OK":
        return Status.FAILED, f"the planted fault was not found: {summary}"
    counted = dict(re.findall(r"(\w+)=(\d+)(?=\s|$)", summary))
    if any(int(counted.get(key, 0)) for key in form.check.finds):
        return Status.OK, summary
    return Status.BROKEN, f"it failed, but not by its own judgement: {summary}"
