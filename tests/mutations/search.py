"""Searching many mutations at once: pieces of seeds, the lowest first, on all cores.

Each mutation has a copy of the code of its own, and each piece of seeds a process of its own. First comes
the one seed that has found it before, where there is one; a schedule changes with the code, so it may not any
more. The pieces of all mutations are taken in the order of their seeds: what is found soon is out of the way
soon, and in the end all cores work on the few that take long.
"""

from __future__ import annotations

import heapq
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from tests.mutations.hunting import Piece
from tests.mutations.mutation import Mutation, MutationError, apply_mutation, copy_code

_FIRST_PIECES = (0, 40, 200, 600)
_PIECE = 1000


@dataclass
class Outcome:
    """What came of one hunt. `schedules` it took to find the fault, or that it survived; `seed` -1:
    it survived; `error`: why there is no answer."""

    name: str
    limit: int
    schedules: int = 0
    seed: int = -1
    kind: str = ""
    message: str = ""
    crashes: dict[str, int] = field(default_factory=dict)
    error: str = ""
    done: bool = False

    @property
    def found(self) -> bool:
        return self.seed >= 0 and not self.error


class _Hunt:
    """One mutation, or none, while it is searched for."""

    def __init__(self, outcome: Outcome, copy: Path, found_before: int | None = None) -> None:
        self.outcome = outcome
        self.copy = copy
        self.next_first = 0
        self.found_before = found_before
        self.running: dict[int, subprocess.Popen[str]] = {}

    def next_piece(self) -> range:
        """The seeds to run next; empty when all are."""
        if (seed := self.found_before) is not None:
            self.found_before = None
            return range(seed, seed + 1)
        first, limit = self.next_first, self.outcome.limit
        last = next((start for start in _FIRST_PIECES if start > first), first + _PIECE)
        self.next_first = min(last, limit)
        return range(first, self.next_first)

    def take(self, seeds: range, piece: Piece) -> None:
        outcome = self.outcome
        for how, times in piece.crashes.items():
            outcome.crashes[how] = outcome.crashes.get(how, 0) + times
        if piece.invalid:
            outcome.error = piece.invalid
        elif piece.seed >= 0 and not 0 <= outcome.seed < piece.seed:
            outcome.seed, outcome.kind, outcome.message = piece.seed, piece.kind, piece.message
            self.next_first = outcome.limit
        if outcome.error:
            self.next_first = outcome.limit
        for first, process in self.running.items():
            if outcome.error or 0 <= outcome.seed < first:
                process.kill()  # what it finds would come too late

    @property
    def is_decided(self) -> bool:
        return self.next_first >= self.outcome.limit and not self.running


class Search:
    """All hunts, on `workers` threads that each wait for a process."""

    def __init__(self, workers: int, report: Callable[[Outcome], None]) -> None:
        self._workers = workers
        self._report = report
        self._condition = threading.Condition()
        self._waiting: list[tuple[int, int]] = []
        self._hunts: list[_Hunt] = []

    def run(
        self,
        hunts: Iterable[tuple[Mutation | None, int]],
        known: Mapping[tuple[str, int], Outcome] = MappingProxyType({}),
        seeds: Mapping[str, int] = MappingProxyType({}),
    ) -> list[Outcome]:
        """Hunts each mutation (None: the code as it is) in so many schedules at most, from seed 0. known: what came of
        those that were hunted before, by name and limit. seeds: by name, what has found one in other code."""
        with tempfile.TemporaryDirectory(prefix="mutations-") as directory:
            base = Path(directory) / "code"
            copy_code(base)
            for number, (mutation, limit) in enumerate(hunts):
                name = mutation.name if mutation else ""
                if (before := known.get((name, limit))) is not None:
                    self._hunts.append(_Hunt(before, base))
                    continue
                copy = Path(directory) / str(number)
                copy_code(copy, base)
                outcome = Outcome(name, limit)
                hunt = _Hunt(outcome, copy, seeds.get(name))
                self._hunts.append(hunt)
                try:
                    if mutation is not None:
                        apply_mutation(mutation, copy)
                    # Before the others' first seeds, so that what is found by one is not looked for from 0 on meanwhile.
                    heapq.heappush(self._waiting, (0 if hunt.found_before is None else -1, number))
                except MutationError as error:
                    outcome.error, outcome.done = str(error), True
                    self._report(outcome)
            threads = [threading.Thread(target=self._work) for _ in range(self._workers)]
            for thread in threads:
                thread.start()
            try:
                for thread in threads:
                    thread.join()
            finally:
                self._stop()
                for thread in threads:
                    thread.join()
        return [hunt.outcome for hunt in self._hunts]

    def _stop(self) -> None:
        """Ends what still runs, when the search is interrupted."""
        with self._condition:
            self._waiting.clear()
            for hunt in self._hunts:
                hunt.next_first = hunt.outcome.limit
                for process in hunt.running.values():
                    process.kill()

    def _work(self) -> None:
        while (taken := self._take()) is not None:
            hunt, seeds, process = taken
            printed, complaint = process.communicate()
            with self._condition:
                del hunt.running[seeds.start]
                hunt.take(seeds, _read(hunt.outcome, seeds, process.returncode, printed, complaint))
                if hunt.is_decided and not hunt.outcome.done:
                    outcome = hunt.outcome
                    outcome.done = True
                    outcome.schedules = outcome.seed + 1 if outcome.found else outcome.limit
                    self._report(outcome)
                self._condition.notify_all()

    def _take(self) -> tuple[_Hunt, range, subprocess.Popen[str]] | None:
        """The next piece, started; None if there is nothing more to do."""
        with self._condition:
            while self._waiting:
                _, number = heapq.heappop(self._waiting)
                hunt = self._hunts[number]
                seeds = hunt.next_piece()
                if not seeds:
                    continue
                heapq.heappush(self._waiting, (hunt.next_first, number))
                hunt.running[seeds.start] = process = _start(hunt.copy, seeds)
                return hunt, seeds, process
        return None


def _start(copy: Path, seeds: range) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": "", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.mutations.hunting", str(seeds.start), str(seeds.stop)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=copy, env=environment, text=True, stdout=pipe, stderr=pipe)


def _read(outcome: Outcome, seeds: range, code: int, printed: str, complaint: str) -> Piece:
    if code == 0:
        return Piece(**json.loads(printed))
    if 0 <= outcome.seed < seeds.start or outcome.error:
        return Piece()  # it was ended, since an earlier seed has been found
    last = complaint.strip().splitlines()[-1:] or [""]
    return Piece(invalid=f"seeds {seeds.start} to {seeds.stop - 1} ended with {code}: {last[0]}")
