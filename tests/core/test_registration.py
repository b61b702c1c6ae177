"""Registering a pipeline: repeatable, everywhere before it is answered, and strict."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.core.driver import MS, Cluster, plain
from tracker.core.home.registration import MAX_DELAY_SLOTS
from tracker.core.log import RegisterPipeline
from tracker.core.model import (
    Edge,
    FrontPolicy,
    PipelineSpec,
    Refusal,
    RefusalCode,
    Refused,
    SilentFront,
    TimeKind,
)
from tracker.core.model.slots import FOREVER, HIGHEST_SLOT, LOWEST_SLOT
from tracker.core.process import ProcessConfig

SPEC = PipelineSpec(
    "flights", ("parse", "enrich"), (Edge("parse", "enrich", 2),), fronts=("EWR", "JFK")
)


def test_a_registered_pipeline_is_known_to_every_process() -> None:
    cluster = Cluster(3)
    assert cluster.register(SPEC) == SPEC
    assert [p.pipelines() for p in cluster.processes.values()] == [[SPEC]] * 3


def test_repeating_a_registration_changes_nothing() -> None:
    cluster = Cluster(2)
    cluster.register(SPEC)
    cluster.settle()
    before = [plain(p.snapshot()) for p in cluster.processes.values()]
    assert cluster.register(SPEC) == SPEC
    assert [plain(p.snapshot()) for p in cluster.processes.values()] == before


def test_the_answer_waits_until_every_shard_has_it_durably() -> None:
    cluster = Cluster(2)
    home = cluster.routing.registrar(SPEC.name)
    other = 1 - home
    cluster.handle(home, RegisterPipeline("r", SPEC))
    cluster.commit(home)
    cluster.deliver(home, other)
    cluster.deliver(other, home)
    assert not cluster.answers("r"), "the other shard has heard of it and may still forget it"
    cluster.settle()
    assert cluster.answers("r") == [SPEC]


def test_a_restarted_registrar_still_waits_for_the_others() -> None:
    cluster = Cluster(2)
    home = cluster.routing.registrar(SPEC.name)
    cluster.held.add((home, 1 - home))
    cluster.handle(home, RegisterPipeline("first", SPEC))
    cluster.commit(home)
    cluster.restart(home)
    cluster.handle(home, RegisterPipeline("again", SPEC))
    cluster.settle()
    assert not cluster.answers("again")
    cluster.reconnect()
    assert cluster.answers("again") == [SPEC]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (
            {"segments": ("parse", "aggregate"), "edges": ()},
            "[parse, enrich], asked [parse, aggregate]",
        ),
        ({"edges": (Edge("parse", "enrich", 3),)}, "asked [parse -> enrich + 3]"),
        ({"slack_ns": 20 * MS}, "slack_ns: registered 10000000, asked 20000000"),
        ({"open": True}, "open: registered False, asked True"),
        ({"fronts": ("EWR",)}, "fronts"),
        ({"silent_front": SilentFront.EVICT, "evict_after_ms": 5}, "'evict'"),
        (
            {"front_policies": (FrontPolicy("JFK", SilentFront.EVICT, 5),)},
            "registered [], asked [JFK: evict after 5 ms]",
        ),
        ({"time": TimeKind.NUMBER}, "time: registered 'arrival', asked 'number'"),
    ],
)
def test_a_conflicting_pipeline_is_refused_with_the_difference(
    change: dict[str, Any], named: str
) -> None:
    cluster = Cluster(2)
    cluster.register(SPEC)
    cluster.settle()
    before = [plain(p.snapshot()) for p in cluster.processes.values()]
    refusal = cluster.register(replace(SPEC, **change))
    assert refusal.code is RefusalCode.CONFLICT
    assert "flights" in refusal.message
    assert named in refusal.message
    assert [plain(p.snapshot()) for p in cluster.processes.values()] == before


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"name": ""}, "name ''"),
        ({"segments": ()}, "0 segments"),
        ({"segments": ("a", "a"), "edges": ()}, "'a' is named twice"),
        ({"edges": (Edge("parse", "nowhere"),)}, "'nowhere'"),
        ({"edges": (Edge("parse", "enrich", -1),)}, "delay of -1"),
        ({"edges": (Edge("parse", "enrich", MAX_DELAY_SLOTS + 1),)}, f"and {MAX_DELAY_SLOTS}"),
        ({"start_slot": FOREVER}, f"start_slot {FOREVER}"),
        ({"slack_ns": 0}, "slack_ns is 0"),
        ({"horizon_slots": 0}, "horizon_slots is 0"),
        ({"max_nodes": -3}, "max_nodes is -3"),
        ({"front_count": 2}, "front_count 2"),
        ({"fronts": (), "front_count": -1}, "-1"),
        ({"fronts": ()}, "complete at once"),
        ({"fronts": (), "front_count": FOREVER}, f"front_count is {FOREVER}"),
        ({"silent_front": SilentFront.EVICT}, "evict_after_ms"),
        ({"evict_after_ms": -1}, "evict_after_ms is -1"),
        (
            {"front_policies": (FrontPolicy("X", SilentFront.HOLD),)},
            "front_policies names front 'X'",
        ),
        ({"front_policies": (FrontPolicy("JFK", SilentFront.EVICT),)}, "evict_after_ms 0"),
        ({"front_policies": (FrontPolicy("JFK", SilentFront.HOLD, 5),)}, "silent_front hold"),
        ({"front_policies": (FrontPolicy("JFK", SilentFront.HOLD),) * 2}, "'JFK' is named twice"),
        ({"lateness_slots": 5}, "time is arrival"),
        ({"lateness_slots": -1, "time": TimeKind.EVENT}, "lateness_slots is -1"),
        ({"evict_after_ms": FOREVER}, f"evict_after_ms is {FOREVER}"),
    ],
)
def test_what_cannot_be_a_pipeline_is_refused(change: dict[str, Any], named: str) -> None:
    cluster = Cluster(1)
    refusal = cluster.register(replace(SPEC, **change))
    assert isinstance(refusal, Refusal)
    assert refusal.code is RefusalCode.INVALID
    assert named in refusal.message
    assert cluster.processes[0].pipelines() == []


@pytest.mark.parametrize("start_slot", [LOWEST_SLOT, -1, HIGHEST_SLOT])
def test_a_pipeline_may_begin_at_any_slot(start_slot: int) -> None:
    cluster = Cluster(2)
    spec = replace(SPEC, start_slot=start_slot)
    cluster.register(spec)
    assert cluster.agreed(spec) == (start_slot, start_slot)


def test_another_process_names_the_registrar() -> None:
    cluster = Cluster(3)
    home = cluster.routing.registrar(SPEC.name)
    refusal = cluster.ask((home + 1) % 3, RegisterPipeline, SPEC)
    assert refusal.code is RefusalCode.NOT_HOME
    assert refusal.home == home


def test_a_full_table_of_pipelines_refuses_and_names_the_limit() -> None:
    cluster = Cluster(1, config=ProcessConfig(max_pipelines=2))
    for name in ("a", "b"):
        cluster.register(replace(SPEC, name=name))
    refusal = cluster.register(replace(SPEC, name="c"))
    assert refusal.code is RefusalCode.FULL
    assert "max_pipelines is 2" in refusal.message
    assert [spec.name for spec in cluster.processes[0].pipelines()] == ["a", "b"]


def test_an_unknown_pipeline_is_named() -> None:
    cluster = Cluster(1)
    with pytest.raises(Refused) as caught:
        cluster.processes[0].min_times("nowhere")
    assert caught.value.refusal.code is RefusalCode.UNKNOWN_PIPELINE
    assert "'nowhere'" in caught.value.refusal.message
