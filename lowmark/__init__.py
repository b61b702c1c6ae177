"""Lowmark's public face: `from lowmark import Subscriber, Tracked, FileFront`.

Here is what the first pages use. What is rarer lies beside it by its use: `lowmark.spark`, `lowmark.fronts`,
`lowmark.nodes` (ticks by hand), `lowmark.periods`, `lowmark.barrier`, `lowmark.admin`, `lowmark.errors` and
`lowmark.testing`. Every name comes from the module that implements it, when it is first used: what a program does not
use need not be installed, and `import lowmark` needs the standard library alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lowmark import _face
from lowmark._shadows import warn_if_hidden

if TYPE_CHECKING:
    from fronts.files import FileFront as FileFront
    from fronts.kafka import KafkaFront as KafkaFront
    from fronts.ranges import RangeFront as RangeFront
    from local_tracker import acks as acks
    from local_tracker.spark.session.completed import CompletedReader as CompletedReader
    from local_tracker.spark.session.tracked import Tracked as Tracked
    from local_tracker.spark.session.tracked import TrackedQuery as TrackedQuery
    from tracker import __version__ as __version__
    from tracker.client.admin import Admin as Admin
    from tracker.client.connection import SecureTarget as SecureTarget
    from tracker.client.credentials import Credentials as Credentials
    from tracker.client.embedded import embedded as embedded
    from tracker.client.history import history as history
    from tracker.client.pipeline_file import load_pipeline as load_pipeline
    from tracker.client.subscriber import AsyncSubscriber as AsyncSubscriber
    from tracker.client.subscriber import Subscriber as Subscriber
    from tracker.client.updates import Update as Update
    from tracker.client.waiting import Outcome as Outcome
    from tracker.client.waiting import Waited as Waited
    from tracker.client.waiting import wait_complete as wait_complete
    from tracker.consumers.barrier.barrier import Barrier as Barrier
    from tracker.consumers.periods.follow import Periods as Periods
    from tracker.consumers.periods.runs import Runs as Runs
    from tracker.core.model import Edge as Edge
    from tracker.core.model import PipelineSpec as PipelineSpec
    from tracker.core.model.slots import FOREVER as FOREVER
    from tracker.core.model.slots import slot_of as slot_of
    from tracker.errors import LowmarkError as LowmarkError
else:
    __all__, __getattr__, __dir__ = _face.of(__name__)

warn_if_hidden()
