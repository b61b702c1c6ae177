"""What happened in a run, as JSON lines, for a checker that knows nothing else.

Each process writes a file of its own, one line at a time and flushed, so that a process that is killed
loses nothing that it has written; `merge` joins them by time. All moments are nanoseconds of
CLOCK_MONOTONIC, which all processes of one machine share. The lines, by `kind`:

    header     pipeline, segments [name], edges [[source, target, delay]], fronts {name: segment}
    changed    asked_ns, segments, edges: what the pipeline has become, answered at at_ns; min_times {segment: slot}: what
               had been announced by then
    created    segment, slot, item: an item is in flight from this moment (at_ns) on, or from earlier
    consumed   segment, item: the item is completely processed, durably, by this moment (at_ns)
    tick       node, number, handed_ns, acknowledged_ns, created and consumed [[segment, slot, count]],
               promises [[front, slot]], leaves [front], holds [[name, segment, slot]] (if there are any), home (the
               process that acknowledged it, where that is recorded): a tick that was acknowledged
    absorbed   segment, slot, item: a query has taken a row whose effect on that segment is only in its state
    emitted    segment, item: what came of it was taken by who reads that segment
    heard      subscriber, segment (null: the whole pipeline), min_time: heard at at_ns; exclusive
    groups     homes {host:port: group}, most_still_ns, tenures [[group, asked_ns, at_ns]], claims [[group, from_ns, to_ns]],
               harms [[group, from_ns, to_ns, what]]: where a pipeline of a deployment of several groups has lived, and
               what was done to them; from at_ns on everything goes on
    final      segments {name: {min_time, open_slots, open_items}}, late_items, nodes {id: node time}:
               what each process of the tracker says at the end (process: which one)
    expected   min_times {segment: slot}: what the run was to end with
"""

from __future__ import annotations

import heapq
import json
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lowmark import PipelineSpec
from lowmark.admin import PipelineDescription
from lowmark.nodes import Cells, NodeClient, TickContent


class Recorder:
    """Appends lines to the history of one process. Thread-safe."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = open(self.path, "a", encoding="utf-8")  # noqa: SIM115 - until `close`
        self._lock = threading.Lock()

    def close(self) -> None:
        with self._lock:
            self._file.close()

    def write(self, kind: str, at_ns: int | None = None, **fields: Any) -> None:
        """One line; `at_ns` is now unless it is given. Nothing is written after `close`."""
        line = {"kind": kind, "at_ns": time.monotonic_ns() if at_ns is None else at_ns, **fields}
        with self._lock:
            if not self._file.closed:
                self._file.write(json.dumps(line, separators=(",", ":")) + "\n")
                self._file.flush()

    def header(self, spec: PipelineSpec, fronts: Mapping[str, str]) -> None:
        self.write(
            "header",
            pipeline=spec.name,
            segments=list(spec.segments),
            edges=[[edge.source, edge.target, edge.delay] for edge in spec.edges],
            fronts=dict(fronts),
            slack_ns=spec.slack_ns,
            start_slot=spec.start_slot,
        )

    def changed(self, spec: PipelineSpec, asked_ns: int, min_times: Mapping[str, int]) -> None:
        """A change of the pipeline was answered a moment ago. min_times: the largest of each segment that any process
        of the tracker reports since."""
        self.write(
            "changed",
            asked_ns=asked_ns,
            segments=list(spec.segments),
            edges=[[edge.source, edge.target, edge.delay] for edge in spec.edges],
            min_times=dict(min_times),
        )

    def created(self, segment: str, slot: int, item: str, at_ns: int | None = None) -> None:
        self.write("created", at_ns, segment=segment, slot=slot, item=item)

    def consumed(self, segment: str, item: str, at_ns: int | None = None) -> None:
        self.write("consumed", at_ns, segment=segment, item=item)

    def heard(self, subscriber: str, segment: str | None, min_time: int) -> None:
        self.write("heard", subscriber=subscriber, segment=segment, min_time=min_time)

    def final(self, process: str, state: PipelineDescription) -> None:
        """What a process of the tracker says of the pipeline at the end."""
        segments = {
            segment.segment: {
                "min_time": segment.min_time,
                "open_slots": segment.open_slots,
                "open_items": segment.open_items,
            }
            for segment in state.segments
        }
        nodes = {str(node.key): node.node_time for node in state.nodes}
        self.write(
            "final", process=process, segments=segments, late_items=state.late_items, nodes=nodes
        )

    def expected(self, min_times: Mapping[str, int]) -> None:
        self.write("expected", min_times=dict(min_times))

    def tick(
        self,
        node: str,
        number: int,
        handed_ns: int,
        content: TickContent,
        segments: list[str],
        **more: Any,
    ) -> None:
        """A tick that has just been acknowledged. node: its node's key, in text."""
        now_ns = time.monotonic_ns()
        self.write(
            "tick",
            now_ns,
            node=node,
            number=number,
            handed_ns=handed_ns,
            acknowledged_ns=now_ns,
            created=_named(content.created, segments),
            consumed=_named(content.consumed, segments),
            promises=[[heartbeat.front, heartbeat.slot] for heartbeat in content.heartbeats],
            leaves=list(content.leaves),
            **more,
        )


def _named(cells: Cells, segments: list[str]) -> list[list[Any]]:
    return [[segments[segment], slot, count] for segment, slot, _, count in cells.rows()]


@contextmanager
def recording_ticks(recorder: Recorder) -> Iterator[None]:
    """Within, every tick that any node client of this process commits is written down when it is
    acknowledged, with the moment in which it was handed over."""
    commit = NodeClient.commit

    def recorded(node: NodeClient, content: TickContent, *options: Any, **more: Any) -> Future[int]:
        handed_ns = time.monotonic_ns()
        future = commit(node, content, *options, **more)

        def acknowledged(done: Future[int]) -> None:
            if not done.cancelled() and done.exception() is None:
                segments = list(node.spec.segments)
                key = str(node.joined.key)
                recorder.tick(key, done.result(), handed_ns, content, segments)

        future.add_done_callback(acknowledged)
        return future

    NodeClient.commit = recorded  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        NodeClient.commit = commit  # type: ignore[method-assign]


def merge(parts: Iterable[Path], target: Path) -> int:
    """Joins the files of several processes into one, by time; returns the number of lines."""
    histories = [sorted(read(part), key=lambda line: line["at_ns"]) for part in sorted(parts)]
    count = 0
    with open(target, "w", encoding="utf-8") as out:
        for line in heapq.merge(*histories, key=lambda line: line["at_ns"]):
            out.write(json.dumps(line, separators=(",", ":")) + "\n")
            count += 1
    return count


def read(path: Path) -> list[dict[str, Any]]:
    """The lines of a file; a last one without its newline was cut off by a kill and is dropped."""
    text = path.read_text(encoding="utf-8")
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
