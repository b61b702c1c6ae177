"""What is known of the event times that a query has absorbed, by its logs and, where they do not tell, by asking
it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from local_tracker.spark.query.logs import CheckpointLog
from local_tracker.spark.state.bounds import Latest, LogBounds, in_state_ms
from local_tracker.spark.state.entries import Entries, Told
from local_tracker.spark.state.recorded import StateRecord
from local_tracker.spark.state.rules import (
    POLICY,
    HeldFor,
    Later,
    StateKind,
    StatePlan,
    Wait,
    Watermark,
    WatermarkPolicy,
    Window,
)
from tracker.client.state_names import UNKNOWN, UNSEEN, Rows
from tracker.errors import FilesError

ONE = (Watermark("ts", 5000),)
TWO = (*ONE, Watermark("rts", 7000))
WITHIN = (Wait((), 10_001_000),)
GAP = (Wait((Later(5_000_000),)),)


class Checkpoint:
    """Of a query whose batches have committed, with what their logs say of watermarks."""

    def __init__(self, directory: Path, policy: str = "min") -> None:
        self.log, self._policy, self._root = CheckpointLog(str(directory)), policy, directory
        for name in ("offsets", "commits"):
            (directory / name).mkdir()

    def commit(self, batch: int, at_ms: int, next_ms: int) -> None:
        clock = {"batchTimestampMs": batch * 1_000}
        header = {"batchWatermarkMs": at_ms, **clock, "conf": {POLICY: self._policy}}
        (self._root / "offsets" / str(batch)).write_text(
            f'v1\n{json.dumps(header)}\n{{"logOffset":0}}'
        )
        (self._root / "commits" / str(batch)).write_text(
            f"v1\n{json.dumps({'nextBatchWatermarkMs': next_ms})}"
        )

    def operator(self, name: str, time_mode: str) -> None:
        """As Spark 4 records a function of the user's with state."""
        folder = self._root / "state/0/_metadata/v2"
        folder.mkdir(parents=True)
        known = {
            "operatorInfo": {"operatorId": 0, "operatorName": name},
            "operatorPropertiesJson": json.dumps({"timeMode": time_mode}),
        }
        (folder / "0").write_text(f"v2\n{json.dumps(known)}")


class Asked:
    """A query that runs, by what it answers."""

    def __init__(
        self,
        absorbed_ms: int | None = None,
        left_ms: int | None = None,
        *,
        is_empty: bool = False,
        was_evaluated: bool = False,
        latest: Latest | None = None,
    ) -> None:
        self._absorbed_ms, self._left_ms, self._is_empty = absorbed_ms, left_ms, is_empty
        self._was_evaluated, self._latest = was_evaluated, latest

    def absorbed_ms(self, batch: int, longest_delay_ms: int) -> int | None:
        return None if self._absorbed_ms is None else self._absorbed_ms + longest_delay_ms

    def was_evaluated(self, batch: int) -> bool:
        return self._was_evaluated

    def is_empty(self, batch: int) -> bool:
        return self._is_empty

    def latest(self, batch: int) -> Latest | None:
        return self._latest

    def left_ms(self, batch: int, watermark_ms: int) -> int | None:
        return self._left_ms


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    made = Checkpoint(tmp_path)
    made.commit(0, 0, 20_000)
    return made


def joined(policy: WatermarkPolicy = WatermarkPolicy.MIN) -> StatePlan:
    return StatePlan(StateKind.BOUNDED, TWO, policy, waits=WITHIN)


def sessions() -> StatePlan:
    return StatePlan(StateKind.SESSION, ONE, waits=GAP)


@pytest.mark.parametrize("mode", ["ProcessingTime", "EventTime"])
def test_no_user_s_watermark_tells_of_state_that_goes_by_the_clock(
    checkpoint: Checkpoint, mode: str
) -> None:
    checkpoint.operator("transformWithStateExec", mode)
    bounds = LogBounds(StatePlan.given(HeldFor(5_000, 10_000)), checkpoint.log)
    if mode == "EventTime":
        assert bounds.told(0) == Told(0, 35_001, 35_001)
        return
    with pytest.raises(
        FilesError, match="transformWithStateExec lets go of its state by the clock"
    ):
        bounds.told(0)


def test_one_watermark_tells_of_a_batch_and_of_all_before_it(checkpoint: Checkpoint) -> None:
    plan = StatePlan(StateKind.BOUNDED, ONE, waits=WITHIN)
    assert LogBounds(plan, checkpoint.log).told(0) == Told(0, 35_002, 35_002)


