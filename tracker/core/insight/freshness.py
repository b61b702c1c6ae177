"""Lag as a service level: samples of how far each segment's min time is behind, over windows of time.

Two lags are kept. `lag` is how far min time is behind the newest promise of the pipeline's fronts: what
came in and is not known to be processed. `age` is how far it is behind the clock: what whoever reads the
result gets to feel; it grows, too, while no front says anything. A window holds equally spaced samples,
in memory of a fixed size, so its percentiles are exact of them, and weigh by time: a lag that lasted a
tenth of the window is its p90, whatever number of announcements there were.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

WINDOWS: tuple[tuple[int, int], ...] = ((300, 1), (3_600, 12))
"""(seconds, seconds from sample to sample) of each window."""
MAX_POINTS = WINDOWS[-1][0] // WINDOWS[-1][1]
"""Into more parts the longest window is not cut: it has so many samples."""
PERCENTILES = (50, 95, 99)
NONE_MS = -1
"""Instead of a sample, where there is nothing to compare: no front has promised, or all is complete."""


@dataclass(frozen=True, slots=True)
class Lag:
    """One sample, in milliseconds; NONE_MS where there is nothing to compare."""

    lag_ms: int
    age_ms: int


@dataclass(frozen=True, slots=True)
class Level:
    """What the samples of a window come to, in milliseconds; NONE_MS if there are none. within: the
    share of samples that are within what was asked for, 1 if there are none."""

    samples: int
    p50_ms: int
    p95_ms: int
    p99_ms: int
    most_ms: int
    within: float


@dataclass(frozen=True, slots=True)
class WindowLevels:
    """A window of `seconds`: how far behind the newest promise, and behind the clock."""

    seconds: int
    lag: Level
    age: Level


@dataclass(frozen=True, slots=True)
class SegmentFreshness:
    """A segment (empty: the whole pipeline): its last sample, and its windows, the shortest first. lags_ms: the longest
    window cut into equal parts, the oldest first, and of each the largest lag in milliseconds, NONE_MS where there is
    none; empty unless asked for."""

    segment: str
    now: Lag
    windows: tuple[WindowLevels, ...]
    lags_ms: tuple[int, ...] = ()


def percentiles(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Of samples (samples, segments, 2): those of PERCENTILES, and the largest, as (percentiles + 1,
    segments, 2); NONE_MS where there are none. The same as a window's levels, for many segments at once."""
    if not len(rows):
        return np.full((len(PERCENTILES) + 1, *rows.shape[1:]), NONE_MS, np.int64)
    rows = np.sort(rows, axis=0)
    none = np.count_nonzero(rows == NONE_MS, axis=0)  # they come first, being less than all others
    some = len(rows) - none
    indices = [
        none + np.maximum(-(-some * percent // 100) - 1, 0) for percent in (*PERCENTILES, 100)
    ]
    return np.take_along_axis(rows, np.minimum(indices, len(rows) - 1), axis=0)


class _Ring:
    """The last samples of one window: rows of (segments, 2) milliseconds."""

    def __init__(self, seconds: int, every_s: int, segments: int) -> None:
        self.seconds, self.every_s = seconds, every_s
        self._rows = np.full((seconds // every_s, segments, 2), NONE_MS, np.int64)
        self._next = 0
        self._filled = 0
        self._last_s: int | None = None

    def add(self, row: NDArray[np.int64], now_s: int) -> None:
        """Takes a row if it is time for one."""
        if self._last_s is not None and now_s - self._last_s < self.every_s:
            return
        self._last_s = now_s
        self._rows[self._next] = row
        self._next = (self._next + 1) % len(self._rows)
        self._filled = min(self._filled + 1, len(self._rows))

    def rows(self, segments: Sequence[int]) -> NDArray[np.int64]:
        """A copy of what is held of some segments."""
        return self._rows[: self._filled, list(segments)]

    def most(self, points: int) -> NDArray[np.int64]:
        """The largest lag of each of so many equal parts of the window, the oldest first, as (points, segments)."""
        lags = np.roll(self._rows[:, :, 0], -self._next, axis=0)  # rows not yet written come first
        return np.maximum.reduceat(lags, np.arange(points) * len(lags) // points, axis=0)

    def levels(self, segment: int, within_ms: int) -> WindowLevels:
        rows = self._rows[: self._filled, segment]
        return WindowLevels(
            self.seconds, _level(rows[:, 0], within_ms), _level(rows[:, 1], within_ms)
        )


def _level(samples: NDArray[np.int64], within_ms: int) -> Level:
    samples = samples[samples != NONE_MS]
    if not len(samples):
        return Level(0, NONE_MS, NONE_MS, NONE_MS, NONE_MS, 1.0)
    # One of the samples, never something between two.
    p50, p95, p99 = np.percentile(samples, PERCENTILES, method="inverted_cdf").tolist()
    within = float(np.count_nonzero(samples <= within_ms)) / len(samples)
    return Level(len(samples), int(p50), int(p95), int(p99), int(samples.max()), within)


class Freshness:
    """The samples of one pipeline: its segments by number, and last the whole."""

    def __init__(self, segments: Sequence[str]) -> None:
        self._names = (*segments, "")
        self._rings = [_Ring(seconds, every_s, len(self._names)) for seconds, every_s in WINDOWS]
        self._last = [Lag(NONE_MS, NONE_MS)] * len(self._names)

    @property
    def size(self) -> int:
        """How many are sampled: the segments, and the whole."""
        return len(self._names)

    @staticmethod
    def memory_bytes(segments: int) -> int:
        """How much the samples of a pipeline of so many segments take, about."""
        return sum(seconds // every_s for seconds, every_s in WINDOWS) * (segments + 1) * 16

    def add(self, lags: Sequence[Lag], now_s: int) -> None:
        """A sample of each segment; that of the whole is the largest of them. now_s: seconds of a clock
        that never goes back."""
        whole = Lag(
            max((lag.lag_ms for lag in lags), default=NONE_MS),
            max((lag.age_ms for lag in lags), default=NONE_MS),
        )
        self._last = [*lags, whole]
        row = np.array([(lag.lag_ms, lag.age_ms) for lag in self._last], np.int64)
        for ring in self._rings:
            ring.add(row, now_s)

    @property
    def last(self) -> tuple[tuple[str, Lag], ...]:
        """The last sample of each segment, and of the whole under the empty name."""
        return tuple(zip(self._names, self._last, strict=True))

    def samples(self, indices: Sequence[int]) -> tuple[tuple[int, NDArray[np.int64]], ...]:
        """(seconds, a copy of the samples) of each window, of some indices in `last`."""
        return tuple((ring.seconds, ring.rows(indices)) for ring in self._rings)

    def read(self, within_ms: int, points: int = 0) -> tuple[SegmentFreshness, ...]:
        """What the windows come to, by segment, the whole last. points: into how many parts the longest is cut for
        the lags over it, at most MAX_POINTS."""
        lags = self._rings[-1].most(points).T.tolist() if points else [()] * len(self._names)
        return tuple(
            SegmentFreshness(
                name,
                self._last[index],
                tuple(ring.levels(index, within_ms) for ring in self._rings),
                tuple(lags[index]),
            )
            for index, name in enumerate(self._names)
        )
