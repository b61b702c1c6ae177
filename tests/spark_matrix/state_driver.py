"""A driver of stateful queries that kills itself and its JVM by SIGKILL when all of them have come to one place.

    python -m tests.spark_matrix.state_driver TARGET PIPELINE DIRECTORY POINT BATCH HELD HOW OPERATOR...

DIRECTORY has the directories of the sources, by segment, in `inputs.json`. POINT says where the queries find their
end: `tick`, when `commits/BATCH` of each is there and the tick of none was handed over; `tasks`, when a task of each
is reading input; `refused`, where no query is to be started, since its state goes by the clock; or `commit`, for one query that knows nothing of Lowmark, when its sink has committed BATCH and Spark
has not: it ends with status 3 where that was missed. At `none` they take in all that there is, and end. HELD is `held`,
or `unheld` for queries that are to hold nothing. HOW is `classic`; or `connect`, in a Spark Connect session, whose server is
killed, too; or `plain`, for queries that know nothing of Lowmark. What a user has to say of such queries is said, as `outside`
does.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from examples.history import Recorder
from local_tracker.spark.query.follow import Follower
from local_tracker.spark.session.tracked import Tracked
from tests.spark.support import Batches
from tests.spark_matrix.connected import connected
from tests.spark_matrix.operators import OPERATORS, outside
from tests.spark_matrix.recording import recording
from tests.spark_matrix.registry import Profile
from tests.spark_matrix.sessions import make_session
from tests.spark_matrix.stateful import start_operator
from tests.waits import HANG_S
from tracker.errors import TrackingError
from tracker.testing.killing import Killer
from tracker.testing.moments import MISSED, Moment

_POLL_S = 0.02


def die_before_ticks(killer: Killer, queries: int) -> None:
    """Dies when the followers of so many queries have each read a batch, and told none."""
    commit, arrived, lock = Follower._commit, set[int](), threading.Lock()

    def dying_commit(follower: Follower, batch: int, record: Any) -> None:
        if killer.batch is not None and batch < killer.batch:
            commit(follower, batch, record)
            return
        with lock:
            arrived.add(id(follower))
            if len(arrived) == queries:
                killer.die()
        threading.Event().wait()  # until the last has come

    Follower._commit = dying_commit  # type: ignore[method-assign,assignment]


def stop_in_task(marker: Path, jvm: int) -> Any:
    """For `mapInArrow`: says that a task has begun to read, and goes no further while the JVM is there."""
    path, poll_s = str(marker), _POLL_S

    def stage(batches: Batches) -> Batches:
        next(batches, None)
        open(path, "w").close()
        while os.path.exists(f"/proc/{jvm}"):
            time.sleep(poll_s)  # paces: its looks, in a worker without these tests
        os._exit(1)
        yield from batches

    return stage


def main(
    target: str,
    pipeline: str,
    directory: Path,
    point: str,
    batch: int,
    is_held: bool,
    how: str,
    names: list[str],
) -> int:
    # Each query's task stays where it is, and none is to wait for a core.
    cores = len(names) * 2
    if how == "connect":
        spark = connected(directory, cores)
    else:
        spark = make_session(Profile("driver", f"local[{cores}]"), directory / "spark")
    killer = Killer.here(batch)
    inputs = json.loads((directory / "inputs.json").read_text())
    recorder = Recorder(directory / "history" / f"driver-{os.getpid()}.jsonl")
    markers = {name: directory / f"in-task-{name}-{os.getpid()}" for name in names}
    if point == "tick":
        die_before_ticks(killer, len(names))
    with recording(lambda _: recorder):
        tracked = None if how == "plain" else Tracked(spark, target, pipeline)
        if point == "commit":
            (name,) = names
            watching = threading.Thread(
                target=killer.watch_files,
                daemon=True,
                args=(Moment.COMMIT, directory / f"out-{name}", directory / f"cp-{name}"),
            )
            watching.start()
        for name in names:
            stage = stop_in_task(markers[name], killer.jvm) if point == "tasks" else None
            operator = OPERATORS[name] if how == "classic" else outside(OPERATORS[name])
            try:
                query = start_operator(
                    spark, tracked, operator, directory, inputs, unheld=not is_held, stage=stage
                )
            except TrackingError as error:
                if point != "refused" or "by the clock" not in str(error):
                    raise
                continue
            if point == "refused":
                raise AssertionError(f"{name} was started")
            if point == "none":
                query.processAllAvailable()
                query.stop()
        if point in ("none", "refused"):
            spark.stop()
            return 0
        deadline = time.monotonic() + HANG_S
        while time.monotonic() < deadline and all(q.isActive for q in spark.streams.active):
            if point == "tasks" and all(marker.exists() for marker in markers.values()):
                killer.die()
            time.sleep(_POLL_S)  # paces: its looks at several events
        for query in spark.streams.active:
            print(query.id, query.exception(), query.lastProgress, file=sys.stderr)
    # Missed: nothing may outlive this process.
    os.kill(killer.jvm, signal.SIGKILL)
    os._exit(MISSED)


if __name__ == "__main__":
    sys.exit(
        main(
            sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4], int(sys.argv[5]),
            sys.argv[6] == "held", sys.argv[7], sys.argv[8:],
        )
    )  # fmt: skip
