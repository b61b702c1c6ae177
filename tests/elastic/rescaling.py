"""Rescales under a steady load: what it does to the latency of notifications, beside runs in which
nothing changes."""

from __future__ import annotations

import os
import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.pairs import Bar
from tests.check.judging import Judged
from tests.check.judging import judge as judge_history
from tests.elastic.standing import Standing
from tests.elastic.system import System
from tests.elastic.verdicts import Bounds, is_over
from tests.elastic.windows import Window, p99_ms, windows
from tracker.core.insight.describe import ShardRole

CONTROL_S, PAUSE_S = 5.0, 4.0
"""Of each of the two halves of a control, and between two steps of the run."""
CONTROLS = (1, 2, 3, 4)
WARM_S = 3.0
STEPS = ((2, False), (4, False), (3, False), (1, True))
"""How many shards there are to be, from one on, and whether those that go evacuate."""
STANDING_CELLS = 4_000
SENT = ("lowmark_peer_messages_sent_total", "lowmark_peer_bytes_sent_total")


@dataclass
class Run:
    """What came of a run. timeline: (seconds, processes that there are from then on)."""

    shards: int
    windows: list[Window] = field(default_factory=list)
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    messages_per_s: float = 0.0
    bytes_per_s: float = 0.0
    """Between the tracker's processes, while nothing changes; what HTTP/2 adds is not counted."""
    load: float = 0.0
    """Processor time of everything that takes part, as a share of all cores."""
    events: list[dict[str, Any]] = field(default_factory=list)
    timeline: list[tuple[float, int]] = field(default_factory=list)
    rescales: int = 0
    moved_cells: int = 0
    judged: list[Judged] = field(default_factory=list)
    trouble: str = ""

    @property
    def steady_p99_ms(self) -> float:
        """The middle one of the p99s of its seconds: a disturbed second does not move it."""
        return statistics.median(window.p99_ms for window in self.windows)

    def processes(self, from_s: float, to_s: float) -> int:
        """The most that there were between two moments."""
        before = [count for at_s, count in self.timeline if at_s <= from_s]
        within = [count for at_s, count in self.timeline if from_s < at_s < to_s]
        return max([*before[-1:], *within], default=self.shards)

    def as_data(self) -> dict[str, Any]:
        return asdict(self)


class Clock:
    """Writes down when what happened, in seconds from its beginning."""

    def __init__(self, run: Run, system: System) -> None:
        self.run, self._system = run, system
        self.begin()

    def begin(self) -> None:
        """What was before does not count."""
        self.from_ns = time.monotonic_ns()
        self._processor_s = self._system.processor_s()
        self._sent = self._system.fleet.metrics(*SENT)

    def steady(self) -> None:
        """Nothing has changed since the beginning: notes what that took."""
        took_s = self.now_s()
        self.run.load = (
            (self._system.processor_s() - self._processor_s) / took_s / (os.cpu_count() or 1)
        )
        sent = self._system.fleet.metrics(*SENT)
        self.run.messages_per_s, self.run.bytes_per_s = (
            (sent[name] - self._sent[name]) / took_s for name in SENT
        )

    def now_s(self) -> float:
        return (time.monotonic_ns() - self.from_ns) / 1e9

    @contextmanager
    def event(self, what: str) -> Iterator[None]:
        began_s = self.now_s()
        yield
        self.run.events.append({"what": what, "from_s": began_s, "to_s": self.now_s()})

    def there_are(self, processes: int) -> None:
        self.run.timeline.append((self.now_s(), processes))


def control(directory: Path, shards: int, seconds: float, **options: Any) -> Run:
    """A tracker that stays as it is."""
    run = Run(shards)

    def stay(system: System, clock: Clock) -> None:
        time.sleep(seconds)  # paces: the load
        clock.steady()

    return _run(run, directory, stay, None, options)


def grown(directory: Path, steps: Sequence[int], seconds: float, **options: Any) -> Run:
    """A tracker that stays as it is after it has had other numbers of shards."""
    run = Run(1)

    def change(system: System, clock: Clock) -> None:
        for shards in steps:
            while len(system.fleet.addresses) < shards:
                system.fleet.join()
            system.fleet.changed(shards)
        time.sleep(WARM_S)  # paces: the load
        clock.begin()
        time.sleep(seconds)  # paces: the load
        clock.steady()

    return _run(run, directory, change, None, options)


