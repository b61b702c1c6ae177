"""The dead-letter node commits each file of letters once, also when it was killed in between."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import tracker
from examples.flights.data import YEAR_BEGIN_NS
from examples.flights.dead_letters import SEGMENT, DeadLetterNode, letter_cells
from examples.flights.letters import Letter, write_letters
from examples.flights.pipeline import NAME, SPEC, Places
from examples.history import Recorder, read
from tests.waits import HANG_S
from tracker import EmbeddedTracker
from tracker.client import NodeClient
from tracker.core.model import TickContent
from tracker.core.model.slots import FOREVER

SLOT = YEAR_BEGIN_NS // SPEC.slack_ns
LETTERS = [Letter(838, SLOT, "line", "why"), Letter(839, SLOT + 1, "line", "why")]


@pytest.fixture
def places(tmp_path: Path) -> Places:
    made = Places(tmp_path)
    made.make()
    return made


@pytest.fixture
def embedded() -> Iterator[EmbeddedTracker]:
    with tracker.embedded() as running:
        running.register(SPEC)
        airports = running.node(NAME, "airports", "front")
        airports.join(HANG_S)
        for airport in SPEC.fronts:
            airports.join_front(airport, "parse", HANG_S)
        parse = running.node(NAME, "parse", "query")
        parse.join(HANG_S)
        content = TickContent(created=letter_cells(parse.segment(SEGMENT), LETTERS))
        parse.commit(content).result(HANG_S)
        for airport in SPEC.fronts:
            airports.leave_front(airport).result(HANG_S)
        yield running


def assert_done(embedded: EmbeddedTracker) -> None:
    """Every letter has been consumed."""
    assert embedded.subscriber(NAME).wait_until(FOREVER, SEGMENT, HANG_S)


def assert_held(embedded: EmbeddedTracker) -> None:
    """The first letter is in flight."""
    subscriber = embedded.subscriber(NAME)
    assert subscriber.wait_until(FOREVER, "parse", HANG_S)
    assert subscriber.min_time(SEGMENT) <= SLOT


def started(embedded: EmbeddedTracker, places: Places) -> tuple[NodeClient, int, Recorder]:
    """A node that has joined, and the last batch that the tracker has of it."""
    node = embedded.node(NAME, SEGMENT)
    last = max((batch.id for batch in node.join(HANG_S).last_batches), default=-1)
    return node, last, Recorder(places.histories / "dead-letters.jsonl")


def test_letters_are_written_down_and_committed_once(
    embedded: EmbeddedTracker, places: Places
) -> None:
    write_letters(places.malformed, "0-0.jsonl", LETTERS)
    node, _, recorder = started(embedded, places)
    dead_letters = DeadLetterNode(node, places, recorder)
    assert_held(embedded)
    dead_letters.take_new()
    dead_letters.take_new()
    assert_done(embedded)
    assert [json.loads(line) for line in places.dead_letters.read_text().splitlines()] == [
        {"file": "0-0.jsonl", "rows": [838, 839]}
    ]
    kinds = [line["kind"] for line in read(places.histories / "dead-letters.jsonl")]
    assert sorted(kinds) == ["consumed", "consumed", "created", "created"]


def test_what_was_written_down_and_not_committed_is_committed_at_the_next_start(
    embedded: EmbeddedTracker, places: Places
) -> None:
    write_letters(places.malformed, "0-0.jsonl", LETTERS[:1])
    write_letters(places.malformed, "1-0.jsonl", LETTERS[1:])
    places.dead_letters.write_text(
        '{"file":"0-0.jsonl","rows":[838]}\n{"file":"1-0.jsonl","rows":[839]}\n'
    )
    for _ in range(2):  # the second start finds nothing left to commit
        node, last, recorder = started(embedded, places)
        dead_letters = DeadLetterNode(node, places, recorder)
        dead_letters.commit_rest(last)
        dead_letters.take_new()
        assert_done(embedded)
    assert len(places.dead_letters.read_text().splitlines()) == 2
