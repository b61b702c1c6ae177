"""What stands around `lowmark.Tracked`: sources and sinks of one's own, state, tables, rescaling."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lowmark import _face

if TYPE_CHECKING:
    from local_tracker.spark.formats.as_of import TableAsOf as TableAsOf
    from local_tracker.spark.formats.committed import CommittedFiles as CommittedFiles
    from local_tracker.spark.formats.kafka import topic_ranges as topic_ranges
    from local_tracker.spark.formats.ranges import OffsetRanges as OffsetRanges
    from local_tracker.spark.formats.ranges import PublishedRanges as PublishedRanges
    from local_tracker.spark.progress.frames import progress as progress
    from local_tracker.spark.progress.registered import register as register
    from local_tracker.spark.query.emits import EventTime as EventTime
    from local_tracker.spark.session.completed import Taken as Taken
    from local_tracker.spark.session.completed import slot_of_timestamp as slot_of_timestamp
    from local_tracker.spark.session.options import TrackingOptions as TrackingOptions
    from local_tracker.spark.session.progress_listener import ProgressListener as ProgressListener
    from local_tracker.spark.session.rescaling import ROCKSDB as ROCKSDB
    from local_tracker.spark.session.rescaling import Rescaled as Rescaled
    from local_tracker.spark.session.rescaling import rescale_query as rescale_query
    from local_tracker.spark.state.rules import HeldFor as HeldFor
    from local_tracker.spark.writers.each_batch import BatchWriter as BatchWriter
    from local_tracker.worker.noted import note_commit as note_commit
else:
    __all__, __getattr__, __dir__ = _face.of(__name__)
