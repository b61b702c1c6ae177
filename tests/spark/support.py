"""What the Spark tests and the matrix share: a pipeline with fronts that publish rows, and its witness.

Every row's value is the slot under which it was published, so that what is announced can be held
against what is done: when min time t is heard for a segment, every published row with a slot below t
must be in the files that the segment's query has committed.
"""

from __future__ import annotations

import io
import itertools
import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyspark

from local_tracker import acks
from local_tracker.spark.query.logs import CheckpointLog, SinkLog
from tests.cluster.children import Running
from tests.spark_matrix.places import LocalPlace, Place
from tests.waits import HANG_S, until
from tracker.client import Admin, NodeClient, SecureTarget, Subscriber
from tracker.client.connection import parse_targets
from tracker.core.model import Cells, Edge, Heartbeat, PipelineSpec, TickContent
from tracker.core.model.ack_values import child_value, child_values, unit_value
from tracker.core.model.slots import FOREVER
from tracker.core.model.units import file_name, unit_name
from tracker.files import location

SCHEMA = "slot long, row long"
Batches = Iterator[Any]


class Fronts:
    """A registered pipeline and its fronts, each with a directory of files of rows: a slot, and the
    number of the row."""

    def __init__(
        self,
        target: str | SecureTarget,
        spec: PipelineSpec,
        directory: Path,
        feeds: Mapping[str, str],
        created: Callable[[str, str, int], None] = lambda segment, unit, slot: None,
        place: Place | None = None,
    ) -> None:
        """feeds: the segment that each front feeds, by the front's name; created: is told of each
        file's segment, name in Spark's logs, and slot, before the file appears; place: where the files are
        put, if not in `directory`."""
        self.target: Any = target  # a plain one, but where the tracker asks for credentials
        self.name, self.directory, self.segments = spec.name, directory, spec.segments
        self.admin = Admin(target)
        self.admin.register(spec)
        self.slots: list[int] = []
        """Of all rows published so far; a row's number is its place."""
        self._feeds, self._created, self._batch = dict(feeds), created, 0
        self._place = place or LocalPlace(directory)
        self._nodes: dict[str, NodeClient] = {}
        self._uncommitted: list[tuple[int, int, int, int]] = []
        self._inputs: dict[str, str] = {}
        for front, segment in feeds.items():
            self._inputs[front] = f"in-{front}" if self._inputs else "in"
            if place is None:
                os.makedirs(self.input_of(front))
            node = self._nodes[front] = NodeClient(target, spec.name, front, kind="front")
            node.join(HANG_S)
            node.join_front(front, segment, HANG_S)

    @property
    def input(self) -> str:
        """The directory of the first front."""
        return self.input_of(next(iter(self._inputs)))

    def input_of(self, front: str) -> str:
        return self._place.url(self._inputs[front])

    def publish(
        self, slot: int, rows: int = 3, *, front: str = "front", fmt: str = "parquet",
        commit: bool = True,
    ) -> None:  # fmt: skip
        """One file of rows, its tick, and a promise beyond it; `commit=False`: the file alone."""
        data = rows_file(slot, range(len(self.slots), len(self.slots) + rows), fmt)
        self.slots += [slot] * rows
        self.publish_file(slot, data, front, fmt)
        if commit:
            self.commit(front)

    def publish_file(self, slot: int, data: bytes, front: str, fmt: str = "parquet") -> None:
        """One file, not committed yet."""
        name = file_name(slot, front, self._batch, fmt)
        self._batch += 1
        path = f"{self._inputs[front]}/{name}"
        unit, segment = unit_name(self._place.url(path)), self._feeds[front]
        self._created(segment, self._place.logged(path), slot)
        self._uncommitted.append((self.segments.index(segment), slot, unit_value(unit), 1))
        self._place.put(path, data)

    def commit(self, front: str = "front") -> None:
        """The ticks of what has been published, and a promise beyond it."""
        created = TickContent(created=Cells.of(self._uncommitted))
        beyond = max(slot for _, slot, _, _ in self._uncommitted) + 1
        self._uncommitted.clear()
        self._nodes[front].commit(created).result(HANG_S)
        self.promise(front, beyond)

    def promise(self, front: str, slot: int) -> None:
        """A front labels nothing below the slot from here on."""
        promise = TickContent(heartbeats=(Heartbeat(front, slot),))
        self._nodes[front].commit(promise).result(HANG_S)

    def leave(self) -> None:
        """All fronts end: what is published is all there is."""
        for front, node in self._nodes.items():
            node.leave_front(front).result(HANG_S)

    def describe(self) -> Any:
        return self.admin.pipeline(self.name).state

    def close(self) -> None:
        for node in self._nodes.values():
            node.close()
        self.admin.close()


def rows_file(slot: int, numbers: Iterable[int], fmt: str) -> bytes:
    """A file of rows, by their numbers, that all have one slot."""
    if fmt != "parquet":
        lines = [json.dumps({"slot": slot, "row": number}) + "\n" for number in numbers]
        return "".join(lines).encode()
    rows = list(numbers)
    columns = {"slot": [slot] * len(rows), "row": rows}
    table = pa.table({name: pa.array(values, pa.int64()) for name, values in columns.items()})
    data = io.BytesIO()
    pq.write_table(table, data)
    return data.getvalue()


