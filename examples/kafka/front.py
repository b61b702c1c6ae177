"""Labels the orders that the shops write, until it is told to end."""

from __future__ import annotations

from examples.kafka.pipeline import ORDERS, PIPELINE
from lowmark import KafkaFront


def label(target: str, brokers: str, topics: str) -> KafkaFront:
    """A front that runs; close it, or let it leave when no order will ever come again."""
    front = KafkaFront(
        target,
        PIPELINE,
        "shops",
        "price",
        ORDERS,
        topics,
        brokers=brokers,
    )
    return front.start()
