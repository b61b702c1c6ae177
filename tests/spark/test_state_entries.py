"""The entries of a query, against a list of every row that is still in its state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from local_tracker.spark.state.entries import MAX_ENTRIES, Entries, Told
from tracker.client.state_names import UNKNOWN, UNSEEN, Rows, bound_of
from tracker.core.model import HeldSlot, HoldMove
from tracker.core.model.slots import FOREVER

HOUR_MS = 3_600_000
NEVER_MS = 10**15


def told(over_ms: int, bound_ms: int, earlier_ms: int | None = None) -> Told:
    return Told(over_ms, bound_ms, earlier_ms)


class Holds:
    """What a tracker has of a node's holds: it applies a tick whole, or refuses it."""

    def __init__(self) -> None:
        self.at: dict[str, tuple[int, int]] = {}

    def apply(self, moves: Iterable[HoldMove], consumed: Mapping[int, int]) -> None:
        """consumed: from which slots on what the same tick consumes lets holds begin."""
        names = [move.name for move in moves]
        assert len(set(names)) == len(names), "a tick names a hold twice"
        backed = dict(consumed)
        for segment, slot in self.at.values():
            backed[segment] = min(slot, backed.get(segment, slot))
        for move in moves:
            if move.slot == FOREVER:
                assert self.at.pop(move.name)[0] == move.segment
            else:
                assert move.name not in self.at, "a hold is moved"
                assert backed[move.segment] <= move.slot, "nothing keeps min time from there"
                self.at[move.name] = move.segment, move.slot

    def found(self) -> Entries:
        return Entries.found(HeldSlot(n, s, slot, 1, 1) for n, (s, slot) in self.at.items())


# --- by example -----------------------------------------------------------------------------------


def test_what_a_batch_consumed_is_held_until_the_watermark_reaches_its_bound() -> None:
    entries, moves = Entries({}).after({1: 10}, told(0, HOUR_MS))
    assert moves == (HoldMove(f"state:1:{HOUR_MS}", 1, 10),)
    entries, moves = entries.after({}, told(HOUR_MS - 1, HOUR_MS))
    assert moves == ()
    assert entries.labels({}) == {1: 10}
    entries, moves = entries.after({}, told(HOUR_MS, HOUR_MS))
    assert moves == (HoldMove(f"state:1:{HOUR_MS}", 1, FOREVER),)
    assert (len(entries), entries.labels({})) == (0, {})


def test_batches_of_one_window_share_the_hold_of_the_first() -> None:
    entries, _ = Entries({}).after({1: 10}, told(0, HOUR_MS))
    entries, moves = entries.after({1: 11}, told(5, HOUR_MS))
    assert moves == ()
    assert entries.bounds() == [(1, HOUR_MS, 10)]


def test_an_older_slot_of_the_same_bound_takes_the_place_of_the_hold_that_is_there() -> None:
    entries, _ = Entries({}).after({1: 10}, told(0, HOUR_MS))
    for slot, new, old in ((8, ":2", ""), (6, "", ":2")):
        entries, moves = entries.after({1: slot}, told(0, HOUR_MS))
        name = f"state:1:{HOUR_MS}"
        assert moves == (HoldMove(name + new, 1, slot), HoldMove(name + old, 1, FOREVER))


def test_an_entry_that_another_covers_is_not_kept() -> None:
    entries, _ = Entries({}).after({1: 10}, told(0, 2 * HOUR_MS))
    entries, moves = entries.after({1: 12}, told(0, HOUR_MS))
    assert moves == ()
    entries, moves = entries.after({1: 5}, told(0, 3 * HOUR_MS))
    assert {(move.name, move.slot) for move in moves} == {
        (f"state:1:{3 * HOUR_MS}", 5),
        (f"state:1:{2 * HOUR_MS}", FOREVER),
    }


