"""A function of `foreachBatch` with two writers, of which each evaluates an operator of its own: the driver was killed between
them, so that two runs have published the batch."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import tracker
from local_tracker.spark.formats.interface import QueryReads
from local_tracker.spark.formats.outputs import Output, published_output
from local_tracker.spark.formats.published import PublishedBatches
from local_tracker.spark.query.compose import Evaluations
from local_tracker.spark.query.logs import CheckpointLog
from local_tracker.spark.query.plans import Routes
from local_tracker.spark.query.ticks import QueryTicks
from tests.spark.written_logs import QUERY, Logs, source_file
from tests.waits import HANG_S
from tracker.client import NodeClient
from tracker.client.embedded import EmbeddedTracker
from tracker.core.model import (
    Cells,
    Edge,
    Heartbeat,
    NodeKind,
    PipelineSpec,
    StagedContribution,
    TickContent,
)
from tracker.core.model.ack_values import unit_value

SLOT = 1
SPEC = PipelineSpec(
    "p",
    ("parse", "after", "rejected"),
    (Edge("parse", "after"), Edge("parse", "rejected")),
    fronts=("front",),
)
AFTER, REJECTED = SPEC.segments.index("after"), SPEC.segments.index("rejected")


@pytest.fixture
def running() -> Iterator[EmbeddedTracker]:
    """A tracker whose pipeline's front has published a file, and promises that no more comes before slot 5."""
    with tracker.embedded() as running:
        running.register(SPEC)
        front = running.node("p", "front")
        front.join()
        front.join_front("front", "parse")
        cells = Cells.of([(0, SLOT, unit_value(source_file(SLOT)), 1)])
        front.commit(TickContent(created=cells)).result(HANG_S)
        front.commit(TickContent(heartbeats=(Heartbeat("front", 5),))).result(HANG_S)
        yield running


@pytest.fixture
def node(running: EmbeddedTracker) -> Iterator[NodeClient]:
    with NodeClient(running.target, "p", "query", kind=NodeKind.QUERY) as node:
        node.join(HANG_S, owner=QUERY)
        yield node


def ack(operator: str, run: str, stage: int, partition: int, value: int) -> StagedContribution:
    """A row that a task has created for those who read what `parse` accepts, or `audit` rejects."""
    segment = AFTER if operator == "parse" else REJECTED
    cells = Cells.of([(segment, SLOT, value, 1)])
    return StagedContribution(
        QUERY, run, 0, stage, operator, stage, partition, 100 * stage + partition, cells, Cells.empty()
    )  # fmt: skip


def published(logs: Logs, name: str, run: str | None) -> Output:
    """An output in which the batch was published by a run; None: which run it was is not recorded, as of a topic."""
    batches = PublishedBatches(str(logs.checkpoint.parent / name))
    offsets = CheckpointLog(str(logs.checkpoint)).offsets(0).text
    batches.publish(
        QUERY, 0, offsets, run or "",
        lambda folder: Path(folder).mkdir(parents=True), lambda file, _: file,
    )  # fmt: skip
    output = published_output(batches, QUERY, ())
    return output if run else Output((), output.names, output.has)


def committed(
    running: EmbeddedTracker, node: NodeClient, logs: Logs, outputs: list[Output]
) -> dict[int, int]:
    """The checksums of what the batch's tick creates, by segment, when it is durable."""
    with running.admin() as admin:
        ticks = QueryTicks(
            node, admin, Routes(SPEC, QueryReads("parse"), (), "query"),
            CheckpointLog(str(logs.checkpoint)), lambda: outputs,
            evaluations=Evaluations(("run1", "run2"), None, {6: 1, 7: 2}.get),
        )  # fmt: skip
        content = ticks.tick(ticks.read(0), threading.Event())
    node.commit(content).result(HANG_S)
    assert all(slot == SLOT for _, slot, _, _ in content.created.rows())
    return {segment: value for segment, _, value, _ in content.created.rows()}


PARSED = [ack("parse", "run1", 3, 0, 1), ack("parse", "run1", 3, 1, 2)]
"""Evaluated by the first writer, whose files were in their places when the driver was killed."""
AUDITED = [ack("audit", "run2", 7, 0, 4), ack("audit", "run2", 7, 1, 8)]
"""Evaluated by the second one, which the next driver has called."""
BEGUN = [ack("audit", "run1", 4, 0, 4)]
"""By the second one, in which the driver was killed."""
LOOK = [ack("parse", "run2", 6, 0, 1)]
"""The function asks whether there is anything, before it calls a writer."""


@pytest.mark.parametrize("second", ["run2", None], ids=["files", "a topic"])
@pytest.mark.parametrize("first_is_named_last", [False, True])
@pytest.mark.parametrize("more", [[], BEGUN, LOOK], ids=["between", "in the second", "looked"])
def test_what_each_writer_has_evaluated_counts(
    tmp_path: Path,
    running: EmbeddedTracker,
    node: NodeClient,
    second: str | None,
    first_is_named_last: bool,
    more: list[StagedContribution],
) -> None:
    """What the second one has created was not counted, and min time passed it."""
    logs = Logs(tmp_path)
    logs.windowed(0, [source_file(SLOT)], at_ms=0, next_ms=0)
    outputs = [published(logs, "first", "run1"), published(logs, "second", second)]
    if first_is_named_last:
        outputs.reverse()
    node.stage([*PARSED, *AUDITED, *more])
    created = committed(running, node, logs, outputs)
    with running.subscriber("p") as subscriber:
        assert subscriber.wait_until(5, "parse", timeout_s=HANG_S)
        for segment in ("after", "rejected"):
            # expires: nobody has consumed them
            assert not subscriber.wait_until(5, segment, timeout_s=0.5), (
                f"rows are open in {segment}"
            )
    assert created == {AFTER: 1 ^ 2, REJECTED: 4 ^ 8}


def test_what_only_a_run_has_evaluated_that_published_nothing_does_not_count(
    tmp_path: Path, running: EmbeddedTracker, node: NodeClient
) -> None:
    """Its batch failed, since two evaluations differ; the code was mended, and the next run published it."""
    logs = Logs(tmp_path)
    logs.windowed(0, [source_file(SLOT)], at_ms=0, next_ms=0)
    outputs = [published(logs, "first", "run2"), published(logs, "second", "run2")]
    moody = [ack("moody", "run1", 4, 0, 16), ack("moody", "run1", 5, 0, 32)]
    node.stage([*LOOK, *AUDITED, *moody])
    assert committed(running, node, logs, outputs) == {AFTER: 1, REJECTED: 4 ^ 8}
