"""How long after a file has appeared Flink's watermark passes its rows: apache-flink, in an environment of its own.

The package does not go together with ours, so it is installed beside it, in `build/peers/flink`; the job
is `benchmarks/flink_job.py`. It looks for files, and lets its watermark go on, every 20 ms. Like Spark's,
the watermark passes a row's time only with a later row.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.figures import Figure, Finding, Skipped
from benchmarks.watermark import FILE_EVERY_S, ROWS, WARM_UP
from scripts.summary import BUILD, ROOT

FLINK = "apache-flink==2.3.0"
BELOW_FLINK = "until a file's rows lie below Flink's watermark, of no delay"
INSTALL_TIMEOUT_S = 900
START_TIMEOUT_S = 180.0
TIMEOUT_S = 60.0


def flink_delays(files: int) -> Iterator[Finding]:
    """Seconds for each file."""
    python = _installed()
    if python is None:
        yield Skipped(BELOW_FLINK, f"{FLINK} cannot be installed here")
        return
    with TemporaryDirectory(prefix="lowmark-bench-") as directory:
        given, notes = Path(directory) / "in", Path(directory) / "notes"
        given.mkdir()
        notes.touch()
        job = _start(python, given, notes, Path(directory) / "flink.log")
        try:
            appeared = _feed(given, notes, files + WARM_UP)
        finally:
            job.terminate()
            job.wait()
        passed = _noted(notes)
    delays = [passed[moment] - at for moment, at in appeared.items() if moment in passed]
    if not delays:
        yield Skipped(BELOW_FLINK, f"it has passed no file within {TIMEOUT_S:g} s")
        return
    yield Figure(
        BELOW_FLINK,
        tuple(delays[WARM_UP:] or delays),
        "s",
        f"{FLINK}, the same files, {len(delays)} of {len(appeared)}; looks every 20 ms",
    )


def _installed() -> Path | None:
    """Its Python; installed where it is not yet."""
    place = BUILD / "peers" / "flink"
    python = place / "bin" / "python"
    probe = [str(python), "-c", "import pyflink.datastream"]
    try:
        if python.exists() and subprocess.run(probe, check=False, timeout=60).returncode == 0:
            return python
        subprocess.run([sys.executable, "-m", "venv", str(place)], check=True, timeout=120)
        install = [str(python), "-m", "pip", "install", "-q", FLINK]
        subprocess.run(install, check=True, timeout=INSTALL_TIMEOUT_S)
    except (OSError, subprocess.SubprocessError):
        return None
    return python


def _start(python: Path, given: Path, notes: Path, log: Path) -> subprocess.Popen[bytes]:
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"  # its workers ask for `python`
    with log.open("wb") as output:
        return subprocess.Popen(
            [str(python), str(ROOT / "benchmarks" / "flink_job.py"), str(given), str(notes)],
            env={**os.environ, "PATH": path}, stdout=output, stderr=output,
        )  # fmt: skip


def _feed(given: Path, notes: Path, files: int) -> dict[int, float]:
    """When each file appeared, by the moment that is in all of its rows. Files of no account come first,
    until the job has passed one."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while not notes.read_text() and time.monotonic() < deadline:
        _appear(given)
        time.sleep(FILE_EVERY_S)
    appeared = {}
    for _ in range(files + 1):
        moment, at = _appear(given)
        appeared[moment] = at
        time.sleep(FILE_EVERY_S)
    del appeared[moment]  # it would take another file after it
    deadline = time.monotonic() + TIMEOUT_S
    while not appeared.keys() <= _noted(notes).keys() and time.monotonic() < deadline:
        time.sleep(0.1)
    return appeared


def _appear(given: Path) -> tuple[int, float]:
    moment = time.time_ns() // 10**6
    hidden = given / f".{moment}"
    hidden.write_text(f"{moment}\n" * ROWS)
    hidden.rename(given / f"{moment}.txt")
    return moment, time.time()


def _noted(notes: Path) -> dict[int, float]:
    lines = [
        line.split() for line in notes.read_text().splitlines(keepends=True) if line[-1] == "\n"
    ]
    return {int(moment): float(at) for moment, at in lines}


if __name__ == "__main__":
    for found in flink_delays(10):
        print(found.as_data())