def test_several_watermarks_under_policy_max_are_told_by_the_longest_delay(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path, "max")
    checkpoint.commit(0, 0, 20_000)
    told = LogBounds(joined(WatermarkPolicy.MAX), checkpoint.log).told(0)
    assert told == Told(0, 37_002, 37_002)


def test_the_policy_is_that_of_the_checkpoint_whatever_the_session_says(
    checkpoint: Checkpoint,
) -> None:
    assert LogBounds(joined(WatermarkPolicy.MAX), checkpoint.log).told(0) == Told(0, UNKNOWN)


def test_under_policy_min_the_query_is_asked_how_far_its_streams_have_come(
    checkpoint: Checkpoint,
) -> None:
    """It tells of what this run has absorbed, and nothing of what an earlier one has."""
    told = LogBounds(joined(), checkpoint.log, Asked(50_000)).told(0)
    assert told == Told(0, 67_002, None)


def test_under_policy_min_nothing_is_known_where_the_query_does_not_say(
    checkpoint: Checkpoint,
) -> None:
    for running in (None, Asked()):
        assert LogBounds(joined(), checkpoint.log, running).told(0) == Told(0, UNKNOWN)


def test_what_a_user_says_of_several_watermarks_is_taken(checkpoint: Checkpoint) -> None:
    plan = StatePlan.given(HeldFor(7000, 10_000))
    assert LogBounds(plan, checkpoint.log).told(0) == Told(0, 37_001, 37_001)


def test_an_empty_state_lets_go_of_all_that_is_not_known(checkpoint: Checkpoint) -> None:
    entries, _ = Entries({}).after({1: 10}, Told(0, UNKNOWN))
    told = LogBounds(joined(), checkpoint.log, Asked(50_000, is_empty=True)).told(0)
    entries, moves = entries.after({1: 20}, told)
    assert (len(entries), len(moves)) == (0, 1)


def test_what_an_earlier_run_has_absorbed_is_bounded_by_what_is_latest_in_state(
    checkpoint: Checkpoint,
) -> None:
    """The driver was killed before the tick of batch 0, and the run that tells it has seen nothing of its streams."""
    entries, _ = Entries({}).after({1: 10}, Told(0, UNKNOWN))
    asked = Asked(latest=Latest(200_000_999))
    told = LogBounds(joined(), checkpoint.log, asked).told(0)
    entries, _ = entries.after({1: 20}, told)
    assert entries.bounds() == [(1, joined().bound_ms(200_000), 10)]
    entries, _ = entries.after({}, Told(joined().bound_ms(200_000) - 1, UNKNOWN))
    assert entries.lowest() == {1: 10}
    assert not entries.after({}, Told(joined().bound_ms(200_000), UNKNOWN))[0].lowest()


@pytest.mark.parametrize("is_unknown", [True, False])
def test_the_state_is_read_while_a_bound_is_not_known_and_once_it_is_no_more(
    checkpoint: Checkpoint, is_unknown: bool
) -> None:
    """is_unknown: whether such an entry was found when the query began."""
    asked = Asked(50_000, latest=Latest(60_000_000))
    bounds = LogBounds(joined(), checkpoint.log, asked, 0, is_unknown)
    checkpoint.commit(1, 20_000, 30_000)
    checkpoint.commit(2, 30_000, 40_000)
    assert bounds.told(0).in_state_ms is None  # its tick is durable: this would get lost
    expected = joined().bound_ms(60_000) if is_unknown else None
    assert bounds.told(1).in_state_ms == expected
    assert bounds.told(2).in_state_ms is None


def test_the_state_of_a_query_that_has_got_another_plan_tells_nothing(
    checkpoint: Checkpoint,
) -> None:
    record = StateRecord(checkpoint.log)
    record.begun(
        record.read(), replace(joined(), waits=(Wait((), 5_001_000, "a shorter join"),)), None
    )
    record.begun(record.read(), joined(), None)
    asked = Asked(latest=Latest(200_000_000))
    assert LogBounds(joined(), checkpoint.log, asked).told(0) == Told(0, UNKNOWN)


def test_a_batch_that_is_told_behind_a_change_of_windows_waits_for_those_that_it_was_absorbed_in(
    checkpoint: Checkpoint,
) -> None:
    """Both plans read the same to people, who are told the column that is grouped by."""
    hours, seconds = (
        StatePlan(
            StateKind.BOUNDED, ONE,
            waits=(Wait((Window(size_us, size_us),), what="groups by window"),),
        )
        for size_us in (3_600_000_000, 10_000_000)
    )  # fmt: skip
    record = StateRecord(checkpoint.log)
    record.begun(record.read(), hours, None)
    checkpoint.commit(
        0, 0, 20_000
    )  # its rows are of 25 s at the latest, and of the hour that begins in 1970
    record.begun(record.read(), seconds, None)
    bound_ms = LogBounds(seconds, checkpoint.log).told(0).bound_ms
    assert isinstance(bound_ms, int) and bound_ms >= 3_600_000


