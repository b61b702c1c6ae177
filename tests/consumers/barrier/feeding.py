"""Files as a tracked query leaves them: written, committed, and then created as units of a segment."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.waits import HANG_S
from tracker.client import NodeClient
from tracker.client.closing import Closing
from tracker.consumers.barrier.barrier import Barrier, BarrierOptions
from tracker.consumers.barrier.rows import RowReader
from tracker.consumers.barrier.sink import OrderedSink
from tracker.consumers.barrier.sources import FilesIn
from tracker.core.model import Cells, Heartbeat, PipelineSpec, TickContent, Unit
from tracker.core.model.ack_values import unit_value
from tracker.core.model.units import unit_name

SEGMENT = "deliver"
SPEC = PipelineSpec("p", (SEGMENT,), fronts=("front",))
READER = RowReader(key="key", slot="slot")


def row(slot: int, key: str, **more: Any) -> dict[str, Any]:
    return {"slot": slot, "key": key, **more}


class Feeder(Closing):
    """Writes files into a directory and creates them in the segment, out of order."""

    def __init__(self, target: str, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()
        self.node = NodeClient(target, SPEC.name, "feeder")
        self.node.join(HANG_S)
        self.node.join_front("front", SEGMENT, HANG_S)
        self.rows: list[dict[str, Any]] = []

    def file(self, name: str, slot: int, rows: Sequence[dict[str, Any]]) -> str:
        """A file that is a unit at a slot; returns its name."""
        self.written(name, rows)
        return self.created(name, slot)

    def written(self, name: str, rows: Sequence[dict[str, Any]]) -> None:
        hidden = self.directory / f".{name}"
        hidden.write_text("".join(f"{json.dumps(each)}\n" for each in rows))
        hidden.rename(self.directory / name)
        self.rows += rows

    def created(self, name: str, slot: int) -> str:
        unit = unit_name(str(self.directory / name))
        cells = Cells.of([(0, slot, unit_value(unit), 1)])
        content = TickContent(created=cells, units_created=(Unit(0, unit, slot),))
        self.node.commit(content).result(HANG_S)
        return unit

    def promise(self, slot: int) -> None:
        self.node.commit(TickContent(heartbeats=(Heartbeat("front", slot),))).result(HANG_S)

    def leave(self) -> None:
        self.node.leave_front("front").result(HANG_S)

    def close(self) -> None:
        self.node.close()


def barrier(
    target: str, feeder: Feeder, sink: OrderedSink, directory: Path, **options: Any
) -> Barrier:
    """One over all files of a feeder."""
    return Barrier(
        target,
        SPEC.name,
        SEGMENT,
        "b",
        sink,
        directory,
        sources=[FilesIn(str(feeder.directory))],
        options=BarrierOptions(reader=READER, **options),
    )


def in_order(rows: Sequence[dict[str, Any]]) -> list[tuple[int, str]]:
    """Where rows belong, by slot and key."""
    return sorted((each["slot"], each["key"]) for each in rows)
