"""What a tracked query has written to a Kafka topic, batch by batch: the manifests beside its claim.

Kafka's sink keeps no log. So after a batch's write has returned, the topic's ends are asked, and what lies
between the ends of the last manifest and these is covered by the next one, as a contiguous range of each
partition, under one slot a segment. Manifests are numbered from 0; each is created once, whole, before the
batch's tick, and none is changed: who comes second takes what the first one has written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from tracker.client.topics import TopicPlace
from tracker.core.model import Cells
from tracker.core.model.ack_values import range_value
from tracker.errors import Code, StateError
from tracker.files import child

MAX_MANIFEST_BYTES = 16 * 2**20
KEPT_MANIFESTS = 100
"""So many of the newest stay, needed or not."""

_NAME = re.compile(r"([0-9]{20})\.json")


@dataclass(frozen=True, slots=True)
class Manifest:
    """What was covered at once.

    batch: the query's batch that was over; None where nothing ran, so that the ranges are nobody's. ends:
    the topic's whole end vector. slots: of the ranges, by the names of segments. ranges: (partition, begin,
    end).
    """

    batch: int | None
    topic_id: str
    ends: Mapping[str, int]
    slots: Mapping[str, int]
    ranges: tuple[tuple[str, int, int], ...]

    def cells(self, segments: Mapping[str, int]) -> Cells:
        """What the batch has created, by the numbers of the segments that it creates in."""
        return Cells.of(
            (segments[name], slot, range_value(partition, begin, end), end - begin)
            for name, slot in self.slots.items()
            for partition, begin, end in self.ranges
        )

    def to_json(self) -> bytes:
        return json.dumps(
            {
                "batch": self.batch, "topic_id": self.topic_id, "ends": dict(self.ends),
                "slots": dict(self.slots), "ranges": self.ranges,
                "by_moment": False,  # readers of older versions ask for it
            },
            sort_keys=True,
        ).encode()  # fmt: skip

    @classmethod
    def from_json(cls, raw: bytes, where: str) -> Manifest:
        """Raises StateError, with where it was read, for what `to_json` did not write."""
        try:
            value = json.loads(raw)
            batch = value["batch"]
            ranges = tuple((str(p), int(begin), int(end)) for p, begin, end in value["ranges"])
            if any(not 0 <= begin < end for _, begin, end in ranges):
                raise ValueError("a range without offsets")
            return cls(
                None if batch is None else int(batch), str(value["topic_id"]),
                {str(name): int(end) for name, end in value["ends"].items()},
                {str(name): int(slot) for name, slot in value["slots"].items()},
                ranges,
            )  # fmt: skip
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise StateError(
                f"{where} is not the manifest of a topic: {error!r}; restore it", Code.STATE_TOPIC
            ) from None


class ManifestLog:
    """The manifests of one topic, in order. Raises FilesError, and StateError for what is none."""

    def __init__(self, place: TopicPlace) -> None:
        self._files, self._directory = place.files, place.writer

    def numbers(self) -> list[int]:
        """Those that are there, in order."""
        found = (_NAME.fullmatch(name) for name in self._files.names(self._directory))
        return sorted(int(match[1]) for match in found if match)

    def read(self, number: int) -> Manifest | None:
        """None if it is not there (yet)."""
        raw = self._files.read_whole(self._path(number), MAX_MANIFEST_BYTES)
        return None if raw is None else Manifest.from_json(raw, self._path(number))

    def create(self, number: int, manifest: Manifest) -> Manifest:
        """Creates a manifest; returns the one that has the number, perhaps of another run's."""
        if self._files.create_if_absent(self._path(number), manifest.to_json()):
            return manifest
        stands = self.read(number)
        if stands is None:
            raise StateError(
                f"{self._path(number)} was there, and is not now; restore it", Code.STATE_TOPIC
            )
        return stands

    def delete(self, number: int) -> None:
        self._files.delete(self._path(number))

    def _path(self, number: int) -> str:
        return child(self._directory, f"{number:020d}.json")
