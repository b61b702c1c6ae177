"""A small run over two real tracker processes passes the check; with any fault planted it does not."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import Future
from contextlib import ExitStack
from pathlib import Path
from threading import Condition, Thread

import pytest

from examples.history import Recorder, merge, recording_ticks
from tests.check.judging import judge
from tests.cluster.tracker import Tracker
from tests.sabotage import FAULTS, SPARED_TICKS
from tests.waits import HANG_S
from tracker.client import Admin, NodeClient, Subscriber
from tracker.core.model import Cells, Heartbeat, PipelineSpec, TickContent
from tracker.core.model.ack_values import unit_value
from tracker.core.model.slots import FOREVER

SPEC = PipelineSpec("p", ("work",), fronts=("front",), start_slot=0)
ITEMS = 4 * SPARED_TICKS
Run = tuple[str, Path]
"""A fault, and the history of a run with it."""
STUCK_S = 3.0
"""How long a run that may be stuck is waited for; one that is not ends long before."""


class Listener:
    """Writes down what one shard announces; `wait` returns when it has."""

    def __init__(self, address: str, recorder: Recorder) -> None:
        self._subscriber, self._recorder = Subscriber(address, SPEC.name), recorder
        self._heard = SPEC.start_slot
        self._changed = Condition()
        self._thread = Thread(target=self._listen)
        self._thread.start()

    def _listen(self) -> None:
        for update in self._subscriber.updates():
            self._recorder.heard("listener", update.segment, update.min_time)
            if update.segment is not None:
                with self._changed:
                    self._heard = update.min_time
                    self._changed.notify_all()

    def wait(self, slot: int, timeout_s: float) -> bool:
        """Whether min time has been heard to reach a slot in time."""
        with self._changed:
            return self._changed.wait_for(lambda: self._heard >= slot, timeout_s)

    def close(self) -> None:
        self._subscriber.close()
        self._thread.join(HANG_S)


def run(fault: str | None, directory: Path) -> Path:
    """Items of rising slots come in and are done, one after the other; returns the history."""
    recorder = Recorder(directory / "run.jsonl")
    with ExitStack() as stack:
        tracker = stack.enter_context(
            Tracker(
                directory, 2, store="memory:", options=("--set", "block_slots=1"), fault=fault or ""
            )
        )
        tracker.register(SPEC)
        addresses = tracker.addresses
        recorder.header(SPEC, {"front": "work"})
        listener = Listener(addresses[0], recorder)
        stack.callback(listener.close)
        stack.enter_context(recording_ticks(recorder))
        timeout_s = STUCK_S if fault else HANG_S
        if not work(NodeClient(addresses, SPEC.name, "front"), recorder, listener, timeout_s):
            timeout_s = 0.0  # it has been waited for
        listener.wait(FOREVER, timeout_s)
        for number, address in enumerate(addresses):
            write_final(number, address, recorder, timeout_s)
        recorder.expected({"work": FOREVER})
    recorder.close()
    merge([directory / "run.jsonl"], directory / "history.jsonl")
    return directory / "history.jsonl"


def work(node: NodeClient, recorder: Recorder, listener: Listener, timeout_s: float) -> bool:
    """Two items are in flight when one is done; each only when those before are heard to be done, as
    long as anything is heard. Whether it was to the end."""
    node.join(HANG_S)
    node.join_front("front", "work", HANG_S)
    moving = True
    for slot in range(ITEMS + 2):
        content = TickContent()
        if slot < ITEMS:
            recorder.created("work", slot, f"item {slot}")
            content.created = cell(slot)
        if slot >= 2:
            recorder.consumed("work", f"item {slot - 2}")
            content.consumed = cell(slot - 2)
        durable(node.commit(content))
        durable(node.commit(TickContent(heartbeats=(Heartbeat("front", slot + 1),))))
        moving = moving and listener.wait(slot - 1, timeout_s)
    durable(node.leave_front("front"))
    node.close()
    return moving


def durable(future: Future[int]) -> None:
    future.result(HANG_S)


def cell(slot: int) -> Cells:
    return Cells.of([(0, slot, unit_value(f"item {slot}"), 1)])


def write_final(number: int, address: str, recorder: Recorder, timeout_s: float) -> None:
    """What one process says in the end, when it has heard of the end, as long as that may take."""
    with Subscriber(address, SPEC.name) as subscriber:
        subscriber.wait_until(FOREVER, timeout_s=timeout_s)
    with Admin(address) as admin:
        recorder.final(str(number), admin.pipeline(SPEC.name).state)


def test_without_a_fault_the_check_passes(tmp_path: Path) -> None:
    judged = judge(run(None, tmp_path))
    assert judged.ok, judged.said


# Items counted twice as taken out are not "counted wrongly": what is shown is never negative.
FOUND = {
    "early": {"false completion"},
    "lost": {"lost completion", "open cells"},
    "double": {"lost completion", "open cells"},
}


@pytest.fixture(scope="module", params=FAULTS)
def faulty(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return request.param, run(request.param, tmp_path_factory.mktemp(request.param))


def test_each_fault_is_found(faulty: Run) -> None:
    fault, history = faulty
    judged = judge(history)
    assert not judged.ok, judged.said
    assert {line.split(":")[0] for line in judged.said} >= FOUND[fault], judged.said
    acknowledged = [json.loads(line) for line in history.read_text().splitlines()]
    assert sum(line["kind"] == "tick" for line in acknowledged) > 2 * ITEMS


@pytest.mark.parametrize("faulty", ["early"], indirect=True)
def test_an_early_min_time_of_the_whole_pipeline_is_found_by_itself(
    faulty: Run, tmp_path: Path
) -> None:
    """Of a history in which nobody heard of a single segment."""
    lines = faulty[1].read_text().splitlines()
    of_segments = [
        line
        for line in lines
        if (said := json.loads(line))["kind"] == "heard" and said["segment"] is not None
    ]
    assert of_segments
    whole = tmp_path / "whole.jsonl"
    whole.write_text("".join(f"{line}\n" for line in lines if line not in set(of_segments)))
    judged = judge(whole)
    assert judged.false, judged.said


def test_an_unknown_fault_is_refused() -> None:
    command = [sys.executable, "-m", "tests.sabotage", "gently", "--", "serve"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=HANG_S)
    assert done.returncode != 0
    assert "early|lost|double" in done.stderr