def test_a_batch_that_emits_and_consumes_is_labelled_by_the_lower_and_begins_its_own_entry() -> (
    None
):
    entries, _ = Entries({}).after({1: 10, 2: 15}, told(0, HOUR_MS))
    assert entries.labels({1: 20, 2: 12, 3: 7}) == {1: 10, 2: 12, 3: 7}
    entries, moves = entries.after({1: 20, 2: 22}, told(HOUR_MS, 2 * HOUR_MS))
    assert entries.lowest() == {1: 20, 2: 22}
    assert len(moves) == 4


def test_what_a_batch_absorbed_below_its_own_watermark_it_has_emitted() -> None:
    assert Entries({}).after({1: 10}, told(HOUR_MS, HOUR_MS))[1] == ()


def test_a_bound_that_is_not_known_yet_is_held_until_a_later_batch_tells_it() -> None:
    entries, _ = Entries({}).after({1: 10}, Told(0, UNKNOWN))
    entries, moves = entries.after({1: 9}, Told(NEVER_MS, UNKNOWN))
    assert {move.name for move in moves} == {"state:1:unknown", "state:1:unknown:2"}
    entries, moves = entries.after({}, told(0, 2 * HOUR_MS, HOUR_MS))
    assert moves == (
        HoldMove(f"state:1:{HOUR_MS}", 1, 9),
        HoldMove("state:1:unknown:2", 1, FOREVER),
    )
    assert entries.after({}, told(HOUR_MS, 2 * HOUR_MS))[0].lowest() == {}


def test_what_no_watermark_will_tell_is_held_whatever_watermarks_come() -> None:
    entries, _ = Entries({}).after({1: 10}, Told(0, UNSEEN))
    entries, moves = entries.after({}, told(NEVER_MS, NEVER_MS, NEVER_MS))
    assert (moves, entries.lowest()) == ((), {1: 10})
    assert entries.emptied() == (HoldMove("state:1:unseen", 1, FOREVER),)


def test_where_nobody_looks_into_the_state_any_more_a_watermark_lets_go() -> None:
    holds = Holds()
    entries, moves = Entries({}).after({1: 10}, Told(0, Rows(100)))
    holds.apply(moves, {1: 10})
    entries, moves = entries.after({1: 12}, Told(0, Rows(200)))
    holds.apply(moves, {1: 12})
    assert entries.later(0) == ()
    holds.apply(entries.later(0, lambda event_time_ms: event_time_ms + 50), {})
    found = holds.found()
    found.validate()
    assert sorted(found.bounds(), key=str) == [(1, 150, 10), (1, 250, 12)]


def test_what_is_in_state_bounds_all_that_no_watermark_has_told() -> None:
    entries, _ = Entries({}).after({1: 10}, Told(0, UNSEEN))
    entries, _ = entries.after({1: 8, 2: 9}, Told(0, UNKNOWN))
    entries, moves = entries.after({1: 12}, Told(0, UNKNOWN, in_state_ms=HOUR_MS))
    assert sorted(entries.bounds()) == [(1, HOUR_MS, 8), (2, HOUR_MS, 9)]
    assert {move.name for move in moves if move.slot == FOREVER} == {
        "state:1:unseen", "state:1:unknown", "state:2:unknown",
    }  # fmt: skip
    assert entries.after({}, Told(HOUR_MS, UNKNOWN))[0].lowest() == {}


@pytest.mark.parametrize("name", ["state:1:5", "state:1:-5:2", "state:0:unknown", "state:3:unseen"])
def test_names_say_their_bounds(name: str) -> None:
    entries = Entries.found([HeldSlot(name, 1, 4, 1, 1)])
    assert entries.bounds() == [(1, bound_of(name), 4)]
    assert bound_of(name) is not None


@pytest.mark.parametrize("name", ["hold", "state:1:x", "state:1:5:3", "state:1:", "state:1:5 "])
def test_a_hold_of_another_name_is_kept_and_never_taken_for_an_entry(name: str) -> None:
    entries = Entries.found([HeldSlot(name, 1, 4, 1, 1)])
    assert bound_of(name) is None
    entries, moves = entries.after({}, told(NEVER_MS, NEVER_MS, NEVER_MS))
    assert (moves, entries.labels({})) == ((), {1: 4})
    assert entries.emptied() == (HoldMove(name, 1, FOREVER),)


