"""Two processes with an API each, of which one is killed and started again, while items go through two segments."""

from __future__ import annotations

import time
from collections import deque
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from examples.history import Recorder, merge, recording_ticks
from tests.api.readers import Deaf, Polling, Reader, Returning, Slow
from tests.check.judging import Judged, judge
from tests.cluster.network import fresh_address
from tests.cluster.tracker import Tracker
from tests.waits import HANG_S, until
from tracker.client import NodeClient
from tracker.core.model import Cells, Edge, Heartbeat, PipelineSpec, TickContent
from tracker.core.model.ack_values import unit_value
from tracker.core.model.slots import FOREVER

SPEC = PipelineSpec("p", ("in", "out"), (Edge("in", "out"),), fronts=("front",), start_slot=0)
UNDER_WAY = 5
"""Items that are in flight at a time."""
STEP_S = 0.01
STUCK_S = 10.0
"""How long the end of a run with a planted fault is waited for."""


@dataclass(frozen=True)
class Announced:
    """What came of a run."""

    judged: Judged
    events: int
    came_back: int
    polls: int
    unchanged: int
    unfinished: tuple[str, ...]
    """Readers who have not heard that all is complete."""


def run(directory: Path, items: int, fault: str = "") -> Announced:
    """Puts so many items through, and judges what was heard of it over HTTP."""
    recorder = Recorder(directory / "parts" / "run.jsonl")
    pages = [fresh_address(), fresh_address()]
    with ExitStack() as stack:
        tracker = Tracker(directory / "tracker", 2, options=("--set", "block_slots=3"), fault=fault)
        stack.callback(tracker.close)
        for shard, page in zip(list(tracker.shards), pages, strict=True):
            tracker.replaced(shard, "--dashboard-listen", page)
        tracker.start()
        tracker.register(SPEC)
        recorder.header(SPEC, {"front": "in"})
        readers = _readers(pages, recorder)
        for reader in readers:
            stack.callback(reader.end)
            reader.start()
        stack.enter_context(recording_ticks(recorder))
        _work(tracker, pages[1], recorder, items)
        patience_s = STUCK_S if fault else HANG_S
        hearing = [reader for reader in readers if not isinstance(reader, Deaf)]
        end_s = time.monotonic() + patience_s
        for reader in hearing:
            reader.complete.wait(max(0.0, end_s - time.monotonic()))
        tracker.record_final(recorder, SPEC.name)
    recorder.expected(dict.fromkeys(SPEC.segments, FOREVER))
    recorder.close()
    history = directory / "history.jsonl"
    merge([recorder.path], history)
    polling = [reader for reader in readers if isinstance(reader, Polling)]
    return Announced(
        judge(history),
        sum(reader.heard for reader in readers if reader not in polling),
        sum(reader.came_back for reader in readers),
        sum(reader.polls for reader in polling),
        sum(reader.unchanged for reader in polling),
        tuple(reader.name for reader in hearing if not reader.complete.is_set()),
    )


def _readers(pages: list[str], recorder: Recorder) -> list[Reader]:
    """Clients who listen to the pipeline and to each segment, a stream each; and two who ask again and again."""
    there, back = pages, pages[::-1]
    found: list[Reader] = [Deaf("deaf", there, SPEC.name, None, recorder)]
    for segment in (None, *SPEC.segments):
        quick = Reader("quick", there, SPEC.name, segment, recorder)
        slow = Slow("slow", back, SPEC.name, segment, recorder)
        slow.other = quick
        found += [quick, slow, Returning("returning", there, SPEC.name, segment, recorder)]
    return [
        *found,
        Polling("polling", there, SPEC.name, None, recorder),
        Polling("polling back", back, SPEC.name, None, recorder),
    ]


def _work(tracker: Tracker, page: str, recorder: Recorder, items: int) -> None:
    """A front that labels, and one node that takes items from `in` to `out` and away; half-way the second process, and with
    it its API, is killed and started again."""
    with (
        NodeClient(tracker.target, SPEC.name, "front") as front,
        NodeClient(tracker.target, SPEC.name, "worker") as worker,
    ):
        front.join(HANG_S)
        front.join_front("front", "in", HANG_S)
        worker.join(HANG_S)
        under_way: deque[int] = deque()
        for slot in range(items):
            recorder.created("in", slot, f"item {slot}")
            front.commit(TickContent(created=_cells(0, slot))).result(HANG_S)
            front.commit(TickContent(heartbeats=(Heartbeat("front", slot + 1),))).result(HANG_S)
            under_way.append(slot)
            if len(under_way) > UNDER_WAY:
                _passed(worker, recorder, under_way.popleft())
            if slot == items // 2:
                victim = tracker.shards[1]
                victim.kill()
                tracker.replaced(victim, "--dashboard-listen", page).start()
            time.sleep(STEP_S)  # paces: the load
        for slot in under_way:
            _passed(worker, recorder, slot)
        front.leave_front("front").result(HANG_S)
        until(lambda: tracker.admin().pipeline(SPEC.name).state.complete, tracker.errors)


def _passed(worker: NodeClient, recorder: Recorder, slot: int) -> None:
    """An item goes on, and then out; each is recorded before its tick can be known."""
    recorder.created("out", slot, f"item {slot}>")
    recorder.consumed("in", f"item {slot}")
    worker.commit(TickContent(consumed=_cells(0, slot), created=_cells(1, slot))).result(HANG_S)
    recorder.consumed("out", f"item {slot}>")
    worker.commit(TickContent(consumed=_cells(1, slot))).result(HANG_S)


def _cells(segment: int, slot: int) -> Cells:
    value = unit_value(f"item {slot}{'>' * segment}")
    return Cells.of([(segment, slot, value, 1)])
