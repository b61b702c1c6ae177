"""What goes wrong in a run, one fault after the other, by a seed."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from tests.cluster.children import Running
from tests.cluster.redis_server import RedisServer
from tests.faults.system import System

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
        self._trackers = {server.name: server for server in self.system.tracker.servers}

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
            time.sleep(max(0.0, start + fault_every_s - time.monotonic()))  # paces: the load

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
        redis = self.system.tracker.redis
        if chosen < 0.1 and redis is not None:
            redis.kill()
            time.sleep(down_s)  # paces: the fault
            redis.start()
            self._count("kill", "redis", start_ns)
            return
        victims: dict[str, Running] = {**self._trackers}
        if chosen >= 0.6:
            victims = {**self.system.nodes, "local-tracker": self.system.local_tracker}
        name = self._random.choice(sorted(victims))
        victims[name].kill()
        time.sleep(down_s)  # paces: the fault
        victims[name].start()
        self._count("kill", name, start_ns)

    def _cut(self) -> None:
        names = [*self._trackers, *(["redis"] if self.system.tracker.redis else [])]
        name = self._random.choice(names)
        start_ns = time.monotonic_ns()
        self.system.network.cut(name)
        time.sleep(self._random.uniform(*CUT_S))  # paces: the fault
        self.system.network.join(name)
        self._count("cut", name, start_ns)

    def _pause(self) -> None:
        victims: dict[str, Running | RedisServer] = {**self._trackers}
        victims |= {f"node {name}": process for name, process in self.system.nodes.items()}
        victims["subscriber"] = self.system.subscribers[0]
        if self.system.tracker.redis is not None:
            victims["redis"] = self.system.tracker.redis
        name = self._random.choice(sorted(victims))
        start_ns = time.monotonic_ns()
        victims[name].pause()
        time.sleep(self._random.uniform(*PAUSE_S))  # paces: the fault
        victims[name].go_on()
        self._count("pause", name, start_ns)
