"""What goes wrong in a run, one fault after the other, by a seed."""

from __future__ import annotations

import random
import time
from collections import Counter
from dataclasses import dataclass, field

from tests.faults.system import System, go_on, pause
from tests.processes.running import Running

PATTERN = ("kill", "kill", "kill", "cut", "pause")
LONGEST_DOWN_S = 1.5
CUT_S = (0.5, 3.0)
PAUSE_S = (0.5, 3.0)


@dataclass
class Faults:
    """Makes faults in a system, and counts them by kind and by victim."""

    system: System
    seed: int
    counts: Counter[str] = field(default_factory=Counter)
    by_victim: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        system = self.system
        self._trackers = {
            place.name: process
            for place, process in zip(
                [*system.places, *system.standby_places], system.trackers, strict=True
            )
        }

    def run(self, seconds: float, fault_every_s: float) -> None:
        """Faults for so long, at this pace."""
        end, number = time.monotonic() + seconds, 0
        while (start := time.monotonic()) < end:
            getattr(self, f"_{PATTERN[number % len(PATTERN)]}")()
            self.check_alive()
            number += 1
            time.sleep(max(0.0, min(start + fault_every_s, end) - time.monotonic()))

    def check_alive(self) -> None:
        """Nothing has ended that was not killed."""
        everybody = self._trackers | self.system.nodes
        for name, process in everybody.items():
            ended = process._process is not None and process._process.poll() is not None
            assert not ended, f"{name} has ended by itself: {process.errors()}"

    def _count(self, kind: str, victim: str) -> None:
        self.counts[kind] += 1
        self.by_victim[f"{kind} {victim}"] += 1

    def _kill(self) -> None:
        chosen = self._random.random()
        down_s = self._random.uniform(0, LONGEST_DOWN_S)
        redis = self.system.redis
        if chosen < 0.1 and redis is not None:
            redis.kill()
            time.sleep(down_s)
            redis.start()
            self._count("kill", "redis")
            return
        victims: dict[str, Running] = self._trackers
        if chosen >= 0.6:
            victims = {**self.system.nodes, "local-tracker": self.system.local_tracker}
        name = self._random.choice(sorted(victims))
        victims[name].kill()
        time.sleep(down_s)
        victims[name].start()
        self._count("kill", name)

    def _cut(self) -> None:
        names = [*self._trackers, *(["redis"] if self.system.redis else [])]
        name = self._random.choice(names)
        self.system.network.cut(name)
        time.sleep(self._random.uniform(*CUT_S))
        self.system.network.join(name)
        self._count("cut", name)

    def _pause(self) -> None:
        victims = {name: process.pid for name, process in self._trackers.items()}
        victims |= {f"node {name}": process.pid for name, process in self.system.nodes.items()}
        victims["subscriber"] = self.system.subscribers[0].pid
        if self.system.redis is not None:
            victims["redis"] = self.system.redis.pid
        name = self._random.choice(sorted(victims))
        pause(victims[name])
        time.sleep(self._random.uniform(*PAUSE_S))
        go_on(victims[name])
        self._count("pause", name)
