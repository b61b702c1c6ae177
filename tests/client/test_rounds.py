"""A pipeline with rounds as clients see it: its file, its fronts, waits for a round, and what commands print."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import tracker
from fronts.front import Front, FrontOptions
from tests.client.support import done
from tests.waits import HANG_S
from tracker.cli.app import app
from tracker.cli.common import EXIT_TIMED_OUT
from tracker.client import AsyncSubscriber, NodeClient, RefusedError, Subscriber
from tracker.client.embedded import EmbeddedTracker
from tracker.client.moments import parse_slot
from tracker.client.pipeline_file import load_pipeline
from tracker.consumers.periods.cut import Cut
from tracker.core.model import Cells, Edge, Heartbeat, PipelineSpec, TickContent
from tracker.core.model.rounds import Rounds, RoundsExceededError
from tracker.errors import InvalidError
from tracker.view.pipelines import time_text

FILE = """
name: graph
segments: [label, labelled]
edges:
  - label -> label + 1 round
  - label -> labelled + 2
fronts: [graphs]
start: 2026-01-01
slack: 16ms
rounds: 64
time: event
lateness: 1s
"""
SPEC = load_pipeline(FILE)
TIMES = Rounds(64)
FIRST = SPEC.start_slot // 64
NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)
LABEL = 0


# --- the file -------------------------------------------------------------------------------------


def test_a_file_counts_delays_in_times_and_what_goes_round_in_rounds() -> None:
    assert SPEC.edges == (Edge("label", "label", 1), Edge("label", "labelled", 128))
    assert (SPEC.rounds, SPEC.slack_ns) == (64, 250_000)
    assert SPEC.start_slot == 64 * (int(NEW_YEAR.timestamp()) * 1000 // 16)
    assert SPEC.lateness_slots == 4_000
    assert SPEC.horizon_slots == 64 * PipelineSpec("p", ()).horizon_slots


@pytest.mark.parametrize(
    "edge", ["label -> label + 1 round", "{from: label, to: label, rounds: 1}"]
)
def test_an_edge_raises_the_round_in_either_way_of_writing_it(edge: str) -> None:
    text = f"name: p\nsegments: [label]\nopen: true\nrounds: 2\nedges:\n  - {edge}\n"
    assert load_pipeline(text).edges == (Edge("label", "label", 1),)


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ("rounds: 64", "rounds: 65537", "rounds: .*less than or equal to 65536"),
        ("rounds: 64", "rounds: 0", "rounds: .*greater than or equal to 1"),
        ("rounds: 64", "rounds: 2.5", "rounds: .*integer"),
        ("rounds: 64", "", "raises the round by 1, and a time has 1.*say `rounds: 64`"),
        ("rounds: 64", "rounds: 1000000", "rounds"),
        ("slack: 16ms", "slack: 10ns", "10ns cannot be cut into 64 rounds.*such as 64ns"),
        ("+ 1 round", "+ 64 rounds", "raises the round by 64, and a time has 64"),
        ("label -> label + 1 round", "{from: label, to: label, delay: 1, rounds: 1}", "cannot do both"),
        ("start: 2026-01-01", "start: slot:5", "start_slot 5 lies within a time"),
    ],
)  # fmt: skip
def test_rounds_that_cannot_be_are_refused(before: str, after: str, says: str) -> None:
    with pytest.raises(InvalidError, match=f"(?s){says}"):
        load_pipeline(FILE.replace(before, after))


def test_moments_are_whole_times() -> None:
    assert parse_slot("time:-3", 250_000, 64) == -192
    assert parse_slot("slot:5", 250_000, 64) == 5
    moment = "1970-01-01T00:00:00.017"
    assert parse_slot(moment, 250_000, 64) == 64
    assert parse_slot(moment, 250_000, 64, up=True) == 128


def test_periods_are_of_whole_times() -> None:
    assert Cut.of(SPEC, 32_000_000).slots == 128
    with pytest.raises(ValueError, match="not whole slots of 16000000 ns"):
        Cut.of(SPEC, 8_000_000)


def test_times_for_people() -> None:
    number = load_pipeline(FILE.replace("event", "number").replace("lateness: 1s", ""))
    assert time_text(SPEC.start_slot, SPEC) == "2026-01-01 00:00:00.000"
    assert time_text(SPEC.start_slot + 3, SPEC) == "2026-01-01 00:00:00.000, round 3"
    assert (
        time_text(64 * 7, number) == "time 7" and time_text(64 * 7 + 3, number) == "time 7, round 3"
    )


# --- against a tracker ----------------------------------------------------------------------------


@pytest.fixture
def running() -> Iterator[EmbeddedTracker]:
    with tracker.embedded() as embedded:
        yield embedded


@pytest.fixture
def node(running: EmbeddedTracker) -> Iterator[NodeClient]:
    """An item in round 3 of the first time; the front has promised the fourth."""
    assert running.register(SPEC) == SPEC
    with (
        NodeClient(running.target, "graph", "n") as front,
        NodeClient(running.target, "graph", "w") as worker,
    ):
        front.join(HANG_S)
        front.join_front("graphs", "label", HANG_S)
        worker.join(HANG_S)
        done(front.commit(cells(created=[(TIMES.slot(FIRST), 7)])))
        done(front.commit(TickContent(heartbeats=(Heartbeat("graphs", TIMES.slot(FIRST + 3)),))))
        done(worker.commit(cells([(TIMES.slot(FIRST, 3), 8)], [(TIMES.slot(FIRST), 7)])))
        yield worker


def cells(
    created: Iterable[tuple[int, int]] = (), consumed: Iterable[tuple[int, int]] = ()
) -> TickContent:
    """Items of the loop, by (slot, value)."""
    return TickContent(
        created=Cells.of((LABEL, *item, 1) for item in created),
        consumed=Cells.of((LABEL, *item, 1) for item in consumed),
    )


def test_each_round_can_be_waited_for(running: EmbeddedTracker, node: NodeClient) -> None:
    with Subscriber(running.target, "graph") as subscriber:
        assert subscriber.rounds() == TIMES
        assert subscriber.wait_round(FIRST, 2, "label", HANG_S)
        assert not subscriber.wait_round(FIRST, 3, "label", 0.0)
        with pytest.raises(RoundsExceededError, match="its rounds are 0 to 63"):
            subscriber.wait_round(FIRST, 64)
        # The loop ends early: all rounds are over as soon as nothing goes round.
        done(node.commit(cells(consumed=[(TIMES.slot(FIRST, 3), 8)])))
        assert subscriber.wait_round(FIRST, None, "label", HANG_S)
        assert subscriber.min_time("label") == TIMES.slot(FIRST + 3)

    async def at_once() -> bool:
        async with AsyncSubscriber(running.target, "graph") as subscriber:
            return await subscriber.wait_round(FIRST, 63, "label", HANG_S)

    assert asyncio.run(at_once())


def test_a_moment_within_a_time_waits_for_all_its_rounds(
    running: EmbeddedTracker, node: NodeClient
) -> None:
    """What came in at that moment may go round still."""
    within = NEW_YEAR + timedelta(milliseconds=1)
    with Subscriber(running.target, "graph") as subscriber:
        assert subscriber.slot_until(within) == TIMES.slot(FIRST + 1)
        assert subscriber.wait_round(FIRST, 2, "label", HANG_S)
        assert not subscriber.wait_until(within, "label", 0.0)
        assert subscriber.wait_until(NEW_YEAR, "label", HANG_S)


def test_going_round_once_too_often_is_refused(running: EmbeddedTracker, node: NodeClient) -> None:
    last = TIMES.slot(FIRST, 63)
    done(node.commit(cells([(last, 9)], [(TIMES.slot(FIRST, 3), 8)])))
    with pytest.raises(RefusedError, match="last round is 63"):
        done(node.commit(cells([(last + 1, 10)], [(last, 9)])))
    done(node.commit(cells(consumed=[(last, 9)])))


def test_commands_say_the_round_and_wait_for_it(
    running: EmbeddedTracker, node: NodeClient, tmp_path: Path
) -> None:
    def run(*words: str) -> Result:
        return CliRunner().invoke(
            app, [words[0], "-p", "graph", "--target", running.target, *words[1:]]
        )

    with Subscriber(running.target, "graph") as subscriber:
        assert subscriber.wait_round(FIRST, 2, timeout_s=HANG_S)
    words = ["wait", "--segment", "label", "--until", "2026-01-01", "--round", "2"]
    told = run(*words)
    assert told.stdout == "2026-01-01T00:00:00+00:00 round 3\n"
    shown = json.loads(run(*words, "--json").stdout)
    assert (shown["min_time"], shown["whole_time"], shown["round"]) == (
        TIMES.slot(FIRST, 3),
        FIRST,
        3,
    )
    words = [*words[:-1], "3", "--timeout", "50ms"]
    assert run(*words).exit_code == EXIT_TIMED_OUT
    assert "its rounds are 0 to 63" in run(*words, "--round", "64").stderr
    assert run("wait", "--until", f"time:{FIRST}", "--timeout", f"{HANG_S}s").exit_code == 0


def test_a_front_labels_and_promises_whole_times(running: EmbeddedTracker) -> None:
    running.register(SPEC)
    moment_ns = int(NEW_YEAR.timestamp()) * 10**9 + 21_000_000
    with Front(
        running.target, "graph", "graphs", "label", options=FrontOptions(clock=lambda: moment_ns)
    ) as front:
        assert front.label().slot == TIMES.slot(FIRST + 1)
        assert set(front.label_at([moment_ns, moment_ns + 16_000_000]).slots.tolist()) == {
            TIMES.slot(FIRST + 1), TIMES.slot(FIRST + 2)
        }  # fmt: skip
        front.publish(lambda batch: None)
        assert front.wait_durable(HANG_S)