@pytest.mark.parametrize("sees", [True, False])
def test_what_several_watermarks_did_not_tell_one_that_is_left_of_them_does_not(
    checkpoint: Checkpoint, sees: bool
) -> None:
    """A stream that was far ahead has lost its watermark in a restart; its rows are in state until one of 100 s, say."""
    record = StateRecord(checkpoint.log)
    record.begun(record.read(), joined(), None)
    entries, _ = Entries({}).after({1: 10}, LogBounds(joined(), checkpoint.log).told(0))
    one = StatePlan(StateKind.BOUNDED, ONE, waits=WITHIN)
    record.begun(record.read(), one, None)
    checkpoint.commit(1, 20_000, 60_000)
    checkpoint.commit(2, 60_000, 90_000)
    checkpoint.commit(3, 90_000, 90_000)
    bounds = LogBounds(one, checkpoint.log, Asked() if sees else None, 0, is_unknown=True)
    for batch in (1, 2, 3):
        entries, _ = entries.after({1: 20 + batch}, bounds.told(batch))
    assert entries.lowest() == {1: 10}, "though 90 s are beyond what it says of batch 1"
    checkpoint.commit(4, 90_000, 90_000)
    empty = LogBounds(one, checkpoint.log, Asked(is_empty=True), 3, is_unknown=True)
    assert not entries.after({1: 30}, empty.told(4))[0].lowest()
    # A user says it of all that is in state.
    given = LogBounds(StatePlan.given(HeldFor(80_000, 11_000)), checkpoint.log, None, 3, True)
    assert given.told(4).earlier_ms is not None


def test_what_was_not_known_is_out_by_the_longest_of_a_query_s_plans(
    checkpoint: Checkpoint,
) -> None:
    """Until all streams have come, a watermark says nothing; by then its delay may be another one."""
    record = StateRecord(checkpoint.log)
    longer, shorter = (StatePlan.given(HeldFor(delay_ms, 10_000)) for delay_ms in (60_000, 5_000))
    record.begun(record.read(), longer, None)
    record.begun(record.read(), shorter, None)
    checkpoint.commit(1, 0, 20_000)
    earlier_ms = LogBounds(shorter, checkpoint.log).told(1).earlier_ms
    assert isinstance(earlier_ms, int) and earlier_ms >= 20_000 + 60_000 + 10_000


def test_session_windows_are_over_when_none_is_left_that_begins_by_then(
    checkpoint: Checkpoint,
) -> None:
    checkpoint.commit(1, 20_000, 30_000)
    entries, _ = Entries({}).after({1: 10}, LogBounds(sessions(), checkpoint.log).told(0))
    assert entries.bounds() == [(1, Rows(25_000), 10)]
    for left_ms, held in ((None, True), (24_999, True), (25_000, False)):
        told = LogBounds(sessions(), checkpoint.log, Asked(left_ms=left_ms)).told(1)
        after, _ = entries.after({1: 20}, told)
        assert (10 in after.lowest().values()) is held
        assert (1, Rows(35_000), 20) in after.bounds() or held  # covered while the older one is not


def test_a_watermark_lets_go_of_no_session_and_a_session_of_no_window() -> None:
    """As where a query is started again with what the user says of its sessions."""
    entries, _ = Entries({}).after({1: 10}, Told(0, Rows(5000)))
    entries, _ = entries.after({1: 8}, Told(0, 9000))
    assert {bound for _, bound, _ in entries.bounds()} == {Rows(5000), 9000}
    entries, _ = entries.after({}, Told(8999, UNKNOWN, left_ms=10**9))
    assert [bound for _, bound, _ in entries.bounds()] == [9000]
    entries, _ = entries.after({1: 10}, Told(10**9, Rows(5000)))
    assert [bound for _, bound, _ in entries.bounds()] == [Rows(5000)]


# --- by an oracle ---------------------------------------------------------------------------------

GAP_MS, DELAY_MS = 5, 4
Session = tuple[int, int, list[int]]
"""When it begins and ends, in ms, and the slots of its rows."""


