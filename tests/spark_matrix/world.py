"""What a row has at hand: a pipeline with a front, queries, and its history."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import DataFrame, SparkSession

from examples.history import Recorder, read
from local_tracker import acks
from local_tracker.spark.session.tracked import Tracked, TrackedQuery
from tests.check.judging import Judged, judge
from tests.cluster.tracker import Tracker
from tests.spark.support import SCHEMA, Fronts, parse_operator
from tests.spark_matrix.places import LocalPlace, Place
from tests.spark_matrix.recording import write_settled
from tests.spark_matrix.registry import CLUSTER, Profile, Row
from tests.spark_matrix.truth import Followed, Output, Truth, odd_rows
from tests.waits import HANG_S, until
from tracker.client import Admin, LowmarkError, NodeClient, Subscriber
from tracker.core.model import Cells, Edge, PipelineSpec, TickContent
from tracker.core.model.ack_values import child_value
from tracker.core.model.slots import FOREVER, slot_of
from tracker.core.model.units import slot_in_name

SIDE = (Edge("parse", "side"),)


class RowFailed(Exception):
    """What a row found to be wrong."""


class World:
    """One run of one row. `fail(...)` unless what is checked holds; `finish` judges the rest."""

    def __init__(
        self,
        row: Row,
        profile: Profile,
        spark: SparkSession,
        tracker: Tracker,
        directory: Path,
        history: Path,
        recorders: dict[str, Recorder],
        patience_s: float = HANG_S,
        place: Place | None = None,
        unheld: bool = False,
    ) -> None:
        """place: where the row's files are, if not in `directory`. unheld: stateful queries are to hold nothing,
        which must be found."""
        self.row, self.profile, self.spark = row, profile, spark
        self.tracker, self.target = tracker, tracker.target
        self.directory, self.history = directory, history
        self._local = LocalPlace(directory)
        self.place: Place = place or self._local
        self.name = f"{row.number}-{profile.name}"
        self.patience_s = patience_s
        self.recorder = Recorder(directory / "history" / "row.jsonl")
        self.truth = Truth(self.recorder)
        self._recorders = recorders
        recorders[self.name] = self.recorder
        self._tracked: list[Tracked] = []
        self._closing: list[Callable[[], object]] = []
        self._subscribers: list[Subscriber] = []
        self._threads: list[threading.Thread] = []
        self._heard: dict[tuple[str, str | None], int] = {}
        self._has_side = False
        self.unheld = unheld
        self._at_last: list[Callable[[], object]] = []
        self.wrong: list[str] = []
        """What else is wrong, beside what the judge says."""
        self.figures: dict[str, dict[str, float]] = {}
        """What a row has measured, by what it is of."""
        self.expected: dict[str, int] = {}
        """Min times at the end, by segment, of what is not to become complete."""
        self.clock_slot = 0
        """What a row's own clock shows."""
        self.refusal = ""
        """What Lowmark refused to do on this version of PySpark."""
        self.pipeline: Fronts

    @property
    def on_cluster(self) -> bool:
        return self.profile.master == CLUSTER.master

    # --- setting up -------------------------------------------------------------------------------

    def open(
        self,
        *segments: str,
        edges: Sequence[Edge] = (),
        fronts: Mapping[str, str] | None = None,
        elsewhere: Sequence[str] = (),
        run: Callable[[PipelineSpec], Fronts] | None = None,
        **settings: Any,
    ) -> None:
        """Registers a chain of segments with more edges. fronts: which segment each feeds (one feeds
        the first); elsewhere: fronts that are not run here; run: runs the others, if they are not of
        files."""
        feeds = {"front": segments[0]} if fronts is None else dict(fronts)
        chain = [Edge(u, v) for u, v in itertools.pairwise(segments)]
        named = dict.fromkeys([*segments, *(end for e in edges for end in (e.source, e.target))])
        spec = PipelineSpec(
            self.name, tuple(named), (*chain, *edges), fronts=(*feeds, *elsewhere), **settings
        )
        with Admin(self.target) as admin:
            spec, _ = admin.register(spec)
        self.header(spec, feeds)
        self.pipeline = run(spec) if run else Fronts(
            self.target, spec, self.directory, feeds, self.truth.created,
            None if self.place is self._local else self.place,
        )  # fmt: skip

    def header(self, spec: Any, fronts: Mapping[str, str]) -> None:
        """Begins the history of a registered pipeline, and listens to each process."""
        self.spec = spec
        self._has_side = "side" in spec.segments
        self.recorder.header(spec, fronts)
        for address in self.tracker.addresses:
            subscriber = Subscriber(address, self.name)
            thread = threading.Thread(target=self._listen, args=(address, subscriber), daemon=True)
            thread.start()
            self._subscribers.append(subscriber)
            self._threads.append(thread)

    def _listen(self, address: str, subscriber: Subscriber) -> None:
        try:
            for update in subscriber.updates():
                self.recorder.heard(address, update.segment, update.min_time)
                self._heard[address, update.segment] = update.min_time
        except LowmarkError:
            return  # closed

    def publish(self, *slots: int, rows: int = 4, **more: Any) -> None:
        for number, slot in enumerate(slots):
            # Files of one slot are promised for together, behind the last.
            last = slots[number + 1 : number + 2] != (slot,)
            self.pipeline.publish(slot, rows, **{"commit": last, **more})

    def tracked(self, *, with_acks: bool = False, **options: Any) -> Tracked:
        made = Tracked(self.spark, self.target, self.name, **options)
        if with_acks:
            made.track(acks)
        self._tracked.append(made)
        return made

    def at_end(self, close: Callable[[], object]) -> None:
        """What is to be closed when the row is over."""
        self._closing.append(close)

    def at_last(self, write: Callable[[], object]) -> None:
        """What is to be added to the history when all else is over."""
        self._at_last.append(write)

    def path(self, name: str) -> str:
        return self.place.url(name)

    def reader(self, files: int = 2, schema: str = SCHEMA) -> Any:
        return self.spark.readStream.schema(schema).option("maxFilesPerTrigger", files)

    def source(self, files: int = 2, front: str = "front") -> DataFrame:
        """A front's files."""
        return self.reader(files).parquet(self.pipeline.input_of(front))

    def follow(
        self,
        checkpoint: str,
        reads: str | Mapping[str, str] = "parse",
        *outputs: Output,
        emits_from_state: bool = False,
        **more: Any,
    ) -> Followed:
        """Tells the truth of a query apart. emits_from_state: what it creates has the slots that its
        ticks say, which must not be before the batches' own."""
        if emits_from_state:
            more["emits"] = lambda batch: self._told_slot(checkpoint, batch)
        delays = {(edge.source, edge.target): edge.delay for edge in self.spec.edges}
        query = Followed(self.place.look(checkpoint), reads, outputs, delays=delays, **more)
        return self.truth.follow(query)

    def _told_slot(self, checkpoint: str, batch: int) -> int | None:
        text = (self.directory / checkpoint / "metadata").read_text()
        query = json.loads(text)["id"]
        for line in read(self.recorder.path):
            if line["kind"] == "handed" and line["batch"] == [query, batch]:
                slots = [slot for _, slot, _ in line["created"]]
                header = json.loads(
                    (self.directory / checkpoint / "offsets" / str(batch))
                    .read_text()
                    .splitlines()[1]
                )
                least = slot_of(header["batchTimestampMs"] * 1_000_000, self.spec.slack_ns)
                if slots and min(slots) < least:
                    raise RowFailed(f"batch {batch} of slot {least} was told under {min(slots)}")
                return min(slots, default=None)
        return None

    def job_done(
        self, out: str, run: int, *, reads: str = "parse", creates: Sequence[str] = ("after",)
    ) -> None:
        """Tells the truth of a batch job's run, which is done when its manifest is there."""
        (path,) = self.directory.glob(f"{out}/_lowmark/job-*/{run:08d}.json")
        done_ns = path.stat().st_mtime_ns + time.monotonic_ns() - time.time_ns()
        inputs = json.loads(json.loads(path.read_text())["offsets"])
        slots = [slot for name in inputs if (slot := slot_in_name(name)) is not None]
        for name in inputs:
            self.recorder.consumed(reads, name, done_ns)
        for file in sorted((self.directory / out).glob(f"b{run:08d}-*")):
            for segment in creates:
                self.truth.created(segment, f"file://{file}", min(slots), done_ns)

    def sink(self, name: str, *creates: str) -> Output:
        return Output("sink", self.place.look(name), creates)

    def published(self, name: str, *creates: str) -> Output:
        return Output("published", self.directory / name, creates)

    def copy(
        self, tracked: Tracked, frame: DataFrame, *, node: str = "parse", out: str = "out",
        checkpoint: str = "cp", reads: Any = "parse", creates: Sequence[str] = (), fmt: str = "parquet",
        mode: str = "append", trigger: Mapping[str, Any] | None = None, **options: Any,
    ) -> TrackedQuery:  # fmt: skip
        """Starts a query into a file sink."""
        writer = frame.writeStream.format(fmt).outputMode(mode)
        writer = writer.option("path", self.path(out))
        writer = writer.option("checkpointLocation", self.path(checkpoint))
        if trigger:
            writer = writer.trigger(**trigger)
        return tracked.start(writer, node_id=node, reads=reads, creates=creates, **options)

    # --- the query of most rows -------------------------------------------------------------------

    def each_batch(
        self,
        each: Callable[[DataFrame, Callable[[DataFrame], None], int], None],
        transform: Callable[[DataFrame], DataFrame] | None = None,
        *,
        tracked: Tracked | None = None,
        files: int = 2,
        fmt: str = "json",
        **options: Any,
    ) -> TrackedQuery:
        """Starts the query that acknowledges every row with an odd number to `side` and does `each`
        with each batch and a function that publishes."""
        tracked = tracked or self.tracked(with_acks=True)
        publish = tracked.writer(self.path("out"), fmt)
        parse = parse_operator()
        frame = (transform or (lambda f: f.mapInArrow(parse, SCHEMA)))(self.source(files))

        def body(batch_frame: DataFrame, batch: int) -> None:
            each(batch_frame, lambda result: publish(result, batch), batch)

        writer = frame.writeStream.foreachBatch(body)
        self._query = tracked.start(
            writer.option("checkpointLocation", self.path("cp")), node_id="parse", reads="parse",
            **options,
        )  # fmt: skip
        return self._query

    def tracked_query(self) -> TrackedQuery:
        """The query that `each_batch` has started last."""
        return self._query

    def evaluate(
        self,
        each: Callable[[DataFrame, Callable[[DataFrame], None], int], None],
        transform: Callable[[DataFrame], DataFrame] | None = None,
        *,
        slots: Sequence[int] = (3, 4, 6, 9),
        rows: int = 10,
    ) -> TrackedQuery:
        """The whole row, for one way to evaluate a batch: two batches of two files."""
        self.open("parse", edges=SIDE)
        self.follow("cp", "parse", side=True)
        self.publish(*slots, rows=rows)
        query = self.each_batch(each, transform)
        query.processAllAvailable()
        return query

    def batches(self, checkpoint: str) -> list[int]:
        """The batches that are over, as far as they are logged: none before the first is."""
        commits = self.place.look(checkpoint) / "commits"
        names = (path.name for path in (commits.iterdir() if commits.exists() else ()))
        return sorted(int(name) for name in names if name.isdigit())

    def offsets(self, checkpoint: str, batch: int) -> list[str]:
        """The offsets of a batch, as logged."""
        text = (self.place.look(checkpoint) / "offsets" / str(batch)).read_text()
        return text.splitlines()[2:]

    # --- judging ----------------------------------------------------------------------------------

    def rows(self) -> list[tuple[int, int]]:
        """All rows that were published: (slot, row)."""
        return [(slot, row) for row, slot in enumerate(self.pipeline.slots)]

    def sink_rows(self, name: str = "out", fmt: str = "json") -> list[tuple[Any, ...]]:
        """What a reader of the sink finds, by columns in order of their names."""
        frame = self.spark.read.format(fmt).load(self.path(name))
        columns = sorted(frame.columns)
        return sorted(tuple(row[c] for c in columns) for row in frame.select(columns).collect())

    def sink_is(
        self, expected: Iterable[tuple[Any, ...]], name: str = "out", fmt: str = "json"
    ) -> None:
        """The sink holds rows (columns by name), each as often."""
        found, wanted = self.sink_rows(name, fmt), sorted(expected)
        if found != wanted:
            self.fail(f"{name} holds {_some(found)}, without tracking it would be {_some(wanted)}")

    def sink_is_all(self, name: str = "out", fmt: str = "json") -> None:
        self.sink_is([(row, slot) for slot, row in self.rows()], name, fmt)

    def refused(self, error: Exception) -> None:
        """Notes that Lowmark refuses what this PySpark is too old for; fails the row if it is not, or the
        error does not name the version."""
        older = _minor(pyspark.__version__) < _minor(self.row.since or "0.0")
        if not older or f"PySpark {pyspark.__version__} " not in str(error):
            self.fail(f"{type(error).__name__}: {error}")
        self.refusal = str(error)

    def check(self, holds: bool, otherwise: str) -> None:
        if not holds:
            self.fail(otherwise)

    def fail(self, what: str) -> None:
        raise RowFailed(what)

    def wait(self, what: str, ready: Callable[[], object], timeout_s: float | None = None) -> Any:
        """Waits until something outside of this process is so."""
        try:
            return until(ready, f"waited in vain until {what}", timeout_s or self.patience_s)
        except AssertionError as error:
            self.fail(str(error))

    def open_items(self, segment: str) -> int:
        state = self.pipeline.describe()
        return int(state.segments[self.pipeline.segments.index(segment)].open_items)

    def expect_failed(self) -> None:
        """Queries that have failed so far were to: they are no failure of the row."""
        for tracked in self._tracked:
            tracked.stop()
        self._tracked.clear()

    def take_side(self) -> None:
        """Whoever reads the side output takes each row out that Spark's logs say was handed there."""
        self.truth.look()
        slots: dict[str, int] = {}
        for query in self.truth.queries:
            if query.side:
                names = consumed_names(query)
                slots |= dict(odd_rows(names))
        if not slots:
            return
        segment = self.spec.segments.index("side")
        cells = Cells.of(
            (segment, slot, child_value(int(name.split()[1]), "malformed", 0), 1)
            for name, slot in slots.items()
        )
        for name in slots:
            self.recorder.consumed("side", name)
        with NodeClient(self.target, self.name, "side-reader") as node:
            node.join(HANG_S)
            node.commit(TickContent(consumed=cells)).result(HANG_S)

    def open_and_close_side(self, side: str = "side", slot: int = 3) -> None:
        """One item of `side` that no query has to do with."""
        self.recorder.created(side, slot, "another")
        self.recorder.consumed(side, "another")
        segment = self.spec.segments.index(side)
        cells = Cells.of([(segment, slot, child_value(1, "another", 0), 1)])
        with NodeClient(self.target, self.name, "another") as node:
            node.join(HANG_S)
            node.commit(TickContent(created=cells, consumed=cells)).result(HANG_S)

    def finish(self) -> None:
        """Ends the front; all must become complete. The truth and what was heard go to the judge."""
        if self._has_side:
            self.take_side()
        self.pipeline.leave()
        self.await_end()

    def await_end(self) -> None:
        """Waits until every process has announced what is expected of each segment, and of all together; the
        judge says so if it has not come in time."""
        deadline = time.monotonic() + self.patience_s
        wanted: dict[str | None, int] = dict.fromkeys(self.spec.segments, FOREVER) | self.expected
        wanted[None] = min(wanted.values())

        def announced() -> bool:
            self._raise_if_ended()
            return time.monotonic() > deadline or all(
                self._heard.get((address, segment), -1) >= slot
                for address in self.tracker.addresses
                for segment, slot in wanted.items()
            )

        until(announced)

    def _raise_if_ended(self) -> None:
        if self.truth.failure is not None:
            raise self.truth.failure
        for tracked in self._tracked:
            for query in list(tracked._admitted.values()):
                if isinstance(query, TrackedQuery) and query.tracking_failure is not None:
                    raise RowFailed(f"a query was stopped: {query.tracking_failure}")

    def close(self) -> None:
        """Ends all that the row has started, and writes down what the tracker says."""
        for close in self._closing:
            close()
        for tracked in self._tracked:
            tracked.stop()
        for query in self.spark.streams.active:
            query.stop()
        try:
            self.truth.close()
            self._write_final()
            for write in self._at_last:
                write()
        finally:
            for subscriber in self._subscribers:
                subscriber.close()
            for thread in self._threads:
                thread.join(HANG_S)
            if hasattr(self, "pipeline"):
                self.pipeline.close()
            self.recorder.close()
            self._recorders.pop(self.name, None)

    def _write_final(self) -> None:
        for address, state in zip(self.tracker.addresses, self._settled(), strict=True):
            self.recorder.final(address, state)
        self.recorder.expected(dict.fromkeys(self.spec.segments, FOREVER) | self.expected)

    def _settled(self) -> list[Any]:
        """The pipeline as each process sees it, when they agree; or after a while in any case."""
        deadline = time.monotonic() + self.patience_s

        def settled() -> list[Any] | None:
            states = []
            for address in self.tracker.addresses:
                with Admin(address, HANG_S) as admin:
                    states.append(admin.pipeline(self.name).state)
            agree = all(state.segments == states[0].segments for state in states)
            return states if agree or time.monotonic() > deadline else None

        states = until(settled)
        assert states is not None
        return states

    def judge(self) -> Judged:
        """What the history breaks, as the judge says it."""
        write_settled(self.recorder.path.parent, self.history)
        return judge(self.history)


def _minor(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])


def consumed_names(query: Followed) -> list[str]:
    """All files that the batches of a query have taken, from its checkpoint."""
    found: dict[str, None] = {}
    for folder in sorted((query.checkpoint / "sources").iterdir(), key=lambda path: path.name):
        limit = query.offsets.get(folder.name)
        if not limit:
            continue
        for path in sorted(folder.iterdir(), key=lambda p: p.name):
            if path.name.startswith("."):
                continue
            for line in path.read_text().splitlines()[1:]:
                entry = json.loads(line)
                if entry["batchId"] <= int(limit["logOffset"]):
                    found[entry["path"]] = None
    return list(found)


def _some(rows: Sequence[tuple[Any, ...]]) -> str:
    shown = ", ".join(map(str, rows[:6]))
    return f"{len(rows)} rows ({shown}{', ...' if len(rows) > 6 else ''})"
