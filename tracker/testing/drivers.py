"""Programs with Spark queries, each in a process of its own that is killed at moments of the commit order, and started
again: what `kill_and_restart` and `lowmark query check` do."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tracker.testing.moments import MISSED, Moment

PROGRAM_S = 600.0
"""A program whose queries have not taken their input by then is ended."""
_SAID = 3_000
"""Characters of what a program that failed has written to its standard error."""
_LOOK_S = 0.02
_QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dspark.ui.enabled=false"
"""A driver that lives for seconds does not get its optimising compiler's time back."""


class ProgramFailed(AssertionError):
    """A program has ended otherwise than it should: by itself, or without coming to the moment."""


class Driver:
    """A program that is run as often as is wanted, always with the same arguments."""

    def __init__(
        self,
        program: str | os.PathLike[str],
        arguments: Sequence[str] = (),
        *,
        target: str = "",
        environment: Mapping[str, str] | None = None,
        apart: Path | None = None,
        timeout_s: float = PROGRAM_S,
    ) -> None:
        """target: of the tracker, which the program has as LOWMARK_TARGET; environment: variables beside those of this
        process; apart: a directory below which its queries read and write instead of where they say."""
        self.program, self._arguments = Path(program).absolute(), arguments
        self._apart, self._timeout_s = apart, timeout_s
        options = " ".join(filter(None, (_QUICK_JVM, os.environ.get("SPARK_SUBMIT_OPTS", ""))))
        self._environment = {
            **os.environ, "SPARK_SUBMIT_OPTS": options, "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join(_paths()),
            **({"LOWMARK_TARGET": target} if target else {}), **(environment or {}),
        }  # fmt: skip

    def killed_at(self, moment: Moment) -> bool:
        """Runs it until it is killed at a moment; False if it has taken all that there was before it came to that. Raises
        ProgramFailed where it ended by itself."""
        return self._run(moment)[0] == -signal.SIGKILL

    def to_the_end(self, feed: Callable[[Any], None] | None = None) -> list[Any]:
        """Runs it until its queries have taken all that there is; what they were. feed: is called with the first query
        before that is started. Raises ProgramFailed."""
        return self._run(None, feed)[1]

    def _run(
        self, moment: Moment | None, feed: Callable[[Any], None] | None = None
    ) -> tuple[int, list[Any]]:
        with tempfile.TemporaryDirectory() as folder:
            report, errors = Path(folder, "report.json"), Path(folder, "errors")
            command = [
                sys.executable, "-P", "-m", "tracker.testing.program", str(report), moment or "",
                *(["--apart", str(self._apart)] if self._apart else []), str(self.program),
                *self._arguments,
            ]  # fmt: skip
            go = report.with_suffix(".go")
            if feed is None:
                go.touch()
            with errors.open("wb") as said:
                process = subprocess.Popen(
                    command, env=self._environment, stdin=subprocess.DEVNULL,
                    stdout=said, stderr=said, start_new_session=True,
                )  # fmt: skip
            status = self._wait(process, report, go, feed)
            queries = json.loads(report.read_text()) if report.exists() else []
            if status is None or status not in ((-signal.SIGKILL, MISSED) if moment else (0,)):
                what = (
                    f"status {status}" if status is not None else f"no end in {self._timeout_s:g} s"
                )
                text = errors.read_text(errors="replace")[-_SAID:]
                raise ProgramFailed(f"{self.program} ended with {what}:\n{text}")
            return status, queries

    def _wait(
        self,
        process: subprocess.Popen[bytes],
        report: Path,
        go: Path,
        feed: Callable[[Any], None] | None,
    ) -> int | None:
        """Its status, None if its time ended. What it has started ends with it."""
        ends_s = time.monotonic() + self._timeout_s
        try:
            while feed and process.poll() is None and time.monotonic() < ends_s:
                if report.exists():
                    feed(json.loads(report.read_text())[0])
                    go.touch()
                    break
                time.sleep(_LOOK_S)
            return process.wait(max(0.0, ends_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            return None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def kill_and_restart(
    program: str | os.PathLike[str],
    *arguments: str,
    at: Moment | str | Iterable[Moment | str] = Moment.COMMIT,
    target: str = "",
    environment: Mapping[str, str] | None = None,
    timeout_s: float = PROGRAM_S,
) -> None:
    """Runs a program that starts Spark queries, kills its driver by SIGKILL at a moment, or at several one after the other,
    and starts it again, until its queries have taken all that there is.

    program: a file of Python that is run as `python PROGRAM ARGUMENTS`, and awaits its queries; it has `target` as
    LOWMARK_TARGET. at: moments (`Moment`, or their names), in the order of the kills. timeout_s: for each run. Raises
    AssertionError where a run fails by itself, or never comes to its moment: each run needs a batch that does.
    """
    moments = [Moment(at)] if isinstance(at, str) else [Moment(each) for each in at]
    driver = Driver(program, arguments, target=target, environment=environment, timeout_s=timeout_s)
    for moment in moments:
        if not driver.killed_at(moment):
            raise ProgramFailed(
                f"{program} has taken all its input without coming to the moment {moment.value!r}: let it take one file "
                f"a batch (maxFilesPerTrigger), so that there is one for each kill, or kill it elsewhere"
            )
    driver.to_the_end()


def _paths() -> list[str]:
    """Where this process finds modules, so that a program finds the same ones."""
    return [path for path in sys.path if path]
