"""The replay: a tracker in a process of its own, two fronts, a tracked query, and the two jobs."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from examples.children import tracker_process
from examples.incremental.shops import (
    CLOSES,
    JOBS,
    LOOK_BACK,
    OPENS,
    OUTAGE,
    SHOPS,
    Sale,
    clock_text,
    sales,
)
from examples.sessions import session
from lowmark import (
    FOREVER,
    Admin,
    CompletedReader,
    FileFront,
    PipelineSpec,
    Subscriber,
    Tracked,
    TrackedQuery,
)
from lowmark.fronts import FrontOptions

NAME = "orders"
MINUTE_NS = 60 * 10**9
MIDNIGHT_NS = int(datetime(2026, 3, 2, tzinfo=UTC).timestamp()) * 10**9
WAIT_S = 300.0
CRASHED_RUN = 2
"""This run of the gated job dies after it has written its rows, and before it says that it is done."""
SCHEMA = "row long, shop string, stamp timestamp, global_time long, ack_value long"


class ExampleFailed(Exception):
    """The example cannot go on; says why."""


def slot(minute: int) -> int:
    """Slots are as wide as a minute."""
    return MIDNIGHT_NS // MINUTE_NS + minute


@dataclass
class Tally:
    """How often a job took each row."""

    taken: Counter[int] = field(default_factory=Counter)

    def missed(self, rows: Iterable[Sale]) -> list[Sale]:
        return [sale for sale in rows if not self.taken[sale.row]]

    def repeated(self, rows: Iterable[Sale]) -> list[Sale]:
        return [sale for sale in rows if self.taken[sale.row] > 1]


class Shop:
    """One shop: labels its rows by its own clock, which is the stamp that they get."""

    def __init__(self, name: str, target: str, directory: Path) -> None:
        self.name, self.minute = name, OPENS
        self._front = FileFront(
            target,
            NAME,
            name,
            "load",
            directory,
            format="json",
            items="rows",
            options=FrontOptions(clock=lambda: MIDNIGHT_NS + self.minute * MINUTE_NS),
        )
        self._front.start()

    def send(self, rows: list[Sale]) -> None:
        """Publishes rows, in the order of their stamps, each minute as one file."""
        for minute in sorted({sale.stamp for sale in rows}):
            self.minute = minute
            stamp = datetime.fromtimestamp((MIDNIGHT_NS + minute * MINUTE_NS) / 1e9, UTC)
            self._front.write(
                [
                    {"row": sale.row, "shop": sale.shop, "stamp": stamp.isoformat()}
                    for sale in rows
                    if sale.stamp == minute
                ]
            )

    def reach(self, minute: int) -> None:
        """Nothing more comes from before `minute`; returns when the tracker has all that was sent."""
        self.minute = minute
        if not self._front.wait_durable(WAIT_S):
            raise ExampleFailed(f"the tracker did not take what {self.name} has published")

    def leave(self) -> None:
        self._front.leave()

    def close(self) -> None:
        self._front.close()


class Replay:
    """One run, with its files in `directory`."""

    def __init__(self, directory: Path, target: str, spark: SparkSession) -> None:
        self.directory, self.target, self.spark = directory, target, spark
        self.rows = sales()
        self.gated, self.looking_back = Tally(), Tally()
        self.loaded = str(directory / "loaded")
        self._tracked = Tracked(spark, target, NAME)

    def run(self) -> None:
        """Replays the hour, with both jobs whenever they are due."""
        shops = [Shop(name, self.target, self.directory / "in" / name) for name in SHOPS]
        try:
            query = self._load()
            with Subscriber(self.target, NAME) as subscriber:
                sent = OPENS
                for now in JOBS:
                    for minute in range(sent, min(now, CLOSES)):
                        self._minute(shops, minute)
                    sent = now
                    promised = self._promise(shops, now)
                    self._settle(query, subscriber, promised)
                    self._look_back(now)
                    self._take_completed(now)
                for shop in shops:
                    shop.leave()
                self._settle(query, subscriber, FOREVER)
                self._take_completed(JOBS[-1])
            query.stop()
        finally:
            for shop in shops:
                shop.close()

    def _load(self) -> TrackedQuery:
        raw = self.spark.readStream.schema(SCHEMA).json(str(self.directory / "in" / "*"))
        writer = (
            raw.writeStream.format("parquet")
            .option("path", self.loaded)
            .option("checkpointLocation", str(self.directory / "checkpoint"))
        )
        return self._tracked.start(
            writer, node_id="load", reads="load", rows={"load": "global_time"}
        )

    def _minute(self, shops: list[Shop], minute: int) -> None:
        for shop in shops:
            shop.send([s for s in self.rows if s.shop == shop.name and s.visible == minute])

    def _promise(self, shops: list[Shop], now: int) -> int:
        """Each shop's clock goes on, but not beyond what has not got out; the slot that all reach."""
        reached = []
        for shop in shops:
            stuck = shop.name == "south" and OUTAGE.start < now < OUTAGE.stop
            shop.reach(OUTAGE.start if stuck else now)
            reached.append(shop.minute)
        return slot(min(reached))

    def _settle(self, query: TrackedQuery, subscriber: Subscriber, promised: int) -> None:
        """Waits until all that can be seen is loaded, and min time is where it must be by then: the jobs
        would be right without, but the example would not show the same each time."""
        query.processAllAvailable()
        if not query.wait_durable(WAIT_S) or not subscriber.wait_until(promised, timeout_s=WAIT_S):
            raise ExampleFailed(f"min time did not reach slot {promised} within {WAIT_S:g} s")

    # --- the two jobs -----------------------------------------------------------------------------

    def _read(self) -> DataFrame:
        return self.spark.read.parquet(self.loaded)

    def _take_completed(self, now: int) -> None:
        """The gated job: each run replaces what an earlier attempt at it may have left."""
        for attempt in range(2):
            with CompletedReader(
                self.target, NAME, "load", self.directory / "gated" / "runs.json"
            ) as reader:
                taken = reader.take(self._read)
                if taken is None:
                    return
                out = self.directory / "gated" / f"run={taken.run.number}"
                taken.frame.write.mode("overwrite").parquet(str(out))
                if taken.run.number == CRASHED_RUN and attempt == 0:
                    print(f"{clock_text(now)}  gated: run {CRASHED_RUN} dies before it is done")
                    continue
                taken.done()
                count = self.spark.read.parquet(str(out)).count()
                upto = taken.run.to_slot - slot(0)
                text = clock_text(upto) if taken.run.to_slot < FOREVER else "the end"
                print(f"{clock_text(now)}  gated: {count:3d} rows, up to {text}")
                return

    def _look_back(self, now: int) -> None:
        """The job of today: whatever it finds of the last fifteen minutes."""
        stamp = F.unix_micros("stamp") * 1_000 - F.lit(MIDNIGHT_NS)
        recent = (stamp >= (now - LOOK_BACK) * MINUTE_NS) & (stamp < now * MINUTE_NS)
        rows = [row["row"] for row in self._read().where(recent).select("row").collect()]
        self.looking_back.taken.update(rows)
        print(f"{clock_text(now)}  looking back: {len(rows):3d} rows")

    def count(self) -> None:
        """Counts what the gated job has published, as its readers find it."""
        published = self.spark.read.parquet(str(self.directory / "gated"))
        self.gated.taken.update(row["row"] for row in published.select("row").collect())


def run_example(directory: Path, sabotage: str | None) -> Replay:
    """Runs it with its files in `directory`, which is emptied; `sabotage`: a fault of `tests.sabotage` in
    the tracker. Raises ExampleFailed and what the parts raise."""
    shutil.rmtree(directory, ignore_errors=True)
    (directory / "logs").mkdir(parents=True)
    with tracker_process(directory, sabotage) as target:
        with Admin(target, WAIT_S) as admin:
            admin.register(
                PipelineSpec(
                    NAME, ("load",), fronts=SHOPS, start_slot=slot(OPENS), slack_ns=MINUTE_NS
                )
            )
        with session("incremental", directory) as spark:
            replay = Replay(directory, target, spark)
            replay.run()
            replay.count()
            return replay