def merged(sessions: list[Session], row_ms: int, slot: int) -> list[Session]:
    """As Spark merges a row into those that it touches."""
    begin, end, slots = row_ms, row_ms + GAP_MS, [slot]
    rest = []
    for session in sessions:
        if session[0] <= end and begin <= session[1]:
            begin, end = min(begin, session[0]), max(end, session[1])
            slots += session[2]
        else:
            rest.append(session)
    return [*rest, (begin, end, slots)]


BATCHES = st.lists(
    st.tuples(
        st.lists(st.tuples(st.integers(0, 80), st.integers(0, 30)), max_size=3),
        st.booleans(),
    ),
    max_size=25,
)
"""Rows by time and slot, and whether the state is read after the batch."""


@given(BATCHES)
def test_no_hold_lies_above_a_row_of_a_session_that_is_open(
    batches: list[tuple[list[tuple[int, int]], bool]],
) -> None:
    entries, state, watermark_ms, latest_ms = Entries({}), list[Session](), 0, 0
    for rows, is_read in batches:
        at_ms = watermark_ms
        labels = entries.labels({1: min(slot for _, slot in rows)} if rows else {})
        for time_ms, slot in rows:
            latest_ms = max(latest_ms, time_ms)
            if time_ms + GAP_MS > at_ms:
                state = merged(state, time_ms, slot)
        watermark_ms = max(at_ms, latest_ms - DELAY_MS)
        emitted = [session for session in state if session[1] <= at_ms]
        state = [session for session in state if session[1] > at_ms]
        left_ms = min((session[0] for session in state), default=1 << 62) - 1 if is_read else None
        bound = Rows(watermark_ms + DELAY_MS)
        slots = {1: min(slot for _, slot in rows)} if rows else {}
        entries, _ = entries.after(slots, Told(at_ms, bound, bound, left_ms))
        entries.validate()
        assert all(labels[1] <= min(session[2]) for session in emitted)
        open_slots = [min(session[2]) for session in state]
        assert entries.lowest().get(1, 1 << 62) <= min(open_slots, default=1 << 62)
        if is_read and not state:
            assert not entries.lowest()


WITHIN_MS, WINDOW_MS = 7, 20
LAG_MS = WITHIN_MS + 1


def end_ms(row_ms: int) -> int:
    return row_ms // WINDOW_MS * WINDOW_MS + WINDOW_MS


@given(
    st.lists(st.tuples(st.integers(0, 80), st.integers(0, WITHIN_MS)), max_size=8),
    st.lists(st.integers(0, 80), max_size=8),
    st.integers(0, 120),
    st.integers(0, 999),
)
def test_by_what_is_latest_in_state_all_is_out_that_is_in_a_join_or_in_a_window_above_it(
    pairs: list[tuple[int, int]], alone: list[int], watermark_ms: int, later_us: int
) -> None:
    """pairs: rows that were joined, the right one so much later; alone: rows that were not."""

    def rows_at(at_ms: int) -> list[int]:
        """Those that the join keeps, since a partner may come."""
        every = [*alone, *(left for left, _ in pairs), *(left + by for left, by in pairs)]
        return [row for row in every if row * 1000 + later_us > (at_ms - LAG_MS) * 1000]

    def ends_at(at_ms: int) -> list[int]:
        return [end_ms(left) for left, _ in pairs if end_ms(left) > at_ms - LAG_MS]

    in_state = rows_at(watermark_ms)

    def is_out(at_ms: int) -> bool:
        """Also the windows that the rows of the join may still get into."""
        later = [end_ms(row) for row in in_state]
        return not (rows_at(at_ms) or ends_at(at_ms) or any(e > at_ms - LAG_MS for e in later))

    out_ms = watermark_ms
    while not is_out(out_ms):
        out_ms += 1
    window = Window(WINDOW_MS * 1000, WINDOW_MS * 1000)
    waits = Wait((), LAG_MS * 1000), Wait((window,), LAG_MS * 1000)
    ends = ends_at(watermark_ms)
    latest = Latest(
        max(in_state) * 1000 + later_us if in_state else None, max(ends) * 1000 if ends else None
    )
    expected = out_ms if in_state or ends else None
    assert in_state_ms(StatePlan(StateKind.BOUNDED, TWO, waits=waits), latest) == expected


