"""Following a query from its checkpoint alone; the logs are written as Spark writes them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import tracker
from fronts import RangeFront
from local_tracker.spark.attached import AttachedQuery
from local_tracker.spark.follower import TrackingError
from tests.spark.support import WAIT_S
from tracker.client import LowmarkError
from tracker.client.embedded import EmbeddedTracker
from tracker.core.ack_values import unit_value
from tracker.core.model import Cells, Edge, Heartbeat, PipelineSpec, TickContent
from tracker.core.slots import FOREVER

QUERY = "5f0c8a5e-98b4-4f5a-9c2b-7a1f0e7f0b11"


def source_file(slot: int) -> str:
    return f"file:///data/in/s{slot}-front-{slot:08d}.parquet"


class Logs:
    """The checkpoint of a query that reads one file a batch and writes one."""

    def __init__(self, directory: Path) -> None:
        self.checkpoint, self.sink = directory / "cp", directory / "out"
        for folder in ("cp/offsets", "cp/commits", "cp/sources/0", "out/_spark_metadata"):
            (directory / folder).mkdir(parents=True)
        (self.checkpoint / "metadata").write_text(json.dumps({"id": QUERY}))

    def batch(self, number: int, slot: int, source: str | None = None) -> None:
        header = json.dumps({"batchTimestampMs": 1_700_000_000_000 + number})
        offset = json.dumps({"logOffset": number})
        entry = json.dumps({"path": source or source_file(slot), "batchId": number})
        written = json.dumps({"path": f"file://{self.sink}/part-{number}.parquet", "size": 1})
        self.write("cp/sources/0", number, f"v1\n{entry}")
        self.write("cp/offsets", number, f"v1\n{header}\n{offset}")
        self.write("out/_spark_metadata", number, f"v1\n{written}")
        self.write("cp/commits", number, 'v1\n{"nextBatchWatermarkMs":0}')

    def write(self, folder: str, number: int, text: str) -> None:
        hidden = self.checkpoint.parent / folder / f".{number}"
        hidden.write_text(text)
        hidden.rename(hidden.with_name(str(number)))


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    return Logs(tmp_path)


@pytest.fixture
def running() -> Iterator[EmbeddedTracker]:
    """A tracker whose pipeline's front has published files at slots 1 to 4."""
    with tracker.embedded() as embedded:
        embedded.register(
            PipelineSpec("p", ("parse", "after"), (Edge("parse", "after"),), fronts=("front",))
        )
        front = embedded.node("p", "front")
        front.join()
        front.join_front("front", "parse")
        cells = Cells.of((0, slot, unit_value(source_file(slot)), 1) for slot in range(1, 5))
        front.commit(TickContent(created=cells)).result(WAIT_S)
        front.commit(TickContent(heartbeats=(Heartbeat("front", 5),))).result(WAIT_S)
        yield embedded


def attached(running: EmbeddedTracker, logs: Logs, **more: object) -> AttachedQuery:
    options = {"reads": "parse", "creates": ["after"], "sink": str(logs.sink), **more}
    return AttachedQuery(running.target, "p", "parse", str(logs.checkpoint), **options)  # type: ignore[arg-type]


def await_open_slots(running: EmbeddedTracker, *expected: int) -> None:
    """A durable tick is applied a moment later."""
    deadline = time.monotonic() + WAIT_S
    while True:
        state = running.admin().pipeline("p").state
        found = [segment.open_slots for segment in state.segments]
        if found == list(expected) or time.monotonic() > deadline:
            break
        time.sleep(0.01)
    assert found == list(expected)


def test_batches_are_told_as_they_end(running: EmbeddedTracker, logs: Logs) -> None:
    logs.batch(0, 1)
    query = attached(running, logs).start()
    assert query.wait_durable(WAIT_S)
    await_open_slots(running, 3, 1)
    logs.batch(1, 2)
    assert query.wait_durable(WAIT_S)
    assert query.last_durable_batch == 1
    await_open_slots(running, 2, 2)
    assert query.close()


def test_of_a_pipeline_that_was_restarted_it_says_from_where_to_read(
    running: EmbeddedTracker, logs: Logs
) -> None:
    """Batch 0 read from below the slot at which the pipeline begins now, and made something of it."""
    logs.batch(0, 1)
    query = attached(running, logs).start()
    assert query.wait_durable(WAIT_S)
    with running.admin() as admin:
        assert admin.restart("p", 0, 3) == (1, 3)
    query.close()
    again = attached(running, logs).start()
    with pytest.raises(TrackingError) as refused:
        again.wait_durable(WAIT_S)
    again.close()
    assert "below_min_time" in str(refused.value)
    assert "generation 1 begins at slot 3 (1970-01-01 00:00:00.030000+00:00)" in str(refused.value)
    assert "Start the query on an empty checkpoint and sink" in str(refused.value)


