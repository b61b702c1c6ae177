"""What is raised, beside `lowmark.LowmarkError`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lowmark import _face

if TYPE_CHECKING:
    from fronts.core import FrontStateError as FrontStateError
    from fronts.core import RolledBackError as RolledBackError
    from fronts.front import FrontFailedError as FrontFailedError
    from fronts.front import FrontFullError as FrontFullError
    from fronts.front import NotPublishedError as NotPublishedError
    from local_tracker.spark.formats.ranges import NotYetPublished as NotYetPublished
    from local_tracker.spark.query.follow import TrackingError as TrackingError
    from local_tracker.spark.session.rescaling import RescaleError as RescaleError
    from tracker.client.credentials import CredentialsError as CredentialsError
    from tracker.client.errors import ClosedError as ClosedError
    from tracker.client.errors import FencedError as FencedError
    from tracker.client.errors import RefusedError as RefusedError
    from tracker.client.errors import TickRefusedError as TickRefusedError
    from tracker.client.errors import UnavailableError as UnavailableError
    from tracker.client.pipeline_file import PipelineFileError as PipelineFileError
    from tracker.client.topics import BrokerAwayError as BrokerAwayError
    from tracker.client.topics import TopicError as TopicError
    from tracker.consumers.barrier.rows import RowError as RowError
    from tracker.consumers.barrier.sink import SinkAwayError as SinkAwayError
    from tracker.consumers.barrier.sink import SinkError as SinkError
    from tracker.consumers.barrier.sink import SinkFencedError as SinkFencedError
    from tracker.consumers.barrier.sink import SinkRefusedError as SinkRefusedError
    from tracker.consumers.barrier.taking import LateRowsError as LateRowsError
    from tracker.consumers.durable import StateError as StateError
    from tracker.consumers.periods.once import ActionError as ActionError
    from tracker.consumers.reorder import BufferFullError as BufferFullError
    from tracker.consumers.reorder import ForeignPositionError as ForeignPositionError
    from tracker.consumers.reorder import LateItemError as LateItemError
    from tracker.core.model.rounds import RoundsExceededError as RoundsExceededError
else:
    __all__, __getattr__, __dir__ = _face.of(__name__)
