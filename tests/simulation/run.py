"""Running many seeds on all cores, and what came of them."""

from __future__ import annotations

import contextlib
import gc
import json
import multiprocessing
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.simulation.checkers import Failure
from tests.simulation.faults import FAULTS
from tests.simulation.simulator import Simulator

KINDS = ("broken", "false", "lost", "regressed")
_CHUNK = 25
_KEPT_FAILURES = 100
_TRACE_LINES = 60


@dataclass(frozen=True)
class Found:
    """A failed seed: the kind of failure (one of KINDS), and what was wrong."""

    seed: int
    kind: str
    message: str


@dataclass
class Summary:
    """What came of a range of seeds."""

    schedules: int = 0
    steps: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[Found] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)

    def add(self, other: Summary) -> None:
        self.schedules += other.schedules
        self.steps += other.steps
        self.counts += other.counts
        self.kinds += other.kinds
        kept = sorted(self.failures + other.failures, key=lambda found: found.seed)
        self.failures = kept[:_KEPT_FAILURES]

    def line(self) -> str:
        """The one line that says it all; every kind of fault is counted in the JSON beside it."""
        said = [f"schedules={self.schedules}", f"steps={self.steps}"]
        said += [f"{name}={self.counts[name]}" for name in ("announcements", "crashes")]
        said += [f"{kind}={self.kinds[kind]}" for kind in KINDS]
        return "sim: " + " ".join(said)

    def write(self, path: Path, **more: object) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        result = {
            "schedules": self.schedules,
            "steps": self.steps,
            **{kind: self.kinds[kind] for kind in KINDS},
            "counts": dict(sorted(self.counts.items())),
            "failures": [asdict(found) for found in self.failures],
            **more,
        }
        path.write_text(json.dumps(result, indent=1) + "\n")


def run_seed(seed: int) -> Summary:
    """Runs one seed in this process."""
    simulator, result = Simulator(seed), Summary(schedules=1)
    try:
        simulator.run()
    except Exception as error:  # whatever the core raises is a finding, not the end of the search
        kind = error.kind if isinstance(error, Failure) else "broken"
        result.kinds[kind] = 1
        result.failures.append(Found(seed, kind, f"{type(error).__name__}: {error}"[:2000]))
    result.steps, result.counts = simulator.steps, simulator.counts
    return result


def _run_chunk(task: tuple[range, str | None]) -> Summary:
    seeds, fault = task
    result = Summary()
    # A run makes little garbage that needs the collector, and many small objects that it would scan.
    gc.freeze()
    gc.set_threshold(100_000)
    with FAULTS[fault]() if fault else contextlib.nullcontext():
        for seed in seeds:
            result.add(run_seed(seed))
    return result


def run_seeds(
    seeds: range, fault: str | None = None, workers: int | None = None
) -> Iterator[Summary]:
    """Runs seeds on `workers` processes (all cores if None); yields the summary of each chunk, in
    the order of the seeds."""
    tasks = [(seeds[at : at + _CHUNK], fault) for at in range(0, len(seeds), _CHUNK)]
    if workers == 1 or len(tasks) == 1:
        yield from map(_run_chunk, tasks)
        return
    # Forked workers would inherit the threads of a test run; spawned ones begin clean.
    context = multiprocessing.get_context("spawn")
    with context.Pool(workers or multiprocessing.cpu_count()) as pool:
        yield from pool.imap(_run_chunk, tasks)


def run_range(seeds: range, fault: str | None = None, workers: int | None = None) -> Summary:
    """All seeds of a range."""
    total = Summary()
    for part in run_seeds(seeds, fault, workers):
        total.add(part)
    return total


def hunt(fault: str, seeds: range, workers: int | None = None) -> tuple[Found | None, int]:
    """The first failure that a planted fault leads to, and how many schedules it took."""
    for part in run_seeds(seeds, fault, workers):
        if part.failures:
            found = part.failures[0]
            return found, found.seed - seeds.start + 1
    return None, len(seeds)


def replay(seed: int, fault: str | None = None) -> tuple[list[str], Found | None]:
    """Runs one seed again: the last lines of its trace, and what it found."""
    with FAULTS[fault]() if fault else contextlib.nullcontext():
        simulator = Simulator(seed, traced=True)
        try:
            simulator.run()
        except Exception as error:
            kind = error.kind if isinstance(error, Failure) else "broken"
            found = Found(seed, kind, f"{type(error).__name__}: {error}")
            return (simulator.trace or [])[-_TRACE_LINES:], found
    return (simulator.trace or [])[-_TRACE_LINES:], None


def timed(seeds: range, fault: str | None, workers: int | None) -> tuple[Summary, float]:
    """`run_range`, and the seconds that it took."""
    began = time.perf_counter()
    total = run_range(seeds, fault, workers)
    return total, time.perf_counter() - began
