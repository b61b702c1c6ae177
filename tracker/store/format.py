"""Which form what is stored has, as a number that each store and each export carries: its feature level.

Whoever knows lower numbers alone would pass over what is new in silence, and so refuses the store instead. A store begins with
the lowest number, and gets a higher one in the transaction that writes the first record of that level: while an upgrade
is not finished, releases of both sides open it.
"""

from __future__ import annotations

from tracker.core.model.levels import NEWEST_LEVEL, OLDEST_LEVEL
from tracker.store.interface import StoreError

OLDEST_FORMAT = OLDEST_LEVEL
NEWEST_FORMAT = NEWEST_LEVEL
"""`tests/store/formats.json` pins the form that each number stands for."""


def check_format(where: str, number: int) -> None:
    """Raises StoreError if what is `where` has a form that this version does not read."""
    if not OLDEST_FORMAT <= number <= NEWEST_FORMAT:
        raise StoreError(
            f"{where} has format {number}, this version reads formats {OLDEST_FORMAT} to {NEWEST_FORMAT}; use the version of "
            "Lowmark that wrote it, or a newer one"
        )