@pytest.mark.parametrize("segments", [1, 3])
def test_more_bounds_than_there_may_be_entries_are_rounded_up(segments: int) -> None:
    """A join within a time, in batches of a second: a bound of its own for each, were it not for the limit."""
    holds, entries, within = Holds(), Entries({}), 4 * MAX_ENTRIES
    most_late = 0
    for second in range(1, 3 * within):
        slots = dict.fromkeys(range(segments), second)
        entries, moves = entries.after(slots, told((second - within) * 1000, second * 1000))
        holds.apply(moves, slots)
        assert len(entries) <= MAX_ENTRIES
        necessary = max(1, second - within + 1)
        for slot in entries.lowest().values():
            assert slot <= necessary
            most_late = max(most_late, necessary - slot)
    entries.validate()
    # Held for longer by a small part of what it is held for.
    assert 0 < most_late <= within * 4 * segments / MAX_ENTRIES


def test_times_before_1970_are_bounds_like_others() -> None:
    most = 4
    entries = Entries({}, most)
    for at in range(-20, 20):
        entries, _ = entries.after({1: 100 + at}, told(-10_000, at * 777))
        entries.validate()
        assert len(entries) <= most


# --- by an oracle ---------------------------------------------------------------------------------

DELAY_MS, WINDOW_MS = 5, 20


@dataclass(frozen=True)
class Row:
    slot: int
    event_ms: int

    @property
    def out_ms(self) -> int:
        """The watermark by which it is emitted."""
        return self.event_ms // WINDOW_MS * WINDOW_MS + WINDOW_MS


@dataclass(frozen=True)
class Step:
    """A batch: its rows, and what happens to its tick: refused at first, or the process dies before or after it
    is durable."""

    rows: tuple[Row, ...]
    refused: bool
    dies: str
    is_unseen: bool
    is_read: bool
    """Whether the state is read after it."""


ROWS = st.builds(Row, st.integers(0, 60), st.integers(0, 150))
STEPS = st.lists(
    st.builds(
        Step,
        st.lists(ROWS, max_size=3).map(tuple),
        st.booleans(),
        st.sampled_from(["", "", "before", "after"]),
        st.sampled_from([False] * 9 + [True]),
        st.sampled_from([False] * 4 + [True]),
    ),
    max_size=25,
)
EDGES = st.dictionaries(st.integers(1, 3), st.integers(0, 7), min_size=1)
"""Segments that the query creates in, with the delays of the edges."""


