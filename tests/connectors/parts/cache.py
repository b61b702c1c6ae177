"""Where fetched parts are kept, for all working copies of the project on a machine."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.waits import HANG_S

_SAID = 300
"""Characters of a fetcher's error that go into the reason."""


class Unavailable(Exception):
    """A part can't be had on this machine; the message is the reason to skip with."""


def cache() -> Path:
    """`$LOWMARK_PARTS`, or `lowmark/parts` in the user's cache."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("LOWMARK_PARTS") or Path(home) / "lowmark/parts")


@contextmanager
def made_once(folder: Path) -> Iterator[Path | None]:
    """Where to make a folder that is there whole or not at all: None if it is there. What was made
    gets its name when the block ends without an error. Whoever else wants it waits."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.with_name(f"{folder.name}.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.exists():
            yield None
            return
        part = folder.with_name(f"{folder.name}.part")
        shutil.rmtree(part, ignore_errors=True)  # of one that was killed
        part.mkdir()
        yield part
        part.rename(folder)


def run_fetcher(
    what: str, command: Sequence[str], environment: dict[str, str] | None = None
) -> None:
    """Runs what fetches or builds a part. Raises Unavailable with the last that it said."""
    if shutil.which(command[0]) is None:
        raise Unavailable(f"{what}: there is no {command[0]} on the PATH")
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=HANG_S, check=False,
            env={**os.environ, **(environment or {})}, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{what}: not fetched within {HANG_S} s") from None
    if done.returncode != 0:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        errors = [line for line in lines if "ERROR" in line] or lines[-1:]
        said = errors[0] if errors else f"status {done.returncode}"
        raise Unavailable(f"{what}: not fetched: {said[:_SAID]}")
