"""Real processes over a real store, killed, paused and cut off for a short while; `make faults` does it
for long."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.network import Relays
from tests.faults.failpoints import run_failpoints
from tests.faults.nodes import QUIET_PAUSE_S
from tests.faults.schedule import Faults
from tests.faults.stores import run_stores
from tests.faults.system import System
from tests.waits import PROGRAM_S

Start = Callable[..., System]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a system, which ends with the test."""
    systems: list[System] = []

    def start_one(**options: object) -> System:
        system = System(tmp_path / "system", Relays(), pause_s=QUIET_PAUSE_S, **options)  # type: ignore[arg-type]
        systems.append(system)
        system.start()
        system.goes_on()
        return system

    yield start_one
    for system in systems:
        system.close()


def test_a_minute_of_a_bad_day_breaks_no_promise(start: Start) -> None:
    system = start(shards=2)
    faults = Faults(system, seed=7)
    kinds = {"kill", "cut", "pause"}
    faults.run(10.0, 3.0, enough=lambda: faults.counts.keys() >= kinds, most_s=PROGRAM_S)
    system.finish()
    assert faults.counts.keys() >= kinds
    assert system.violations() == []


def test_an_owner_that_was_paused_cannot_write_and_waits_for_another_shard(start: Start) -> None:
    system = start(shards=2)
    paused, (standby,) = system.tracker.shards[0], system.tracker.standbys
    paused.pause()
    system.goes_on()  # the standby has taken its place: min time needs every shard
    assert system.owner_of(0) is standby
    paused.go_on()
    system.goes_on()
    standby.kill()  # whoever was paused takes its own place again
    system.goes_on()
    assert system.owner_of(0) is paused
    system.finish()
    assert system.violations() == []
    assert "newer owner" in paused.errors()


def test_redis_may_go_and_come_back_and_a_process_that_stops_hands_its_shard_over(
    start: Start,
) -> None:
    system = start(shards=2)
    redis, (standby,) = system.tracker.redis, system.tracker.standbys
    assert redis is not None
    redis.kill()
    before = system.acknowledged()
    redis.start()
    system.goes_on()
    assert system.acknowledged() > before
    assert system.tracker.shards[1].stop() == 0
    system.goes_on()
    assert system.owner_of(1) is standby
    system.finish()
    assert system.violations() == []


@pytest.mark.parametrize("store", ["redis", "sqlite"])
def test_a_kill_at_the_worst_moments_loses_nothing(tmp_path: Path, store: str) -> None:
    """`make faults` goes through all of them."""
    names = {"redis": ["sync-after"], "sqlite": ["forward-after"]}
    assert run_failpoints(tmp_path / "system", store, names[store], pause_s=QUIET_PAUSE_S) == []


def test_a_spoilt_store_is_refused_and_the_right_one_goes_on(tmp_path: Path) -> None:
    """`make faults` spoils it in all ways."""
    kinds = ["flipped", "replaced in use"]
    assert run_stores(tmp_path / "system", kinds, pause_s=QUIET_PAUSE_S) == []
