"""Frames that point nowhere are refused before they change anything; those of the protocol never are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests import inside
from tests.core.driver import Cluster, content, plain
from tracker.core.log import (
    Entries,
    Entry,
    Frame,
    FrameArrived,
    FrameBody,
    FrontReport,
    KeyClosed,
    KeyOpened,
    KeyProgress,
    KeyTick,
    PipelineChanged,
    PipelineRegistered,
    PipelineReport,
    PipelineRestarted,
    Restart,
    SegmentLow,
    ShardReport,
    TickColumns,
    TickRun,
    Told,
    TouchedRun,
    WrittenOff,
)
from tracker.core.log.steps import (
    CellsMoved,
    HandoverFinished,
    NodesMoved,
    RescaleProposed,
    RoutingActivated,
    RoutingChanged,
    SequencerBegun,
    SequencerMoved,
    ShardJoined,
    ShardJoining,
    ShardLeaving,
    ShardLeft,
    ShardRemoved,
    SlotBounds,
)
from tracker.core.model import Cells, Edge, NodeKey, PipelineSpec, RefusalCode, Refused, Tick, Unit
from tracker.core.model.routing import RoutingRule, RoutingTable
from tracker.core.replication.links import Link

SPEC = PipelineSpec("p", ("a", "b"), (Edge("a", "b"),), front_count=1)


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(2)
    cluster.register(SPEC)
    cluster.settle()
    return cluster


TWO = RoutingTable.uniform(2, 1)
THERE = next(name for name in map(str, range(99)) if TWO.home("p", name) == 1)
HERE = next(name for name in map(str, range(99)) if TWO.home("p", name) == 0)
"""Ids of nodes that are at home at shard 1, who sends the frames, and at shard 0, who takes them."""
OF_Q = next(name for name in map(str, range(99)) if TWO.home("q", name) == 1)
KEY = NodeKey(THERE, 1)
LATER = RoutingTable(TWO.entries, version=1)


def tick(**parts: object) -> KeyTick:
    return KeyTick(Tick("p", KEY, 1, content(**parts)), Cells.empty())  # type: ignore[arg-type]


def entries(*of: Told) -> Callable[[int], FrameBody]:
    return lambda due: Entries(due, of)


def run(count: int = 3, number: int = 2, parts: object = (), keys: int = 1) -> TickRun:
    """A run of ticks 1 and on of the node at shard 1, up to a number."""
    progress = KeyProgress("p", KEY, number)
    return TickRun(count, (progress,) * keys, parts=parts)  # type: ignore[arg-type]


def columns(pipeline: str = "p", **other: object) -> TickRun:
    """A run of three entries, with a cell that its first and one that its last tick created, of the node at shard 1."""
    said: dict[str, object] = {
        "places": (0, 2), "keys": (0, 0), "numbers": (1, 2),
        "created": Cells.of([(0, 5, 1, 1), (0, 6, 2, 1)]), "created_ends": (1, 2),
        "consumed": Cells.empty(), "consumed_ends": (0, 0),
    }  # fmt: skip
    cells = TickColumns(pipeline, **(said | other))  # type: ignore[arg-type]
    return TickRun(3, (KeyProgress("p", KEY, 2),), (cells,))


def report(pipeline: PipelineReport, **more: object) -> Callable[[int], FrameBody]:
    return lambda due: ShardReport(99, False, (), (pipeline,), **more)  # type: ignore[arg-type]


BAD: dict[str, tuple[Callable[[int], FrameBody], str]] = {
    "cells of a segment that is not there": (entries(tick(created=[(2, 5, 1)])), "number 2"),
    "a slot that no min time could pass": (
        entries(tick(consumed=[(0, 2**63 - 1, 1)])),
        "slot 9223372036854775807",
    ),
    "a number of items that cannot be": (
        entries(KeyTick(Tick("p", KEY, 1, content()), Cells.of([(0, 5, 1, -(2**63))]))),
        "-9223372036854775808 items",
    ),
    "a front of a segment that is not there": (entries(tick(joins={"F": -1})), "number -1"),
    "a unit of a segment that is not there": (
        entries(tick(units_created=[Unit(7, "file:///x", 5)])),
        "number 7",
    ),
    "something bad after something good": (
        entries(tick(created=[(0, 5, 1)]), tick(created=[(9, 5, 1)])),
        "number 9",
    ),
    "a write-off in a segment that is not there": (
        entries(WrittenOff("p", "n", Cells.of([(-1, 5, 1, 1)]), 0)),
        "number -1",
    ),
    "a pipeline that cannot be": (
        entries(PipelineRegistered(replace(SPEC, name="q", edges=(Edge("a", "nowhere"),)))),
        "'nowhere'",
    ),
    "limits that cannot be": (
        entries(PipelineChanged(1, replace(SPEC, max_nodes=0))),
        "max_nodes is 0",
    ),
    "a change that is none": (entries(PipelineChanged(0, SPEC)), "change 0"),
    "a change that takes a segment's number": (
        entries(PipelineChanged(1, replace(SPEC, segments=("a", "other"), edges=()))),
        "'other'",
    ),
    "a segment beyond those of a change in the same frame": (
        entries(
            PipelineChanged(1, replace(SPEC, segments=(*SPEC.segments, "new"))),
            tick(created=[(len(SPEC.segments) + 1, 5, 1)]),
        ),
        f"number {len(SPEC.segments) + 1}; it has {len(SPEC.segments) + 1}",
    ),
    "a tick of a pipeline in the same frame": (
        entries(
            PipelineRegistered(replace(SPEC, name="q", segments=("a",), edges=())),
            KeyTick(Tick("q", NodeKey(OF_Q, 1), 1, content(created=[(1, 5, 1)])), Cells.empty()),
        ),
        "number 1; it has 1",
    ),
    "a run of no entries": (entries(run(0)), "a run of 0 entries"),
    "a run of fewer than no entries": (entries(run(-5)), "a run of -5 entries"),
    "a run of more entries than there may be": (entries(run(65_537)), "a run of 65537 entries"),
    "a run of nobody's ticks": (entries(run(keys=0)), "ticks of 0 keys"),
    "a run with more keys than entries": (entries(run(keys=4)), "ticks of 4 keys"),
    "a run with a part before it": (entries(run(parts=((-1, tick()),))), "1 parts"),
    "a run with a part behind it": (entries(run(parts=((3, tick()),))), "1 parts"),
    "a run with two parts in one place": (
        entries(run(parts=((1, tick()), (1, tick())))),
        "2 parts",
    ),
    "a run that was heard before and cannot be": (
        lambda due: Entries(due - 1, (run(0),)),
        "of 0 entries",
    ),
    "a run of a node that is at home elsewhere": (
        entries(TickRun(3, (KeyProgress("p", NodeKey(HERE, 1), 1),))),
        "at home at shard 0",
    ),
    "a run up to a number after which there is none": (
        entries(run(number=2**63 - 1)),
        "tick 9223372036854775807",
    ),
    "a run with a tick of a node that it does not name": (
        entries(
            run(parts=((0, KeyTick(Tick("p", NodeKey("x", 1), 1, content()), Cells.empty())),))
        ),
        "up to -1",
    ),
    "a run with a tick behind its last": (
        entries(run(number=0, parts=((0, tick()),))),
        "tick 1 of node",
    ),
    "a run with a tick of a pipeline that is not there": (
        entries(run(parts=((0, KeyTick(Tick("q", KEY, 1, content()), Cells.empty())),))),
        "pipeline 'q'",
    ),
    "a run with a front that joins": (
        entries(run(parts=((0, tick(joins={"F": 0})),))),
        "fronts of node",
    ),
    "a run with cells of a segment that is not there": (
        entries(run(parts=((0, tick(created=[(2, 5, 1)])),))),
        "number 2",
    ),
    "columns with a tick before the run": (entries(columns(places=(-1, 2))), "1 columns"),
    "columns with a tick behind the run": (entries(columns(places=(0, 3))), "1 columns"),
    "columns with two ticks in one place": (entries(columns(places=(1, 1))), "1 columns"),
    "columns with no ticks": (
        entries(columns(places=(), keys=(), numbers=(), created_ends=(), consumed_ends=())),
        "1 columns",
    ),
    "columns with a place too few": (entries(columns(places=(0,))), "1 columns"),
    "columns with a number too many": (entries(columns(numbers=(1, 2, 2))), "1 columns"),
    "columns of a key behind the last": (entries(columns(keys=(0, 1))), "1 columns"),
    "columns of a key before the first": (entries(columns(keys=(-1, 0))), "1 columns"),
    "columns with cells that no tick has": (entries(columns(created_ends=(0, 1))), "1 columns"),
    "columns with fewer cells than their ticks": (
        entries(columns(created_ends=(1, 3))),
        "1 columns",
    ),
    "columns that end before they begin": (entries(columns(created_ends=(-1, 2))), "1 columns"),
    "columns with ends that fall": (entries(columns(consumed_ends=(1, 0))), "1 columns"),
    "columns with a tick behind the last of its key": (
        entries(columns(numbers=(1, 3))),
        "tick 3 of node",
    ),
    "columns with a tick that has no number": (
        entries(columns(numbers=(-1, 2))),
        "tick -1 of node",
    ),
    "columns with ticks of another pipeline than their key": (
        entries(columns(pipeline="q")),
        "pipeline 'q'",
    ),
    "columns with cells of a segment that is not there": (
        entries(columns(created=Cells.of([(0, 5, 1, 1), (2, 6, 2, 1)]))),
        "number 2",
    ),
    "columns with a slot that no min time could pass": (
        entries(columns(created=Cells.of([(0, 5, 1, 1), (0, 2**63 - 1, 2, 1)]))),
        "slot 9223372036854775807",
    ),
    "something bad behind a run": (entries(run(), tick(created=[(9, 5, 1)])), "number 9"),
    "a low of a segment that is not there": (
        report(PipelineReport("p", lows=(SegmentLow(2, 5, 1, 1, 0),))),
        "number 2",
    ),
    "a front's segment that is not there": (
        report(PipelineReport("p", fronts=(FrontReport("n", "F", 4, 0, 0, 1, 1),))),
        "number 4",
    ),
    "a run of a shard that cannot be": (
        report(PipelineReport("p", runs=(TouchedRun(-5, 1, ((0, 5),)),))),
        "shard -5",
    ),
    "a cut of a shard that cannot be": (
        report(PipelineReport("p"), cut=((-1, 3),)),
        "shard -1",
    ),
    "a tick of a node that is at home elsewhere": (
        entries(KeyTick(Tick("p", NodeKey(HERE, 1), 1, content()), Cells.empty())),
        "at home at shard 0",
    ),
    "a key of a node that is at home elsewhere": (
        entries(KeyOpened("p", NodeKey(HERE, 9), "other")),
        "at home at shard 0",
    ),
    "the end of a key of a node that is at home elsewhere": (
        entries(KeyClosed("p", NodeKey(HERE, 9), 0)),
        "at home at shard 0",
    ),
    "a tick with a number after which there is none": (
        entries(KeyTick(Tick("p", KEY, 2**63 - 1, content()), Cells.empty())),
        "tick 9223372036854775807",
    ),
    "a generation after which there is none": (
        entries(PipelineRestarted("p", Restart(2**63 - 1, 0, 0))),
        "generation 9223372036854775807",
    ),
    "last words of a shard that owns slots": (
        entries(ShardLeft((), (), 0)),
        "owns slots by version",
    ),
    "nodes that move by no change of the table": (
        entries(NodesMoved(1, "p", 0, None, ())),
        "of version 1, and the table is of 0",
    ),
    "a table adopted that nobody has made": (
        entries(RoutingActivated(7, 1)),
        "of version 7, and the table is of 0",
    ),
    "an end of a change that nobody has begun": (
        entries(HandoverFinished(1)),
        "of version 1, and the table is of 0",
    ),
    "cells handed over by no change of the table": (
        entries(CellsMoved(1, "p", 0)),
        "of version 1, and the table is of 0",
    ),
    "an answer to what was not asked": (
        entries(SlotBounds(1, ())),
        "it was asked for version None",
    ),
    **{
        f"{type(step).__name__} of a shard that is not the sequencer": (
            entries(step),
            "only shard 0 says that",
        )
        for step in (
            ShardJoining(2, "host:1"),
            ShardJoined(77),
            ShardRemoved(1),
            RescaleProposed(1, (0,), False),
            RoutingChanged(LATER),
            ShardLeaving(1),
        )
    },
}


@pytest.mark.parametrize("what", BAD)
def test_a_frame_that_points_nowhere_is_refused(cluster: Cluster, what: str) -> None:
    make, named = BAD[what]
    process = cluster.processes[0]
    due = process.links[1].accepted + 1
    before = plain(process.snapshot()), process.position
    with pytest.raises(Refused, match=r"a frame|a report|pipeline") as refused:
        process.check_frame(Frame(1, cluster.epochs[1], make(due)))
    assert refused.value.refusal.code is RefusalCode.INVALID
    assert named in str(refused.value)
    assert (plain(process.snapshot()), process.position) == before


def test_a_run_of_a_pipeline_that_is_not_known_yet_waits_and_is_not_judged(
    cluster: Cluster,
) -> None:
    process, epoch = cluster.processes[0], cluster.epochs[1]
    due = process.links[1].accepted + 1
    unknown = TickRun(2, (KeyProgress("p", KEY, 1), KeyProgress("q", NodeKey(HERE, 1), 1)))
    frame = Frame(1, epoch, Entries(due, (run(), unknown, run())))
    process.check_frame(frame)
    process.handle(FrameArrived(frame), cluster.now_ns)
    assert process.links[1].accepted == due + 2, "the first of the three, and no other"


def test_what_is_not_taken_is_not_judged(cluster: Cluster) -> None:
    """Entries that are there already, or come too early, or of a pipeline that is not known yet, and
    frames of an owner that was replaced."""
    process = cluster.processes[0]
    bad = tick(created=[(9, 5, 1)])
    accepted, epoch = process.links[1].accepted, cluster.epochs[1]
    unknown = KeyTick(replace(bad.tick, pipeline="q"), Cells.empty())
    for first, entry, of in (
        (accepted, bad, epoch),
        (accepted + 2, bad, epoch),
        (accepted + 1, unknown, epoch),
        (accepted + 1, bad, epoch - 1),
    ):
        process.check_frame(Frame(1, of, Entries(first, (entry,))))
    with pytest.raises(Refused):
        process.check_frame(Frame(1, epoch, Entries(accepted + 1, (bad,))))


BY_THE_SEQUENCER: dict[str, tuple[Entry, str]] = {
    "a shard that was given no number": (ShardJoined(77), "joining are []"),
    "a shard without a number": (ShardJoined(-1), "joining are []"),
    "a member is taken for one that has not come": (ShardRemoved(1), "joining are []"),
    "a number that is not the next one": (ShardJoining(9, "host:1"), "number 2"),
    "a shard that is reached nowhere": (ShardJoining(2, ""), "1 to 300 characters"),
    "a change by which nobody owns slots": (RescaleProposed(1, (), False), "members are [0, 1]"),
    "a change to a shard that is not there": (
        RescaleProposed(1, (0, 77), False),
        "members are [0, 1]",
    ),
    "a change without the one before": (RescaleProposed(5, (0,), False), "of version 5"),
    "a table that names a shard that is not there": (
        RoutingChanged(RoutingTable([RoutingRule(-(2**63), 1, (0, 5))], version=1)),
        "members are [0, 1]",
    ),
    "a table that is none of the next version": (RoutingChanged(TWO), "of version 0"),
    "one that owns slots is to go": (ShardLeaving(1), "owns no slots"),
    "the sequencer is to go": (ShardLeaving(0), "owns no slots"),
    "its role goes where no shard is": (SequencerMoved(77, 1), "to one of [0, 1]"),
    "its role stays where it is": (SequencerMoved(0, 1), "to one of [0, 1]"),
    "its role moves for the second time, first": (SequencerMoved(1, 2), "move 1 is next"),
    "it begins a second time": (SequencerBegun(0), "by move 0 already"),
    "the sequencer has gone": (ShardLeft((), (), 0), "owns slots"),
}


@pytest.mark.parametrize("what", BY_THE_SEQUENCER)
def test_a_step_that_the_sequencer_cannot_have_said_is_refused(cluster: Cluster, what: str) -> None:
    step, named = BY_THE_SEQUENCER[what]
    process = cluster.processes[1]
    due = process.links[0].accepted + 1
    before = plain(process.snapshot()), process.position
    with pytest.raises(Refused, match="a frame of shard 0") as refused:
        process.check_frame(Frame(0, cluster.epochs[0], Entries(due, (step,))))
    assert named in str(refused.value)
    assert (plain(process.snapshot()), process.position) == before


def test_a_step_is_judged_by_all_that_was_accepted_before_it(cluster: Cluster) -> None:
    """In the frame, received and not durable yet, or appended by the process itself."""
    process, epoch = cluster.processes[1], cluster.epochs[0]
    due = process.links[0].accepted + 1
    joining, joined = ShardJoining(2, "host:1"), ShardJoined(2)
    process.check_frame(Frame(0, epoch, Entries(due, (joining, joined))))
    process.handle(FrameArrived(Frame(0, epoch, Entries(due, (joining,)))), cluster.now_ns)
    process.check_frame(Frame(0, epoch, Entries(due + 1, (joined,))))
    with pytest.raises(Refused, match="next shard is number 3"):
        process.check_frame(Frame(0, epoch, Entries(due + 1, (joining,))))
    removed = Entries(due + 1, (ShardRemoved(2), joined))
    with pytest.raises(Refused, match=r"joining are \[\]"):
        process.check_frame(Frame(0, epoch, removed))


def test_nothing_comes_after_the_last_words_of_a_shard(cluster: Cluster) -> None:
    cluster.rescale(1)
    process, last = cluster.processes[0], ShardLeft((), (), 0)
    received = process.membership.adopted_at[1]
    process.links[1] = Link(epoch=cluster.epochs[1], accepted=received)
    process.membership.members.add(1)
    process.membership.former.clear()
    with pytest.raises(Refused, match="has left"):
        process.check_frame(Frame(1, cluster.epochs[1], Entries(received + 1, (last, tick()))))


def test_a_shard_that_is_not_waited_for_any_more_says_nothing() -> None:
    """Its removal is appended, and not durable: what it says then would come after it in the log."""
    cluster = Cluster(1)
    cluster.register(SPEC)
    number = cluster.begin_to_join()
    process = cluster.processes[0]
    assert number in process.links
    inside.take_step(process, ShardRemoved(number))
    for said in (tick(created=[(0, 5, 1)]), SlotBounds(1, ())):
        with pytest.raises(Refused, match="has not joined"):
            process.check_frame(Frame(number, 1, Entries(1, (said,))))


def test_what_a_shard_says_before_it_is_known_to_have_joined_is_waited_for(
    cluster: Cluster,
) -> None:
    """The word that it has joined is still on its way in the sequencer's log."""
    number = cluster.begin_to_join()
    cluster.settle()
    process = cluster.processes[1]
    assert number in process.membership.joining
    frame = Frame(number, 1, Entries(1, (RoutingActivated(1, 5), tick())))
    process.check_frame(frame)
    process.handle(FrameArrived(frame), cluster.now_ns)
    assert process.links[number].accepted == 0, "it is asked for again later"


def test_a_report_that_names_a_shard_not_heard_of_is_wanted_again_when_it_has_been(
    cluster: Cluster,
) -> None:
    """Two newcomers overlap: the other one's joining is still on its way in the sequencer's log."""
    process, epoch = cluster.processes[0], cluster.epochs[1]
    link, before = process.links[1], cluster.agreed(SPEC)
    number = link.report_number + 1
    applied = (*inside.vectors(process).of(1), (2, 0))
    for body in (
        ShardReport(number, False, applied, ()),
        ShardReport(number, True, applied, (), cut=((2, 0),)),
    ):
        frame = Frame(1, epoch, body)
        process.check_frame(frame)
        assert process.unknown_homes(body) == [2]
        process.handle(FrameArrived(frame), cluster.now_ns)
        assert link.needs_whole
    assert link.report_number == number - 1 and cluster.agreed(SPEC) == before
    cluster.pass_time(1000)
    assert not link.needs_whole
    assert cluster.join_shard() == 2
