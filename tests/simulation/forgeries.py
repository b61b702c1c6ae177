"""Frames that no process has made: entries that cannot be, behind those that a shard has sent.

A process whose memory is broken, or that was started with other settings, may say such things. They are
to be refused before they are logged; one that is not, stops its receiver at once or at its next start.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from tests import inside
from tracker.core.log import Entries, Entry, Frame, KeyTick, PipelineCompleted
from tracker.core.log.steps import (
    CellsMoved,
    HandoverFinished,
    NodesMoved,
    RescaleProposed,
    RoutingActivated,
    RoutingChanged,
    SequencerMoved,
    ShardJoined,
    ShardJoining,
    ShardLeaving,
    ShardLeft,
    ShardRemoved,
)
from tracker.core.model import Cells, NodeKey, Tick, TickContent
from tracker.core.model.routing import RoutingTable
from tracker.core.process import Process

Forgery = Callable[[Process, str, int], Entry]
"""Of the receiver, a pipeline that it knows, and the shard that seems to say it."""


def _tick_of_another_home(process: Process, pipeline: str, sender: int) -> Entry:
    """A tick of a node that is not at home at its sender."""
    names, table = (
        (str(number) for number in range(1000)),
        inside.expected_membership(process).table,
    )
    node_id = next(name for name in names if table.home(pipeline, name) != sender)
    cells = Cells.of([(0, 2**40, 1, 1)])
    return KeyTick(
        Tick(pipeline, NodeKey(node_id, 1), 1, TickContent(created=cells)), Cells.empty()
    )


def _far(process: Process) -> int:
    """A version that nobody has begun to make."""
    return inside.expected_membership(process).table.version + 3


FORGERIES: dict[str, Forgery] = {
    "joined": lambda process, pipeline, sender: ShardJoined(77),
    "joined below 0": lambda process, pipeline, sender: ShardJoined(-1),
    "joining": lambda process, pipeline, sender: ShardJoining(77, "host:1"),
    "removed": lambda process, pipeline, sender: ShardRemoved(sender),
    "leaving": lambda process, pipeline, sender: ShardLeaving(
        inside.expected_membership(process).sequencer
    ),
    "sequencer": lambda process, pipeline, sender: SequencerMoved(77, 1),
    "left": lambda process, pipeline, sender: ShardLeft((), (), 0),
    "asked": lambda process, pipeline, sender: RescaleProposed(_far(process), (0, 77), False),
    "table": lambda process, pipeline, sender: RoutingChanged(
        RoutingTable.uniform(78).without((), _far(process))
    ),
    "adopted": lambda process, pipeline, sender: RoutingActivated(_far(process), 1),
    "done": lambda process, pipeline, sender: HandoverFinished(_far(process)),
    "nodes": lambda process, pipeline, sender: NodesMoved(
        _far(process), pipeline, process.shard, None
    ),
    "cells": lambda process, pipeline, sender: CellsMoved(_far(process), pipeline, 0),
    "tick": _tick_of_another_home,
    "completed": lambda process, pipeline, sender: PipelineCompleted(
        pipeline, inside.pipeline(process, pipeline).generation, 0
    ),
}


def forged_frame(rng: random.Random, process: Process, frame: Frame) -> Frame | None:
    """What the sender of a frame might seem to say next to a process, and cannot; None where shards are
    changing, and it might."""
    link, body = process.links.get(frame.shard), frame.body
    pipelines = [*inside.pipelines(process)]
    if link is None or not pipelines or not isinstance(body, Entries):
        return None
    known = inside.expected_membership(process)
    alone = len(known.table.shards) < 2
    if alone or frame.shard not in known.members or not known.is_settled or known.table_is_older:
        return None
    pipeline = rng.choice(pipelines)
    might = {
        "left": frame.shard not in known.table.owning,
        "completed": known.table.registrar(pipeline) == frame.shard,
    }
    make = FORGERIES[rng.choice([name for name in FORGERIES if not might.get(name)])]
    entry = make(process, pipeline, frame.shard)
    again = (
        entry if rng.random() < 0.5 else _tick_of_another_home(process, pipelines[0], frame.shard)
    )
    return Frame(frame.shard, frame.epoch, Entries(link.accepted + 1, (entry, again)))
