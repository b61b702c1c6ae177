"""`lowmark periods follow` is killed at every step of marking; each period is marked once in each place."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

import tracker
from tests.client.support import done, joined_front, promise
from tests.cluster.children import Running
from tests.consumers.follow_killed import POINTS
from tests.consumers.tables import (
    DeltaPlace,
    IcebergPlace,
    environment_of,
    keys,
    success_files,
)
from tests.consumers.test_openlineage import Lineage, lineage
from tests.waits import HANG_S
from tracker.client.embedded import EmbeddedTracker
from tracker.consumers.periods.cut import Cut, Period
from tracker.consumers.periods.openlineage import run_id
from tracker.core.model import PipelineSpec
from tracker.core.model.slots import FOREVER

HOUR = 3_600
START = int(datetime(2026, 3, 2, 9, tzinfo=UTC).timestamp())
SPEC = PipelineSpec("p", ("first",), fronts=("front",), start_slot=START, slack_ns=10**9)
HOURS = 4
DEATHS = ("recorded", *POINTS)
"""The first before anything is complete, then one round through the first hour."""
IMPORTED = (
    "deltalake", "openlineage.client.transport.http", "pyarrow.dataset", "pyiceberg.table",
    "sqlalchemy.orm", "tracker.consumers.periods.delta",
)  # fmt: skip
SENT = ["START", "COMPLETE"] * 3
"""By those who die in the first hour behind both events, whose position none of them has recorded."""


@pytest.fixture
def running() -> Iterator[EmbeddedTracker]:
    with tracker.embedded() as embedded:
        embedded.register(SPEC)
        yield embedded


class Follows:
    """Runs the follower of a pipeline's hours, whose marks go into three tables, and to OpenLineage in two ways."""

    def __init__(self, target: str, lineage: str, directory: Path) -> None:
        self.delta, self.iceberg = DeltaPlace(directory), IcebergPlace(directory)
        self.files, self.events = directory / "files", directory / "events"
        self._environment, self._errors = environment_of(directory), directory / "follow.log"
        self._arguments = [
            "periods", "follow", "--pipeline", "p", "--segment", "first", "--target", target,
            "--record", str(directory / "record.json"), "--mark", f"partition:{self.files}/dt={{start:%Y-%m-%d}}/hour={{start:%H}}",
            "--mark", f"delta:{self.delta.location}", "--mark", f"iceberg:{self.iceberg.name}",
            "--mark", f"openlineage:{lineage}", "--mark", f"openlineage:{self.events}",
        ]  # fmt: skip
        self.delta.append()

    def killed(self, point: str) -> list[str]:
        """Dies at a point; returns the keys that it has told."""
        return self._run("tests.consumers.follow_killed", [point], -signal.SIGKILL)

    def to_the_end(self) -> list[str]:
        """Goes on until the pipeline is complete."""
        return self._run("tracker.cli", [], 0)

    def _run(self, module: str, before: list[str], status: int) -> list[str]:
        follower = Running(
            module, *before, *self._arguments, errors=self._errors, environment=self._environment,
            imported=IMPORTED,
        )  # fmt: skip
        with follower:
            assert follower.end() == status, follower.errors()
        return [json.loads(line)["key"] for _, line in follower.lines]


def test_each_period_is_marked_once_in_each_place_wherever_the_follower_dies(
    running: EmbeddedTracker, tmp_path: Path
) -> None:
    with lineage() as (receiver, url):
        _follow_and_die(running, Follows(running.target, url, tmp_path), receiver)


def _follow_and_die(running: EmbeddedTracker, follows: Follows, receiver: Lineage) -> None:
    node = joined_front(running.node("p", "n"))
    done(node.commit(promise(START + HOURS * HOUR)))
    told: list[str] = []
    for point in DEATHS:
        told += follows.killed(point)
        follows.delta.append()
        follows.iceberg.append()
    done(node.leave_front("front"))
    assert running.subscriber("p").wait_until(START + HOURS * HOUR + 1, timeout_s=HANG_S)
    told += follows.to_the_end()

    hours = [f"p/first/{START + n * HOUR}..{START + (n + 1) * HOUR}" for n in range(HOURS)]
    last = f"p/first/{START + HOURS * HOUR}..end"
    assert list(dict.fromkeys(told)) == [*hours, last], "in order; those not recorded again"
    assert keys(follows.delta.marks()) == [*hours, last]
    assert keys(follows.iceberg.marks()) == [*hours, last]
    tags = follows.iceberg.tags()
    assert sorted(tags) == [f"lowmark-2026-03-02T{9 + n:02d}" for n in range(HOURS + 1)]
    assert [tags[tag] for tag in sorted(tags)] == [m["id"] for m in follows.iceberg.marks()]
    files = success_files(follows.files)
    assert [file["key"] for file in files.values()] == hours
    assert follows.delta.rows() == (1 + len(DEATHS)) * 2
    assert follows.iceberg.rows() == len(DEATHS) * 2
    runs = {str(run_id("lowmark", period)) for period in periods(5)}
    assert receiver.runs().keys() == runs == {file.stem for file in follows.events.iterdir()}
    first = str(run_id("lowmark", periods(5)[0]))
    for run, states in receiver.runs().items():
        told_again = ["START", *SENT] if run == first else []
        assert states == [*told_again, "START", "COMPLETE"]
    bodies = {json.dumps(event, sort_keys=True) for event in receiver.events}
    assert len(bodies) == 2 * len(runs), "what is sent again is the same"


def periods(count: int) -> list[Period]:
    """The first hours, of which the last one has no end."""
    cut = Cut(HOUR, slack_ns=10**9)
    begins = [START + n * HOUR for n in range(count)]
    ends = [*begins[1:], FOREVER]
    return [cut.period("p", "first", *span) for span in zip(begins, ends, strict=True)]
