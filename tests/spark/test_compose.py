"""From a batch's units and the acks of its tasks to one tick."""

from __future__ import annotations

from dataclasses import replace

import pytest

from local_tracker.spark.query.compose import (
    BatchUnits,
    ComposeError,
    CreatedUnit,
    Evaluations,
    compose,
    count_contributions,
    fingerprint,
    label_slots,
    same_input,
)
from tracker.core.home.rounds import check_rounds, ways_round
from tracker.core.model import Batch, Cells, Edge, PipelineSpec, Refused, StagedContribution, Unit
from tracker.core.model.ack_values import unit_value

PARSE, ENRICH, AUDIT = 0, 1, 2
ENTRY, LOOP = 0, 1
A, B, OUT = "file:///in/a", "file:///in/b", "file:///out/c"


def batch(consumed: tuple[Unit, ...], created: tuple[CreatedUnit, ...]) -> BatchUnits:
    slots = label_slots(consumed, {(PARSE, ENRICH): 0, (PARSE, AUDIT): 3})
    return BatchUnits("q", 7, b"f", consumed, created, slots)


def test_a_tick_takes_out_what_was_read_and_puts_in_what_was_written() -> None:
    tick = compose(batch((Unit(PARSE, A, 12), Unit(PARSE, B, 10)), (CreatedUnit(OUT, (ENRICH,)),)))
    assert sorted(tick.consumed.rows()) == [
        (PARSE, 10, unit_value(B), 1),
        (PARSE, 12, unit_value(A), 1),
    ]
    # Labelled with the oldest slot that was consumed.
    assert tick.created.rows() == [(ENRICH, 10, unit_value(OUT), 1)]
    assert tick.units_created == (Unit(ENRICH, OUT, 10),)
    assert set(tick.units_consumed) == {Unit(PARSE, A, 12), Unit(PARSE, B, 10)}
    assert tick.batch == Batch("q", 7, b"f")


def test_a_unit_with_two_readers_is_created_in_both_segments_with_the_delay_of_each_edge() -> None:
    tick = compose(batch((Unit(PARSE, A, 5),), (CreatedUnit(OUT, (ENRICH, AUDIT)),)))
    value = unit_value(OUT)
    assert sorted(tick.created.rows()) == [(ENRICH, 5, value, 1), (AUDIT, 8, value, 1)]


def test_a_unit_that_is_listed_twice_is_created_once() -> None:
    twice = (CreatedUnit(OUT, (ENRICH,)), CreatedUnit(OUT, (ENRICH, AUDIT)))
    tick = compose(batch((Unit(PARSE, A, 5),), twice))
    value = unit_value(OUT)
    assert sorted(tick.created.rows()) == [(ENRICH, 5, value, 1), (AUDIT, 8, value, 1)]


def test_units_of_one_slot_share_a_cell() -> None:
    tick = compose(batch((Unit(PARSE, A, 5), Unit(PARSE, B, 5)), ()))
    assert tick.consumed.rows() == [(PARSE, 5, unit_value(A) ^ unit_value(B), 2)]
    assert len(tick.created) == 0


def test_an_empty_batch_is_an_empty_tick_with_its_key() -> None:
    tick = compose(batch((), ()))
    assert len(tick.created) == len(tick.consumed) == 0 and tick.batch == Batch("q", 7, b"f")


def test_creating_without_a_label_is_refused() -> None:
    with pytest.raises(ComposeError, match="batch 7 of query q wrote file:///out/c"):
        compose(batch((), (CreatedUnit(OUT, (ENRICH,)),)))


def test_the_fingerprint_tells_input_from_what_it_means() -> None:
    created = [CreatedUnit(OUT, (ENRICH,))]
    first = fingerprint('{"logOffset":1}', {PARSE: (A, B)}, created)
    assert len(first) == 16
    assert first == fingerprint('{"logOffset":1}', {PARSE: (B, A)}, created)
    for other in (
        fingerprint('{"logOffset":2}', {PARSE: (A, B)}, created),
        fingerprint('{"logOffset":1}', {PARSE: (A,)}, created),
    ):
        assert first != other and not same_input(first, other)
    for other in (  # another reader, or another place in the graph
        fingerprint('{"logOffset":1}', {PARSE: (A, B)}, []),
        fingerprint('{"logOffset":1}', {ENRICH: (A, B)}, created),
    ):
        assert first != other and same_input(first, other)


# --- acks of user code ----------------------------------------------------------------------------


def ack(partition: int, value: int, **other: object) -> StagedContribution:
    """The side output that one task attempt of operator `parse` created."""
    attempt = StagedContribution(
        "q", "run1", 7, 1, "parse", 4, partition, 100 + partition,
        Cells.of([(AUDIT, 5, value, 1)]), Cells.empty(),
    )  # fmt: skip
    return replace(attempt, **other)  # type: ignore[arg-type]


def counted(
    *staged: StagedContribution,
    runs: tuple[str, ...] = ("run1",),
    tasks: dict[int, int] | None = None,
    published_by: str | None = None,
) -> list[tuple[int, int, int, int]]:
    evaluations = Evaluations(runs, published_by, (tasks or {}).get)
    created, consumed = count_contributions("q", 7, staged, evaluations)
    assert len(consumed) == 0
    return created.rows()


def test_each_partition_counts_once() -> None:
    assert counted(ack(0, 3), ack(1, 9), tasks={4: 2}) == [(AUDIT, 5, 3 ^ 9, 2)]


def test_nothing_staged_is_nothing() -> None:
    assert counted() == []
    assert counted(ack(0, 3, batch=8), ack(0, 3, query="other")) == []