class Pipeline(Fronts):
    """A chain of segments, fed by one front."""

    def __init__(
        self,
        target: str | SecureTarget,
        name: str,
        directory: Path,
        segments: Sequence[str],
        *more: Edge,
    ) -> None:
        chain = (Edge(u, v) for u, v in itertools.pairwise(segments))
        side = {edge.target for edge in more} - set(segments)
        spec = PipelineSpec(name, (*segments, *sorted(side)), (*chain, *more), fronts=("front",))
        super().__init__(target, spec, directory, {"front": segments[0]})

    def assert_finished(self) -> None:
        """Min time reaches the end in every segment, and nothing is left open; so say all processes."""
        for address in parse_targets(self.target):
            secure = isinstance(self.target, SecureTarget)
            one = SecureTarget(address, self.target.credentials) if secure else address
            with Subscriber(one, self.name) as subscriber:
                assert subscriber.wait_until(FOREVER, timeout_s=HANG_S), self.describe()
        for segment in self.describe().segments:
            assert segment.open_slots == 0, segment
            assert segment.min_time == FOREVER, segment


class Witness:
    """Hears all that is announced, and holds each announcement against what is done by then.

    `done`: by segment, the slots of the rows that its query has committed.
    """

    def __init__(self, pipeline: Pipeline, done: Mapping[str, Callable[[], Sequence[int]]]) -> None:
        self.heard: list[tuple[str, int]] = []
        self.faults: list[str] = []
        self._pipeline, self._done = pipeline, done
        self._subscriber = Subscriber(pipeline.target, pipeline.name)
        self._thread = threading.Thread(target=self._listen, name="witness")
        self._thread.start()

    def _listen(self) -> None:
        try:
            for update in self._subscriber.updates():
                segment = update.segment
                if segment is not None and segment in self._done:
                    self.heard.append((segment, update.min_time))
                    self._check(segment, update.min_time)
        except Exception as error:
            self.faults.append(f"the witness could not go on: {error!r}")

    def _check(self, segment: str, min_time: int) -> None:
        published = [slot for slot in list(self._pipeline.slots) if slot < min_time]
        done = [slot for slot in self._done[segment]() if slot < min_time]
        if sorted(published) != sorted(done):
            self.faults.append(
                f"min time {min_time} of {segment} was announced with {len(done)} of "
                f"{len(published)} rows below it done"
            )

    def __enter__(self) -> Witness:
        return self

    def __exit__(self, *error: object) -> None:
        self._subscriber.close()
        self._thread.join()
        if error[0] is None:
            assert self.heard, "nothing was announced"
            assert not self.faults, self.faults


def sink_rows(checkpoint: str, out: str) -> Callable[[], list[int]]:
    """Slots of the rows in the Parquet files that the batches of a file sink have committed."""

    def rows() -> list[int]:
        log = CheckpointLog(checkpoint)
        names = [n for batch in log.committed() for n in SinkLog(out).created(batch)]
        return [slot for n in names for slot in pq.read_table(location(n))["slot"].to_pylist()]

    return rows


# --- acks of user code ----------------------------------------------------------------------------


def parse_operator() -> Callable[[Batches], Batches]:
    """Hands every row with an odd number to the side. Made here, so that it travels by value."""

    @acks.operator("parse")
    def parse(batches: Batches) -> Batches:
        for batch in batches:
            slots, rows = (batch.column(place).to_numpy() for place in (0, 1))
            odd = rows % 2 == 1
            values = child_values(rows[odd].astype(np.uint64), "malformed", 0)
            acks.create("side", slots[odd], values)
            yield batch

    return parse


def take_out_of_side(pipeline: Pipeline) -> None:
    """Consumes each malformed row once, as whoever reads the side output would."""
    odd = [(slot, row) for row, slot in enumerate(pipeline.slots) if row % 2 == 1]
    segment = pipeline.segments.index("side")
    # A tick is durable before every shard has applied its part and said so.
    until(lambda: pipeline.describe().segments[segment].open_items == len(odd))
    cells = Cells.of((segment, slot, child_value(row, "malformed", 0), 1) for slot, row in odd)
    with NodeClient(pipeline.target, pipeline.name, "side-reader") as node:
        node.join(HANG_S)
        node.commit(TickContent(consumed=cells)).result(HANG_S)


# --- queries that are followed ----------------------------------------------------------------------


class Attach(Running):
    """`lowmark query attach`, where PySpark is not installed: follows a query of `directory`, whose checkpoint is
    `cp` and whose sink is `out`; not started."""

    def __init__(self, target: str, pipeline: str, directory: Path, *more: str) -> None:
        super().__init__(
            "tests.spark.without_spark", "query", "attach", "--target", target, "--pipeline", pipeline,
            "--node-id", "parse", "--reads", "parse", "--creates", "after",
            "--checkpoint", str(directory / "cp"), "--sink", str(directory / "out"), *more,
            errors=directory / "attach.log",
        )  # fmt: skip


def can_read_state() -> bool:
    """PySpark 3.5 has no source for it."""
    return not pyspark.__version__.startswith("3.")
