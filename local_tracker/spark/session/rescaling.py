"""Another number of state partitions for a stateful query, at a moment of global time.

    query, done = rescale_query(spark, query, start, checkpoint, 4, reached=lambda: ...)

The query runs until what it reads is complete up to that moment; it is stopped, its last batch is
finished if one had begun, its state is repartitioned by Spark itself, and it is started again. Spark
writes the new state as a batch of its own, without input, which is an empty tick: no row is counted
twice or left out, and min time only waits.

Spark's repartitioning (experimental, and private) takes the RocksDB state
store only, and leaves a batch half begun in the checkpoint when it refuses. So everything that it would
refuse is checked before anything is stopped.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from local_tracker.spark import versions
from local_tracker.spark.formats.hadoop_files import session_stores
from local_tracker.spark.query.logs import CheckpointLog
from tracker.errors import Code, TrackingError
from tracker.files import STORES, Stores, scheme

MAX_STATE_PARTITIONS = 100_000
FINISH_TIMEOUT_S = 600.0
"""How long the batch that had begun, and what is available then, may take."""
ROCKSDB = "RocksDBStateStoreProvider"
_PARTITIONS = "spark.sql.shuffle.partitions"
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"

log = logging.getLogger("lowmark.spark")


@dataclass(frozen=True, slots=True)
class CheckpointState:
    """What a checkpoint says of its query. begun, committed: the last batch that was planned, and that
    is over; -1 if none is. partitions: of the state, or to be of it. provider: the class that keeps the state. unfinished:
    what has begun is a repartition, which Spark takes up by the same number alone, and before that starts no query."""

    begun: int
    committed: int
    partitions: int
    provider: str
    stateful: bool
    unfinished: bool = False

    @property
    def is_under_way(self) -> bool:
        """Whether a batch has begun, and is over when the query comes to its end."""
        return self.begun != self.committed and not self.unfinished


@dataclass(frozen=True, slots=True)
class Rescaled:
    """What was done. batch: the one that Spark wrote the new state as. pause_s: from the moment in
    which the query was asked to stop until it had been started again."""

    from_partitions: int
    to_partitions: int
    batch: int
    pause_s: float
    repartition_s: float


def checkpoint_state(
    checkpoint: str | os.PathLike[str], stores: Stores = STORES
) -> CheckpointState:
    """Reads a checkpoint. Raises TrackingError if no batch has begun in it, FilesError
    if it cannot be read."""
    logs = CheckpointLog(str(checkpoint), stores)
    begun, committed = max(logs.planned(), default=-1), max(logs.committed(), default=-1)
    if begun < 0:
        raise TrackingError(
            f"{logs.root} holds no batch: is it a query's checkpoint, and has the query run?",
            Code.TRACKING_RESCALE,
        )
    settings = logs.settings(begun)
    before = settings if committed in (-1, begun) else logs.settings(committed)
    return CheckpointState(
        begun, committed, int(settings.get(_PARTITIONS, 0)), settings.get(_PROVIDER, ""),
        logs.files.is_directory(f"{logs.root}/state"),
        settings.get(_PARTITIONS) != before.get(_PARTITIONS),
    )  # fmt: skip


def check_rescale(
    spark: SparkSession, checkpoint: str | os.PathLike[str], partitions: int
) -> CheckpointState:
    """Raises TrackingError for whatever Spark would refuse, but for a batch that has begun."""
    if not versions.can_repartition(spark):
        raise TrackingError(
            f"PySpark {spark.version} cannot repartition state; {versions.FIRST_WITH_REPARTITION} is the first that can",
            Code.TRACKING_RESCALE,
        )
    state = checkpoint_state(checkpoint, session_stores(spark))
    if not state.stateful:
        raise TrackingError(
            f"{checkpoint}: the query keeps no state; there is nothing to repartition",
            Code.TRACKING_RESCALE,
        )
    if not state.provider.endswith(ROCKSDB):
        raise TrackingError(
            f"{checkpoint}: the state is kept by {state.provider or 'a provider that is not noted'}; "
            f"only that of {ROCKSDB} can be repartitioned. Set {_PROVIDER} to it before the query's "
            "first batch",
            Code.TRACKING_RESCALE,
        )
    if not 1 <= partitions <= MAX_STATE_PARTITIONS:
        raise TrackingError(
            f"{partitions} state partitions: from 1 to {MAX_STATE_PARTITIONS} can be",
            Code.TRACKING_RESCALE,
        )
    if state.unfinished and partitions != state.partitions:
        raise TrackingError(
            f"{checkpoint}: a repartition to {state.partitions} partitions has begun and is not over, and Spark starts no "
            f"query before: repeat it with {state.partitions}, and change them to {partitions} then",
            Code.TRACKING_RESCALE,
        )
    if partitions == state.partitions and not state.unfinished:
        raise TrackingError(
            f"{checkpoint}: the state has {partitions} partitions already", Code.TRACKING_RESCALE
        )
    return state


def repartition_state(
    spark: SparkSession, checkpoint: str | os.PathLike[str], partitions: int
) -> int:
    """Repartitions the state of a query that is not running, or goes on where a repartition was killed; returns the number
    of the batch that Spark wrote it as. Raises TrackingError, before anything is changed where Spark would refuse."""
    before = check_rescale(spark, checkpoint, partitions)
    if before.is_under_way:
        raise TrackingError(
            f"{checkpoint}: batch {before.begun} has begun and is not over; start the query with "
            "trigger availableNow, which finishes it, and try again when it has ended",
            Code.TRACKING_RESCALE,
        )
    stores = session_stores(spark)
    try:
        versions.repartition(spark, _as_spark_names(checkpoint, stores), partitions)
    except Exception as error:
        if not checkpoint_state(checkpoint, stores).unfinished:
            raise
        raise TrackingError(
            f"{checkpoint}: Spark has begun to repartition it to {partitions} partitions, and starts no query before that "
            f"is over; repeat it with {partitions} when this is mended: {error}",
            Code.TRACKING_RESCALE,
        ) from error
    after = checkpoint_state(checkpoint, stores)
    batch = before.committed + 1
    if (after.begun, after.committed, after.partitions) != (batch, batch, partitions):
        raise TrackingError(
            f"{checkpoint}: Spark has repartitioned it to {after.partitions} partitions in batch "
            f"{after.begun}, of which {after.committed} is over; {partitions} in batch {batch} were expected",
            Code.TRACKING_RESCALE,
        )
    return after.begun


def _as_spark_names(checkpoint: str | os.PathLike[str], stores: Stores) -> str:
    """A checkpoint in a store by the scheme that it was given with."""
    where = stores.location(str(checkpoint))
    return str(checkpoint) if scheme(where) else where


def rescale_query(
    spark: SparkSession,
    query: Any,
    start: Callable[..., Any],
    checkpoint: str | os.PathLike[str],
    partitions: int,
    *,
    reached: Callable[[], object] | None = None,
    finish_timeout_s: float = FINISH_TIMEOUT_S,
) -> tuple[Any, Rescaled]:
    """Gives a running query's state another number of partitions; returns the query as started again.

    start: starts the query, tracked or not, with `trigger(**arguments)` of the arguments it is given,
    and as ever without any; it is called with `availableNow=True` where a batch was under way when the
    query stopped. reached: returns when the moment has come, or False if it has not in time, as
    `Subscriber.wait_until` does; None: now.
    Raises TrackingError before anything is stopped if it cannot be, or not yet; after that, if the batch under way
    does not end within `finish_timeout_s` seconds, and then the query is not running.
    """
    before = check_rescale(spark, checkpoint, partitions)
    if reached is not None and reached() is False:
        raise TrackingError(
            f"{checkpoint}: the moment to rescale at was not reached in time; the query runs on as it was",
            Code.TRACKING_RESCALE,
        )
    stopped_s = time.monotonic()
    query.stop()
    state = checkpoint_state(checkpoint, session_stores(spark))
    if state.is_under_way:
        _finish(start, checkpoint, state.begun, finish_timeout_s)
    repartition_from_s = time.monotonic()
    batch = repartition_state(spark, checkpoint, partitions)
    repartitioned_s = time.monotonic()
    again = start()
    started_s = time.monotonic()
    done = Rescaled(
        before.partitions, partitions, batch, started_s - stopped_s,
        repartitioned_s - repartition_from_s,
    )  # fmt: skip
    log.info("%s: %s", checkpoint, done)
    return again, done


def _finish(
    start: Callable[..., Any], checkpoint: str | os.PathLike[str], batch: int, timeout_s: float
) -> None:
    """Lets the query come to the end of a batch."""
    finishing = start(availableNow=True)
    ended = finishing.awaitTermination(int(timeout_s))
    finishing.stop()
    if not ended:
        raise TrackingError(
            f"{checkpoint}: batch {batch}, which was under way, was not over after {timeout_s:g} s; the "
            "query is stopped and its state as it was: start it as ever, and rescale it at another time",
            Code.TRACKING_RESCALE,
        )