def rescaled(
    directory: Path,
    pause_s: float,
    *,
    steps: Sequence[tuple[int, bool]] = STEPS,
    standing_cells: int = STANDING_CELLS,
    **options: Any,
) -> Run:
    """From one shard through all the steps, with a pause before each and after the last."""
    run = Run(1)

    def change(system: System, clock: Clock) -> None:
        fleet = system.fleet
        clock.there_are(1)
        for shards, evacuate in steps:
            time.sleep(pause_s)  # paces: the load
            while len(fleet.addresses) < shards:
                clock.there_are(
                    len(fleet.addresses) + 1
                )  # it starts, and takes its time of the machine
                with clock.event("join"):
                    fleet.join()
            if evacuate and system.standing is not None:
                system.standing.open_cells(standing_cells)
            owners = len(fleet.routing().of(ShardRole.OWNER))
            with clock.event(f"{owners} to {shards}{', evacuating' if evacuate else ''}"):
                run.moved_cells += fleet.changed(shards, evacuate=evacuate)
            clock.there_are(len(fleet.addresses))
            run.rescales += 1
        time.sleep(pause_s)  # paces: the load

    return _run(run, directory, change, standing_cells, options)


def _run(
    run: Run,
    directory: Path,
    work: Callable[[System, Clock], None],
    standing_cells: int | None,
    options: dict[str, Any],
) -> Run:
    with System(directory, run.shards, **options) as system:
        try:
            system.start()
            if standing_cells:
                system.standing = Standing(system.fleet, directory / "standing")
            time.sleep(WARM_S)  # paces: the load
            clock = Clock(run, system)
            work(system, clock)
            to_ns = time.monotonic_ns()
            if system.standing is not None:
                system.standing.finish()
            history = system.finish()
        except AssertionError as error:
            run.trouble = str(error)
            system.stop_writing()
            try:
                history = system.history()
            except Exception as other:  # there is nobody left to ask
                run.trouble += f"; and no history: {other}"
                return run
        run.judged.append(judge_history(history))
        if not run.trouble:
            if system.standing is not None:
                run.judged.append(system.standing.judge())
            found = system.samples(clock.from_ns, to_ns)
            run.windows = windows(found, clock.from_ns)
            run.p99_ms = p99_ms(found)
            run.p50_ms = sorted(s.latency_ms for s in found)[len(found) // 2]
    return run


def ratios(run: Run, steady_p99_ms: dict[int, float]) -> list[float]:
    """p99 of each second over the steady p99 with as many processes as there were then."""
    return [
        window.p99_ms / steady_p99_ms[run.processes(window.at_s, window.at_s + 1)]
        for window in run.windows
    ]


@dataclass
class Round:
    """A run in which shards come and go, between the halves of a control with each number of shards."""

    before: dict[int, Run]
    run: Run
    after: dict[int, Run]

    @classmethod
    def made(cls, root: Path) -> Round:
        """Makes all of them, in folders of `root`."""

        def controls(numbers: Sequence[int]) -> dict[int, Run]:
            return {n: control(fresh(root, "control"), n, CONTROL_S) for n in numbers}

        before = controls(CONTROLS)
        return cls(before, rescaled(fresh(root, "rescaled"), PAUSE_S), controls(CONTROLS[::-1]))

    @property
    def runs(self) -> dict[str, Run]:
        """All of them, by what they are."""
        return {
            **{f"control with {n}, before": run for n, run in self.before.items()},
            "rescaling": self.run,
            **{f"control with {n}, after": run for n, run in self.after.items()},
        }

    @property
    def trouble(self) -> bool:
        return any(run.trouble for run in self.runs.values())

    def steady_p99_ms(self, choose: Callable[[float, float], float] = min) -> dict[int, float]:
        """Of the controls, by number of shards: that of the lower half, or of the one chosen."""
        return {
            n: choose(self.before[n].steady_p99_ms, self.after[n].steady_p99_ms) for n in CONTROLS
        }

    @property
    def ratios(self) -> list[float]:
        """Of each second, over the lower half."""
        return ratios(self.run, self.steady_p99_ms())

    @property
    def bounds(self) -> Bounds:
        controls = [*self.before.values(), *self.after.values()]
        return Bounds(
            max(self.ratios),
            max(ratios(self.run, self.steady_p99_ms(max))),
            max(max(w.p99_ms for w in each.windows) / each.steady_p99_ms for each in controls),
            max(each.load for each in controls),
        )

    def as_data(self) -> dict[str, Any]:
        steady_ms = self.steady_p99_ms()
        return {
            **asdict(self.bounds),
            "ratios": self.ratios,
            "worst_ratio_to_one_shard": max(w.p99_ms for w in self.run.windows) / steady_ms[1],
            "steady_p99_ms": {
                n: (self.before[n].steady_p99_ms, self.after[n].steady_p99_ms) for n in CONTROLS
            },
            "controls": {name: run.as_data() for name, run in self.runs.items()},
            "run": self.run.as_data(),
        }


def rounds_made(root: Path, bar: Bar) -> Iterator[Round]:
    """Rounds until those that can be judged are enough, or there were as many as may be made; one with
    trouble is the last."""
    bounds: list[Bounds] = []
    while not is_over(bounds, bar):
        made = Round.made(root)
        yield made
        if made.trouble:
            return
        bounds.append(made.bounds)


def fresh(root: Path, name: str) -> Path:
    """A folder's path, without what was there."""
    path = root / name
    shutil.rmtree(path, ignore_errors=True)
    return path
