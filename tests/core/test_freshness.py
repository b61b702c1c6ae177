"""Lag as a service level: percentiles of equally spaced samples over windows, in memory of a fixed size."""

from __future__ import annotations

from itertools import pairwise
from random import Random

from tracker.core.insight.freshness import (
    MAX_POINTS,
    NONE_MS,
    WINDOWS,
    Freshness,
    Lag,
    percentiles,
)


def filled(lags_ms: list[int], every_s: int = 1) -> Freshness:
    fresh = Freshness(("a", "b"))
    for second, lag_ms in enumerate(lags_ms):
        fresh.add([Lag(lag_ms, 2 * lag_ms), Lag(1, 1)], second * every_s)
    return fresh


def test_percentiles_are_samples_and_weigh_by_time() -> None:
    (short, _) = filled([10] * 90 + [500] * 10).read(within_ms=10)[0].windows
    assert (short.seconds, short.lag.samples) == (300, 100)
    assert (short.lag.p50_ms, short.lag.p95_ms, short.lag.most_ms) == (10, 500, 500)
    assert short.age.p95_ms == 1000
    assert short.lag.within == 0.9
    (one, _) = filled([7]).read(0)[0].windows
    assert (one.lag.p50_ms, one.lag.p99_ms, one.lag.within) == (7, 7, 0.0)


def test_the_whole_is_as_far_behind_as_its_last_segment() -> None:
    a, b, whole = filled([10, 20, 30]).read(0)
    assert (a.segment, b.segment, whole.segment) == ("a", "b", "")
    assert whole.now == a.now == Lag(30, 60)
    assert b.windows[0].lag.most_ms == 1


def test_what_left_the_window_no_longer_counts() -> None:
    short, long = filled([9_000] * 10 + [5] * 300).read(0)[0].windows
    assert (short.lag.samples, short.lag.most_ms) == (300, 5)
    assert long.lag.most_ms == 9_000, "it is still in the hour"
    assert long.lag.samples == 26, "one each 12 seconds"


def test_where_there_is_nothing_to_compare_nothing_counts() -> None:
    fresh = Freshness(("a",))
    for second in range(3):
        fresh.add([Lag(NONE_MS, NONE_MS)], second)
    (a, whole) = fresh.read(0)
    assert a.windows[0].lag.samples == 0 and a.windows[0].lag.p99_ms == NONE_MS
    assert a.windows[0].lag.within == 1.0 and whole.now.lag_ms == NONE_MS


def test_many_segments_at_once_come_to_the_same_levels() -> None:
    random = Random(1)
    fresh = Freshness([f"s{number}" for number in range(20)])
    for second in range(150):
        fresh.add(
            [Lag(random.choice((NONE_MS, second)), random.randrange(50)) for _ in range(20)], second
        )
    read = fresh.read(0)
    for window, (seconds, rows) in enumerate(fresh.samples(range(len(read)))):
        told = percentiles(rows)
        for place, segment in enumerate(read):
            levels = segment.windows[window]
            assert levels.seconds == seconds
            for column, level in enumerate((levels.lag, levels.age)):
                expected = [level.p50_ms, level.p95_ms, level.p99_ms, level.most_ms]
                assert told[:, place, column].tolist() == expected
    assert (percentiles(rows[:0]) == NONE_MS).all()


def test_memory_does_not_grow() -> None:
    fresh = filled(list(range(2_000)))
    kept = sum(ring._rows.nbytes for ring in fresh._rings)
    assert kept == Freshness.memory_bytes(2)
    assert [ring._rows.shape[0] for ring in fresh._rings] == [s // e for s, e in WINDOWS]


def test_the_lag_over_the_hour_is_told_by_as_many_points_as_are_asked_for() -> None:
    fresh = filled([10, 500, 20], every_s=12)
    assert [segment.lags_ms for segment in fresh.read(0)] == [()] * 3
    a, b, whole = fresh.read(0, MAX_POINTS)
    assert a.lags_ms == (NONE_MS,) * (MAX_POINTS - 3) + (10, 500, 20), "the newest is the last"
    assert b.lags_ms[-3:] == (1, 1, 1) and whole.lags_ms == a.lags_ms
    random = Random(2)
    lags = [random.randrange(1_000) for _ in range(2 * MAX_POINTS + 7)]
    for points in (1, 7, 60, MAX_POINTS):
        told = filled(lags, every_s=12).read(0, points)[0].lags_ms
        held = lags[-MAX_POINTS:]
        edges = [part * MAX_POINTS // points for part in range(points + 1)]
        assert told == tuple(max(held[a:b]) for a, b in pairwise(edges))
