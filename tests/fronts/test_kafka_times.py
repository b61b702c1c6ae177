"""Labels by the records' own timestamps: what may be given out, when, and in which order."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from fronts import kafka_times
from fronts.kafka_times import TimedEnds, TimeMerge

SLACK_NS = 10


def merge_of(*partitions: str) -> TimeMerge:
    merge = TimeMerge(SLACK_NS)
    for partition in partitions:
        merge.begin(partition, 0)
    return merge


def test_a_slot_is_given_out_when_no_partition_can_go_below_it() -> None:
    merge = merge_of("a", "b")
    merge.take("a", 0, 10)
    merge.take("a", 1, 15)
    merge.take("a", 2, 40)
    assert merge.ready() == []  # b may bring anything
    merge.take("b", 0, 20)
    assert merge.ready() == [TimedEnds(1, {"a": 2})]
    assert merge.floor == 2
    merge.take("b", 1, 50)
    assert merge.ready() == [TimedEnds(2, {"b": 1})]
    assert merge.floor == 4


def test_one_partition_that_is_at_its_end_is_not_waited_for() -> None:
    merge = merge_of("a", "b")
    merge.take("a", 0, 10)
    merge.at_end("b", 0)
    merge.take("a", 1, 30)
    assert merge.ready() == [TimedEnds(1, {"a": 1})]
    merge.take("b", 0, 15)  # late: a has come to slot 3, and below that nothing more was promised
    assert merge.late == 1
    assert merge.ready() == []
    merge.at_end("b", 1)
    merge.take("a", 2, 50)
    assert merge.ready() == [TimedEnds(3, {"a": 2, "b": 1})]


def test_when_all_are_at_their_ends_all_is_given_out() -> None:
    merge = merge_of("a", "b")
    merge.take("a", 0, 10)
    merge.take("b", 0, 30)
    merge.at_end("a", 3)  # two offsets without records
    merge.at_end("b", 1)
    assert merge.ready() == [TimedEnds(1, {"a": 3}), TimedEnds(3, {"b": 1})]
    assert merge.floor == 3
    merge.take("a", 3, 20)
    assert merge.late == 1
    merge.at_end("a", 4)
    assert merge.ready() == [TimedEnds(3, {"a": 4})]


def test_times_that_go_back_within_a_partition_are_late() -> None:
    merge = merge_of("a")
    merge.take("a", 0, 30)
    merge.take("a", 1, 10)
    merge.take("a", 2, 50)
    assert merge.late == 1
    assert merge.ready() == [TimedEnds(3, {"a": 2})]


def test_a_partition_that_is_far_ahead_is_not_read_on() -> None:
    merge = merge_of("a", "b")
    for offset in range(kafka_times.MAX_PIECES):
        merge.take("a", offset, offset * SLACK_NS)
    assert merge.is_ahead("a") and not merge.is_ahead("b")
    merge.at_end("b", 0)
    assert len(merge.ready()) == kafka_times.MAX_PIECES - 1
    assert not merge.is_ahead("a")


steps = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 200), st.sampled_from(["take", "end", "give"])),
    max_size=60,
)


@settings(deadline=None)
@given(steps)
def test_every_offset_is_given_out_once_in_order_and_never_below_its_time(
    made: list[tuple[str, int, str]],
) -> None:
    merge = merge_of("a", "b")
    times: dict[str, list[int]] = {"a": [], "b": []}
    out: list[TimedEnds] = []
    floor = merge.floor
    for partition, time_ns, what in made:
        if what == "take":
            merge.take(partition, len(times[partition]), time_ns)
            times[partition].append(time_ns)
        elif what == "end":
            merge.at_end(partition, len(times[partition]))
        else:
            given = merge.ready()
            assert all(each.slot >= floor for each in given)
            out += given
        assert merge.floor >= floor
        floor = merge.floor
    for partition, own in times.items():
        merge.at_end(partition, len(own))
    out += merge.ready()
    assert [each.slot for each in out] == sorted(each.slot for each in out)
    for partition, own in times.items():
        begin = 0
        for slot, end in [(e.slot, e.ends[partition]) for e in out if partition in e.ends]:
            assert begin < end
            assert all(slot >= time_ns // SLACK_NS for time_ns in own[begin:end])
            begin = end
        assert begin == len(own)
