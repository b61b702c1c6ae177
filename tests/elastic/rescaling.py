"""Rescales under a steady load: what it does to the latency of notifications, beside runs in which
nothing changes."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.check.judging import Judged
from tests.check.judging import judge as judge_history
from tests.elastic.standing import Standing
from tests.elastic.system import System
from tests.elastic.windows import Window, p99_ms, windows
from tracker.core.insight.describe import ShardRole

CONTROL_S, PAUSE_S = 8.0, 4.0
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
        time.sleep(seconds)
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
        time.sleep(WARM_S)
        clock.begin()
        time.sleep(seconds)
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
            time.sleep(pause_s)
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
        time.sleep(pause_s)

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
            time.sleep(WARM_S)
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


def ratios(run: Run, controls: dict[int, Run]) -> list[float]:
    """p99 of each second over the p99 of the control with as many processes as there were then."""
    return [
        window.p99_ms / controls[run.processes(window.at_s, window.at_s + 1)].p99_ms
        for window in run.windows
    ]


@dataclass
class Round:
    """A run in which shards come and go, beside a control with each number of shards."""

    controls: dict[int, Run]
    run: Run

    @classmethod
    def made(cls, root: Path) -> Round:
        """Makes all of them, in folders of `root`."""
        controls = {
            shards: control(fresh(root, "control"), shards, CONTROL_S) for shards in CONTROLS
        }
        return cls(controls, rescaled(fresh(root, "rescaled"), PAUSE_S))

    @property
    def runs(self) -> dict[str, Run]:
        """All of them, by what they are."""
        return {f"control with {n}": run for n, run in self.controls.items()} | {
            "rescaling": self.run
        }

    @property
    def ratios(self) -> list[float]:
        return ratios(self.run, self.controls)

    @property
    def worst_steady_ratio(self) -> float:
        """Of a second of the controls themselves."""
        return max(max(ratios(each, self.controls)) for each in self.controls.values())

    def as_data(self) -> dict[str, Any]:
        return {
            "worst_ratio": max(self.ratios),
            "ratios": self.ratios,
            "worst_steady_ratio": self.worst_steady_ratio,
            "worst_ratio_to_one_shard": max(w.p99_ms for w in self.run.windows)
            / self.controls[1].p99_ms,
            "controls": {shards: each.as_data() for shards, each in self.controls.items()},
            "run": self.run.as_data(),
        }


def fresh(root: Path, name: str) -> Path:
    """A folder's path, without what was there."""
    path = root / name
    shutil.rmtree(path, ignore_errors=True)
    return path
