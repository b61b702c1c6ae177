"""Which form what is stored has, as a number that each store and each export carries.

It is raised with every change of a stored record or snapshot, and of how a store keeps them, once a release has
written them: whoever knows lower numbers alone would pass over what is new in silence, and so refuses the store
instead. A store keeps its number until this version writes to it; the same transaction raises it then.
"""

from __future__ import annotations

from tracker.store.interface import StoreError

FORMAT = 1
"""1: the first one. `tests/store/formats.json` pins the form that each number stands for."""


def check_format(where: str, number: int) -> None:
    """Raises StoreError if what is `where` has a form that this version does not read."""
    if not 1 <= number <= FORMAT:
        raise StoreError(
            f"{where} has format {number}, this version reads formats 1 to {FORMAT}; use the version of "
            "Lowmark that wrote it, or a newer one"
        )
