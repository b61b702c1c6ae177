"""What a subscriber has heard, from processes of which some are behind; moments and slots."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from acker.v1 import progress_service_pb2 as progress_pb
from acker.v1 import types_pb2 as pb
from tests.client.support import never_back
from tracker.client.updates import (
    Heard,
    Update,
    slot_at,
    slot_time,
    slot_until,
    subscribe_request,
)
from tracker.core.model.slots import FOREVER, HIGHEST_SLOT, LOWEST_SLOT

SLACK_NS = 10_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SLOTS = st.integers(LOWEST_SLOT, FOREVER)


def says(first: int, second: int) -> progress_pb.SubscribeResponse:
    return progress_pb.SubscribeResponse(
        pipeline="p",
        segments=[
            pb.SegmentTime(segment="first", min_time=first),
            pb.SegmentTime(segment="second", min_time=second),
        ],
        min_time=min(first, second),
        slack_ns=SLACK_NS,
    )


@given(st.lists(st.tuples(SLOTS, SLOTS), min_size=1), st.sampled_from([(), ("second",)]))
def test_whatever_processes_say_what_is_told_only_goes_forward(
    messages: list[tuple[int, int]], chosen: tuple[str, ...]
) -> None:
    heard, told = Heard("p"), {}  # type: ignore[var-annotated]
    updates: list[Update] = []
    for first, second in messages:
        heard.hear(says(first, second))
        updates += heard.news(told, chosen)
    assert never_back(updates)
    assert heard.get("second") == max(second for _, second in messages)
    last = {update.segment: update.min_time for update in updates}
    assert last["second"] == max(second for _, second in messages)
    assert last[None] == max(min(pair) for pair in messages)
    assert ("first" in last) is not bool(chosen)


def test_each_listener_is_told_by_its_own_count() -> None:
    heard = Heard("p")
    heard.hear(says(5, 6))
    one: dict[str | None, tuple[int, bool]] = {}
    assert len(list(heard.news(one, ()))) == 3
    heard.reached(None, 9)
    everything_at_nine = [("first", 9), ("second", 9), (None, 9)]
    assert [(u.segment, u.min_time) for u in heard.news(one, ())] == everything_at_nine
    assert list(heard.news(one, ())) == []
    other: dict[str | None, tuple[int, bool]] = {}
    assert [(u.segment, u.min_time) for u in heard.news(other, ())] == everything_at_nine


def test_a_slow_listener_is_told_the_newest_of_each_when_it_takes_it() -> None:
    heard = Heard("p")
    heard.hear(says(5, 6))
    told: dict[str | None, tuple[int, bool]] = {}
    news = heard.news(told, ())
    assert next(news).min_time == 5
    for slot in range(10, 1_000):
        heard.hear(says(slot, slot + 1))
    assert [(u.segment, u.min_time) for u in news] == [("second", 1_000), (None, 999)]
    assert [(u.segment, u.min_time) for u in heard.news(told, ())] == [("first", 999)]


def test_no_segment_is_behind_the_pipeline_whoever_was_asked() -> None:
    """One process says that the pipeline has come to 9; the next one that is asked is behind."""
    heard = Heard("p")
    heard.reached(None, 9)
    heard.hear(says(5, 6))
    assert [heard.get(name) for name in ("first", "second", None)] == [9, 9, 9]
    heard.reached("first", 20)
    heard.hear(says(10, 12))
    assert [heard.get(name) for name in ("first", "second", None)] == [20, 12, 10]
    assert heard.get("third") is None


def test_a_pipeline_that_was_restarted_may_be_behind_its_segments() -> None:
    """They had come further in the generation before; the pipeline rests on the present one."""
    heard = Heard("p")
    said = says(20, 12)
    said.min_time = 7
    heard.hear(said)
    assert [heard.get(name) for name in ("first", "second", None)] == [20, 12, 7]


def test_a_stream_resumes_with_what_was_told() -> None:
    subscription = subscribe_request("p", ("first",), {"first": 5, None: 3}).subscribe
    assert [(s.segment, s.min_time) for s in subscription.heard] == [("first", 5)]
    assert subscription.heard_min_time == 3
    assert not subscribe_request("p", (), {}).subscribe.HasField("heard_min_time")


@given(st.datetimes(), st.integers(1, 10**12))
def test_a_moment_is_complete_by_the_slot_that_is_waited_for(
    naive: datetime, slack_ns: int
) -> None:
    moment = naive.replace(tzinfo=UTC)
    slot = slot_until(moment, slack_ns, 1)
    assert slot_until(naive, slack_ns, 1) == slot
    moment_ns = (moment - EPOCH) // timedelta(microseconds=1) * 1000
    if LOWEST_SLOT < slot < HIGHEST_SLOT:
        assert (moment_ns - 1) // slack_ns == slot - 1


@given(st.datetimes(), st.integers(1, 10**12), st.integers(1, 1000))
def test_a_moment_lies_in_the_slot_that_begins_there_or_before(
    naive: datetime, slack_ns: int, rounds: int
) -> None:
    moment = naive.replace(tzinfo=UTC)
    slot = slot_at(moment, slack_ns, rounds)
    assert slot_at(naive, slack_ns, rounds) == slot and slot_at(slot, slack_ns, rounds) == slot
    moment_ns = (moment - EPOCH) // timedelta(microseconds=1) * 1000
    if LOWEST_SLOT < slot < HIGHEST_SLOT:
        time, number = divmod(slot, rounds)
        assert number == 0
        assert time * slack_ns * rounds <= moment_ns < (time + 1) * slack_ns * rounds


def test_slots_beyond_the_calendar_have_no_moment() -> None:
    assert slot_time(FOREVER, 1) is None
    assert slot_time(HIGHEST_SLOT, SLACK_NS) is None
    assert slot_time(LOWEST_SLOT, SLACK_NS) is None
    assert slot_time(-1, SLACK_NS) == datetime(1969, 12, 31, 23, 59, 59, 990_000, UTC)
