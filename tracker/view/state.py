"""Holds of rows that are only in the state of a query, in words."""

from __future__ import annotations

from tracker.client.state_names import UNKNOWN, UNSEEN, Rows, bound_of
from tracker.client.updates import slot_time

_NS_PER_MS = 1_000_000


def state_waits_text(name: str) -> str:
    """For what the rows wait for which the hold of a name stands; empty where it stands for something else."""
    bound = bound_of(name)
    if bound is None:
        return ""
    if bound == UNKNOWN:
        return "a later batch, whose watermark or state says until when"
    if bound == UNSEEN:
        return (
            "its state to be read, or empty, or query.stop(leave=True): no log says until when, since Spark did not "
            "evaluate their batch again"
        )
    if isinstance(bound, Rows):
        return f"sessions to end that begin by event time {_moment_text(bound.up_to_ms)}"
    return f"event time {_moment_text(int(bound))}"


def _moment_text(time_ms: int) -> str:
    moment = slot_time(time_ms, _NS_PER_MS)
    if moment is None:
        return f"{time_ms} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