class Query:
    """A query over windows, as Spark runs it: a row stays in a list until its window is emitted."""

    def __init__(self, edges: Mapping[int, int], most: int) -> None:
        self.edges, self.most = edges, most
        self.holds = Holds()
        self.state: list[Row] = []
        self.unseen: list[Row] = []
        self.watermark_ms = self.latest_ms = 0
        self.entries = Entries({}, most)

    def run(self, step: Step) -> None:
        at_ms = self.watermark_ms
        rows = [row for row in step.rows if row.out_ms > at_ms]
        slots = {s: min(r.slot for r in step.rows) + d for s, d in self.edges.items() if step.rows}
        self.state += rows
        if step.is_unseen and step.rows:
            self.unseen += rows
        else:
            self.latest_ms = max([self.latest_ms, *(row.event_ms for row in step.rows)])
        self.watermark_ms = max(at_ms, self.latest_ms - DELAY_MS)
        emitted = [row for row in self.state if row.out_ms <= at_ms]
        self.state = [row for row in self.state if row.out_ms > at_ms]
        told = self.told(step, at_ms)
        if step.is_read and self.state:
            told = replace(told, in_state_ms=max(row.out_ms for row in self.state))
        self.commit(step, slots, emitted, told)
        self.check_held(at_ms)
        if told.in_state_ms is not None:
            assert all(isinstance(bound, int) for _, bound, _ in self.entries.bounds())

    def told(self, step: Step, at_ms: int) -> Told:
        bound_ms = (self.watermark_ms + DELAY_MS) // WINDOW_MS * WINDOW_MS + WINDOW_MS
        if step.is_unseen and step.rows:
            return Told(at_ms, UNSEEN)
        return Told(at_ms, bound_ms) if self.watermark_ms else Told(at_ms, UNKNOWN, None)

    def commit(self, step: Step, slots: Mapping[int, int], emitted: list[Row], told: Told) -> None:
        if isinstance(told.bound_ms, int):
            told = replace(told, earlier_ms=told.bound_ms)
        if step.dies == "before":
            self.entries = self.found()
        labels = self.entries.labels(slots)
        after, moves = self.entries.after(slots, told)
        if step.refused:  # nothing has changed, and the same comes of it again
            again = self.entries.after(slots, told)
            assert (again[1], again[0].bounds()) == (moves, after.bounds())
        for segment, delay in self.edges.items():
            for row in emitted:
                assert labels[segment] <= row.slot + delay, "a label above a row that is emitted"
        self.holds.apply(moves, slots)
        self.entries = self.found() if step.dies == "after" else after
        assert sorted(after.bounds(), key=str) == sorted(self.found().bounds(), key=str)

    def found(self) -> Entries:
        """After a restart."""
        return Entries.found(
            (HeldSlot(n, s, slot, 1, 1) for n, (s, slot) in self.holds.at.items()), self.most
        )

    def check_held(self, at_ms: int) -> None:
        self.entries.validate()
        lowest = dict.fromkeys(self.edges, FOREVER)
        for segment, slot in self.holds.at.values():
            lowest[segment] = min(slot, lowest[segment])
        for segment, delay in self.edges.items():
            for row in self.state:
                assert lowest[segment] <= row.slot + delay, "min time passes a row in state"
        for _, bound, _ in self.entries.bounds():
            assert not isinstance(bound, int) or bound > at_ms, "an entry that is over"


@given(STEPS, EDGES, st.sampled_from([8, MAX_ENTRIES]))
def test_no_hold_lies_above_a_row_in_state_and_no_label_above_one_that_is_emitted(
    steps: list[Step], edges: dict[int, int], most: int
) -> None:
    query = Query(edges, 6 * len(edges) if most == 8 else most)
    for step in steps:
        query.run(step)
    event(f"{min(len(query.entries), 6)} entries at the end")
    # The watermark passes everything: what it has seen is over, and nothing else.
    end_ms = 10_000
    query.entries, moves = query.entries.after({}, Told(end_ms, end_ms, end_ms))
    query.holds.apply(moves, {})
    assert {bound for _, bound, _ in query.entries.bounds()} <= {UNSEEN}


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 40), st.integers(0, 40)), max_size=40))
def test_below_the_limit_the_lowest_held_is_exactly_that_of_all_entries_that_are_not_over(
    batches: list[tuple[int, int, int]],
) -> None:
    entries, every = Entries({}), list[tuple[int, int]]()
    for slot, bound_ms, over_ms in batches:
        entries, _ = entries.after({1: slot}, told(over_ms, bound_ms))
        every = [(s, b) for s, b in [*every, (slot, bound_ms)] if b > over_ms]
        assert entries.lowest().get(1) == min((s for s, _ in every), default=None)


def test_what_a_batch_consumed_is_held_by_parts_whose_bounds_are_known_apart() -> None:
    entries, _ = Entries({}).after({1: 7}, Told(0, 90), [(50, {1: 5}), (100, {1: 9})])
    assert entries.lowest() == {1: 5}
    entries, _ = entries.after({}, Told(50, UNKNOWN))
    assert entries.lowest() == {1: 7}
    entries, _ = entries.after({}, Told(90, UNKNOWN))
    assert entries.lowest() == {1: 9}
