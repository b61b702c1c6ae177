"""Periods: each is told once it is complete, none skipped, none twice by its key, none early."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import tracker
from tests.client.support import TWO_SEGMENTS, done, heard_everywhere, joined_front, promise
from tests.consumers.exactly import run_exactly
from tests.waits import HANG_S
from tracker.cli.app import app
from tracker.cli.periods import LISTED_PERIODS
from tracker.client import NodeClient, subscriber
from tracker.client.admin import Admin
from tracker.client.embedded import EmbeddedTracker
from tracker.client.history import history
from tracker.client.subscriber import Subscriber
from tracker.consumers.periods import due
from tracker.consumers.periods.cut import Cut, Period
from tracker.consumers.periods.due import Plan
from tracker.consumers.periods.folders import PartitionMark
from tracker.consumers.periods.follow import Periods
from tracker.core.cut.history import Reached
from tracker.core.model import PipelineSpec, TimeKind
from tracker.core.model.slots import FOREVER
from tracker.errors import StateError, UnavailableError

HOUR = 3_600
START = int(datetime(2026, 3, 2, 9, 30, tzinfo=UTC).timestamp())
TEN = START + HOUR // 2
SPEC = PipelineSpec("two", ("first", "second"), fronts=("front",), start_slot=START, slack_ns=10**9)
HOURS = Cut.of(SPEC, HOUR * 10**9)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[EmbeddedTracker]:
    with tracker.embedded(shards=2, store=f"sqlite:{tmp_path / 'store'}") as embedded:
        embedded.register(SPEC)
        yield embedded


def follower(running: EmbeddedTracker, record: Path) -> Periods:
    return Periods(running.target, "two", "first", "1h", record)


def kill(running: EmbeddedTracker) -> None:
    """Both processes of the tracker die; one has its log as a snapshot, the other as it is."""
    running.snapshot_shard(0)
    for shard in range(2):
        running.kill_shard(shard)
    for shard in range(2):
        running.start_shard(shard)


def take(following: Periods, count: int, *, note: bool = True) -> list[Period]:
    """That many periods, with which everything goes well."""
    taken: list[Period] = []
    for period in following.completed(HANG_S):
        taken.append(period)
        if note or len(taken) < count:
            following.done(period)
        if len(taken) == count:
            break
    return taken


def test_a_period_has_one_key_whether_it_is_met_before_the_pipeline_is_complete_or_after(
    running: EmbeddedTracker, tmp_path: Path
) -> None:
    """One that is done, and whose follower dies before it is recorded, is met again, when the pipeline has become
    complete meanwhile. Its end was announced on the way: it is that period, and not one that goes on to forever."""
    record = tmp_path / "record.json"

    def next_key() -> str:
        with Periods(running.target, "two", "first", "10s", record, since=TEN) as following:
            return take(following, 1, note=False)[0].key

    node = joined_front(running.node("two", "n"))
    done(node.commit(promise(TEN)))
    assert running.subscriber("two").wait_until(TEN, "first", HANG_S)
    done(node.commit(promise(TEN + 15)))
    first = next_key()
    assert first.endswith(f"/{TEN}..{TEN + 10}")
    done(node.leave_front("front"))
    assert running.subscriber("two").wait_until(FOREVER, "first", HANG_S)
    assert next_key() == first


def test_who_only_looks_is_given_all_that_is_complete(
    running: EmbeddedTracker, node: NodeClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job of cron that follows with no time to wait: each look is a process that has heard nothing."""
    monkeypatch.setattr(subscriber, "LOOK_TIMEOUT_S", HANG_S)
    found = []
    for hours in (1, 1, 3):
        done(node.commit(promise(TEN + hours * HOUR)))
        heard_everywhere(running.target, "two", TEN + hours * HOUR, "first")
        with follower(running, tmp_path / "record.json") as following:
            for period in following.completed(timeout_s=0):
                found.append((period.from_slot - TEN) // HOUR)
                following.done(period)
    assert found == [0, 1, 2]


def test_a_lateness_that_is_longer_by_now_holds_back_those_who_follow_already(
    running: EmbeddedTracker, tmp_path: Path
) -> None:
    """An operator has applied it while they wait: what fronts vouch for is less from then on."""
    late = replace(SPEC, name="late", time=TimeKind.EVENT)
    running.register(late)
    front = joined_front(running.node("late", "n"))
    with Periods(running.target, "late", "first", "1h", tmp_path / "record.json") as following:
        assert (
            next(following.completed(0.2), None) is None
        )  # expires: it has waited by the shorter one
        running.admin().apply(replace(late, lateness_slots=300))
        done(front.commit(promise(TEN + HOUR + 299)))
        assert running.subscriber("late").wait_until(TEN + HOUR + 299, "first", HANG_S)
        early = next(following.completed(0.2), None)  # expires
        assert early is None, "a slot is missing of what may be late"
        done(front.commit(promise(TEN + HOUR + 300)))
        assert [each.from_slot for each in take(following, 1)] == [TEN]
        running.admin().apply(late)
        done(front.commit(promise(TEN + 3 * HOUR)))
        assert [each.from_slot for each in take(following, 2)] == [TEN + HOUR, TEN + 2 * HOUR]


def test_what_has_moved_since_a_lateness_is_longer_does_not_count_by_the_shorter_one(
    running: EmbeddedTracker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is applied when who follows has been told to look, and before it is asked how far min time is."""
    late = replace(SPEC, name="late", time=TimeKind.EVENT)
    running.register(late)
    front = joined_front(running.node("late", "n"))
    done(front.commit(promise(TEN + HOUR)))
    min_time = Subscriber.min_time

    def apply_first(subscriber: Subscriber, *given: Any) -> int:
        running.admin().apply(replace(late, lateness_slots=300))
        return min_time(subscriber, *given)

    plan = Plan.of(running.target, "late", "first", "1h")
    with Periods(running.target, "late", "first", "1h", tmp_path / "record.json") as following:
        take(following, 1)
        done(front.commit(promise(TEN + 2 * HOUR)))
        monkeypatch.setattr(Subscriber, "min_time", apply_first)
        assert next(following.completed(HANG_S / 100), None) is None  # expires
    assert [each.from_slot for each in plan.look(running.target, None, most=9).periods] == [TEN]


def test_time_is_cut_into_whole_slots() -> None:
    assert [HOURS.first(slot) for slot in (TEN - HOUR, TEN - 1, TEN, TEN + 1)] == [
        TEN - HOUR, TEN, TEN, TEN + HOUR,
    ]  # fmt: skip
    assert HOURS.first(-1) == 0 and HOURS.first(-HOUR - 1) == -HOUR
    for every in (0, -1, 10**9 + 1, 5):
        with pytest.raises(ValueError, match="not whole slots"):
            Cut.of(SPEC, every)
    numbers = Cut.of(PipelineSpec("p", ("s",), time=TimeKind.NUMBER), 10)
    period = numbers.period("p", None, 20)
    assert (period.key, period.start, period.end) == ("p/*/20..30", None, None)
    late = Cut.of(
        PipelineSpec("p", ("s",), slack_ns=10**9, time=TimeKind.EVENT, lateness_slots=300),
        HOUR * 10**9,
    )
    assert late.completes(TEN) == TEN + 300 and late.completes(FOREVER) == FOREVER


def test_each_period_is_told_also_when_min_time_jumps(
    running: EmbeddedTracker, node: NodeClient, tmp_path: Path
) -> None:
    done(node.commit(promise(TEN + HOUR - 1)))
    record = tmp_path / "record.json"
    with follower(running, record) as following:
        assert list(following.completed(0.2)) == [], "a slot is missing of the first whole hour"
        done(node.commit(promise(TEN + 4 * HOUR)))
        told = take(following, 2)
        unnoted = take(following, 1, note=False)
        with pytest.raises(StateError, match="not due"):
            following.done(told[0])
    assert [p.from_slot for p in told + unnoted] == [TEN, TEN + HOUR, TEN + 2 * HOUR]
    assert told[0].start == datetime(2026, 3, 2, 10, tzinfo=UTC) and told[0].end == told[1].start

    # What was told and not done is told again, under its key; the tracker may have been killed too.
    kill(running)
    with follower(running, record) as following:
        again = take(following, 2)
        assert [p.key for p in again] == [
            unnoted[0].key,
            f"two/first/{TEN + 3 * HOUR}..{TEN + 4 * HOUR}",
        ]
        with pytest.raises(StateError, match="used by another process"):
            follower(running, record).__enter__()

    # The front leaves in the middle of an hour that was passed by nothing else.
    done(node.commit(promise(TEN + 6 * HOUR)))
    assert running.subscriber("two").wait_until(TEN + 6 * HOUR, timeout_s=HANG_S)
    done(node.leave_front("front"))
    assert running.subscriber("two").wait_until(FOREVER, timeout_s=HANG_S)
    with follower(running, record) as following:
        last = take(following, 3)
        assert list(following.completed(HANG_S)) == [], "there is nothing behind the end"
    assert [p.from_slot for p in last] == [TEN + 4 * HOUR, TEN + 5 * HOUR, TEN + 6 * HOUR]
    assert last[-1].key == f"two/first/{TEN + 6 * HOUR}..end"
    whose = f"two/first by {HOUR} slots"
    for damage, why in (
        ({"of": "other", "next": 5}, f"record of other, not of {whose}"),
        ({"of": whose, "next": "5"}, "not a record of a position"),
        ({"next": 5}, "not a record of a position"),
    ):
        record.write_text(json.dumps(damage))
        with follower(running, record) as following, pytest.raises(StateError, match=why):
            take(following, 1)


def test_the_tracker_remembers_when_each_was_complete(
    running: EmbeddedTracker, node: NodeClient, tmp_path: Path
) -> None:
    for slot in (TEN, TEN + HOUR, TEN + 4 * HOUR):
        done(node.commit(promise(slot)))
        assert running.subscriber("two").wait_until(slot, timeout_s=HANG_S)
    slots = [TEN + hour * HOUR for hour in range(6)]
    before = history(running.target, "two", slots, "first")
    assert [told.reached for told in before] == [True] * 5 + [False]
    moments = [told.at_ms for told in before[:5]]
    assert all(moments) and moments[2] == moments[3] == moments[4], "one jump, one moment"
    kill(running)
    assert history(running.target, "two", slots, "first") == before
    whole = history(running.target, "two", slots[:1])
    assert whole[0].reached and whole[0].at_ms

    words = ["periods", "list", "-p", "two", "--from", "2026-03-02T10:00", "--to"]
    shown = CliRunner().invoke(
        app, [*words, "2026-03-02T15:00", "--json", "--target", running.target]
    )
    lines = [json.loads(line) for line in shown.stdout.splitlines()]
    assert [line["complete"] for line in lines] == [True] * 4 + [False]
    assert lines[0]["start"] == "2026-03-02T10:00:00+00:00" and lines[0]["complete_at"]
    assert lines[0]["exact"] is True and lines[4]["exact"] is None
    for_people = CliRunner().invoke(
        app, [*words, "2026-03-02T15:00", "--every", "90m", "--target", running.target]
    )
    assert len(for_people.stdout.splitlines()) == 3
    odd = CliRunner().invoke(
        app, [*words, "2026-03-03", "--every", "1ms", "--target", running.target]
    )
    assert odd.exit_code == 2 and "not whole slots" in odd.stderr


def listed(running: EmbeddedTracker, *words: str) -> list[dict[str, Any]]:
    shown = CliRunner().invoke(
        app, ["periods", "list", "-p", "two", *words, "--json", "--target", running.target]
    )
    assert shown.exit_code == 0, shown.output
    return [json.loads(line) for line in shown.stdout.splitlines()]


def test_a_short_period_was_complete_by_the_next_moment_that_is_remembered(
    running: EmbeddedTracker, node: NodeClient
) -> None:
    second = HOUR // 3_600
    for slot in (TEN, TEN + 10 * second, TEN + 20 * second, TEN + 90 * second):
        done(node.commit(promise(slot)))
        assert running.subscriber("two").wait_until(slot, timeout_s=HANG_S)
    span = ("--from", "2026-03-02T10:00", "--to", "2026-03-02T10:01:20", "--every", "10s")
    lines = listed(running, *span)
    assert [line["complete"] for line in lines] == [True] * 8
    # Nothing is remembered of the announcements at 10 and 20 s, which is why those of 90 s are not the first.
    assert [line["exact"] for line in lines] == [False] * 5 + [True] * 3
    assert len({line["complete_at"] for line in lines}) == 1
    shown = (
        CliRunner()
        .invoke(app, ["periods", "list", "-p", "two", *span, "--target", running.target])
        .stdout.splitlines()
    )
    assert shown[0].endswith(f"  by {lines[0]['complete_at']}")
    assert shown[-1].endswith(f"  {lines[0]['complete_at']}") and " by " not in shown[-1]


def test_without_a_beginning_the_last_periods_are_listed(
    running: EmbeddedTracker, node: NodeClient
) -> None:
    since_ten = int(time.time()) // HOUR - TEN // HOUR
    assert len(listed(running)) == min(max(since_ten, 0), LISTED_PERIODS)
    last = listed(running, "--last", "3", "--every", "1d", "--to", "2026-03-06T07:00")
    assert [line["start"][:10] for line in last] == ["2026-03-03", "2026-03-04", "2026-03-05"]
    # The pipeline begins at half past nine.
    early = listed(running, "--to", "2026-03-02T11:30")
    assert [line["start"][11:16] for line in early] == ["10:00"]


def test_where_slots_are_numbers_the_last_periods_end_with_the_newest_promise() -> None:
    with tracker.embedded() as running:
        running.register(replace(TWO_SEGMENTS, time=TimeKind.NUMBER, slack_ns=1, start_slot=5))
        none = CliRunner().invoke(
            app,
            ["periods", "list", "--every", "10", "--target", running.target],
            env={"COLUMNS": "300"},
        )
        assert none.exit_code == 2 and "give --to slot:N" in none.stderr
        node = joined_front(running.node("two", "n", "front"))
        done(node.commit(promise(47)))
        assert running.subscriber("two").wait_until(47, timeout_s=HANG_S)
        lines = listed(running, "--every", "10")
        assert [line["from_slot"] for line in lines] == [10, 20, 30]
        assert all(line["exact"] in (True, False) for line in lines)


def test_markers_are_written_into_the_folders_and_nowhere_else(
    running: EmbeddedTracker, node: NodeClient, tmp_path: Path
) -> None:
    done(node.commit(promise(TEN + 2 * HOUR)))
    table = tmp_path / "table"
    with follower(running, tmp_path / "record.json") as following:
        mark = PartitionMark(
            HOURS, f"{table}/date={{start:%Y-%m-%d}}/hour={{start:%H}}", "_COMPLETE"
        )
        run_exactly(2, following, mark)
    found = sorted(str(p.relative_to(table)) for p in table.rglob("*") if p.is_file())
    assert found == [f"date=2026-03-02/hour={hour}/_COMPLETE" for hour in (10, 11)]
    marker = json.loads((table / found[0]).read_text())
    assert marker["key"] == f"two/first/{TEN}..{TEN + HOUR}" and marker["complete_at"]
    assert (marker["start"], marker["end"]) == (
        "2026-03-02T10:00:00+00:00",
        "2026-03-02T11:00:00+00:00",
    )


def test_a_process_that_has_not_heard_that_the_pipeline_is_complete_does_not_say_where_its_data_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The one that announced it has died since, and the other hears of it a moment later. By its word there were periods
    without end."""
    plan = Plan("two", "first", HOURS, TEN)
    first, end = TEN + HOUR, TEN + 2 * HOUR
    behind = [True, True, False, True]

    def asked(_: object, __: str, slot: int, *___: object) -> list[Reached]:
        if behind and behind.pop():
            return [Reached(slot, slot <= first, None, slot)]
        return [Reached(slot, True, 1, end if slot <= end else FOREVER)]

    monkeypatch.setattr(due, "of_each", asked)
    found = plan.due(TEN, FOREVER, lambda slot: plan.passed("nobody", slot), most=10)
    assert [each.to_slot for each in found.periods] == [first, end, FOREVER]
    behind += [True] * 4
    assert plan.newest("nobody", FOREVER).from_slot == end


def test_where_data_ends_is_not_said_while_a_process_may_have_announced_more(
    running: EmbeddedTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is behind, or away, may have announced more on the way to the end: the last period would begin
    elsewhere when it answers, and have another key."""
    node = joined_front(running.node("two", "n"))
    done(node.commit(promise(TEN + HOUR)))
    assert running.subscriber("two").wait_until(TEN + HOUR, "first", HANG_S)
    done(node.leave_front("front"))
    plan = Plan.of(running.target, "two", "first", "1h")
    assert running.subscriber("two").wait_until(FOREVER, "first", HANG_S)
    assert plan.newest(running.target, FOREVER).from_slot == TEN + HOUR
    running.kill_shard(1)
    assert plan.passed(running.target, TEN + HOUR), "one that has passed it is enough"
    with pytest.raises(UnavailableError):
        plan.passed(running.target, TEN + 2 * HOUR)
    running.start_shard(1)
    assert not plan.passed(running.target, TEN + 2 * HOUR)
    ask, asked = Admin.ask_shards, list[Any]()

    def noted(*given: Any) -> Any:
        asked.append(given)
        return ask(*given)

    monkeypatch.setattr(Admin, "ask_shards", noted)
    assert not plan.passed(running.target, TEN + 2 * HOUR)
    assert len(asked) == 1, "all have announced it, and each is asked once"


def test_a_process_that_is_behind_is_waited_for_where_another_one_was_told_the_end_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One has announced the end in one step, the other announces a slot on its way there a moment later."""
    plan, one = Plan("two", "first", HOURS, TEN), Reached(TEN + HOUR, True, 1, FOREVER)
    says = [
        [one, Reached(TEN + HOUR, False, None, TEN + HOUR)],
        [one, Reached(TEN + HOUR, True, 2, TEN + HOUR)],
    ]

    monkeypatch.setattr(due, "of_each", lambda *_: says.pop(0))
    assert plan.passed("127.0.0.1:1", TEN + HOUR)


def test_where_no_process_has_heard_of_it_that_is_an_error_and_no_period(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(due, "LOOK_TIMEOUT_S", 0.1)  # expires: nobody ever answers here
    monkeypatch.setattr(due, "of_each", lambda *_: [Reached(TEN, False, None, TEN)])
    with pytest.raises(UnavailableError, match="announced to be complete"):
        Plan("two", "first", HOURS, TEN).passed("nobody", TEN + HOUR)
