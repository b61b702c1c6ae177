"""The range front whose journal is in an object store: one record a batch, and readers find the slots there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.files.s3 import s3_bucket
from tests.fronts.in_store import Killed, counted, killed_at, requests_of
from tests.fronts.runs import RangeRuns, making
from tests.waits import HANG_S
from tracker.core.model.ack_values import range_value
from tracker.errors import FencedError, TrackingError, UnavailableError
from tracker.files import STORES


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    with s3_bucket() as bucket:
        yield bucket


@pytest.fixture
def make(bucket: str, request: pytest.FixtureRequest) -> Iterator[Callable[[], RangeRuns]]:
    with making(RangeRuns, f"{bucket}/{request.node.name}.ranges") as make:
        yield make


def test_readers_find_the_slots_at_a_known_price(make: Callable[[], RangeRuns]) -> None:
    log = make()
    reader = log.reader()
    with pytest.raises(UnavailableError):
        reader.slots("a", 0, 1)
    front = log.start()
    before = counted(log.where)
    for slot, end in ((5, 3), (6, 4), (9, 10)):
        log.now_ns = slot * 10
        front.publish({"a": end})
    assert counted(log.where) - before == 3, "a request a batch"
    before = counted(log.where)
    assert reader.slots("a", 0, 10) == [(0, 3, 5), (3, 4, 6), (4, 10, 9)]
    assert counted(log.where) - before == 1 + 2 * 4, "a listing, two for each record"
    before = counted(log.where)
    with pytest.raises(UnavailableError, match=r"offsets up to 11 .* those up to 10"):
        reader.slots("a", 5, 11)
    assert counted(log.where) - before == 1
    assert front.wait_durable(HANG_S)
    assert log.tracker.created[0] == (5, range_value("a", 0, 3), 3)


@pytest.mark.parametrize("arrives", [False, True])
def test_killed_at_its_one_request(make: Callable[[], RangeRuns], arrives: bool) -> None:
    log = make()
    front = log.start()
    front.publish({"a": 3})
    assert front.wait_durable(HANG_S)
    log.now_ns = 50
    with killed_at(log.where, 0, arrives=arrives), pytest.raises(Killed):
        front.publish({"a": 9})
    log.kill()
    log.now_ns = 90
    front = log.start()
    assert front.ends == {"a": 9 if arrives else 3}
    front.publish({"a": 10})
    assert front.wait_durable(HANG_S)
    first = [(5, range_value("a", 3, 9), 6), (9, range_value("a", 9, 10), 1)]
    assert log.tracker.created[1:] == (first if arrives else [(9, range_value("a", 3, 10), 7)])
    assert [slot for *_, slot in log.reader().slots("a", 3, 10)] == ([5, 9] if arrives else [9])


def test_two_runs_do_not_label_the_same_offsets(make: Callable[[], RangeRuns]) -> None:
    log = make()
    first = log.start()
    first.publish({"a": 3})
    with pytest.raises(FencedError):
        log.start(timeout_s=0.0)
    assert log.tracker.node is not None and first.wait_durable(HANG_S)
    log.tracker.node.owner = ""  # it was cut off, which it does not know
    second = log.start()
    with pytest.raises(TrackingError, match="taken over by another process"):
        first.publish({"a": 5})
    second.publish({"a": 7})
    assert second.wait_durable(HANG_S)
    assert log.tracker.created[1:] == [(0, range_value("a", 3, 7), 4)]


def test_a_reader_forgets_what_the_journal_has_let_go_of_and_it_has_read(
    make: Callable[[], RangeRuns], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic that is written for weeks has millions of batches. What a late reader has not come to yet stays."""
    monkeypatch.setattr("fronts.journals.PRUNE_ABOVE_RECORDS", 4)
    log = make()
    front, reader, late = log.start(), log.reader(), log.reader()
    front.publish({"quiet": 1})
    assert reader.slots("quiet", 0, 1) == late.slots("quiet", 0, 1) == [(0, 1, 0)]
    for number in range(1, 21):
        log.now_ns, log.min_time = number * 10, number
        front.publish({"a": number})
        assert reader.slots("a", number - 1, number) == [(number - 1, number, number)]
        assert next(iter(late.slots("a", 0, number))) == (0, 1, 1)
    kept, all_of_them = (
        each._journals[0].published["a"].ends  # noqa: SLF001 - what no reader asks for any more
        for each in (reader, late)
    )
    assert len(kept) <= 10 and len(all_of_them) == 20
    assert reader.slots("a", 19, 20) == [(19, 20, 20)]


def test_pruning_whose_answer_is_lost_loses_nothing(
    make: Callable[[], RangeRuns], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fronts.journals.PRUNE_ABOVE_RECORDS", 4)
    log = make()
    front = log.start()
    front.publish({"quiet": 1})
    monkeypatch.setattr(STORES.files(log.where), "_pauses_s", ())
    for number in range(4):
        log.now_ns, log.min_time = number * 10, number
        sent = 0

        def lost_but_the_batch(send: Callable[[], Any]) -> Any:
            nonlocal sent
            sent += 1
            answer = send()
            if sent > 1:
                raise ConnectionError("no answer")
            return answer

        with requests_of(log.where, lost_but_the_batch):
            front.publish({"a": number + 1})
    front.publish({"a": 9})
    assert front.wait_durable(HANG_S)
    log.kill()
    assert log.start().ends == {"quiet": 1, "a": 9}


def test_where_it_had_left_is_known_until_the_tracker_knows_more(
    make: Callable[[], RangeRuns], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tracker forgets a front that leaves, so the record that says where is the only word of it. A run that begins
    behind it lets go of old records with its first batch, and may die before the tracker has that."""
    monkeypatch.setattr("fronts.journals.PRUNE_ABOVE_RECORDS", 2)
    log = make()
    front = log.start()
    for end in (1, 2):
        front.publish({"a": end})
    front.leave()
    log.tracker.last, log.tracker.left = None, False
    log.min_time = 1
    log.now_ns, log.tracker.holding = 50, True
    log.start().publish({"a": 3})
    log.kill()
    front = log.start()
    assert front.ends == {"a": 3}
    assert front.wait_durable(HANG_S)
    assert log.tracker.created[2:] == [(5, range_value("a", 2, 3), 1)]
