"""Frames that point nowhere are refused before they change anything; those of the protocol never are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.core.driver import Cluster, content, plain
from tracker.core.messages import (
    Entries,
    Entry,
    Frame,
    FrameBody,
    FrontReport,
    KeyTick,
    PipelineRegistered,
    PipelineReport,
    SegmentLow,
    ShardReport,
    TouchedRun,
    WrittenOff,
)
from tracker.core.model import Cells, Edge, NodeKey, PipelineSpec, RefusalCode, Refused, Tick, Unit
from tracker.core.process.checking import check_frame

SPEC = PipelineSpec("p", ("a", "b"), (Edge("a", "b"),), front_count=1)


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(2)
    cluster.register(SPEC)
    cluster.settle()
    return cluster


def tick(**parts: object) -> KeyTick:
    return KeyTick(Tick("p", NodeKey("n", 1), 1, content(**parts)), Cells.empty())  # type: ignore[arg-type]


def entries(*of: Entry) -> Callable[[int], FrameBody]:
    return lambda due: Entries(due, of)


def report(pipeline: PipelineReport, **more: object) -> Callable[[int], FrameBody]:
    return lambda due: ShardReport(99, False, (), (pipeline,), **more)  # type: ignore[arg-type]


BAD: dict[str, tuple[Callable[[int], FrameBody], str]] = {
    "cells of a segment that is not there": (entries(tick(created=[(2, 5, 1)])), "number 2"),
    "a slot that no min time could pass": (
        entries(tick(consumed=[(0, 2**63 - 1, 1)])),
        "slot 9223372036854775807",
    ),
    "a number of items that cannot be": (
        entries(KeyTick(Tick("p", NodeKey("n", 1), 1, content()), Cells.of([(0, 5, 1, -(2**63))]))),
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
    "a tick of a pipeline in the same frame": (
        entries(
            PipelineRegistered(replace(SPEC, name="q", segments=("a",), edges=())),
            KeyTick(Tick("q", NodeKey("n", 1), 1, content(created=[(1, 5, 1)])), Cells.empty()),
        ),
        "number 1; it has 1",
    ),
    "a low of a segment that is not there": (
        report(PipelineReport("p", lows=(SegmentLow(2, 5, 1, 1, 0),))),
        "number 2",
    ),
    "a front's segment that is not there": (
        report(PipelineReport("p", fronts=(FrontReport("n", "F", 4, 0, 0, 1, 1),))),
        "number 4",
    ),
    "a run of a shard that is not there": (
        report(PipelineReport("p", runs=(TouchedRun(5, 1, ((0, 5),)),))),
        "shard 5, but the shards are [0, 1]",
    ),
    "a cut of a shard that is not there": (
        report(PipelineReport("p"), cut=((-1, 3),)),
        "shard -1, but the shards are [0, 1]",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_a_frame_that_points_nowhere_is_refused(cluster: Cluster, what: str) -> None:
    make, named = BAD[what]
    process = cluster.processes[0]
    due = process.links[1].accepted + 1
    before = plain(process.snapshot()), process.position
    with pytest.raises(Refused, match=r"a frame|a report|pipeline") as refused:
        check_frame(process, Frame(1, cluster.epochs[1], make(due)))
    assert refused.value.refusal.code is RefusalCode.INVALID
    assert named in str(refused.value)
    assert (plain(process.snapshot()), process.position) == before


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
        check_frame(process, Frame(1, of, Entries(first, (entry,))))
    with pytest.raises(Refused):
        check_frame(process, Frame(1, epoch, Entries(accepted + 1, (bad,))))
