"""`lowmark explain`: why min time stands, and what would let it move."""

from __future__ import annotations

from typing import Annotated

import typer

from tracker.cli.common import (
    PipelineName,
    SegmentName,
    connect,
    show,
    wrong_usage,
)
from tracker.cli.durations import lasting
from tracker.cli.slots import parse_slots
from tracker.client.moments import parse_slot
from tracker.core.insight.diagnosis import SILENT_AFTER_MS
from tracker.core.insight.explain import MAX_EXPLAINED_CELLS
from tracker.core.model.slots import FOREVER, LOWEST_SLOT

LISTED_CELLS = 100
"""Open cells of each shard that are listed where nobody names slots; how many there are is said."""


def explain(
    context: typer.Context,
    pipeline: PipelineName,
    segment: SegmentName = None,
    slots: Annotated[
        str | None,
        typer.Option(
            help=f"list all open cells at these slots: FROM..TO, or one; numbers or ISO times; up to "
            f"{MAX_EXPLAINED_CELLS} of each shard, the lowest; if not given, the lowest {LISTED_CELLS}"
        ),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            help="what keeps min time from this moment: an ISO date or time, now, or slot:N; if not "
            "given, what keeps it from moving"
        ),
    ] = None,
    silent_after_s: Annotated[
        float,
        lasting(
            "--silent-after", show_default=f"{SILENT_AFTER_MS / 1000:g}s",
            help="a node that sends nothing for longer is taken to be stuck",
        ),
    ] = SILENT_AFTER_MS / 1000,
) -> None:  # fmt: skip
    """Show why min time is where it is, and what would let it move: the front that has not promised more,
    the node that is gone or stuck, the batch that is not committed, the shard that is behind."""
    from tracker.view.explanations import explanation_json, explanation_text
    from tracker.view.printing import as_printable

    if slots:
        parse_slots(slots)
    with wrong_usage():
        parse_slot(at or "now", 1, 1)
    with connect(context) as admin:
        spec, asked = admin.pipeline(pipeline).spec, None
        first, last = parse_slots(slots, spec) if slots else (LOWEST_SLOT, FOREVER - 1)
        if at is not None:
            asked = parse_slot(at, spec.slack_ns, spec.rounds, up=True)
        explanation = admin.explain(
            pipeline, segment, from_slot=first, to_slot=last + 1,
            max_cells=MAX_EXPLAINED_CELLS if slots else LISTED_CELLS,
            at=asked,
            silent_after_ms=int(silent_after_s * 1000),
        )  # fmt: skip
    text = explanation_text(as_printable(explanation))
    show(context, explanation_json(explanation), text)
