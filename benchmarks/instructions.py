"""What each step of a tick computes, in instructions that callgrind counts: a busy machine counts the same.

    python -m benchmarks --only instructions

The steps are those of `benchmarks/tick_profile.py`, taken by a Python that valgrind runs; it counts what the thread
computes in user space, the interpreter's, NumPy's, SQLite's and protobuf's instructions alike, and nothing of the kernel,
which is where a disk is waited for. Between two runs of the same sources a count differs by less than a hundredth.
It needs `valgrind` with its headers, and a C compiler for the three requests by which valgrind is told when to count.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.figures import Budget, Figure, Skipped
from benchmarks.throughput import TICKS_TOGETHER
from benchmarks.tick_profile import STEPS, TICKS_PER_COMMIT, name_of, take_steps
from scripts.summary import ROOT
from tracker.service.run import collect_rarely

TICKS = 2_048
TIMEOUT_S = 200.0
REQUESTS = """
#include <valgrind/callgrind.h>
void begin(void) { CALLGRIND_START_INSTRUMENTATION; }
void zero(void) { CALLGRIND_ZERO_STATS; }
void dump(const char *step) { CALLGRIND_DUMP_STATS_AT(step); }
"""
"""They are instructions of their own, which a compiler has to write."""


def find(budget: Budget) -> Iterable[Figure | Skipped]:
    del budget  # one run is as good as many
    what = "instructions of a tick"
    with tempfile.TemporaryDirectory(prefix="lowmark-bench-") as directory:
        requests = Path(directory) / "requests.so"
        try:
            _compile(requests)
        except (OSError, subprocess.CalledProcessError) as error:
            yield Skipped(what, f"valgrind, its headers or a C compiler is not there: {error}")
            return
        for cells in (1, 100):
            for together in (1, TICKS_TOGETHER):
                yield from _counted(Path(directory), requests, cells, together)


def _compile(requests: Path) -> None:
    """Raises OSError, CalledProcessError."""
    if shutil.which("valgrind") is None:
        raise OSError("no valgrind")
    source = requests.with_suffix(".c")
    source.write_text(REQUESTS)
    command = ["cc", "-shared", "-fPIC", "-O1", "-o", str(requests), str(source)]
    subprocess.run(command, check=True, capture_output=True)


def _counted(directory: Path, requests: Path, cells: int, together: int) -> Iterator[Figure]:
    out = directory / f"counts-{cells}-{together}"
    command = [
        "valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={out}",
        sys.executable, "-m", "benchmarks.instructions",
        "--requests", str(requests), "--cells", str(cells), "--together", str(together),
    ]  # fmt: skip
    subprocess.run(command, check=True, cwd=ROOT, capture_output=True, timeout=TIMEOUT_S)
    counts = counts_in(directory.glob(f"{out.name}.*"))
    what = name_of(cells, together)
    for step in STEPS:
        yield Figure(f"{what}: {step}", (counts[step] / TICKS / 1_000,), "thousand", exact=True)
    total = sum(counts[step] for step in STEPS) / TICKS / 1_000
    yield Figure(
        f"{what}: all steps", (total,), "thousand", "instructions in user space", exact=True
    )


def counts_in(dumps: Iterable[Path]) -> Counter[str]:
    """By step, the instructions that callgrind's dumps have."""
    counts: Counter[str] = Counter()
    for dump in dumps:
        text = dump.read_text()
        step = re.search(r"^desc: Trigger: Client Request: (.+)$", text, re.MULTILINE)
        total = re.search(r"^(?:totals|summary): (\d+)", text, re.MULTILINE)
        if step is not None and total is not None:
            counts[step[1]] += int(total[1])
    return counts


class Instructions:
    """A meter that has callgrind write down the count of each step, in a file of its own."""

    def __init__(self, requests: Path) -> None:
        self._valgrind = ctypes.CDLL(str(requests))
        gc.collect()
        self._valgrind.begin()

    @contextmanager
    def __call__(self, step: str) -> Iterator[None]:
        self._valgrind.zero()
        yield
        self._valgrind.dump(step.encode())


def main() -> None:
    """What valgrind runs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--requests", type=Path, required=True)
    parser.add_argument("--cells", type=int, required=True)
    parser.add_argument("--together", type=int, required=True)
    options = parser.parse_args()
    collect_rarely()  # as a process that serves
    take_steps(
        options.cells, TICKS, options.together, lambda: Instructions(options.requests),
        unmetered=TICKS_PER_COMMIT,
    )  # fmt: skip


if __name__ == "__main__":
    main()
