"""A loop with a counter: (time, round) packed into slots, each round over by itself, and its bound kept."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.driver import Cluster, HandNode, refused
from tracker.core.home.registration import check_spec
from tracker.core.home.rounds import check_rounds, ways_round
from tracker.core.log import RestartPipeline
from tracker.core.model import Cells, Edge, PipelineSpec, RefusalCode, Refused, Restart
from tracker.core.model.rounds import MAX_ROUNDS, Rounds, RoundsExceededError
from tracker.core.model.slots import FOREVER, HIGHEST_SLOT, LOWEST_SLOT
from tracker.wire.pipelines import spec_from_pb, spec_to_pb

R = 4
TIMES = Rounds(R)
SPEC = PipelineSpec(
    "p",
    ("read", "turn", "done"),
    (Edge("read", "turn"), Edge("turn", "turn", 1), Edge("turn", "done")),
    fronts=("a",),
    rounds=R,
)
READ, TURN, DONE = 0, 1, 2

numbers = st.integers(min_value=1, max_value=MAX_ROUNDS)
slots = st.integers(min_value=LOWEST_SLOT, max_value=HIGHEST_SLOT)


# --- packing --------------------------------------------------------------------------------------


@given(numbers, slots)
def test_a_slot_is_a_time_and_a_round_of_it(rounds: int, slot: int) -> None:
    time, number = Rounds(rounds).split(slot)
    assert 0 <= number < rounds
    assert Rounds(rounds).slot(time, number) == slot


@given(numbers, st.lists(slots, min_size=2))
def test_slots_are_ordered_by_time_and_then_by_round(rounds: int, some: list[int]) -> None:
    assert [Rounds(rounds).split(slot) for slot in sorted(some)] == sorted(
        Rounds(rounds).split(slot) for slot in some
    )


@given(numbers, slots)
def test_whole_times_lie_on_both_sides_of_a_slot(rounds: int, slot: int) -> None:
    times = Rounds(rounds)
    below, above = times.whole(slot), times.next_whole(slot)
    assert below % rounds == 0 and below >= LOWEST_SLOT
    assert below <= slot < below + rounds or slot < below == times.whole(LOWEST_SLOT)
    assert above == FOREVER or (above % rounds == 0 and slot <= above < slot + rounds)


@given(slots)
def test_without_rounds_a_slot_is_a_time(slot: int) -> None:
    times = Rounds()
    assert times.whole(slot) == times.next_whole(slot) == slot
    assert times.split(slot) == (slot, 0)
    assert times.over(slot) == slot + 1


@given(numbers, st.integers(min_value=-(10**9), max_value=10**9))
def test_a_time_is_over_with_its_last_round(rounds: int, time: int) -> None:
    times = Rounds(rounds)
    assert times.over(time) == times.over(time, rounds - 1) == times.slot(time + 1)
    assert all(times.over(time, n) == times.slot(time, n) + 1 for n in {0, rounds - 1})


def test_there_is_no_round_behind_the_last() -> None:
    assert TIMES.next_round(TIMES.slot(7, 2)) == TIMES.slot(7, 3)
    with pytest.raises(RoundsExceededError, match="time 7 has no round 4: its rounds are 0 to 3"):
        TIMES.next_round(TIMES.slot(7, 3))


def test_a_slot_beyond_all_is_refused() -> None:
    with pytest.raises(ValueError, match="slots are"):
        TIMES.slot(HIGHEST_SLOT // R + 1)
    for number in (0, -1, MAX_ROUNDS + 1):
        with pytest.raises(ValueError, match=f"1 to {MAX_ROUNDS}"):
            Rounds(number)


def test_slots_for_people() -> None:
    assert TIMES.text(29) == "time 7, round 1" and Rounds().text(29) == "slot 29"
    assert TIMES.text(FOREVER) == f"slot {FOREVER}"


# --- registering ----------------------------------------------------------------------------------

BAD: dict[str, tuple[PipelineSpec, str]] = {
    "no round": (replace(SPEC, rounds=0), "it has 0 rounds; a time may have 1 to 65536"),
    "too many rounds": (replace(SPEC, rounds=MAX_ROUNDS + 1), "it has 65537 rounds"),
    "a start within a time": (replace(SPEC, start_slot=R + 1), "start_slot 5 lies within a time"),
    "an edge that raises both": (
        replace(SPEC, edges=(Edge("turn", "turn", R + 1),)),
        "'turn' -> 'turn' has a delay of 5 slots",
    ),
}


@pytest.mark.parametrize("bad", BAD)
def test_a_pipeline_whose_rounds_cannot_be_is_refused(bad: str) -> None:
    spec, message = BAD[bad]
    with pytest.raises(Refused, match=message):
        check_spec(spec)


@pytest.mark.parametrize("rounds", [1, 2, 100, MAX_ROUNDS])
def test_rounds_go_over_the_wire(rounds: int) -> None:
    spec = replace(SPEC, rounds=rounds)
    assert spec_from_pb(spec_to_pb(spec)) == spec


def test_another_number_of_rounds_is_another_pipeline() -> None:
    cluster = Cluster(1)
    cluster.register(SPEC)
    answer = cluster.register(replace(SPEC, rounds=2 * R))
    refused(answer, RefusalCode.CONFLICT, "rounds: registered 4, asked 8")


# --- going round ----------------------------------------------------------------------------------


def looping(shards: int) -> tuple[Cluster, HandNode, HandNode]:
    """An item of time 2 in the loop, and nothing else to come below time 10."""
    cluster = Cluster(shards)
    cluster.register(SPEC)
    front = cluster.front(SPEC, "front")
    front.commit(created=[(READ, TIMES.slot(2), 1)])
    front.commit(heartbeats={"a": TIMES.slot(10)})
    worker = cluster.node(SPEC, "worker")
    worker.commit(consumed=[(READ, TIMES.slot(2), 1)], created=[(TURN, TIMES.slot(2), 10)])
    return cluster, front, worker


def test_each_round_is_over_by_itself_and_the_time_with_the_loop(shards: int) -> None:
    cluster, _, worker = looping(shards)
    for number in range(2):
        here, value = TIMES.slot(2, number), 10 + number
        assert cluster.agreed(SPEC) == (TIMES.slot(10), here, here)
        after = TIMES.next_round(here)
        worker.commit(consumed=[(TURN, here, value)], created=[(TURN, after, value + 1)])
        assert cluster.agreed(SPEC)[TURN] == TIMES.over(2, number)
    # The loop ends in round 2 of 4: all rounds that there could be are over at once, up to the promise.
    worker.commit(consumed=[(TURN, TIMES.slot(2, 2), 12)], created=[(DONE, TIMES.slot(2, 2), 99)])
    assert cluster.agreed(SPEC) == (TIMES.slot(10), TIMES.slot(10), TIMES.slot(2, 2))
    worker.commit(consumed=[(DONE, TIMES.slot(2, 2), 99)])
    assert cluster.agreed(SPEC) == (TIMES.slot(10),) * 3


def test_what_goes_round_once_too_often_is_refused_whole(shards: int) -> None:
    cluster, _, worker = looping(shards)
    last = TIMES.slot(2, R - 1)
    worker.commit(consumed=[(TURN, TIMES.slot(2), 10)], created=[(TURN, last, 11)])
    before = cluster.agreed(SPEC)
    refusal = worker.refused(consumed=[(TURN, last, 11)], created=[(TURN, last + 1, 12)])
    refused(
        refusal, RefusalCode.INVALID, "'p'", "'turn'", "time 3, round 0 (slot 12)", "'turn' -> 'turn'",
        "last round is 3", "more rounds",
    )  # fmt: skip
    assert cluster.agreed(SPEC) == before
    worker.commit(consumed=[(TURN, last, 11)])
    assert cluster.agreed(SPEC) == (TIMES.slot(10),) * 3


def test_what_a_front_labels_within_a_time_is_refused(shards: int) -> None:
    _, front, _ = looping(shards)
    refusal = front.refused(created=[(READ, TIMES.slot(11, 2), 5)])
    refused(refusal, RefusalCode.INVALID, "'read'", "time 11, round 2 (slot 46)", "round 0")


def test_a_restart_begins_with_a_whole_time(shards: int) -> None:
    cluster, _, worker = looping(shards)
    worker.commit(consumed=[(TURN, TIMES.slot(2), 10)], created=[(TURN, TIMES.slot(2, 1), 11)])
    assert cluster.agreed(SPEC)[TURN] == TIMES.slot(2, 1)
    registrar = cluster.routing.registrar("p")

    def restart(from_slot: int | None) -> object:
        return cluster.ask(registrar, RestartPipeline, "p", 0, from_slot, 0)

    refused(restart(None), RefusalCode.INVALID, "slot 9, time 2, round 1", "begin from slot 12")
    assert restart(TIMES.slot(3)) == Restart(1, TIMES.slot(3), 0)


# --- the bound, against a slow oracle --------------------------------------------------------------

CHAIN = PipelineSpec(
    "p",
    ("a", "b", "c"),
    (
        Edge("a", "b"),
        Edge("b", "a", 1),
        Edge("b", "b", 2),
        Edge("a", "c", R),
        Edge("c", "a", 2 * R),
    ),
    open=True,
    rounds=R,
)
places = st.tuples(st.integers(0, 2), st.integers(-2 * R, 4 * R))


def can_come(spec: PipelineSpec, item: tuple[int, int], consumed: list[tuple[int, int]]) -> bool:
    """Whether one consumed item can have put it there, an edge at a time, by the words of the docs."""
    segment, slot = item
    time, number = divmod(slot, spec.rounds)
    for source, before in consumed:
        time_before, number_before = divmod(before, spec.rounds)
        for edge in spec.edges:
            if (edge.source, edge.target) != (spec.segments[source], spec.segments[segment]):
                continue
            if edge.delay % spec.rounds:
                if time == time_before and number >= number_before + edge.delay:
                    return True
            elif (time - edge.delay // spec.rounds, number) >= (time_before, number_before):
                return True
        declared = (edge.source == edge.target == spec.segments[segment] for edge in spec.edges)
        splits = source == segment and not any(declared)
        if splits and time == time_before and number >= number_before:
            return True
    return False


def has_gone_round(
    spec: PipelineSpec, item: tuple[int, int], consumed: list[tuple[int, int]]
) -> bool:
    """Whether a consumed item of before lies behind an edge that raises the round to it."""
    return any(
        edge.delay % spec.rounds
        and (edge.source, edge.target) == (spec.segments[source], spec.segments[item[0]])
        and before + edge.delay <= item[1]
        for (source, before), edge in itertools.product(consumed, spec.edges)
    )


@given(st.lists(places, min_size=1, max_size=4), st.lists(places, min_size=1, max_size=4))
def test_refused_is_just_what_can_only_have_left_its_time_by_going_round(
    created: list[tuple[int, int]], consumed: list[tuple[int, int]]
) -> None:
    bad = any(
        has_gone_round(CHAIN, item, consumed) and not can_come(CHAIN, item, consumed)
        for item in created
    )
    parts = [
        Cells.of((*place, n + 1, 1) for n, place in enumerate(some)) for some in (created, consumed)
    ]
    try:
        check_rounds(CHAIN, ways_round(CHAIN), *parts)
    except Refused:
        assert bad
    else:
        assert not bad