def test_a_batch_that_was_found_in_the_sink_is_unseen_unless_it_was_evaluated_after_all(
    checkpoint: Checkpoint,
) -> None:
    """Of some sinks it cannot be told beforehand whether they have it."""
    plan = StatePlan(StateKind.BOUNDED, ONE, waits=WITHIN)
    record = StateRecord(checkpoint.log)
    checkpoint.commit(0, 0, 20_000)
    (Path(checkpoint.log.root.removeprefix("file://")) / "commits/0").unlink()
    record.begun(record.read(), plan, lambda batch: True)
    checkpoint.commit(0, 0, 20_000)
    checkpoint.commit(1, 20_000, 20_000)
    bound_ms = plan.bound_ms(25_000)
    unseen = LogBounds(plan, checkpoint.log, Asked())
    assert unseen.told(0) == Told(0, UNSEEN, bound_ms)
    assert unseen.told(1) == Told(20_000, bound_ms, bound_ms)
    assert LogBounds(plan, checkpoint.log).told(0).bound_ms == UNSEEN
    hourly = replace(plan, waits=(Wait((Window(3_600_000_000, 3_600_000_000),)),))
    asked = Asked(latest=Latest(end_us=7_200_000_000))
    told = LogBounds(hourly, checkpoint.log, asked).told(0)
    assert (told.bound_ms, told.known(told.bound_ms)) == (UNSEEN, 7_200_000)
    told = LogBounds(plan, checkpoint.log, Asked(latest=Latest(24_000_000))).told(0)
    assert told.known(UNSEEN) == plan.bound_ms(24_000)
    none_of_windows = LogBounds(plan, checkpoint.log, asked).told(0)
    assert none_of_windows.in_state_ms is None
    evaluated = LogBounds(plan, checkpoint.log, Asked(was_evaluated=True))
    assert evaluated.told(0) == Told(0, bound_ms, bound_ms)
    assert LogBounds(plan, checkpoint.log, Asked(is_empty=True)).told(1).is_empty


def test_from_outside_a_batch_that_did_not_move_the_watermark_is_bound_by_the_clock(
    checkpoint: Checkpoint,
) -> None:
    """It may have been found in the sink after a crash: then no watermark knows of its rows, whatever comes later."""
    plan = StatePlan.given(HeldFor(7_000, 10_000, ahead_ms=60_000))
    checkpoint.commit(0, 0, 0)
    checkpoint.commit(1, 0, 20_000)
    checkpoint.commit(2, 20_000, 20_000)
    bounds = LogBounds(plan, checkpoint.log)
    assert [bounds.told(batch).bound_ms for batch in range(3)] == [70_001, 37_001, 72_001]
    assert bounds.told(1).earlier_ms == 37_001  # of what an earlier run did not know, and evaluated
    # In a run that this process sees, what it did not evaluate is recorded, and nothing else is doubted.
    seen = LogBounds(plan, checkpoint.log, Asked())
    assert [seen.told(batch).bound_ms for batch in range(3)] == [UNKNOWN, 37_001, 37_001]


def test_what_was_found_in_the_sink_is_bound_by_the_clock_where_that_is_given(
    checkpoint: Checkpoint,
) -> None:
    record, plan = StateRecord(checkpoint.log), StatePlan.given(HeldFor(7_000, 10_000, 60_000))
    checkpoint.commit(1, 20_000, 20_000)
    (Path(checkpoint.log.root.removeprefix("file://")) / "commits/1").unlink()
    record.begun(record.read(), plan, lambda batch: True)
    checkpoint.commit(1, 20_000, 20_000)
    assert LogBounds(plan, checkpoint.log, Asked()).told(1).bound_ms == 71_001
    longer = StatePlan.given(HeldFor(7_000, 20_000, 60_000))
    record.begun(record.read(), longer, None)
    bound_ms = LogBounds(longer, checkpoint.log, Asked()).told(1).bound_ms
    assert isinstance(bound_ms, int) and bound_ms > 61_000 + 2 * 20_000


def test_what_was_found_in_the_sink_waits_for_the_windows_that_it_was_absorbed_in(
    checkpoint: Checkpoint,
) -> None:
    """A driver was killed before its batch was over, and the query has got another plan when it comes back."""
    hours, seconds = (
        StatePlan.given(HeldFor(7_000, span_ms, 60_000)) for span_ms in (3_600_000, 10_000)
    )
    record = StateRecord(checkpoint.log)
    record.begun(record.read(), hours, lambda batch: True)
    checkpoint.commit(1, 20_000, 20_000)
    (Path(checkpoint.log.root.removeprefix("file://")) / "commits/1").unlink()
    record.begun(record.read(), seconds, lambda batch: True)
    checkpoint.commit(1, 20_000, 20_000)
    bound_ms = LogBounds(seconds, checkpoint.log, Asked()).told(1).bound_ms
    assert isinstance(bound_ms, int) and bound_ms >= 61_000 + 3_600_000
