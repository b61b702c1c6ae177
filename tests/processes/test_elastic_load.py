"""Shards of a tracker come and go under load, and whoever is killed meanwhile: no promise is broken, every
change ends in one table, and who has left is gone.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.client.support import expires_because
from tests.cluster.children import Running
from tests.cluster.tracker import numbers
from tests.processes.elastic import Elastic
from tests.waits import HANG_S
from tracker.client import RefusedError
from tracker.core.insight.describe import ShardRole
from tracker.core.model import RefusalCode

UNDONE = 20
"""Open slots at a shard: more than are open for a moment while all goes on."""
OWNER, SPARE, JOINING = ShardRole.OWNER, ShardRole.SPARE, ShardRole.JOINING


@pytest.fixture
def system(tmp_path: Path) -> Iterator[Elastic]:
    system = Elastic(tmp_path)
    try:
        system.start()
        yield system
    finally:
        system.close()


def test_one_shard_becomes_three_and_one_again_under_load(system: Elastic) -> None:
    system.goes_on()
    system.joins(2)
    assert numbers(system.tracker.rescale(2), OWNER) == [0, 1]
    system.goes_on()
    assert numbers(system.tracker.rescale(3), OWNER) == [0, 1, 2]
    system.goes_on()
    # Who was given the address of a shard that leaves goes on at another one.
    tracker = system.tracker
    last = tracker.newcomers[1].address
    listener = system.subscriber(last)
    listener.start()
    listener.until_line(0)
    # While work is left undone, those that go wait for it; then they hand it over.
    system.worker.pause()
    system.tracker.until(lambda now: all(s.state.open_slots > UNDONE for s in now.of(OWNER)))
    expires_because(
        lambda: system.tracker.rescale(1, timeout_s=3),  # expires: work is left undone
        r"drains: .* slots are open there",
    )
    assert numbers(system.tracker.rescale(1, evacuate=True), OWNER) == [0]
    for newcomer in tracker.newcomers:
        newcomer.ends_well()
        assert "has left the tracker" in newcomer.errors_of_run()
    system.worker.go_on()
    system.goes_on()
    system.finish()
    assert system.violations() == []


def died(process: Running) -> None:
    status = process.end()
    assert status == -signal.SIGKILL, f"it ended with {status}: {process.errors()}"


def test_a_newcomer_its_peer_and_the_sequencer_die_while_it_joins(system: Elastic) -> None:
    system.goes_on()
    # The sequencer dies before it has logged the number, then when it has, in the middle of its state.
    for place in ("step-append", "bootstrap-piece"):
        system.tracker.shards[0].discard()
        system.first(place)
        newcomer = system.newcomer(0)
        died(system.tracker.shards[0])
        newcomer.kill()
    system.first()
    # The newcomer dies wherever it may.
    for place in ("join-numbered", "join-fetched", "join-stored"):
        died(system.newcomer(0, place))
    system.newcomer(0)
    (joined,) = numbers(system.tracker.until(lambda routing: routing.of(SPARE)), SPARE)
    assert numbers(system.tracker.rescale(2), OWNER) == [0, joined]
    # One that does not begin is given up, told so, and is another one when it asks again.
    died(system.newcomer(1, "join-stored"))
    (given_up,) = numbers(system.tracker.until(lambda _: True), JOINING)
    system.tracker.shards[0].kill()
    system.first("", "--set", "join_timeout_ms=1000")
    system.tracker.until(lambda routing: not routing.of(JOINING))
    assert system.newcomer(1).end() == 1
    assert f"shard {given_up} has been given up" in system.tracker.newcomers[1].errors_of_run()
    system.tracker.shards[0].kill()
    system.first()
    system.newcomer(1)
    (later,) = numbers(system.tracker.until(lambda routing: routing.of(SPARE)), SPARE)
    assert later > given_up
    system.goes_on()
    system.finish()
    assert system.violations() == []


def test_every_step_of_a_rescale_survives_the_death_of_whoever_takes_it(system: Elastic) -> None:
    system.goes_on()
    system.joins(2)
    with ThreadPoolExecutor(2) as asking:
        # Two at once: one after the other is in force. A newcomer dies at its first step of one of them.
        system.tracker.newcomers[0].kill()
        doomed = system.newcomer(0, "step-append")
        both = [
            asking.submit(system.tracker.rescale, shards, evacuate=True, timeout_s=HANG_S)
            for shards in (2, 3)
        ]
        died(doomed)
        system.newcomer(0)
        for asked in both:
            try:
                asked.result()
            except RefusedError as refused:
                # It asked again when three had been there, and one had gone because of the other.
                assert refused.refusal.code is RefusalCode.FULL
        owners = system.tracker.until(lambda routing: not routing.table.changing).of(OWNER)
        assert len(owners) in (2, 3)
        # Each process dies whenever it has taken one step, until all steps are taken.
        system.tracker.shards[0].kill()
        system.first("step-append:2")
        asked = asking.submit(system.tracker.rescale, 1, evacuate=True, timeout_s=HANG_S)
        lives = 0
        while not asked.done():
            if system.tracker.shards[0].has_ended():
                died(system.tracker.shards[0])
                system.first("step-append:2")
                lives += 1
            time.sleep(0.05)  # paces: looks again until it is answered
        assert numbers(asked.result(), OWNER) == [0]
        assert lives >= 3
    addresses = [shard.address for shard in owners[1:]]
    for newcomer in system.tracker.newcomers:
        if newcomer.address in addresses:
            newcomer.ends_well()
    system.goes_on()
    system.finish()
    assert system.violations() == []
