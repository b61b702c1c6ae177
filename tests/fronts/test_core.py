"""The labelling core: labels in order and never backwards, promises never beyond what is created."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fronts.batches import PublishedBatch, items_batch, units_batch
from fronts.clock import ClockFault
from fronts.core import FrontCore
from tracker.core.model import Batch, Heartbeat, TickContent
from tracker.core.model.ack_values import root_values, unit_value
from tracker.core.model.slots import HIGHEST_SLOT, LOWEST_SLOT
from tracker.errors import StateError

SEGMENT = 3
SLACK_NS = 10_000_000


def started(
    slot: int = LOWEST_SLOT,
    heartbeat: int = LOWEST_SLOT,
    clock_ns: int = 0,
    slack_ns: int = SLACK_NS,
) -> FrontCore:
    core = FrontCore("f", SEGMENT, slack_ns)
    core.recover([], None)
    core.grant(slot, heartbeat, clock_ns)
    return core


def beat(tick: TickContent | None) -> int:
    """The promise of a tick that carries nothing else."""
    assert tick is not None and not len(tick.created) and not tick.leaves
    (heartbeat,) = tick.heartbeats
    assert heartbeat.front == "f"
    return heartbeat.slot


def publish(core: FrontCore) -> PublishedBatch:
    sealed = core.seal()
    assert sealed is not None
    values = root_values("f", sealed.number, np.arange(len(sealed.slots)))
    batch = items_batch(SEGMENT, sealed.number, sealed.slots, values)
    core.published(batch)
    return batch


# --- whole times ----------------------------------------------------------------------------------


@given(
    rounds=st.sampled_from([1, 2, 64, 65_536]),
    granted=st.integers(-(10**7), 10**7),
    readings=st.lists(st.integers(-(10**9), 10**9), min_size=1, max_size=6),
    one_by_one=st.booleans(),
)
def test_labels_and_promises_are_whole_times_that_go_on(
    rounds: int, granted: int, readings: list[int], one_by_one: bool
) -> None:
    """Whatever the clock says, and wherever min time stood when the front was granted."""
    slack_ns = 10
    core = FrontCore("f", SEGMENT, slack_ns, rounds)
    core.recover([], None)
    core.grant(granted, LOWEST_SLOT, 0)
    if one_by_one:
        slots = [core.label(clock_ns)[0] for clock_ns in readings]
    else:
        slots = core.label_at(readings)[2].tolist()
    floor = -(-granted // rounds) * rounds
    for clock_ns, slot in zip(readings, slots, strict=True):
        floor = max(floor, clock_ns // (slack_ns * rounds) * rounds)
        assert slot == floor
    publish(core)
    core.next_tick(readings[-1])
    core.durable()
    assert beat(core.next_tick(10**12 + 7)) == 10**12 // (slack_ns * rounds) * rounds
    core.validate()


# --- the order of labels --------------------------------------------------------------------------


@given(
    slack_ns=st.integers(2, 1_000),
    begin_ns=st.integers(-(10**6), 10**6) | st.integers(-(2**62), 2**62),
    data=st.data(),
)
def test_labels_two_slots_apart_tell_which_item_came_later(
    slack_ns: int, begin_ns: int, data: st.DataObject
) -> None:
    skews = data.draw(st.lists(st.integers(0, slack_ns - 1), min_size=2, max_size=4), label="skews")
    steps = data.draw(
        st.lists(
            st.tuples(st.integers(0, 3 * slack_ns), st.integers(0, len(skews) - 1)), max_size=25
        ),
        label="arrivals: how long after the one before, at which front",
    )
    # Nobody has been promised more than the slowest clock reads when all begin.
    cores = [started(slot=begin_ns // slack_ns, slack_ns=slack_ns) for _ in skews]
    now_ns, labelled = begin_ns, []
    for step_ns, front in steps:
        now_ns += step_ns
        slot, _, _ = cores[front].label(now_ns + skews[front])
        labelled.append((now_ns, slot))
        for core, skew_ns in zip(cores, skews, strict=True):
            core.next_tick(now_ns + skew_ns)
    for (came, slot), (later, later_slot) in combinations(labelled, 2):
        if slot > later_slot + 1:
            assert came > later, f"{slot} at {came} ns, {later_slot} at {later} ns"


@given(
    st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-50, 50), min_size=1),
    st.integers(1, 1_000_000),
    st.integers(LOWEST_SLOT, HIGHEST_SLOT) | st.integers(-50, 50),
)
def test_labels_never_go_backwards_nor_below_the_grant(
    readings: list[int], slack_ns: int, grant: int
) -> None:
    core = started(slot=grant, slack_ns=slack_ns)
    labels = [core.label(reading)[0] for reading in readings]
    assert labels == sorted(labels)
    for place, label in enumerate(labels):
        highest = max(readings[: place + 1]) // slack_ns
        assert label == min(max(highest, grant), HIGHEST_SLOT)


@given(
    st.lists(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-50, 50), max_size=8)),
    st.integers(1, 20),
    st.integers(-5, 5),
)
def test_an_array_of_readings_is_labelled_as_one_after_the_other(
    arrays: list[list[int]], slack_ns: int, grant: int
) -> None:
    one, other = started(grant, slack_ns=slack_ns), started(grant, slack_ns=slack_ns)
    for readings in arrays:
        number, first, slots = one.label_at(np.array(readings, np.int64))
        singly = [other.label(reading) for reading in readings]
        assert [(slot, number, first + i) for i, slot in enumerate(slots.tolist())] == singly
    one.validate()
    assert (
        one.clock.measured_ns[ClockFault.STEPPED_BACK]
        == (other.clock.measured_ns[ClockFault.STEPPED_BACK])
    )


def test_items_that_come_together_share_one_reading() -> None:
    core = started()
    assert core.label(25_000_000) == (2, 0, 0)
    number, first, slots = core.label_many(39_999_999, 4)
    assert (number, first, slots.tolist()) == (0, 1, [3, 3, 3, 3])
    assert core.label(40_000_000) == (4, 0, 5)


@pytest.mark.parametrize(
    ("clock_ns", "slot"),
    [(-1, -1), (-SLACK_NS, -1), (-SLACK_NS - 1, -2), (0, 0), (SLACK_NS - 1, 0)],
)
def test_moments_before_1970_round_down(clock_ns: int, slot: int) -> None:
    assert started().label(clock_ns)[0] == slot


def test_at_the_last_slot_labels_stay_below_forever() -> None:
    core = started(slack_ns=1)
    assert core.label(2**63 - 1)[0] == HIGHEST_SLOT
    assert core.label(2**70)[0] == HIGHEST_SLOT
    publish(core)
    core.next_tick(2**70)
    core.durable()
    assert core.next_tick(2**70) is None, "it has promised the last slot already"
    assert core.promised == HIGHEST_SLOT


def test_at_the_first_slot_there_is_nothing_to_promise() -> None:
    core = started(slack_ns=1)
    assert core.label(-(2**63))[0] == LOWEST_SLOT
    assert core.next_tick(0) is None
    publish(core)
    tick = core.next_tick(0)
    assert tick is not None and tick.heartbeats == ()
    core.durable()
    assert beat(core.next_tick(0)) == 0


# --- what a tick carries, and when ----------------------------------------------------------------


def test_publish_then_commit_and_only_a_later_tick_promises_beyond() -> None:
    core = started()
    core.label(5 * SLACK_NS)
    core.label(7 * SLACK_NS)
    assert beat(core.next_tick(9 * SLACK_NS)) == 5
    core.durable()
    batch = publish(core)
    tick = core.next_tick(9 * SLACK_NS)
    assert tick is not None
    assert tick.created.rows() == batch.created.rows()
    assert [row[:2] for row in tick.created.rows()] == [(SEGMENT, 5), (SEGMENT, 7)]
    assert tick.batch == Batch("f", 0, batch.fingerprint)
    assert tick.heartbeats == ()
    assert core.next_tick(9 * SLACK_NS) is None, "one tick is out at a time"
    core.durable()
    assert beat(core.next_tick(9 * SLACK_NS)) == 9


def test_a_refused_tick_holds_the_promise_and_is_given_again() -> None:
    core = started()
    core.label(5 * SLACK_NS)
    publish(core)
    first = core.next_tick(9 * SLACK_NS)
    core.refused()
    promise = core.next_tick(20 * SLACK_NS)
    assert promise is not None and promise.batch is None and not len(promise.created)
    assert beat(promise) == 5, "by itself first: the front may hold min time too far back"
    core.durable()
    again = core.next_tick(20 * SLACK_NS)
    assert first is not None and again is not None
    assert again.batch == first.batch and again.created.rows() == first.created.rows()
    assert all(beat.slot <= 5 for beat in again.heartbeats)


def test_a_refused_tick_is_given_again_with_fewer_batches_until_one_is_taken() -> None:
    """A table that is nearly full never has room for all that has gathered while it was full."""
    core = started()
    for slot in range(8):
        core.label(slot * SLACK_NS)
        publish(core)

    def next_slots() -> list[int]:
        tick = core.next_tick(20 * SLACK_NS)
        while tick is not None and tick.batch is None:
            core.durable()
            tick = core.next_tick(20 * SLACK_NS)
        assert tick is not None
        return [slot for _, slot, _, _ in tick.created.rows()]

    tried = []
    for _ in range(5):
        tried.append(len(next_slots()))
        core.refused()
    assert tried == [8, 4, 2, 1, 1]
    taken = []
    while core.waiting:
        taken.append(next_slots())
        core.durable()
    assert taken == [[0], [1, 2], [3, 4, 5, 6], [7]], "each once, in their order"


def test_batches_that_were_published_meanwhile_go_in_one_tick() -> None:
    core = started()
    core.label(1 * SLACK_NS)
    publish(core)
    core.next_tick(1 * SLACK_NS)
    batches = []
    for slot in (2, 3, 3):
        core.label(slot * SLACK_NS)
        batches.append(publish(core))
    core.durable()
    tick = core.next_tick(5 * SLACK_NS)
    assert tick is not None
    assert tick.batch == Batch("f", 3, batches[-1].fingerprint)
    assert Counter(row[1] for row in tick.created.rows()) == {2: 1, 3: 2}
    assert tick.heartbeats == (Heartbeat("f", 2),)
    core.durable()
    assert core.last_durable == 3 and core.waiting == 0


def test_units_are_items_by_their_names() -> None:
    core = started()
    core.label(4 * SLACK_NS)
    sealed = core.seal()
    assert sealed is not None
    core.published(units_batch(SEGMENT, sealed.number, 4, ["file:///a", "file:///b"]))
    tick = core.next_tick(0)
    assert tick is not None
    assert tick.created.rows() == [
        (SEGMENT, 4, unit_value("file:///a") ^ unit_value("file:///b"), 2)
    ]
    assert [(unit.name, unit.slot) for unit in tick.units_created] == [
        ("file:///a", 4),
        ("file:///b", 4),
    ]


def test_promises_go_on_while_nothing_comes_in_and_labels_keep_them() -> None:
    core = started(heartbeat=2)
    assert core.next_tick(2 * SLACK_NS) is None
    assert beat(core.next_tick(8 * SLACK_NS)) == 8
    assert core.label(3 * SLACK_NS)[0] == 8


def test_a_front_leaves_after_its_last_items() -> None:
    core = started()
    core.label(SLACK_NS)
    with pytest.raises(StateError, match="1 labelled items that are not published"):
        core.leave()
    publish(core)
    core.leave()
    with pytest.raises(StateError, match="labels after it has left"):
        core.label(SLACK_NS)
    tick = core.next_tick(0)
    assert tick is not None and len(tick.created) == 1 and tick.leaves == ()
    core.durable()
    assert not core.left
    tick = core.next_tick(0)
    assert tick is not None and tick.leaves == ("f",) and not len(tick.created)
    core.durable()
    assert core.left and core.next_tick(0) is None


# --- batches --------------------------------------------------------------------------------------


def test_a_front_that_is_told_to_leave_while_a_promise_is_out_still_takes_leave() -> None:
    core = started()
    assert beat(core.next_tick(9 * SLACK_NS)) == 9
    core.leave()
    core.durable()
    assert not core.left
    tick = core.next_tick(9 * SLACK_NS)
    assert tick is not None and tick.leaves == ("f",)
    core.durable()
    assert core.left


def test_a_batch_that_was_not_published_is_sealed_again_unchanged() -> None:
    core = started()
    core.label(SLACK_NS)
    sealed = core.seal()
    core.label(2 * SLACK_NS)
    assert core.seal() is sealed
    assert sealed is not None and sealed.slots.tolist() == [1]
    assert beat(core.next_tick(9 * SLACK_NS)) == 1
    core.durable()
    publish(core)
    later = core.seal()
    assert later is not None and (later.number, later.slots.tolist()) == (1, [2])


def test_a_withdrawn_batch_gives_back_its_number_unless_a_later_one_has_labels() -> None:
    core = started()
    core.label(SLACK_NS)
    core.seal()
    core.withdraw()
    assert core.label(SLACK_NS)[1] == 0
    core.seal()
    assert core.label(SLACK_NS)[1] == 1
    core.withdraw()
    assert core.label(SLACK_NS)[1] == 1
    core.validate()


def test_a_batch_needs_the_number_and_the_slots_that_were_labelled() -> None:
    core = started()
    core.label(4 * SLACK_NS)
    with pytest.raises(StateError, match="batch 0, which is not sealed"):
        core.published(items_batch(SEGMENT, 0, [4], [1]))
    core.seal()
    with pytest.raises(StateError, match="slots 3 to 4, labelled were 4 to 4"):
        core.published(items_batch(SEGMENT, 0, [3, 4], [1, 1]))
    with pytest.raises(ValueError, match="one length"):
        items_batch(SEGMENT, 0, [4, 4], [1])


def test_an_open_batch_is_bounded() -> None:
    core = FrontCore("f", SEGMENT, SLACK_NS, max_open_items=10)
    core.grant(0, 0, 0)
    core.label_many(0, 9)
    with pytest.raises(StateError, match="2 more would pass the limit of 10; publish first"):
        core.label_many(0, 2)
    assert core.open_items == 9


@given(st.lists(st.tuples(st.integers(-9, 9), st.integers(1, 2**64 - 1)), min_size=1), st.data())
def test_a_fingerprint_is_of_the_items_in_any_order(
    items: list[tuple[int, int]], data: st.DataObject
) -> None:
    def batch(rows: list[tuple[int, int]]) -> PublishedBatch:
        slots, values = zip(*rows, strict=True)
        return items_batch(SEGMENT, 0, slots, np.array(values, np.uint64))

    one = batch(items)
    assert one.fingerprint == batch(data.draw(st.permutations(items))).fingerprint
    assert one.fingerprint != batch([*items, (0, 77)]).fingerprint
    assert sum(row[3] for row in one.created.rows()) == len(items)


# --- the clock ------------------------------------------------------------------------------------


def test_a_clock_that_steps_back_is_measured_and_reported_once_for_each_doubling() -> None:
    core = started()
    core.label(1_000_000_000)
    for back_ms in (5, 9, 10, 15, 20, 500, 700):
        core.label(1_000_000_000 - back_ms * 1_000_000)
    reported = [(report.fault, report.amount_ns // 1_000_000) for report in core.clock_reports]
    assert reported == [(ClockFault.STEPPED_BACK, ms) for ms in (10, 20, 500)]
    assert core.clock.measured_ns[ClockFault.STEPPED_BACK] == 700_000_000
    assert "stepped back by 10 ms, which is not within the slack of 10 ms" in str(
        core.clock_reports[0]
    )


@pytest.mark.parametrize("off_ms", [-30, 30])
def test_a_clock_that_runs_off_from_a_steady_one_is_measured_and_reported(off_ms: int) -> None:
    core = started()
    core.label(0, 77)
    core.label(1_000_000_000, 1_000_000_077)
    assert not core.clock_reports
    core.next_tick(2_000_000_000 + off_ms * 1_000_000, 2_000_000_077)
    assert not core.clock_reports, "items wait: the promise reads no clock"
    core.label(2_000_000_000 + off_ms * 1_000_000, 2_000_000_077)
    assert [(r.fault, r.amount_ns) for r in core.clock_reports] == [
        (ClockFault.RAN_OFF, off_ms * 1_000_000)
    ]


def test_a_clock_behind_the_grant_is_reported() -> None:
    core = started(slot=100, clock_ns=90 * SLACK_NS)
    assert [(r.fault, r.amount_ns) for r in core.clock_reports] == [
        (ClockFault.BEHIND, 10 * SLACK_NS)
    ]
    assert not started(slot=100, clock_ns=100 * SLACK_NS - 1).clock_reports


# --- starting again -------------------------------------------------------------------------------


def batches(*slots: int) -> list[PublishedBatch]:
    return [items_batch(SEGMENT, n, [slot], [n + 1]) for n, slot in enumerate(slots)]


def test_a_restarted_front_commits_what_was_published_beyond_the_last_durable_batch() -> None:
    published = batches(3, 4, 6, 6)
    core = FrontCore("f", SEGMENT, SLACK_NS)
    core.recover(published, Batch("f", 1, published[1].fingerprint))
    core.grant(0, 4, 0)
    tick = core.next_tick(9 * SLACK_NS)
    assert tick is not None
    assert [row[1:3] for row in tick.created.rows()] == [(6, 3), (6, 4)]
    assert tick.batch == Batch("f", 3, published[3].fingerprint)
    assert core.label(0) == (6, 4, 0), "labels go on from the last published one"


def test_what_the_tracker_has_may_be_gone_from_the_record() -> None:
    core = FrontCore("f", SEGMENT, SLACK_NS)
    core.recover([], Batch("f", 8, b"x"))
    core.grant(0, 70, 0)
    assert core.label(0) == (70, 9, 0), "labels go on from the last promise"


def test_a_record_that_was_rewritten_is_refused() -> None:
    core = FrontCore("f", SEGMENT, SLACK_NS)
    with pytest.raises(StateError, match=r"published batch 1 differs .* restore it"):
        core.recover(batches(3, 4), Batch("f", 1, b"other"))
    with pytest.raises(StateError, match="published batch 0 comes after 1"):
        core.recover(reversed(batches(3, 4)), None)


def test_where_the_pipeline_began_anew_items_below_are_not_created_again() -> None:
    across = items_batch(SEGMENT, 1, [4, 5, 6], [20, 21, 22])
    core = FrontCore("f", SEGMENT, SLACK_NS)
    core.recover([*batches(3), across], None, replay_from=5)
    core.grant(5, 5, 0)
    tick = core.next_tick(9 * SLACK_NS)
    assert tick is not None
    assert [row[1:3] for row in tick.created.rows()] == [(5, 21), (6, 22)]
    assert tick.batch == Batch("f", 1, across.fingerprint)
    assert core.label(0)[:2] == (6, 2), "numbers and labels go on"


class AnyLife(RuleBasedStateMachine):
    """A front through any sequence of steps and crashes, beside a tracker that remembers durable
    ticks. Nothing is promised that is not created; each published item is created exactly once."""

    @initialize(grant=st.integers(-20, 20))
    def begin(self, grant: int) -> None:
        self.pinned = grant
        self.record: list[PublishedBatch] = []  # what readers can see
        self.created: Counter[tuple[int, int]] = Counter()  # of durable ticks: slot, value
        self.promised = LOWEST_SLOT
        self.last: Batch | None = None
        self.labels: list[int] = []
        self.tick: TickContent | None = None
        self.core = self.join()

    def join(self) -> FrontCore:
        core = FrontCore("f", SEGMENT, 10)
        core.recover(self.record, self.last)
        core.grant(self.pinned, self.promised, 0)
        return core

    def note(self, slots: list[int]) -> None:
        assert all(slot >= max(self.promised, self.pinned) for slot in slots)
        self.labels += slots
        assert self.labels == sorted(self.labels)

    @rule(clock_ns=st.integers(-300, 300))
    def label(self, clock_ns: int) -> None:
        self.note([self.core.label(clock_ns)[0]])

    @rule(readings=st.lists(st.integers(-300, 300), max_size=4))
    def label_array(self, readings: list[int]) -> None:
        self.note(self.core.label_at(readings)[2].tolist())

    @rule()
    def seal(self) -> None:
        self.core.seal()

    @precondition(lambda self: self.core.sealed is not None)
    @rule()
    def publish(self) -> None:
        self.record.append(publish(self.core))

    @precondition(lambda self: self.core.sealed is not None)
    @rule()
    def withdraw(self) -> None:
        self.core.withdraw()

    @precondition(lambda self: self.tick is None)
    @rule(clock_ns=st.integers(-300, 300))
    def commit(self, clock_ns: int) -> None:
        self.tick = self.core.next_tick(clock_ns)

    def apply(self) -> None:
        assert self.tick is not None
        for _, slot, checksum, _ in self.tick.created.rows():
            assert slot >= self.promised, "created below its promise"
            self.created[slot, checksum] += 1
        for beat in self.tick.heartbeats:
            assert beat.slot > self.promised
            self.promised = beat.slot
        if self.tick.batch is not None:
            assert self.last is None or self.tick.batch.id > self.last.id
            self.last = self.tick.batch

    @precondition(lambda self: self.tick is not None)
    @rule()
    def acknowledge(self) -> None:
        self.apply()
        self.core.durable()
        self.tick = None

    @precondition(lambda self: self.tick is not None)
    @rule()
    def refuse(self) -> None:
        self.core.refused()
        self.tick = None

    @rule(arrived=st.booleans())
    def crash(self, arrived: bool) -> None:
        """With a tick out that did or did not become durable, and labels that nobody has seen."""
        if self.tick is not None and arrived:
            self.apply()
        self.tick = None
        self.labels = [slot for batch in self.record for slot in (batch.low, batch.high)]
        self.core = self.join()

    @invariant()
    def holds(self) -> None:
        self.core.validate()
        published: Counter[tuple[int, int]] = Counter()
        for batch in self.record:
            published.update((slot, checksum) for _, slot, checksum, _ in batch.created.rows())
        assert self.created <= published
        missing = published - self.created
        assert all(slot >= self.promised for slot, _ in missing), (missing, self.promised)

    def teardown(self) -> None:
        """Left alone, it commits all that it published."""
        if self.tick is not None:
            self.acknowledge()
        while self.core.waiting:
            self.tick = self.core.next_tick(0)
            self.acknowledge()
        self.holds()
        assert sum(self.created.values()) == sum(len(batch.created) for batch in self.record)


TestAnyLife = AnyLife.TestCase


# --- coming back after an eviction ----------------------------------------------------------------


def test_what_is_late_is_passed_over_and_the_rest_is_created_under_its_number() -> None:
    """Granted 50: the first batch is late as a whole, of the second a part is, the third is in time. A
    file is late or in time as a whole, under its slot."""
    earlier = [
        items_batch(SEGMENT, 0, [40, 41], [1, 2]),
        items_batch(SEGMENT, 1, [49, 50, 60], [4, 8, 16]),
        units_batch(SEGMENT, 2, 49, ["late"]),
        units_batch(SEGMENT, 3, 50, ["in-time"]),
    ]
    core = FrontCore("f", SEGMENT, SLACK_NS)
    core.recover(earlier, None)
    core.grant(50, LOWEST_SLOT, 0)
    assert core.pass_over_late(50) == [0, 1, 2]
    tick = core.next_tick(0)
    assert tick is not None
    rows = [(slot, count) for _, slot, _, count in tick.created.rows()]
    assert rows == [(50, 1), (60, 1), (50, 1)]
    assert [unit.name for unit in tick.units_created] == ["in-time"]
    assert tick.batch is not None and (tick.batch.id, tick.batch.scope) == (3, "f")
    core.durable()
    assert core.last_durable == 3 and core.newest_published == 3
    core.validate()

    again = FrontCore("f", SEGMENT, SLACK_NS)
    again.recover(earlier, Batch("f", 1, earlier[1].fingerprint))
    again.grant(70, LOWEST_SLOT, 0)
    assert again.pass_over_late(70) == [2, 3], "of the one that was taken in part nothing is due"
    assert again.next_tick(0) is not None
    again.validate()


def test_nothing_is_passed_over_of_a_front_that_was_not_evicted() -> None:
    """It is granted what it was granted before, and has published nothing below what it promised."""
    core = FrontCore("f", SEGMENT, SLACK_NS)
    core.recover([items_batch(SEGMENT, 0, [40, 60], [1, 2])], None)
    core.grant(10, 40, 0)
    assert core.pass_over_late(10) == []
    assert core.waiting == 1
