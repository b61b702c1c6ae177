"""What two shops sell within an hour, and when it becomes visible. Times are minutes of the replayed day."""

from __future__ import annotations

from dataclasses import dataclass

SHOPS = ("north", "south")
OPENS, CLOSES = 9 * 60, 10 * 60
OUTAGE = range(9 * 60 + 5, 9 * 60 + 27)
"""The minutes in which nothing of the second shop gets out."""
ROWS_A_MINUTE = 5
JOB_EVERY = 10
LOOK_BACK = 15
JOBS = range(OPENS + JOB_EVERY, CLOSES + JOB_EVERY + 1, JOB_EVERY)
"""When the jobs run: the last time when both shops have closed."""


@dataclass(frozen=True, slots=True)
class Sale:
    """One row. stamp: the minute at which the shop labels it; visible: at which it gets out."""

    row: int
    shop: str
    stamp: int
    visible: int


def sales() -> list[Sale]:
    """All rows, in the order in which each shop stamps them."""
    found: list[Sale] = []
    for stamp in range(OPENS, CLOSES):
        for shop in SHOPS:
            cut_off = shop == "south" and stamp in OUTAGE
            visible = OUTAGE.stop if cut_off else stamp
            found += [
                Sale(len(found) + place, shop, stamp, visible) for place in range(ROWS_A_MINUTE)
            ]
    return found


def clock_text(minute: int) -> str:
    """A minute of the day as people write it."""
    return f"{minute // 60:02d}:{minute % 60:02d}"
