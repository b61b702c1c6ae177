"""Runs the pipeline over a text of the standard library, a line every 50 ms."""

from __future__ import annotations

import codecs
import contextlib
import io
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from examples.plain_python.pipeline import run
from lowmark import Update

PAUSE_S = 0.05


def zen() -> list[str]:
    """The lines of "The Zen of Python"."""
    with contextlib.redirect_stdout(io.StringIO()):
        import this
    return [line for line in codecs.decode(this.s, "rot13").splitlines() if line]


def slowly(lines: list[str]) -> Iterator[str]:
    for line in lines:
        time.sleep(PAUSE_S)
        yield line


def show(update: Update) -> None:
    """One line for each news; min time is exclusive: what came in before it is done."""
    name = update.segment or "whole pipeline"
    if update.complete:
        print(f"{name:>14}: complete")
    elif update.time is not None:
        print(f"{name:>14}: complete up to {update.time:%H:%M:%S.%f}"[:-3])


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        counts = run(Path(directory), slowly(zen()), show)
    print(
        f"counted {counts.total()} words:", ", ".join(f"{w} {n}" for w, n in counts.most_common(5))
    )


if __name__ == "__main__":
    main()
