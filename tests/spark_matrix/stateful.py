"""Stateful queries of a row, each with its fronts and the query that reads what it emits."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from examples.history import read
from local_tracker.spark.session.attached import AttachedQuery
from local_tracker.spark.session.options import TrackingOptions
from local_tracker.spark.session.tracked import Tracked, TrackedQuery
from local_tracker.spark.state.rules import HeldFor
from tests.spark_matrix.events import EVENT_SCHEMA, EventFronts
from tests.spark_matrix.operators import RESULT_SCHEMA, Operator, timed
from tests.spark_matrix.recording import Line, settled
from tests.spark_matrix.truth import Followed
from tests.spark_matrix.waiting import Waiting
from tests.spark_matrix.world import World
from tracker.core.model import Edge

BASE_MS = 1_750_000_000_000
"""Where event times begin, but for rows that begin in 1970, where a watermark of 0 says nothing of them."""
FAR_MS = 1_000_000
"""The event time of the last rows: the watermark then passes all others."""
FAR_KEY = 1_000
"""Their keys, which nothing else has, nor two of them."""

STATE_STORE = "spark.sql.streaming.stateStore.providerClass"

Events = Sequence[tuple[int, int]]
"""(milliseconds from where event times begin, key)"""


@contextmanager
def setting(spark: SparkSession, name: str, value: str | None) -> Iterator[None]:
    """A setting of the session, for queries that are started meanwhile."""
    before = spark.conf.get(name)
    spark.conf.set(name, value or "")
    try:
        yield
    finally:
        spark.conf.set(name, before or "")


def segment_of(operator: Operator, source: str) -> str:
    """Where the rows of one of its sources are, and the front that publishes them."""
    return f"{operator.name}-{source}"


def after(operator: Operator) -> str:
    """Where it creates."""
    return f"after-{operator.name}"


def start_operator(
    spark: SparkSession, tracked: Tracked | None, operator: Operator, directory: Path,
    inputs: Mapping[str, str], *, unheld: bool = False, stage: Any = None,
    trigger: Mapping[str, Any] | None = None, files: int = 1,
) -> Any:  # fmt: skip
    """Its query, a plain one without `tracked`. inputs: the directories of its sources, by segment; stage: for
    `mapInArrow`, above them."""
    frames = {}
    for source in operator.inputs:
        frame = spark.readStream.schema(EVENT_SCHEMA).option("maxFilesPerTrigger", files)
        frame = frame.parquet(inputs[segment_of(operator, source)])
        frames[source] = timed(frame if stage is None else frame.mapInArrow(stage, EVENT_SCHEMA))
    out = str(directory / f"out-{operator.name}")
    writer = operator.build(frames).writeStream.outputMode(operator.mode)
    writer = writer.option("checkpointLocation", str(directory / f"cp-{operator.name}"))
    if operator.mode == "append":
        writer = writer.format("parquet").option("path", out)
    else:
        assert tracked is not None, "its writer is Lowmark's"
        writer = writer.foreachBatch(tracked.writer(out))
    if operator.by_clock:  # its batches never end: not more than Spark keeps the logs of
        trigger = {"processingTime": "1 second"}
    if trigger:
        writer = writer.trigger(**trigger)
    segments = [segment_of(operator, source) for source in operator.inputs]
    with setting(spark, STATE_STORE, operator.state_store or spark.conf.get(STATE_STORE)):
        if tracked is None:
            return writer.start()
        return tracked.start(
            writer, node_id=operator.name, creates=[after(operator)],
            reads={inputs[segment]: segment for segment in segments},
            options=TrackingOptions(state="free" if unheld else held_for(operator)),
        )  # fmt: skip


def held_for(operator: Operator) -> HeldFor | None:
    """What is said of its state; None where its plan says it."""
    if operator.span_ms is None:
        return None
    return HeldFor(operator.delay_ms, operator.span_ms, operator.ahead_ms)


def _is_at_rest(query: TrackedQuery) -> bool:
    return query.rest is not None


class Stateful:
    """The operators of a row, in one pipeline; each step is taken in by all of them, and by their readers."""

    def __init__(self, world: World, *operators: Operator, base_ms: int = BASE_MS) -> None:
        self.world, self.operators, self._base_ms = world, operators, base_ms
        self.queries: dict[str, TrackedQuery] = {}
        self.slot = 0
        self._late: set[int] = set()
        self._readers: dict[str, TrackedQuery] = {}
        self._followed: dict[str, tuple[Followed, Followed]] = {}
        self._open()
        world.at_last(self._conclude)

    def _open(self) -> None:
        sources = [(o, segment_of(o, source)) for o in self.operators for source in o.inputs]
        feeds = {segment: segment for _, segment in sources}
        world = self.world
        world.open(
            edges=[Edge(segment, after(operator)) for operator, segment in sources], fronts=feeds,
            run=lambda spec: EventFronts(
                world.target, spec, world.directory, feeds, world.truth.created
            ),
        )  # fmt: skip
        assert isinstance(world.pipeline, EventFronts)
        self.fronts = world.pipeline
        self.inputs = {segment: self.fronts.input_of(segment) for segment in feeds}
        for operator in self.operators:
            self._follow(operator)

    def _follow(self, operator: Operator) -> None:
        name, world = operator.name, self.world
        output = world.sink if operator.mode == "append" else world.published
        reads = {str(n): segment_of(operator, s) for n, s in enumerate(operator.inputs)}
        self._followed[name] = (
            world.follow(
                f"cp-{name}", reads, output(f"out-{name}", after(operator)),
                emits=lambda batch: self._told_slot(operator, batch),
            ),
            world.follow(f"cp-after-{name}", after(operator)),
        )  # fmt: skip

    # --- a life -----------------------------------------------------------------------------------

    def start(self, tracked: Tracked | None, **options: Any) -> None:
        """Starts the queries, or starts them again; without `tracked`, queries that know nothing of Lowmark."""
        world = self.world
        for operator in self.operators:
            self.queries[operator.name] = start_operator(
                world.spark, tracked, operator, world.directory, self.inputs,
                unheld=world.unheld, **options,
            )  # fmt: skip

    def attach(self) -> None:
        """Follows the queries, which have been started without Lowmark, from outside."""
        for operator in self.operators:
            attached = self.attached(operator)
            self.world.at_end(attached.close)
            attached.start()

    def attached(self, operator: Operator) -> AttachedQuery:
        world = self.world
        segments = [segment_of(operator, source) for source in operator.inputs]
        return AttachedQuery(
            world.target, world.name, operator.name, world.path(f"cp-{operator.name}"),
            reads={self.inputs[segment]: segment for segment in segments},
            creates=[after(operator)], sink=world.path(f"out-{operator.name}"),
            state=None if world.unheld else held_for(operator),
        )  # fmt: skip

    def publish(self, by_source: Mapping[str, Events], *, late: Iterable[int] = ()) -> None:
        """A file in each source of each operator, under the next slot but one; a source that is not named has
        no events. late: the places of events, in the order in which they are given, that come after their
        watermark."""
        self.slot += 2
        for operator in self.operators:
            named = {
                segment_of(operator, source): [
                    (self._base_ms + at_ms, key) for at_ms, key in by_source.get(source, ())
                ]
                for source in operator.inputs
            }
            new = self.fronts.publish_events(self.slot, named)
            self._late |= {new[place].row for place in late}

    def step(self, by_source: Mapping[str, Events] | Events, *, late: Iterable[int] = ()) -> None:
        """Publishes, and waits until all queries and their readers have taken it in."""
        named = by_source if isinstance(by_source, Mapping) else {"rows": by_source}
        self.publish(named, late=late)
        self.settle()

    def settle(self) -> None:
        for query in self.queries.values():
            query.processAllAvailable()
        self.read_on()

    def settle_by_clock(self) -> None:
        """Waits until all that was published has come out of queries whose batches never end, and is read."""
        for operator in self.operators:
            self.world.wait(
                f"{operator.name} has put out all that was published",
                partial(self._is_all_out, operator),
            )
        self.read_on()

    def _is_all_out(self, operator: Operator) -> bool:
        return self.waiting(operator).is_all_out()

    def _holds_nothing(self, operator: Operator) -> bool:
        segment = self.fronts.segments.index(after(operator))
        return int(self.fronts.describe().segments[segment].min_time) > self.slot

    def end_by_clock(self) -> None:
        """The end of queries whose batches never end: when nothing is held any more, before the fronts leave."""
        for operator in self.operators:
            self.world.wait(
                f"nothing of {operator.name} is held", partial(self._holds_nothing, operator)
            )
        self.stop_between_batches(self.world.tracked())
        self.read_on()
        self.end()

    def rest_by_clock(self) -> None:
        """The end of queries whose batches never end, while they go on: when the fronts have left, they and their readers
        come to rest by themselves."""
        for operator in self.operators:
            self.world.wait(
                f"nothing of {operator.name} is held", partial(self._holds_nothing, operator)
            )
        self.end()
        for name, query in (*self.queries.items(), *self._readers.items()):
            self.world.wait(f"{name}, or its reader, is at rest", partial(_is_at_rest, query))
            query.awaitTermination()

    def stop_between_batches(self, tracked: Tracked | None) -> None:
        """A query whose batches never end may be stopped when its sink has one that Spark has not committed, which nobody
        creates then, and its reader waits for it: it goes on until it has."""
        while True:
            for query in self.queries.values():
                query.stop()
            if all(map(self._is_between_batches, self.operators)):
                return
            self.start(tracked)
            for operator in self.operators:
                self.world.wait(
                    f"the batch of {operator.name} is committed that it was stopped in",
                    partial(self._is_between_batches, operator),
                )

    def _is_between_batches(self, operator: Operator) -> bool:
        """Whether Spark has committed all batches that its sink has."""

        def last(*folder: str) -> int:
            names = self.world.directory.joinpath(*folder).glob("[0-9]*")
            return max((int(path.name.partition(".")[0]) for path in names), default=-1)

        name = operator.name
        return last(f"out-{name}", "_spark_metadata") <= last(f"cp-{name}", "commits")

    def read_on(self) -> None:
        """The readers take in what there is."""
        self.start_readers()
        for reader in self._readers.values():
            reader.processAllAvailable()

    def start_readers(self) -> None:
        """They go on by themselves; for what was not told yet they wait."""
        for operator in self.operators:
            name, world = operator.name, self.world
            if name not in self._readers:
                frame = world.reader(8, RESULT_SCHEMA).parquet(world.path(f"out-{name}"))
                self._readers[name] = world.copy(
                    world.tracked(), frame, node=f"after-{name}", reads=after(operator),
                    out=f"copy-{name}", checkpoint=f"cp-after-{name}",
                )  # fmt: skip

    def run_now(self, tracked: Tracked) -> None:
        """Takes in what there is, with `availableNow`, and ends."""
        self.start(tracked, trigger={"availableNow": True})
        for query in self.queries.values():
            query.awaitTermination(int(self.world.patience_s))
            query.stop()
        self.queries.clear()
        self.read_on()

    def publish_far(self) -> None:
        """The last rows, which let the watermark pass all others, and stay in state themselves."""
        keys = {"rows": FAR_KEY, "left": FAR_KEY + 1, "right": FAR_KEY + 2}
        self.publish({source: [(FAR_MS, key)] for source, key in keys.items()})
        for operator in self.operators:
            if operator.waits:
                self.world.expected.setdefault(after(operator), self.slot)

    def finish(self) -> None:
        """The last rows, and the end of the fronts: min time must come to what those hold, and no further."""
        self.publish_far()
        self.settle()
        self.end()

    def end(self) -> None:
        self.fronts.leave()
        self.world.await_end()

    # --- judging ----------------------------------------------------------------------------------

    def ticks(self, operator: Operator) -> list[Line]:
        """Those of its query, in order."""
        lines = [
            line
            for path in sorted(self.world.recorder.path.parent.glob("*.jsonl"))
            for line in read(path)
        ]
        return sorted(
            (
                line for line in settled(lines)
                if line["kind"] == "tick" and line["node"].rpartition("#")[0] == operator.name
            ),
            key=lambda line: (int(line["node"].rpartition("#")[2]), line["number"]),
        )  # fmt: skip

    def _told_slot(self, operator: Operator, batch: int) -> int | None:
        """Under which slot a batch was told to have created; what it may have been is judged at the end."""
        directory = self.world.directory
        query = json.loads((directory / f"cp-{operator.name}" / "metadata").read_text())["id"]
        found: int | None = None
        for path in sorted(self.world.recorder.path.parent.glob("*.jsonl")):
            for line in read(path):
                if line["kind"] == "handed" and line["batch"] == [query, batch]:
                    slots = [s for segment, s, _ in line["created"] if segment == after(operator)]
                    found = min(slots, default=found)
        return found

    def waiting(self, operator: Operator) -> Waiting:
        """The oracle of one of them."""
        query, reader = self._followed[operator.name]
        fronts = {segment_of(operator, source) for source in operator.inputs}
        events = [
            replace(event, front=event.front.removeprefix(f"{operator.name}-"))
            for event in self.fronts.events
            if event.front in fronts
        ]
        return Waiting(
            operator, after(operator), events, query, reader, frozenset(self._late),
            self.ticks(operator),
        )  # fmt: skip

    def _conclude(self) -> None:
        """Writes down what was in state, and says what is wrong, when all is over."""
        heard = [line for line in read(self.world.recorder.path) if line["kind"] == "heard"]
        for operator in self.operators:
            waiting = self.waiting(operator)
            waiting.write(self.world.recorder)
            self.world.wrong += waiting.wrong()
            announced = sum(line["segment"] == after(operator) for line in heard)
            self.world.figures[operator.name] = waiting.figures(announced)
