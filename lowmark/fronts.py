"""Fronts of one's own, groups of them, and what they publish."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lowmark import _face

if TYPE_CHECKING:
    from fronts.batches import PublishedBatch as PublishedBatch
    from fronts.files import PublishedFile as PublishedFile
    from fronts.front import Front as Front
    from fronts.front import FrontOptions as FrontOptions
    from fronts.front import Label as Label
    from fronts.front import Labels as Labels
    from fronts.front import OpenBatch as OpenBatch
    from fronts.groups import FileGroup as FileGroup
    from fronts.groups import PartitionGroup as PartitionGroup
    from fronts.kafka import KafkaGroup as KafkaGroup
    from fronts.spark import SparkFront as SparkFront
    from tracker.client.brokers import KafkaTopic as KafkaTopic
    from tracker.client.topics import TopicEnds as TopicEnds
else:
    __all__, __getattr__, __dir__ = _face.of(__name__)
