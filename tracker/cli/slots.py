"""Ranges of slots, as people name them in options."""

from __future__ import annotations

import typer

from tracker.core.model.slots import FOREVER, LOWEST_SLOT

Slots = tuple[int, int]
"""The first and the last slot."""


def parse_segment_slots(text: str) -> tuple[str, Slots]:
    """`SEGMENT=FROM..TO` or `SEGMENT=SLOT`."""
    segment, _, slots = text.rpartition("=")
    if not segment:
        raise typer.BadParameter(f"--slots {text!r} is not SEGMENT=FROM..TO or SEGMENT=SLOT")
    return segment, parse_slots(slots)


def parse_slots(text: str) -> Slots:
    """`FROM..TO`, or one slot."""
    first, dots, last = text.partition("..")
    try:
        slots = int(first), int(last if dots else first)
    except ValueError:
        raise typer.BadParameter(f"--slots {text!r} is not FROM..TO or one slot") from None
    if not LOWEST_SLOT <= slots[0] <= slots[1] < FOREVER:
        raise typer.BadParameter(f"--slots {text!r}: the first is above the last, or no slot")
    return slots
