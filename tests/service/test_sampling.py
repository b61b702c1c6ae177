"""How far pipelines are behind, sampled by a process: what is compared, and within which budget."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

import tracker
from tests.client.support import TWO_SEGMENTS, done, joined_front, promise
from tests.client.test_command_line import run, run_json
from tests.core.driver import Cluster
from tests.waits import until
from tracker.cli.render.freshness import freshness_json
from tracker.client.embedded import EmbeddedTracker
from tracker.core.insight.freshness import NONE_MS, Lag, Level, SegmentFreshness, WindowLevels
from tracker.core.model import Cells, PipelineSpec, RefusalCode, Refused, TickContent, TimeKind
from tracker.service import sampling
from tracker.service.sampling import Sampler, lags

SLACK_MS = 10


def sampled(count: int = 1) -> tuple[Cluster, Sampler]:
    cluster = Cluster(1)
    for number in range(count):
        cluster.register(PipelineSpec(f"p{number:03}", ("a", "b"), front_count=1))
    return cluster, Sampler(cluster.processes[0], now_unix_ns=lambda: 10**9)


def test_slots_that_are_numbers_have_no_age_and_are_shown_as_numbers() -> None:
    cluster = Cluster(1)
    spec = PipelineSpec("p", ("a",), fronts=("x", "y"), time=TimeKind.NUMBER)
    cluster.register(spec)
    for front, slot in (("x", 50), ("y", 80)):
        node = cluster.node(spec, front)
        node.join_front(front)
        node.commit(heartbeats={front: slot})
    cluster.settle()
    (lag,) = lags(cluster.processes[0], "p", 10**18)
    assert lag == Lag(30 * SLACK_MS, NONE_MS)
    level = Level(3, lag.lag_ms, lag.lag_ms, lag.lag_ms, lag.lag_ms, 1.0)
    nothing = Level(0, NONE_MS, NONE_MS, NONE_MS, NONE_MS, 1.0)
    shown = freshness_json(SegmentFreshness("a", lag, (WindowLevels(60, level, nothing),)), spec)
    (window,) = shown.pop("windows")
    assert shown == {"segment": "a", "lag_slots": 30, "lag_ms": None, "age_ms": None}
    assert window["lag"]["p99_slots"] == 30 and "age" not in window


def test_lag_is_behind_the_newest_promise_and_age_behind_the_clock() -> None:
    cluster = Cluster(1)
    spec = PipelineSpec("p", ("a",), fronts=("x", "y"))
    cluster.register(spec)
    process = cluster.processes[0]
    assert lags(process, "p", 5_000_000) == [Lag(NONE_MS, 5)], "nobody has promised anything"
    for front, slot in (("x", 50), ("y", 80)):
        node = cluster.node(spec, front)
        node.join_front(front)
        node.commit(heartbeats={front: slot})
    assert cluster.agreed(spec) == (50,)
    assert lags(process, "p", 10**9) == [Lag(30 * SLACK_MS, 1_000 - 50 * SLACK_MS)]
    assert lags(process, "p", 0) == [Lag(30 * SLACK_MS, 0)], "a clock behind shows no negative age"


def test_pipelines_beyond_the_budget_are_refused_and_not_sampled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sampling, "MAX_SAMPLED_SEGMENTS", 6)
    _, sampler = sampled(3)
    sampler.sample(0.0)
    assert len(sampler.read("p000", 0)) == len(sampler.read("p001", 0)) == 3
    with pytest.raises(Refused, match="limit of 6") as refused:
        sampler.read("p002", 0)
    assert refused.value.refusal.code is RefusalCode.FULL
    with pytest.raises(Refused, match="not registered"):
        sampler.read("none", 0)
    assert {spec.name for spec, _ in sampler.sampled()} == {"p000", "p001"}


def test_many_pipelines_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "MAX_SAMPLES_PER_ROUND", 2)
    _, sampler = sampled(5)
    for second in range(5):
        sampler.sample(float(second))
    samples = [sampler.read(f"p{n:03}", 0)[0].windows[0].age.samples for n in range(5)]
    assert samples == [2] * 5


def test_levels_are_shown_and_told_to_scripts() -> None:
    with tracker.embedded() as running:
        running.register(TWO_SEGMENTS)
        node = joined_front(running.node("two", "front", "front"))
        done(node.commit(promise(20)))
        whole = until_sampled(running)
        assert whole["lag_ms"] == 0 and whole["windows"][0]["lag"]["p99_ms"] >= 0
        shown = run(running, "status", "--freshness", "-p", "two", "--within", "1s").stdout
        assert "the whole pipeline" in shown and "within 1s" in shown


def test_where_slots_are_numbers_they_are_shown_as_such() -> None:
    with tracker.embedded() as running:
        running.register(replace(TWO_SEGMENTS, time=TimeKind.NUMBER))
        node = joined_front(running.node("two", "front", "front"))
        done(node.commit(TickContent(created=Cells.of([(0, 20, 7, 1)]))))
        done(node.commit(promise(60)))
        until(lambda: told(running)[-1]["lag_slots"] == 40, "it is sampled")
        shown = run(running, "status", "--freshness", "-p", "two", "--within", "50").stdout
        assert "40 slots" in shown and "within 50 slots" in shown and "100.0 %" in shown
        assert not re.search(r"[0-9] s\b", shown.replace("min", ""))


def told(running: EmbeddedTracker) -> list[dict[str, Any]]:
    return list(run_json(running, "status", "--freshness", "-p", "two")["segments"])


def until_sampled(running: EmbeddedTracker) -> dict[str, Any]:
    """Waits for the first sample with a promise, which comes within a second or two."""

    def sampled() -> dict[str, Any]:
        told = run_json(running, "status", "--freshness", "-p", "two", "--within", "1s")["segments"]
        assert [segment["segment"] for segment in told] == ["first", "second", None]
        return dict(told[-1]) if told[-1]["lag_ms"] is not None else {}

    return until(sampled)