def test_an_operator_that_must_hand_over_and_did_not_is_named() -> None:
    known = Evaluations(("run1",), operators=("parse", "enrich"))
    with pytest.raises(ComposeError, match=r"'enrich' in batch 7 .* handed nothing over"):
        count_contributions("q", 7, [ack(0, 3)], known)
    both = [ack(0, 3), ack(0, 9, operator="enrich")]
    assert count_contributions("q", 7, both, known)[0].rows() == [(AUDIT, 5, 3 ^ 9, 2)]


def test_two_attempts_of_a_partition_count_once() -> None:
    assert counted(ack(0, 3), ack(0, 3, attempt=7), ack(1, 9)) == [(AUDIT, 5, 3 ^ 9, 2)]


def test_two_evaluations_count_once() -> None:
    second = [ack(p, v, execution=2, stage=6) for p, v in ((0, 3), (1, 9))]
    assert counted(ack(0, 3), ack(1, 9), *second, tasks={4: 2, 6: 2}) == [(AUDIT, 5, 10, 2)]


def test_a_partial_evaluation_is_ignored_beside_a_complete_one() -> None:
    taken = ack(0, 3, execution=0, stage=2)  # isEmpty() looks at one partition
    assert counted(taken, ack(0, 3), ack(1, 9), tasks={2: 1, 4: 2}) == [(AUDIT, 5, 10, 2)]
    again = ack(1, 9, stage=8)  # a lost part of a stage, run again under another number
    assert counted(again, ack(0, 3), ack(1, 9), tasks={8: 1, 4: 2}) == [(AUDIT, 5, 10, 2)]


@pytest.mark.parametrize("tasks", [{2: 1, 4: 4}, {}])
def test_an_operator_that_was_read_in_part_is_refused(tasks: dict[int, int]) -> None:
    """By `take(n)`: Spark looks at one partition, then at four more, each time in a stage of as many tasks."""
    first, more = ack(0, 3, execution=0, stage=2), [ack(p, 1 << p) for p in range(1, 5)]
    with pytest.raises(
        ComposeError, match=r"'parse' in batch 7 .*stage 4: .*don't stop reading it"
    ):
        counted(first, *more, tasks=tasks)
    with pytest.raises(ComposeError, match="don't stop reading it"):
        counted(*more, tasks=tasks)


def test_operators_count_apart() -> None:
    rows = counted(ack(0, 3), ack(0, 9, operator="enrich"), tasks={4: 1})
    assert rows == [(AUDIT, 5, 3 ^ 9, 2)]


def test_unequal_attempts_name_operator_and_batch() -> None:
    with pytest.raises(ComposeError, match=r"'parse' in batch 7 .* partition 0 of stage 4"):
        counted(ack(0, 3), ack(0, 4, attempt=7))


def test_unequal_evaluations_name_operator_and_batch() -> None:
    with pytest.raises(ComposeError, match=r"'parse' in batch 7 .* stages 4 and 6"):
        counted(ack(0, 3), ack(0, 4, execution=2, stage=6))


def test_no_complete_evaluation_is_an_error() -> None:
    with pytest.raises(ComposeError, match=r"'parse' in batch 7 .*stage 4: 1 of 2"):
        counted(ack(0, 3), tasks={4: 2})


def test_a_new_run_replaces_what_an_earlier_one_left() -> None:
    old = ack(0, 4), ack(1, 8), ack(2, 16)  # three of ten partitions; then the driver was killed
    new = [ack(p, v, run="run2") for p, v in ((0, 3), (1, 9))]
    assert counted(*old, *new, runs=("run1", "run2"), tasks={4: 2}) == [(AUDIT, 5, 10, 2)]
    # ... and was killed again after the batch was over: the third run finds it complete.
    runs = ("run1", "run2", "run3")
    assert counted(*old, *new, runs=runs, tasks={4: 7}) == [(AUDIT, 5, 10, 2)]
    # A run that was killed before it was noted is the newest but for this one.
    unnoted = [replace(c, run="lost") for c in new]
    assert counted(*old, *unnoted, runs=("run1", "run3")) == [(AUDIT, 5, 10, 2)]


def test_the_evaluation_that_was_published_counts() -> None:
    glance = ack(0, 3, run="run2", stage=1)  # the new run only looked whether there is anything
    rows = counted(ack(0, 3), ack(1, 9), glance, runs=("run1", "run2"), published_by="run1")
    assert rows == [(AUDIT, 5, 10, 2)]


@pytest.mark.parametrize(
    ("read", "label"),
    [
        (((LOOP, 7),), 8),  # the last round of time 1 alone: its home says where the loop is to end
        (((LOOP, 7), (LOOP, 10)), 11),
        (((LOOP, 7), (LOOP, 10), (LOOP, 9)), 10),
        (((LOOP, 7), (ENTRY, 8)), 8),
        (((LOOP, 6), (LOOP, 10)), 7),
    ],
)
def test_what_reads_the_last_round_of_a_time_and_more_creates_by_the_rest(
    read: tuple[tuple[int, int], ...], label: int
) -> None:
    """Of four rounds; the label along the edge that raises the round would be one of the next time, for good."""
    edges = (Edge("entry", "loop"), Edge("loop", "loop", 1))
    spec = PipelineSpec("p", ("entry", "loop"), edges, rounds=4)
    units = [Unit(segment, f"file:///{slot}", slot) for segment, slot in read]
    delays = {(ENTRY, LOOP): 0, (LOOP, LOOP): 1}
    assert label_slots(units, delays, spec.times) == {LOOP: label}
    created = Cells.of([(LOOP, label, 1, 1)])
    consumed = Cells.of((unit.segment, unit.slot, 2, 1) for unit in units)
    if len(read) == 1:
        with pytest.raises(Refused, match="end the loop there"):
            check_rounds(spec, ways_round(spec), created, consumed)
    else:
        check_rounds(spec, ways_round(spec), created, consumed)
