"""What goes wrong in a run, one fault after the other, by a seed."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from tests.faults.system import System, go_on, pause
from tests.processes.running import Running

PATTERN = ("kill", "kill", "kill", "cut", "pause")
LONGEST_DOWN_S = 1.5
CUT_S = (0.5, 5.0)
PAUSE_S = (0.5, 5.0)
"""Shorter than a lease, and longer."""
JUST_BEFORE_NS = 1_000_000_000


@dataclass(frozen=True)
class Fault:
    """One that was made, and when it began and ended (of CLOCK_MONOTONIC)."""

    kind: str
    victim: str
    start_ns: int
    end_ns: int

    def __str__(self) -> str:
        return f"{self.kind} {self.victim} for {(self.end_ns - self.start_ns) / 1e9:.1f} s"


@dataclass
class Faults:
    """Makes faults in a system, and counts them by kind and by victim."""

    system: System
    seed: int
    counts: Counter[str] = field(default_factory=Counter)
    by_victim: Counter[str] = field(default_factory=Counter)
    made: list[Fault] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        system = self.system
        self._trackers = {
            place.name: process
            for place, process in zip(
                [*system.places, *system.standby_places], system.trackers, strict=True
            )
        }

    def run(
        self,
        seconds: float,
        fault_every_s: float,
        enough: Callable[[], bool] = lambda: True,
        most_s: float = 0.0,
    ) -> None:
        """Faults for so long, at this pace; and on, up to `most_s`, until it is enough: a machine that
        is loaded takes longer for as much."""
        begin, number = time.monotonic(), 0
        end = begin + seconds
        while True:
            start = time.monotonic()
            if start >= end and (start >= begin + most_s or enough()):
                return
            getattr(self, f"_{PATTERN[number % len(PATTERN)]}")()
            self.system.check_alive()
            number += 1
            time.sleep(max(0.0, start + fault_every_s - time.monotonic()))

    def gaps(self, since_ns: int, most: int) -> list[dict[str, Any]]:
        """The longest times in which nothing new was heard, and the faults that lay in each, or ended
        so shortly before it that the system was still at it."""
        moments = [since_ns, *(at for at in self.system.moments() if at >= since_ns)]
        longest = sorted(pairwise(moments), key=lambda gap: gap[0] - gap[1])[:most]
        return [
            {
                "gap_s": round((end - start) / 1e9, 2),
                "at_s": round((start - since_ns) / 1e9, 1),
                "faults": [
                    str(fault)
                    for fault in self.made
                    if fault.start_ns < end and fault.end_ns > start - JUST_BEFORE_NS
                ],
            }
            for start, end in longest
        ]

    def _count(self, kind: str, victim: str, start_ns: int) -> None:
        self.counts[kind] += 1
        self.by_victim[f"{kind} {victim}"] += 1
        self.made.append(Fault(kind, victim, start_ns, time.monotonic_ns()))

    def _kill(self) -> None:
        start_ns = time.monotonic_ns()
        chosen = self._random.random()
        down_s = self._random.uniform(0, LONGEST_DOWN_S)
        redis = self.system.redis
        if chosen < 0.1 and redis is not None:
            redis.kill()
            time.sleep(down_s)
            redis.start()
            self._count("kill", "redis", start_ns)
            return
        victims: dict[str, Running] = self._trackers
        if chosen >= 0.6:
            victims = {**self.system.nodes, "local-tracker": self.system.local_tracker}
        name = self._random.choice(sorted(victims))
        victims[name].kill()
        time.sleep(down_s)
        victims[name].start()
        self._count("kill", name, start_ns)

    def _cut(self) -> None:
        names = [*self._trackers, *(["redis"] if self.system.redis else [])]
        name = self._random.choice(names)
        start_ns = time.monotonic_ns()
        self.system.network.cut(name)
        time.sleep(self._random.uniform(*CUT_S))
        self.system.network.join(name)
        self._count("cut", name, start_ns)

    def _pause(self) -> None:
        victims = {name: process.pid for name, process in self._trackers.items()}
        victims |= {f"node {name}": process.pid for name, process in self.system.nodes.items()}
        victims["subscriber"] = self.system.subscribers[0].pid
        if self.system.redis is not None:
            victims["redis"] = self.system.redis.pid
        name = self._random.choice(sorted(victims))
        start_ns = time.monotonic_ns()
        pause(victims[name])
        time.sleep(self._random.uniform(*PAUSE_S))
        go_on(victims[name])
        self._count("pause", name, start_ns)
