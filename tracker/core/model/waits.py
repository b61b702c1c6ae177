"""What a node says it waits for, or is refused: for people, kept at its home and not durable.

A home sees only ticks. That a query runs and cannot make one, because of a file that nobody has told
of, say, only the query knows. It says so on its stream of ticks; what it reported last counts, until it
says otherwise or the stream ends. Nothing is decided by it: it is a cause in explanations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from tracker.core.model import RefusalCode, Refused

MAX_WAITS = 8
"""Causes that a node may tell at once."""
MAX_WAIT_CHARACTERS = 500
"""Of the text of one."""


class WaitKind(Enum):
    """Why a node commits nothing."""

    UNKNOWN_ITEMS = "unknown_items"
    """It has read what no tick has created: files that nobody has reported to the tracker, a stray one say."""
    NOT_TOLD = "not_told"
    """It has read what its front or writer has not reported the slots of yet."""
    WRITER_BEHIND = "writer_behind"
    """A writer that it depends on has not done its part: its batch is not committed, its notes lack."""
    REFUSED = "refused"
    """What it would commit, or stage, is refused, by the tracker or by the node itself."""
    OTHER = "other"
    """Something else; its text says what."""


@dataclass(frozen=True, slots=True)
class WaitCause:
    """One thing that a node waits for. text: what it is, with an example or two, to stand behind
    `query etl waits for`, or behind `is refused` with REFUSED: `2 files that no tick has created, such
    as stray.csv`; at most MAX_WAIT_CHARACTERS. segment: the number of the one whose items it has read
    and cannot account for, or cannot create in; -1 if it is none. batch: of a query; -1 if none."""

    kind: WaitKind
    text: str
    segment: int = -1
    batch: int = -1


def check_waits(pipeline: str, segments: int, waits: Sequence[WaitCause]) -> None:
    """Raises Refused(INVALID) where a node says more than it may."""
    if len(waits) > MAX_WAITS:
        raise Refused(
            RefusalCode.INVALID,
            f"pipeline {pipeline!r}: a node tells {len(waits)} causes why it waits, the limit is "
            f"{MAX_WAITS}; tell those that matter most",
        )
    for wait in waits:
        if not 0 < len(wait.text) <= MAX_WAIT_CHARACTERS:
            raise Refused(
                RefusalCode.INVALID,
                f"pipeline {pipeline!r}: a cause why a node waits has {len(wait.text)} characters, it "
                f"must have 1 to {MAX_WAIT_CHARACTERS}; tell it shorter",
            )
        if not -1 <= wait.segment < segments:
            raise Refused(
                RefusalCode.INVALID,
                f"pipeline {pipeline!r}: a cause why a node waits names segment number {wait.segment}; "
                f"the pipeline has {segments} segments, numbered from 0 (-1: none of them)",
            )
