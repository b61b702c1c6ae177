"""The pipeline: orders come in, are priced, and are stored."""

from __future__ import annotations

from lowmark import Admin, Edge, PipelineSpec

PIPELINE = "orders"
ORDERS, PRICED = "orders", "priced-orders"
"""The topics. Both must be there: the first is written by the shops, the second by a query."""


def register(target: str) -> None:
    """Registers the pipeline; again is no harm."""
    with Admin(target) as admin:
        admin.register(
            PipelineSpec(PIPELINE, ("price", "store"), (Edge("price", "store"),), front_count=1)
        )
