"""Runs of ticks of another home's log: what they do, when they are told, and when they are not (rule 3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import inside
from tests.core.driver import Cluster, HandNode, content, plain
from tracker.core.log import (
    Committed,
    Entries,
    EntriesReceived,
    Entry,
    Frame,
    FrameArrived,
    KeyClosed,
    KeyDropped,
    KeyOpened,
    KeyTick,
    ReceivedEntries,
    Send,
    TickRun,
    Told,
    WrittenOff,
    count_of,
    numbered,
)
from tracker.core.log.effects import Effect
from tracker.core.log.sizes import entry_bytes
from tracker.core.model import Cells, NodeKey, PipelineSpec, Tick, Unit
from tracker.core.process import Process, ProcessConfig
from tracker.core.replication.parts import OutboxEntry
from tracker.core.replication.stretches import Stretch

SPEC = PipelineSpec("p", ("a", "b"), open=True)
TAKER, HOME, THIRD = 0, 1, 2
SELDOM = ProcessConfig(report_interval_ms=10**9)
"""Reports, which tell of several entries together, come when nobody looks any more."""


def told_of(cluster: Cluster, to: int = TAKER) -> list[Entries]:
    """The entries that the home has sent to a shard so far, frame by frame."""
    return [
        effect.frame.body
        for effect in cluster.effects
        if isinstance(effect, Send) and effect.shard == to and effect.frame.shard == HOME
        and isinstance(effect.frame.body, Entries)
    ]  # fmt: skip


def runs_of(cluster: Cluster, to: int = TAKER) -> list[TickRun]:
    return [
        each for body in told_of(cluster, to) for each in body.entries if isinstance(each, TickRun)
    ]


def at_home(shards: int = 2, **more: Any) -> tuple[Cluster, HandNode]:
    """A cluster, and a node that is at home at shard 1."""
    cluster = Cluster(shards, **more)
    cluster.register(SPEC)
    node = cluster.node(SPEC, next(cluster.ids_at(HOME)), "front")
    cluster.settle()
    return cluster, node


def slot_of(cluster: Cluster, shard: int) -> int:
    return next(cluster.slots_of(shard, 10))


# --- a run is its entries -------------------------------------------------------------------------

Step = dict[str, Any]
slots = st.integers(0, 7)
items = st.lists(st.tuples(st.integers(0, 1), slots, st.integers(1, 3)), max_size=3)
promises = st.sampled_from(({}, {}, {"f": 1}, {"f": 5}, {"g": 3}, {"f": 4, "g": 9}))
plain_steps = st.fixed_dictionaries({"created": items, "consumed": items, "heartbeats": promises})
"""With nothing that keeps them out of columns."""
steps = plain_steps | st.fixed_dictionaries(
    {
        "created": items,
        "consumed": items,
        "late": items,
        "heartbeats": promises,
        "units_created": st.lists(
            st.builds(Unit, st.integers(0, 1), st.sampled_from("xy"), slots), max_size=1
        ),
        "units_consumed": st.lists(
            st.builds(Unit, st.integers(0, 1), st.sampled_from("xy"), slots), max_size=1
        ),
    }
)


@cache
def begun_with_two() -> tuple[Cluster, list[HandNode]]:
    """Three shards, and two nodes at home at shard 1, each with two fronts."""
    cluster = Cluster(3)
    cluster.register(SPEC)
    ids = cluster.ids_at(HOME)
    nodes = [cluster.node(SPEC, next(ids), "front") for _ in range(2)]
    for node in nodes:
        node.begin(joins={"f": 0, "g": 1})
    cluster.settle()
    return cluster, nodes


def written(steps: list[tuple[int, Step]], behind: int = 0) -> tuple[Cluster, list[OutboxEntry]]:
    """Ticks of the two, as their home keeps them behind so many other entries, and shard 0 has none of them yet."""
    cluster, nodes = begun_with_two()
    first = inside.applied(cluster.processes[TAKER])[HOME] + 1 + behind
    ticks = Counter({node.key: 1 for node in nodes})
    outbox = []
    for number, (node, step) in enumerate(steps, first):
        key, carried = nodes[node].key, {**step}
        late = Cells.of((*item, 1) for item in carried.pop("late", ()))
        ticks[key] += 1
        tick = KeyTick(Tick("p", key, ticks[key], content(**carried)), late)
        outbox.append(OutboxEntry(number, tick, cluster.routing))
    return cluster, outbox


def taker(cluster: Cluster) -> Process:
    """Another process of shard 0, which has what that has."""
    process = Process(TAKER, cluster.first_table, 9, SELDOM)
    process.recover(None, cluster.stored[TAKER], 0)
    return process


def hear(cluster: Cluster, process: Process, first: int, told: tuple[Told, ...]) -> None:
    frame = Frame(HOME, cluster.epochs[HOME], Entries(first, told))
    process.check_frame(frame)
    process.handle(FrameArrived(frame), 0)
    process.handle(Committed(process.position), 0)
    process.validate()


def state(process: Process) -> Any:
    """All that is durable, but for how many records it took; touches, whenever they were reported, together. Numbers
    of items are advisory: where more were consumed than created they depend on the order, and are left out."""
    snapshot: Any = process.snapshot()
    (pipeline,) = snapshot.pipelines
    cells = [row[:3] for row in pipeline.cells.rows()]
    touched: dict[tuple[int, int], int] = {}
    for run in pipeline.runs:
        for segment, slot in run.touched:
            place = run.home, segment
            touched[place] = min(slot, touched.get(place, slot))
    without: Any = replace(pipeline, runs=(), cells=Cells.empty())
    return plain(replace(snapshot, position=0, pipelines=(without,))), cells, touched


def written_off(cluster: Cluster, process: Process, first: int) -> None:
    """Of a segment, an item in each of some slots is given up, by entries of the home."""
    created = [(0, slot, 3) for slot in range(8)]
    key = NodeKey(next(cluster.ids_at(HOME)), 99)
    said: list[Entry] = [
        KeyOpened("p", key, "other"),
        KeyTick(Tick("p", key, 1, content(created=created)), Cells.empty()),
        WrittenOff("p", key.node_id, Cells.of((*item, 1) for item in created), 0),
    ]
    for number, entry in enumerate(said, first):
        hear(cluster, process, number, (OutboxEntry(number, entry, cluster.routing).part(TAKER),))


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_a_run_does_what_its_entries_do_one_after_the_other(data: st.DataObject) -> None:
    said = data.draw(st.lists(st.tuples(st.integers(0, 1), steps), min_size=2, max_size=8))
    are_given_up = data.draw(st.booleans())
    cluster, outbox = written(said, 3 if are_given_up else 0)
    first, last = outbox[0].number, outbox[-1].number
    one_by_one, in_runs = taker(cluster), taker(cluster)
    for process in (one_by_one, in_runs) if are_given_up else ():
        written_off(cluster, process, first - 3)
    for item in outbox:
        hear(cluster, one_by_one, item.number, (item.part(TAKER),))
    while inside.applied(in_runs)[HOME] < last:
        # As a home sends that was restarted, knows only what was confirmed, and cuts elsewhere.
        due = inside.applied(in_runs)[HOME] + 1
        begin = data.draw(st.integers(first, due))
        end = data.draw(st.integers(due, last))
        told, _ = Stretch(outbox[begin - first : end - first + 1]).told(TAKER)
        hear(cluster, in_runs, begin, told)
    assert state(in_runs) == state(one_by_one)
    assert in_runs.min_times("p") == one_by_one.min_times("p")
    back = Process(TAKER, cluster.first_table, 10, SELDOM)
    back.recover(in_runs.snapshot(), (), 0)
    assert state(back) == state(in_runs)


@given(st.lists(st.integers(1, 9), min_size=1), st.data())
def test_what_is_behind_an_entry_is_what_was_told_without_those_before(
    counts: list[int], data: st.DataObject
) -> None:
    runs = tuple(TickRun(count, ()) for count in counts)
    body = Entries(5, runs)
    due = data.draw(st.integers(5, body.last))
    rest = body.from_number(due)
    assert due + sum(map(count_of, rest)) == body.last + 1
    assert all(count_of(each) > 0 for each in rest)
    ends = {number + count_of(each) for number, each in numbered(5, runs)}
    assert {number + count_of(each) for number, each in numbered(due, rest)} == {
        end for end in ends if end > due
    }


def test_parts_keep_their_places_behind_the_first_entries() -> None:
    cluster, outbox = written([(0, {"created": [(0, slot, 1)]}) for slot in range(6)])
    (run,), _ = Stretch(outbox).told(TAKER)
    assert isinstance(run, TickRun) and run.count == 6
    places = [place for place, _ in run.ticks()]
    assert places == [place for place in range(6) if cluster.routing.owner(place) == TAKER]
    rest = run.without(2)
    assert rest.count == 4 and rest.keys == run.keys
    assert [place + 2 for place, _ in rest.ticks()] == [place for place in places if place >= 2]


def test_columns_without_their_first_ticks_are_the_others() -> None:
    sizes = [(2, 0), (0, 1), (1, 1), (0, 3), (4, 0)]
    rows = iter(range(100))
    outbox_steps = [
        (
            number % 2,
            {
                "created": [(0, 2, 1 + next(rows)) for _ in range(created)],
                "consumed": [(1, 2, 1 + next(rows)) for _ in range(consumed)],
            },
        )
        for number, (created, consumed) in enumerate(sizes)
    ]
    cluster, outbox = written(outbox_steps)
    (run,), _ = Stretch(outbox).told(cluster.routing.owner(2))
    assert isinstance(run, TickRun) and len(run.columns) == 1 and not run.parts
    whole = [(place, plain(tick)) for place, tick in run.ticks()]
    assert [place for place, _ in whole] == [0, 1, 2, 3, 4]
    for first in range(5):
        rest = [(place + first, plain(tick)) for place, tick in run.without(first).ticks()]
        assert rest == whole[first:]


def test_ticks_are_applied_at_once_only_where_each_of_them_is_new() -> None:
    cluster, outbox = written([(0, {"created": [(0, slot, 1)]}) for slot in range(3)])
    process = taker(cluster)
    (run,), _ = Stretch(outbox).told(TAKER)
    assert isinstance(run, TickRun)
    (columns,), shard = run.columns, inside.pipeline(process).shard
    assert shard.takes_at_once(run, columns)
    (_, first), *_ = run.ticks()
    shard.apply_tick(first, HOME)
    assert not shard.takes_at_once(run, columns)
    shard.close_key(KeyClosed("p", first.tick.key, 9), HOME)
    shard.drop_key(KeyDropped("p", first.tick.key))
    assert not shard.takes_at_once(run, columns), "nobody knows the key"


# --- when runs are told ---------------------------------------------------------------------------


def test_ticks_that_a_shard_owns_nothing_of_come_as_one_entry_that_is_confirmed_once() -> None:
    cluster, node = at_home(3)
    node.join_front("f")
    seen, slot = len(cluster.effects), slot_of(cluster, HOME)
    for number in range(5):
        node.begin(created=[(0, slot, 1 + number)], heartbeats={"f": number})
    cluster.settle()
    runs = runs_of(cluster)
    assert [(run.count, run.columns, run.parts) for run in runs] == [(5, (), ())]
    (progress,) = runs[0].keys
    assert (progress.key, progress.number) == (node.key, 6)
    assert [(h.front, h.slot) for h in progress.heartbeats] == [("f", 4)]
    records = [record for _, record in cluster.stored[TAKER] if isinstance(record, ReceivedEntries)]
    assert records[-1].entries == (runs[0],), "it is one in the log, too"
    confirmed = [
        e for e in said_by(cluster.effects[seen:], TAKER) if isinstance(e, EntriesReceived)
    ]
    assert len(confirmed) == 1
    assert cluster.pipeline(TAKER).shard.keys[node.key].number == 6


def said_by(effects: list[Effect], shard: int) -> Iterator[Any]:
    """What a shard has sent to the home."""
    for effect in effects:
        if isinstance(effect, Send) and effect.shard == HOME and effect.frame.shard == shard:
            yield effect.frame.body


def test_each_shard_gets_its_own_parts_of_one_run() -> None:
    cluster, node = at_home(3)
    mine, others = slot_of(cluster, TAKER), slot_of(cluster, THIRD)
    node.begin(created=[(0, mine, 1)])
    node.begin(created=[(0, others, 2)])
    node.begin(created=[(0, mine, 4), (1, others, 8)])
    cluster.settle()
    for shard, due in ((TAKER, {0: 1, 2: 4}), (THIRD, {1: 2, 2: 8})):
        (run,) = runs_of(cluster, shard)
        parts = {place: part.tick.content.created.rows() for place, part in run.ticks()}
        assert {place: [row[2] for row in rows] for place, rows in parts.items()} == {
            place: [checksum] for place, checksum in due.items()
        }
    assert {p.shard.cells.value(0, mine)[0] for p in cluster.pipelines()} == {0, 1 ^ 4}


def test_a_tick_by_which_a_front_joins_or_leaves_stands_alone() -> None:
    cluster, node = at_home()
    node.begin()
    node.begin()
    node.begin(joins={"f": 0})
    node.begin()
    node.begin()
    cluster.settle()
    node.begin(leaves=["f"])
    node.begin()
    node.begin()
    cluster.settle()
    told = [each for body in told_of(cluster) for each in body.entries]
    kinds = [each.count if isinstance(each, TickRun) else type(each).__name__ for each in told]
    assert kinds[-5:] == [2, "KeyTick", 2, "KeyTick", 2]
    assert not cluster.pipeline(TAKER).shard.fronts


@pytest.mark.parametrize("most_bytes", [600, 2_000, 10_000])
def test_frames_with_runs_are_bounded_by_bytes_and_by_entries(most_bytes: int) -> None:
    config = ProcessConfig(max_bytes_per_frame=most_bytes, max_entries_per_frame=10)
    cluster, node = at_home(2, config=config)
    mine = slot_of(cluster, TAKER)
    for number in range(40):
        node.begin(created=[(segment, mine, 1 << number) for segment in (0, 1)])
    cluster.settle()
    bodies = told_of(cluster)
    assert runs_of(cluster) or most_bytes == 600
    for body in bodies:
        assert body.last - body.first < 10
        alone = len(body.entries) == 1 and count_of(body.entries[0]) == 1
        assert alone or sum(map(entry_bytes, body.entries)) <= most_bytes
    assert cluster.pipeline(TAKER).shard.cells.value(1, mine)[0] == 2**40 - 1
