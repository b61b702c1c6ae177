"""Ticks of any process in its history, also those whose acknowledgement a kill cut off.

A tick is written down when it is handed over and again when it is acknowledged. Of a driver that was
killed in between, the tracker says to its next run whether the batch was durable: `settled` makes a
`tick` line of it then. What comes out is the format of `examples.history`, which `tests.check` reads.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from examples.history import Recorder, read
from tracker.client import NodeClient
from tracker.core.log import Joined
from tracker.core.model import TickContent

Line = dict[str, Any]


@contextmanager
def recording(recorder_of: Callable[[str], Recorder | None]) -> Iterator[None]:
    """Within, all node clients of this process are recorded, by the names of their pipelines."""
    commit, join = NodeClient.commit, NodeClient.join

    def recorded_join(node: NodeClient, *options: Any, **more: Any) -> Joined:
        joined = join(node, *options, **more)
        if (recorder := recorder_of(node.pipeline)) is not None:
            batches = [[batch.scope, batch.id] for batch in joined.last_batches]
            recorder.write(
                "joined", node=node.node_id, incarnation=joined.key.incarnation,
                previous=joined.previous_node_time, batches=batches,
            )  # fmt: skip
        return joined

    def recorded_commit(
        node: NodeClient, content: TickContent, *options: Any, **more: Any
    ) -> Future[int]:
        recorder = recorder_of(node.pipeline)
        if recorder is None:
            return commit(node, content, *options, **more)
        handed_ns = time.monotonic_ns()
        key, segments = str(node.joined.key), list(node.spec.segments)
        if content.batch is not None:
            batch = [content.batch.scope, content.batch.id]
            recorder.write("handed", handed_ns, batch=batch, **_tick(key, content, segments))
        future = commit(node, content, *options, **more)

        def acknowledged(done: Future[int]) -> None:
            if not done.cancelled() and done.exception() is None:
                recorder.write(
                    "tick", number=done.result(), handed_ns=handed_ns,
                    acknowledged_ns=time.monotonic_ns(),
                    batch=None if content.batch is None else batch,
                    **_tick(key, content, segments),
                )  # fmt: skip

        future.add_done_callback(acknowledged)
        return future

    NodeClient.commit = recorded_commit  # type: ignore[method-assign,assignment]
    NodeClient.join = recorded_join  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        NodeClient.commit = commit  # type: ignore[method-assign]
        NodeClient.join = join  # type: ignore[method-assign]


def _tick(key: str, content: TickContent, segments: list[str]) -> Line:
    return {
        "node": key,
        "created": _named(content.created, segments),
        "consumed": _named(content.consumed, segments),
        "promises": [[heartbeat.front, heartbeat.slot] for heartbeat in content.heartbeats],
        "leaves": list(content.leaves),
        "holds": [[move.name, segments[move.segment], move.slot] for move in content.holds],
    }


def _named(cells: Any, segments: list[str]) -> list[list[Any]]:
    return [[segments[segment], slot, count] for segment, slot, _, count in cells.rows()]


def settled(lines: Iterable[Line]) -> list[Line]:
    """The lines that `tests.check` reads: of what was handed over and not acknowledged to its driver,
    that which a later run of the node was told to be durable becomes a tick."""
    kept, handed, joined = [], [], []
    acknowledged: set[tuple[str, str, int]] = set()
    for line in lines:
        if line["kind"] == "handed":
            handed.append(line)
        elif line["kind"] == "joined":
            joined.append(line)
        else:
            if line["kind"] == "tick" and line.get("batch"):
                acknowledged.add((_node_id(line), *line["batch"]))
            kept.append(line)
    for line in handed:
        node, (scope, batch) = _node_id(line), line["batch"]
        if (node, scope, batch) in acknowledged:
            continue
        later = [
            other for other in joined
            if other["node"] == node and other["at_ns"] > line["at_ns"]
            and any(s == scope and b >= batch for s, b in other["batches"])
        ]  # fmt: skip
        if later:
            acknowledged.add((node, scope, batch))
            known_ns = min(other["at_ns"] for other in later)
            number = max(other["previous"] for other in later[:1])
            kept.append(
                {**line, "kind": "tick", "at_ns": known_ns, "number": number,
                 "handed_ns": line["at_ns"], "acknowledged_ns": known_ns}
            )  # fmt: skip
    return sorted(kept, key=lambda line: int(line["at_ns"]))


def write_settled(parts: Path, path: Path) -> None:
    """Joins what all the files of a directory hold into one history."""
    lines = [line for part in sorted(parts.glob("*.jsonl")) for line in read(part)]
    text = (json.dumps(line, separators=(",", ":")) + "\n" for line in settled(lines))
    path.write_text("".join(text))


def _node_id(line: Line) -> str:
    return str(line["node"]).rpartition("#")[0]
