"""What the tests of fronts with a real tracker share."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fronts.files import FileFront, PublishedFile
from fronts.front import Front, FrontOptions
from fronts.kafka import KafkaFront
from tests.waits import HANG_S
from tracker.client import NodeClient
from tracker.core.model import Cells, TickContent, Unit
from tracker.core.model.ack_values import unit_value
from tracker.core.model.units import unit_name

if (
    TYPE_CHECKING
):  # a part of this folder runs where the client is installed alone (`make install-matrix`)
    from tracker import EmbeddedTracker


def of_a_front(given: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The arguments of a front: what is no option of every kind, and the options, with `more`."""
    own: dict[str, Any] = {name: given[name] for name in ("format", "items") if name in given}
    rare = {name: value for name, value in given.items() if name not in own}
    return {**own, "options": FrontOptions(**{**more, **rare})}


def file_front(
    embedded: EmbeddedTracker, directory: Path, name: str = "a", **options: Any
) -> FileFront:
    return FileFront(embedded.target, "p", name, "in", directory, format="json",
        options=FrontOptions(**{"heartbeat_interval_ms": 2, **options}),
    )  # fmt: skip


def start_all(*fronts: Front | FileFront | KafkaFront) -> None:
    """Starts fronts of which none is granted anything before all have joined."""
    with ThreadPoolExecutor() as pool:
        for started in [pool.submit(front.start) for front in fronts]:
            started.result(HANG_S)


def new_reader(embedded: EmbeddedTracker) -> NodeClient:
    node = embedded.node("p", "reader")
    node.join(HANG_S)
    return node


def consume_cells(
    reader: NodeClient, *cells: tuple[int, int, int], units: tuple[Unit, ...] = ()
) -> None:
    """Items of segment 0 are done: slot, ack value or the XOR of several, how many."""
    rows = Cells.of((0, *cell) for cell in cells)
    reader.commit(TickContent(consumed=rows, units_consumed=units)).result(HANG_S)


def consume(reader: NodeClient, file: PublishedFile) -> None:
    """The file has been read, by what its name says."""
    name = unit_name(str(file.path))
    consume_cells(reader, (file.slot, unit_value(name), 1), units=(Unit(0, name, file.slot),))


def reached(embedded: EmbeddedTracker, slot: int) -> None:
    with embedded.subscriber("p") as subscriber:
        assert subscriber.wait_until(slot, timeout_s=HANG_S)
        assert subscriber.min_time() == slot
