"""What is known of a pipeline as one Parquet file, to be kept when the pipeline is deleted.

Each row is a fact, and `what` names its kind: the pipeline with how many items came late, a segment, a min time that
was announced and when, an open cell, a cell that was written off, a node. The pipeline as it was registered stands in the file's
metadata, under `lowmark.pipeline`, as JSON.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict

from tracker.cli.render.columns import columns
from tracker.client import Admin, Explanation
from tracker.client.history import moment, remembered
from tracker.client.nodes import listed
from tracker.core.insight.explain import MAX_EXPLAINED_CELLS
from tracker.core.model import PipelineSpec
from tracker.errors import Code, StateError, UnavailableError
from tracker.files.local import write_durably
from tracker.view.model import cells_of, nodes_of, written_off_of
from tracker.view.pipelines import clock_time
from tracker.wire.pipelines import spec_to_pb

SPEC = "lowmark.pipeline"
TYPES = {
    "what": "string", "segment": "string", "slot": "int64", "time": "time", "at": "time", "items": "int64",
    "node_id": "string", "incarnation": "int64", "ticks": "int64", "detail": "string",
}  # fmt: skip
"""The columns, and what Arrow calls their types. `slot` and `time` are of the pipeline; `at` is when a min time was
announced, or a cell written off."""

_Row = dict[str, Any]


def write_archive(admin: Admin, pipeline: str, file: Path) -> int:
    """Writes a file with all that the tracker knows of a pipeline; returns how many rows it has. The file is there when
    all of it is durable. Raises StateError where it is there already; UnavailableError where a shard does not answer;
    NoArrowError, OSError, RefusedError."""
    if file.exists():
        raise StateError(f"--archive {file} is there; name a new file", Code.STATE_TAKEN)
    explanation = admin.explain(pipeline, max_cells=MAX_EXPLAINED_CELLS)
    for shard, why in explanation.silent_shards.items():
        raise UnavailableError(
            f"shard {shard} does not answer, and an archive would lack what it knows: {why}; repeat it"
        )
    rows = [*_rows(admin, explanation)]
    spec = json.dumps(MessageToDict(spec_to_pb(explanation.spec)))
    write_durably(file, columns(rows, TYPES, parquet=True, metadata={SPEC: spec}))
    return len(rows)


def _rows(admin: Admin, explanation: Explanation) -> Iterator[_Row]:
    spec, state = explanation.spec, explanation.state
    yield {
        "what": "pipeline", **_at(state.min_time, spec), "items": state.late_items, "detail": "late items",
    }  # fmt: skip
    for segment in state.segments:
        yield {
            "what": "segment", **_at(segment.min_time, spec), "segment": segment.segment,
            "items": segment.open_items,
        }  # fmt: skip
        yield from _announced(admin, explanation, segment.segment)
    for cell in cells_of(explanation):
        yield {
            "what": "open", "segment": spec.segments[cell.segment], **_at(cell.slot, spec), "items": cell.items,
        }  # fmt: skip
    for lost in written_off_of(explanation):
        yield {
            "what": "written_off", "segment": spec.segments[lost.segment], **_at(lost.slot, spec),
            "at": moment(lost.at_ms).isoformat(), "items": lost.items, "node_id": lost.node_id,
            "detail": "consumed after all" if lost.came_back else None,
        }  # fmt: skip
    for node in nodes_of(explanation):
        yield {
            "what": "node", "node_id": node.key.node_id, "incarnation": node.key.incarnation,
            "ticks": node.node_time, "detail": node.kind,
        }  # fmt: skip
    # Each shard lists so many open cells and nodes, and no more.
    shown = Counter(cell.segment for cell in cells_of(explanation))
    for number, segment in enumerate(state.segments):
        if more := segment.open_slots - shown[number]:
            yield {"what": "left_out", "segment": segment.segment, "items": more, "detail": "cells"}
    if more := listed(spec, state, explanation.parts, {}).omitted:
        yield {"what": "left_out", "items": more, "detail": "nodes"}


def _announced(admin: Admin, explanation: Explanation, segment: str) -> Iterator[_Row]:
    """When which min time was announced first by any process, as far as that is remembered."""
    spec, generation = explanation.spec, explanation.state.generation
    first: dict[int, int | None] = {}
    for heard in remembered(admin, spec.name, segment, heard_generation=generation):
        for each in heard:
            known = first.get(each.min_time)
            first[each.min_time] = each.at_ms if known is None else min(known, each.at_ms or known)
    for slot, at_ms in sorted(first.items()):
        announced = None if at_ms is None else moment(at_ms).isoformat()
        yield {"what": "announced", "segment": segment, **_at(slot, spec), "at": announced}


def _at(slot: int, spec: PipelineSpec) -> _Row:
    time = clock_time(slot, spec)
    return {"slot": slot, "time": time.isoformat() if time else None}
