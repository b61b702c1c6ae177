"""Shards come and go under a load, for a short while; `make elastic` does it for long, and measures it."""

from __future__ import annotations

from pathlib import Path

from tests.elastic.rescaling import Run, ratios, rescaled
from tests.elastic.windows import Window, samples, windows
from tracker.core.model import PipelineSpec

MS = 1_000_000


def test_a_shard_comes_and_hands_its_cells_over_when_it_goes(tmp_path: Path) -> None:
    steps = ((2, False), (1, True))
    run = rescaled(tmp_path / "run", 0.5, steps=steps, standing_cells=500, interval_ms=100.0)
    assert run.trouble == ""
    assert [judged.said for judged in run.judged if not judged.ok] == []
    assert run.rescales == 2
    assert 0 < run.moved_cells < 500 + 100, "what lay at the shard that went, and no more"


def line(kind: str, at_ms: int, **fields: object) -> dict[str, object]:
    return {"kind": kind, "at_ns": at_ms * MS, **fields}


def test_each_slot_that_waits_counts() -> None:
    """Slots 1 to 4 are promised at 0 to 30 ms; nothing is heard before 100 ms."""
    spec = PipelineSpec("p", ("in",), fronts=("f",))
    ticks = [
        line(
            "tick", at, node="f#1", number=n, handed_ns=at * MS, consumed=[],
            created=[["in", n + 1, 1]], promises=[["f", n + 1]], leaves=[],
        )
        for n, at in enumerate((0, 10, 20, 30))
    ]  # fmt: skip
    said = [line("heard", 100, subscriber="s", segment="in", min_time=4)]
    found = samples(spec, {"f": "in"}, [*ticks, *said], 0, 10**10)
    waited = [(s.complete_ns // MS, s.latency_ms) for s in found]
    assert waited == [(0, 100), (10, 90), (20, 80), (30, 70)]
    (window,) = windows(found, 0)
    assert (window.samples, window.p99_ms) == (4, 100)


def test_a_second_is_compared_with_as_many_processes_as_it_had() -> None:
    controls = {1: 10.0, 2: 20.0}
    run = Run(1, timeline=[(0.0, 1), (1.5, 2), (3.2, 1)])
    run.windows = [Window(float(second), 5, 20, 100) for second in range(5)]
    assert ratios(run, controls) == [2, 1, 1, 1, 2]