def test_it_goes_on_where_it_was(running: EmbeddedTracker, logs: Logs) -> None:
    for number in range(2):
        logs.batch(number, number + 1)
        query = attached(running, logs).start()
        assert query.wait_durable(WAIT_S)
        assert query.close()
    await_open_slots(running, 2, 2)


def test_it_may_begin_at_any_batch(running: EmbeddedTracker, logs: Logs) -> None:
    for number in range(3):
        logs.batch(number, number + 1)
    query = attached(running, logs, first_batch=2).start()
    assert query.wait_durable(WAIT_S)
    assert query.close()
    await_open_slots(running, 3, 1)  # batches 0 and 1 are not told


def purge(logs: Logs, *batches: int) -> None:
    """As Spark does behind spark.sql.streaming.minBatchesToRetain."""
    for batch in batches:
        (logs.checkpoint / f"offsets/{batch}").unlink()
        (logs.checkpoint / f"commits/{batch}").unlink()


def test_what_was_purged_must_be_given_up_in_words(running: EmbeddedTracker, logs: Logs) -> None:
    for number in range(4):
        logs.batch(number, number + 1)
    purge(logs, 0, 1)
    # What batch 2 consumed lay between its offsets and those of batch 1.
    with pytest.raises(TrackingError, match=r"from 3 on.*begin at 3 or later .*--from-batch"):
        attached(running, logs).start()
    query = attached(running, logs, first_batch=3).start()
    assert query.wait_durable(WAIT_S)
    assert query.close()
    await_open_slots(running, 3, 1)


def test_what_was_told_may_be_purged(running: EmbeddedTracker, logs: Logs) -> None:
    for number in range(3):
        logs.batch(number, number + 1)
    query = attached(running, logs).start()
    assert query.wait_durable(WAIT_S)
    assert query.close()
    logs.batch(3, 4)
    purge(logs, 0, 1)
    query = attached(running, logs).start()
    assert query.wait_durable(WAIT_S)
    assert query.close()
    assert query.last_durable_batch == 3
    await_open_slots(running, 0, 4)


def test_what_was_purged_and_not_told_is_an_error(running: EmbeddedTracker, logs: Logs) -> None:
    logs.batch(0, 1)
    query = attached(running, logs).start()
    assert query.wait_durable(WAIT_S)
    assert query.close()
    for number in range(1, 4):
        logs.batch(number, number + 1)
    purge(logs, 0, 1, 2)
    with pytest.raises(TrackingError, match="begins at 3, but the tracker's last batch is 0"):
        attached(running, logs).start()


def test_what_does_not_fit_is_refused(running: EmbeddedTracker, logs: Logs) -> None:
    with pytest.raises(TrackingError, match="file sink's directory must be given"):
        attached(running, logs, sink=None)
    with pytest.raises(TrackingError, match="no edge between them"):
        attached(running, logs, reads="after", creates=["parse"]).start()
    with pytest.raises(LowmarkError, match="nowhere"):
        attached(running, logs, reads="nowhere").start()
    (logs.checkpoint / "metadata").unlink()
    with pytest.raises(TrackingError, match="there is no query to follow"):
        attached(running, logs)


@pytest.mark.parametrize("second", [[1, 2], [2, 3]], ids=["the same files", "other files"])
def test_a_query_joined_with_itself_reads_each_file_once(
    running: EmbeddedTracker, logs: Logs, second: list[int]
) -> None:
    (logs.checkpoint / "sources/1").mkdir()
    for source, slots in (("0", [1, 2]), ("1", second)):
        entries = (json.dumps({"path": source_file(slot), "batchId": 0}) for slot in slots)
        logs.write(f"cp/sources/{source}", 0, "\n".join(["v1", *entries]))
    offset = json.dumps({"logOffset": 0})
    logs.write("cp/offsets", 0, f'v1\n{{"batchTimestampMs":1700000000000}}\n{offset}\n{offset}')
    logs.write("cp/commits", 0, 'v1\n{"nextBatchWatermarkMs":0}')
    query = attached(running, logs, creates=[], sink=None).start()
    if second == [1, 2]:
        assert query.wait_durable(WAIT_S)
        await_open_slots(running, 2, 0)
    else:
        with pytest.raises(TrackingError, match="took different files of it"):
            query.wait_durable(WAIT_S)
        await_open_slots(running, 4, 0)
    query.close()


