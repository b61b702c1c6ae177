"""Slots and ranges of them, as people name them in options: by their numbers, or by the moments that lie in them."""

from __future__ import annotations

import typer

from tracker.client.moments import parse_slot
from tracker.core.model import PipelineSpec
from tracker.core.model.slots import FOREVER, LOWEST_SLOT

Slots = tuple[int, int]
"""The first and the last slot."""


def parse_segment_slots(text: str, spec: PipelineSpec | None = None) -> tuple[str, Slots]:
    """`SEGMENT=FROM..TO` or `SEGMENT=SLOT`. Raises typer.BadParameter."""
    segment, _, slots = text.rpartition("=")
    if not segment:
        raise typer.BadParameter(f"--slots {text!r} is not SEGMENT=FROM..TO or SEGMENT=SLOT")
    return segment, parse_slots(slots, spec)


def parse_slots(text: str, spec: PipelineSpec | None = None) -> Slots:
    """`FROM..TO`, or one slot: each a number, or a moment (an ISO date or time, UTC unless it has an offset), which is
    the slot that it lies in. Without the pipeline it is checked whether this can be. Raises typer.BadParameter."""
    first, dots, last = text.partition("..")
    try:
        slots = slot_named(first, spec), slot_named(last if dots else first, spec)
    except ValueError as error:
        raise typer.BadParameter(f"--slots {text!r} is not FROM..TO or one slot: {error}") from None
    if not LOWEST_SLOT <= slots[0] <= slots[1] < FOREVER:
        raise typer.BadParameter(f"--slots {text!r}: the first is above the last, or no slot")
    return slots


def slot_named(text: str, spec: PipelineSpec | None) -> int:
    """A number, or the slot that a moment lies in (without the pipeline: whether it can be one). Raises ValueError."""
    try:
        return int(text)
    except ValueError:
        slack_ns, rounds = (1, 1) if spec is None else (spec.slack_ns, spec.rounds)
        return parse_slot(text, slack_ns, rounds)
