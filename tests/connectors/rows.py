"""The rows: what every source and sink goes through."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

from pyspark.errors import StreamingQueryException

from local_tracker.spark.session.tracked import Tracked, TrackedQuery
from tests.connectors.connector import Connector, How
from tests.connectors.driver import Run, Started
from tests.spark_matrix.faults import at_the_end, once
from tests.spark_matrix.world import World
from tests.waits import PROGRAM_S
from tracker.errors import TrackingError

SLOTS, MORE = (10, 20, 30, 40), (50, 60)
KILLED_AT = 1
"""The batch at which a driver is killed: not the first, and not the last."""
AWAY_S = 20.0  # paces: how long a store is away


@dataclass
class Trial:
    """One row of one connector."""

    connector: Connector
    world: World

    def begin(self) -> None:
        self.connector.open(self.world)
        self.connector.publish(self.world, *SLOTS)

    def tracked(self) -> Tracked:
        return self.world.tracked(**self.connector.options(self.connector.site(self.world)))

    def start(self, how: How | None = None) -> TrackedQuery:
        """The query, in this process."""
        site = self.connector.site(self.world)
        return self.connector.start(self.world.spark, self.tracked(), site, how or How())

    def drain(self, how: How | None = None) -> TrackedQuery:
        """The query, when it has taken all that there is."""
        query = self.start(how)
        query.processAllAvailable()
        return query

    def end(self, reader: TrackedQuery | None = None) -> None:
        """Reads the sink to its end; everything must be there, and complete."""
        reader = reader or self.connector.read_on(self.world, self.tracked())
        reader.processAllAvailable()
        self.connector.check(self.world)
        self.world.finish()

    def driver(self, dies_at: int = -1, settings: Mapping[str, str] | None = None) -> Started:
        """A driver with the query, in a process of its own."""
        world = self.world
        run = Run(
            self.connector.name, world.target, world.name, str(world.directory),
            asdict(self.connector.site(world)), {**world.profile.settings, **(settings or {})}, dies_at,
        )  # fmt: skip
        return Started(run)

    def check_not_beyond(self, batch: int, *, committed: bool) -> None:
        """Done means committed: of the killed batch nothing has moved."""
        over = batch in self.world.batches("cp")
        self.world.check(over == committed, f"commits/{batch}: {over}")
        min_time = self.world.pipeline.describe().segments[0].min_time
        slot = SLOTS[batch]
        self.world.check(
            min_time <= slot, f"min time {min_time} is beyond the batch of slot {slot}"
        )


def ordinary(trial: Trial) -> None:
    trial.begin()
    query = trial.drain()
    trial.connector.publish(trial.world, *MORE)
    query.processAllAvailable()
    trial.end()


def killed_before_commit(trial: Trial) -> None:
    """The sink has committed the batch, `commits/N` is not there."""
    trial.begin()
    with (
        trial.connector.held_before_commit(KILLED_AT) as hold,
        trial.driver(settings=hold.settings) as driver,
    ):
        try:
            hold.until(PROGRAM_S)
        except AssertionError:
            trial.world.fail(f"the driver did not come to commits/{KILLED_AT}: {driver.said()}")
        driver.kill()
    trial.check_not_beyond(KILLED_AT, committed=False)
    trial.drain()
    trial.end()


def killed_between_batches(trial: Trial) -> None:
    """`commits/N` is there, and its tick was not handed over."""
    trial.begin()
    with trial.driver(dies_at=KILLED_AT) as driver:
        status = driver.end()
        trial.world.check(
            status == -signal.SIGKILL, f"the driver ended with {status}: {driver.said()}"
        )
    trial.check_not_beyond(KILLED_AT, committed=True)
    trial.drain()
    trial.end()


def failed_task(trial: Trial) -> None:
    trial.begin()
    marker = str(trial.world.directory / "failed")

    def fail() -> None:
        raise RuntimeError("this task fails once")

    trial.drain(How(task=at_the_end(once(marker, fail))))
    trial.world.check((trial.world.directory / "failed").exists(), "no task has failed")
    trial.end()


def other_partitions(trial: Trial) -> None:
    trial.begin()
    trial.drain().stop()
    trial.connector.add_partitions(trial.world)
    trial.connector.publish(trial.world, *MORE)
    trial.drain(How(partitions=3, files=2))
    trial.end()


def store_away(trial: Trial) -> None:
    """In the middle of its batches. A query that does not outlive that is started again."""
    trial.begin()
    trial.drain().stop()
    trial.connector.publish(trial.world, *MORE)
    query = trial.start()
    with trial.connector.away():
        threading.Event().wait(AWAY_S)
    try:
        query.processAllAvailable()
    except (StreamingQueryException, TrackingError):
        trial.world.expect_failed()
        trial.drain()
    trial.end()


def reader_added_later(trial: Trial) -> None:
    trial.begin()
    query = trial.drain()
    reader = trial.connector.read_on(trial.world, trial.tracked())
    trial.connector.publish(trial.world, *MORE)
    query.processAllAvailable()
    trial.end(reader)


BODIES: dict[str, tuple[str, Callable[[Trial], None]]] = {
    "ordinary": ("an ordinary run", ordinary),
    "commit": ("driver killed between sink commit and commits/N", killed_before_commit),
    "between": ("driver killed between batches, before the tick", killed_between_batches),
    "task": ("a failed task", failed_task),
    "partitions": ("started again with another number of partitions", other_partitions),
    "away": (f"the broker or the store away for {AWAY_S:.0f} s", store_away),
    "later": ("a reader added later", reader_added_later),
}
"""By the word that chooses them on the command line."""
