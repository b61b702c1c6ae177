"""A hand-made history of a small run that keeps every promise, for tests to spoil.

Front F feeds segment `read`; what is read goes to `sum`, one slot later at the earliest.
"""

from __future__ import annotations

from typing import Any

from tests.check.history import FOREVER

Line = dict[str, Any]


def sound_run() -> list[Line]:
    """Two items of slots 5 and 6 in `read`, each with a child in `sum`."""
    return [
        line("header", 0, pipeline="p", segments=["read", "sum"], edges=[["read", "sum", 1]],
             fronts={"F": "read"}, slack_ns=1, start_slot=5),
        heard(1, "read", 5), heard(1, "sum", 6),
        created(10, "read", 5, "a"), tick(11, "F", 1, created=[["read", 5, 1]]),
        created(12, "read", 6, "b"), tick(13, "F", 2, created=[["read", 6, 1]]),
        created(20, "sum", 6, "a'"), consumed(20, "read", "a"),
        tick(21, "query", 1, created=[["sum", 6, 1]], consumed=[["read", 5, 1]]),
        heard(22, "read", 6),
        created(30, "sum", 7, "b'"), consumed(30, "read", "b"),
        tick(31, "query", 2, created=[["sum", 7, 1]], consumed=[["read", 6, 1]]),
        consumed(40, "sum", "a'"), tick(41, "total", 1, consumed=[["sum", 6, 1]]),
        heard(42, "sum", 7), heard(42, None, 6),
        consumed(50, "sum", "b'"), tick(51, "total", 2, consumed=[["sum", 7, 1]]),
        heard(60, "read", FOREVER), heard(61, "sum", FOREVER), heard(61, None, FOREVER),
        final(70),
        line("expected", 70, min_times={"read": FOREVER, "sum": FOREVER}),
    ]  # fmt: skip


def line(kind: str, at_ns: int, **fields: Any) -> Line:
    return {"kind": kind, "at_ns": at_ns, **fields}


def created(at_ns: int, segment: str, slot: int, item: str) -> Line:
    return line("created", at_ns, segment=segment, slot=slot, item=item)


def consumed(at_ns: int, segment: str, item: str) -> Line:
    return line("consumed", at_ns, segment=segment, item=item)


def absorbed(at_ns: int, segment: str, slot: int, item: str) -> Line:
    return line("absorbed", at_ns, segment=segment, slot=slot, item=item)


def emitted(at_ns: int, segment: str, item: str) -> Line:
    return line("emitted", at_ns, segment=segment, item=item)


def heard(at_ns: int, segment: str | None, min_time: int) -> Line:
    return line("heard", at_ns, subscriber="view", segment=segment, min_time=min_time)


def tick(
    at_ns: int,
    node: str,
    number: int,
    created: list[list[Any]] | None = None,
    consumed: list[list[Any]] | None = None,
) -> Line:
    return line(
        "tick", at_ns, node=node, number=number, handed_ns=at_ns, acknowledged_ns=at_ns,
        created=created or [], consumed=consumed or [], promises=[], leaves=[],
    )  # fmt: skip


def final(at_ns: int, **changes: Any) -> Line:
    end = {"min_time": FOREVER, "open_slots": 0, "open_items": 0}
    values: Line = {
        "process": "0",
        "segments": {"read": end, "sum": end},
        "late_items": 0,
        "nodes": {"F": 2, "query": 2, "total": 2},
    }
    return line("final", at_ns, **(values | changes))