def test_min_time_reaches_the_end(running: EmbeddedTracker, logs: Logs) -> None:
    for number in range(4):
        logs.batch(number, number + 1)
    query = attached(running, logs, creates=[], sink=None).start()
    assert query.wait_durable(WAIT_S)
    assert query.close()
    running.node("p", "front").close()
    front = running.node("p", "front")
    front.join()
    front.leave_front("front").result(WAIT_S)
    with running.subscriber("p") as subscriber:
        assert subscriber.wait_until(FOREVER, timeout_s=WAIT_S)


# --- the command ----------------------------------------------------------------------------------

Command = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def command(running: EmbeddedTracker, logs: Logs) -> Iterator[Command]:
    """Starts `lowmark attach` as a process; none outlives the test."""
    started: list[subprocess.Popen[str]] = []

    def start(*more: str) -> subprocess.Popen[str]:
        options = {
            "--target": running.target, "--pipeline": "p", "--node-id": "parse", "--reads": "parse",
            "--creates": "after", "--checkpoint": str(logs.checkpoint), "--sink": str(logs.sink),
        }  # fmt: skip
        arguments = [word for pair in options.items() for word in pair]
        command = [sys.executable, "-m", "tracker.cli", "attach", *arguments, *more]
        pipe = subprocess.PIPE
        started.append(subprocess.Popen(command, text=True, stdout=pipe, stderr=pipe))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_the_command_waits_for_the_query_to_begin(
    running: EmbeddedTracker, logs: Logs, command: Command
) -> None:
    (logs.checkpoint / "metadata").rename(logs.checkpoint / "later")
    process = command()
    assert process.stderr is not None
    assert process.stderr.readline().startswith("parse: waits for a query to begin in ")
    (logs.checkpoint / "later").rename(logs.checkpoint / "metadata")
    logs.batch(0, 1)
    await_open_slots(running, 3, 1)
    process.terminate()
    said, _ = process.communicate(timeout=WAIT_S)
    assert (process.returncode, said) == (0, "parse: told up to batch 0\n")


def test_the_command_does_not_wait_for_it_with_once(logs: Logs, command: Command) -> None:
    (logs.checkpoint / "metadata").unlink()
    process = command("--once")
    _, errors = process.communicate(timeout=WAIT_S)
    assert process.returncode == 1
    assert "metadata does not exist" in errors


def test_the_command_ends_by_a_signal_though_a_batch_waits(
    running: EmbeddedTracker, logs: Logs, command: Command
) -> None:
    """The slot of what batch 1 read is not known before whoever wrote it has told."""
    logs.batch(0, 1)
    logs.batch(1, 2, source="file:///data/in/nobody-told.parquet")
    process = command("--once")
    await_open_slots(running, 3, 1)
    process.send_signal(signal.SIGTERM)
    said, errors = process.communicate(timeout=WAIT_S)
    assert process.returncode == 1
    assert said == "parse: told up to batch 0\n"
    assert "parse: not all batches that are over are told" in errors


def test_the_command_follows_ranges_of_offsets(
    running: EmbeddedTracker, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Of a query over Kafka, say, whose records a front has labelled."""
    journal, checkpoint = str(tmp_path / "ranges"), tmp_path / "cp"
    for folder in ("offsets", "commits"):
        (checkpoint / folder).mkdir(parents=True)
    (checkpoint / "metadata").write_text(json.dumps({"id": QUERY}))
    running.register(PipelineSpec("log", ("parse",), fronts=("topic",)))
    with RangeFront(running.target, "log", "topic", "parse", journal, clock=lambda: 0) as front:
        front.publish({"flights/0": 8, "flights/1": 9})
        front.publish({"flights/0": 16})
        for batch, ends in enumerate(([5, 0], [16, 9])):
            offsets = json.dumps({"flights": {str(p): end for p, end in enumerate(ends)}})
            (checkpoint / f"offsets/{batch}").write_text(
                f'v1\n{{"batchTimestampMs":1700000000000}}\n{offsets}'
            )
            (checkpoint / f"commits/{batch}").write_text('v1\n{"nextBatchWatermarkMs":0}')
        command = [
            sys.executable, "-m", "tracker.cli", "attach", "--target", running.target,
            "--pipeline", "log", "--node-id", "parse", "--checkpoint", str(checkpoint), "--once",
        ]  # fmt: skip
        told = subprocess.run(
            [*command, "--ranges", f"0=parse:{journal}"], timeout=WAIT_S, check=False
        )
        assert told.returncode == 0, capfd.readouterr().err
        nothing = subprocess.run(command, timeout=WAIT_S, check=False)
        assert nothing.returncode == 2
        assert "--reads, --ranges, or both" in capfd.readouterr().err
        front.leave()
    with running.subscriber("log") as subscriber:
        assert subscriber.wait_until(FOREVER, timeout_s=WAIT_S)
