"""What order costs: rows that a barrier releases into PostgreSQL, beside the same rows written as they arrive.

A front publishes a file of rows every 50 ms. Once a barrier takes them and writes them when min time has passed
them; once a program without a tracker finds them and writes them at once. Both look for files equally often and
are a process each. Counted is the time from before a file is published until its rows are committed, by the
server's clock; and, of the barrier, from when a subscriber heard the min time that released them.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from itertools import accumulate
from pathlib import Path

import numpy as np

from benchmarks.figures import Budget, Figure, Skipped
from fronts.files import FileFront
from tests.cluster.children import Running, now_slot
from tests.cluster.postgres_server import COMMITTED, PostgresServer, postgres_bin
from tests.cluster.tracker import Tracker
from tracker.client import Subscriber
from tracker.consumers.barrier.taking import LOOK_FIRST_S
from tracker.core.model import PipelineSpec
from tracker.core.model.units import slot_in_name

PIPELINE, SEGMENT, TABLE = "bench", "deliver", "rows"
EVERY_S, ROWS_A_FILE = 0.05, 50
FILES_FIRST = 10
"""Not counted: everything is started by then."""
TIMEOUT_S = 60.0
_WAYS = {
    "ordered": "published until in the table, released by a barrier",
    "unordered": "the same rows, written as they arrive",
    "announced": "min time heard until in the table, released by a barrier",
}


def find(budget: Budget) -> Iterable[Figure | Skipped]:
    if postgres_bin() is None:
        yield Skipped("ordered release", "there is no PostgreSQL server (scripts/ensure-postgres)")
        return
    files, rounds = budget.pick(60, 120), budget.pick(1, 3, 5)
    found: dict[str, list[Sequence[float]]] = {way: [] for way in _WAYS}
    with tempfile.TemporaryDirectory(prefix="lowmark-bench-") as directory:
        server = PostgresServer(Path(directory) / "postgres.log")
        try:
            server.start()
            for turn in range(rounds):
                released, announced = _ordered(server, Path(directory) / f"o{turn}", files)
                found["ordered"].append(released)
                found["announced"].append(announced)
                found["unordered"].append(_unordered(server, Path(directory) / f"u{turn}", files))
        finally:
            server.remove()
    for way, what in _WAYS.items():
        for percent in (50, 99):
            values = tuple(float(np.percentile(each, percent)) for each in found[way])
            how = f"PostgreSQL, {ROWS_A_FILE} rows every {EVERY_S * 1000:g} ms"
            yield Figure(f"{what}: p{percent}", values, "ms", how)


def _ordered(
    server: PostgresServer, root: Path, files: int
) -> tuple[Sequence[float], Sequence[float]]:
    """By file: milliseconds since it was published, and since its min time was heard."""
    dsn = _new_table(server, root)
    with ExitStack() as stack:
        tracker = stack.enter_context(Tracker(root / "tracker"))
        tracker.register(
            PipelineSpec(PIPELINE, (SEGMENT,), fronts=("front",), start_slot=now_slot())
        )
        barrier = Running(
            "tracker.cli", "barrier", "run", "-t", tracker.target, "-p", PIPELINE, "-s", SEGMENT, "--name", "b",
            "--state", str(root / "state"), "--key", "key", "--set", f"files={root / 'files'}",
            "--sink", dsn, "--set", f"table={TABLE}", errors=root / "barrier.log",
        )  # fmt: skip
        stack.enter_context(barrier)
        subscriber = stack.enter_context(Subscriber(tracker.target, PIPELINE, [SEGMENT]))
        heard: list[tuple[int, int]] = []
        threading.Thread(target=_hear, args=(subscriber, heard), daemon=True).start()
        published = _publish(tracker.target, root / "files", files)
        barrier.ends_well()
    written = _written(server, dsn)
    moments, min_times = [at for at, _ in heard], list(accumulate((t for _, t in heard), max))
    slots = {name: slot_in_name(name) or 0 for name in published}
    since = {name: moments[bisect_right(min_times, slots[name])] for name in published}
    return _lags_ms(published, written), _lags_ms(since, written)


def _hear(subscriber: Subscriber, heard: list[tuple[int, int]]) -> None:
    for update in subscriber.updates():
        heard.append((time.time_ns(), update.min_time))


def _unordered(server: PostgresServer, root: Path, files: int) -> Sequence[float]:
    dsn = _new_table(server, root)
    with Tracker(root / "tracker") as tracker:  # the front is the same
        tracker.register(
            PipelineSpec(PIPELINE, (SEGMENT,), fronts=("front",), start_slot=now_slot())
        )
        with Running(
            "benchmarks.ordered", dsn, str(root / "files"), str(files), errors=root / "writer.log"
        ) as writer:  # fmt: skip
            writer.until_says("looks")
            published = _publish(tracker.target, root / "files", files)
            writer.ends_well()
    return _lags_ms(published, _written(server, dsn))


def _new_table(server: PostgresServer, root: Path) -> str:
    (root / "files").mkdir(parents=True)
    dsn = server.new_database(root.name)
    server.run(f"CREATE TABLE {TABLE} (key text, file text)", database=root.name)
    return dsn


def _publish(target: str, directory: Path, files: int) -> dict[str, int]:
    """When each file was published, in Unix time, by its name; in order. The first few are left out."""
    published: dict[str, int] = {}
    with FileFront(target, PIPELINE, "front", SEGMENT, directory, format="json") as front:
        for number in range(files):
            rows = [{"key": f"{each:03d}", "file": str(number)} for each in range(ROWS_A_FILE)]
            begun_ns = time.time_ns()
            file = front.write(rows)
            assert file is not None
            published[file.path.name] = begun_ns
            time.sleep(EVERY_S)
        front.leave()
    return dict(list(published.items())[FILES_FIRST:])


def _written(server: PostgresServer, dsn: str) -> dict[int, int]:
    """When the last row of each file was committed, in Unix time, by the file's number."""
    import psycopg

    text = f"SELECT file::int, max({COMMITTED}) FROM {TABLE} GROUP BY 1"
    with psycopg.connect(dsn) as connection:
        found = connection.execute(text.encode()).fetchall()
    return {number: int(at_s * 10**9) for number, at_s in found}


def _lags_ms(since: dict[str, int], written: dict[int, int]) -> list[float]:
    return [
        (written[number] - since_ns) / 1e6
        for number, since_ns in enumerate(since.values(), FILES_FIRST)
    ]


def main(dsn: str, directory: str, files: str) -> None:
    """Writes each file of a directory when it is there, until there were so many."""
    import json

    import psycopg

    done: set[Path] = set()
    with psycopg.connect(dsn) as connection:
        print("looks", flush=True)
        while len(done) < int(files):
            new = sorted(set(Path(directory).glob("s*.json")) - done)
            for path in new:
                rows = [json.loads(line) for line in path.read_text().splitlines()]
                with (
                    connection.cursor() as cursor,
                    cursor.copy(f"COPY {TABLE} (key, file) FROM STDIN".encode()) as copy,
                ):
                    for row in rows:
                        copy.write_row((row["key"], row["file"]))
                connection.commit()
            done.update(new)
            if not new:
                time.sleep(LOOK_FIRST_S)


if __name__ == "__main__":
    main(*sys.argv[1:])
