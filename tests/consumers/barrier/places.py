"""Sinks of each kind, made from words, so that another process can make the same one."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tracker.consumers.barrier.sink import OrderedSink
from tracker.consumers.barrier.sqlite import SqliteSink


def _sqlite(where: Mapping[str, str]) -> OrderedSink:
    return SqliteSink(where["path"])


def _postgres(where: Mapping[str, str]) -> OrderedSink:
    from tracker.consumers.barrier.postgres import PostgresSink

    return PostgresSink(where["dsn"], where["table"])


def _kafka(where: Mapping[str, str]) -> OrderedSink:
    from tracker.consumers.barrier.kafka import KafkaSink

    return KafkaSink(where["topic"], where["brokers"], partitions=int(where["partitions"]))


def _delta(where: Mapping[str, str]) -> OrderedSink:
    from tracker.consumers.barrier.delta import DeltaSink

    return DeltaSink(where["table"])


SINKS: dict[str, Callable[[Mapping[str, str]], OrderedSink]] = {
    "sqlite": _sqlite,
    "postgres": _postgres,
    "kafka": _kafka,
    "delta": _delta,
}
"""By kind: makes a sink, of what its place says (`conformance.Place.where`)."""
