"""Rows in the order of their times, each once, in a sink: what stands around `lowmark.Barrier`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lowmark import _face

if TYPE_CHECKING:
    from tracker.consumers.barrier.barrier import BarrierCounts as BarrierCounts
    from tracker.consumers.barrier.barrier import BarrierOptions as BarrierOptions
    from tracker.consumers.barrier.delta import DeltaSink as DeltaSink
    from tracker.consumers.barrier.kafka import KafkaSink as KafkaSink
    from tracker.consumers.barrier.ledger import LateRow as LateRow
    from tracker.consumers.barrier.postgres import PostgresSink as PostgresSink
    from tracker.consumers.barrier.rows import RowReader as RowReader
    from tracker.consumers.barrier.sink import OrderedSink as OrderedSink
    from tracker.consumers.barrier.sink import Position as Position
    from tracker.consumers.barrier.sources import FilesIn as FilesIn
    from tracker.consumers.barrier.sqlite import SqliteSink as SqliteSink
    from tracker.consumers.reorder import Released as Released
    from tracker.consumers.reorder import ReorderBuffer as ReorderBuffer
else:
    __all__, __getattr__, __dir__ = _face.of(__name__)
