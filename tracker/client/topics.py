"""What is known of a Kafka topic's ranges, in files that all see who write, label or read the topic.

    <topics>/<pipeline>/<topic>/fronts/<segment>/claim.json   who labels it for a segment, from where on
                                                /*.ranges     journals: what that has labelled
    <topics>/<pipeline>/<topic>/writer/claim.json             the tracked query that writes it
                                      /<number>.json          manifests: what that has written

A claim is created once, before anything else is, so that nobody labels what another one labels, and so
that a topic that was deleted and made anew is noticed: its id is another one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Protocol
from urllib.parse import quote

from tracker.errors import Code, StateError
from tracker.files import STORES, Files, Stores, child

MAX_CLAIM_BYTES = 16 * 2**20
"""The most that is read of a claim: some hundred thousand partitions."""


@dataclass(frozen=True, slots=True)
class TopicEnds:
    """How far a topic has come. topic_id: Kafka's own, which a topic made anew does not have; ends: by
    partition (`topic/0`), the offset behind the last record that every reader may see."""

    topic_id: str
    ends: dict[str, int]


class Topic(Protocol):
    """A topic, as its brokers are asked about it. All raise UnavailableError, and StateError where there
    is no such topic."""

    name: str

    def ends(self) -> TopicEnds: ...

    def earliest(self) -> TopicEnds:
        """The same, with the offsets of the first records that are still there."""


@dataclass(frozen=True, slots=True)
class TopicClaim:
    """Who labels a topic. owner: a front, group or query, as `front parse`; begins: by partition, from
    which offset on (0 where it is not named, as of a partition that is added later); segments: those
    that it creates in."""

    owner: str
    topic_id: str
    begins: Mapping[str, int]
    segments: tuple[str, ...]

    def begin(self, partition: str) -> int:
        return self.begins.get(partition, 0)


class TopicPlace:
    """Where it is kept what is known of one topic in one pipeline. Thread-safe. Whatever it does raises
    FilesError where the store does not do it."""

    def __init__(
        self, directory: str, pipeline: str, topic: str, stores: Stores | None = None
    ) -> None:
        """directory: the same for all, of a store in which a file can be created only if it is absent."""
        self.topic, self.pipeline = topic, pipeline
        stores = stores or STORES
        self.directory = stores.location(directory)
        self.files: Files = stores.files(self.directory)
        self._root = child(child(self.directory, quote(pipeline, safe="")), quote(topic, safe=""))

    def front(self, segment: str) -> str:
        """The directory of whatever labels the topic for a segment from outside."""
        return child(self._root, f"fronts/{quote(segment, safe='')}")

    @property
    def writer(self) -> str:
        """The directory of the tracked query that writes the topic."""
        return child(self._root, "writer")

    def claim_of(self, directory: str) -> TopicClaim | None:
        """The claim in a directory; None if nobody has claimed it. Raises StateError if it is damaged."""
        path = child(directory, "claim.json")
        raw = self.files.read_whole(path, MAX_CLAIM_BYTES)
        if raw is None:
            return None
        try:
            value = json.loads(raw)
            begins = {str(name): int(offset) for name, offset in value["begins"].items()}
            segments = tuple(str(name) for name in value["segments"])
            return TopicClaim(str(value["owner"]), str(value["topic_id"]), begins, segments)
        except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
            raise StateError(
                f"{path} is not the claim of a topic: {error!r}; restore it", Code.STATE_TOPIC
            ) from None

    def claim(self, directory: str, wanted: TopicClaim) -> TopicClaim:
        """Claims the topic; returns the claim that stands, which may be an earlier one of this owner, and
        whose begins count. Raises StateError where another one has it, or the topic is another one."""
        raw = json.dumps(asdict(wanted), sort_keys=True).encode()
        if self.files.create_if_absent(child(directory, "claim.json"), raw):
            return wanted
        stands = self.claim_of(directory)
        if stands is None:
            raise StateError(
                f"{directory}: the claim of topic {self.topic!r} was deleted; try again",
                Code.STATE_TOPIC,
            )
        self.check_owner(stands, wanted.owner)
        self.check_id(stands, wanted.topic_id)
        return stands

    def check_owner(self, claim: TopicClaim, owner: str) -> None:
        """Raises StateError where another one has claimed the topic."""
        if claim.owner != owner:
            raise StateError(
                f"topic {self.topic!r} of pipeline {self.pipeline!r} belongs to {claim.owner}, so {owner} "
                f"cannot label it too: offsets would count twice. If {claim.owner} is gone for good, begin "
                f"in another directory than {self.directory}, and in a new pipeline",
                Code.STATE_TOPIC,
            )

    def check_id(self, claim: TopicClaim, topic_id: str) -> None:
        """Raises StateError where the topic is not the one that was claimed."""
        if topic_id != claim.topic_id:
            raise StateError(
                f"topic {self.topic!r} has id {topic_id}, and {claim.owner} has labelled the one with id "
                f"{claim.topic_id}: it was deleted and made anew, so its offsets name other records; "
                f"begin anew, in another directory than {self.directory} and in a new pipeline",
                Code.STATE_TOPIC,
            )


def check_ends(topic: str, before: Mapping[str, int], after: Mapping[str, int]) -> None:
    """Raises StateError where the end of a partition has moved back, or a partition is gone."""
    for partition, end in before.items():
        now = after.get(partition)
        if now is None or now < end:
            found = "is not there any more" if now is None else f"ends at offset {now}"
            raise StateError(
                f"topic {topic!r}: partition {partition!r} {found}, and ended at {end} before: records "
                f"that had been acknowledged are lost (acks below all, an unclean election), or the "
                f"topic was made anew; begin anew, in a new pipeline",
                Code.STATE_TOPIC,
            )
