"""Kafka topics that a tracked query reads: recognised in its plan, with slots from whoever labels them.

A topic is labelled for a segment by one only: by a front (`fronts.kafka`), which notes it in journals, or
by the tracked query that writes it (`kafka_sink`), in manifests. Where those are, `tracker.client.topics`
knows; they are read as they grow.
"""

from __future__ import annotations

import json
import logging
import re
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from local_tracker.spark.formats.interface import (
    Format,
    Leaf,
    QueryReads,
    Source,
    SourcePlan,
    TopicsSource,
)
from local_tracker.spark.formats.manifests import Manifest, ManifestLog
from local_tracker.spark.formats.ranges import (
    Journal,
    OffsetRanges,
    Pieces,
    PublishedPieces,
    PublishedRecords,
    RangesError,
    journal_of,
    published_pieces,
)
from local_tracker.spark.formats.sinks import Sink, SinkPlan
from tracker.client.topics import TopicClaim, TopicPlace
from tracker.errors import Code, StateError, TrackingError, UnavailableError
from tracker.files import child

if TYPE_CHECKING:
    from local_tracker.spark.writers.each_batch import BatchWriter, Writing

_LISTED_AFTER_LOOKS = 50
"""Looks for the next manifest, after which all are listed: another one may be the next, and some be deleted."""

log = logging.getLogger("lowmark.spark")


class TopicLabels:
    """The slots of a topic's offsets in one segment, as whoever labels it has noted them. Thread-safe."""

    def __init__(self, place: TopicPlace, segment: str, topic_id: str | None = None) -> None:
        """topic_id: of the topic that is read, if it is known: another one's labels are refused."""
        self._place, self._segment, self._topic_id = place, segment, topic_id
        self._lock = threading.Lock()
        self._claim: TopicClaim | None = None
        self._noted: _Noted | None = None
        self._reported = False
        self._looks_again_at = 0.0  # by the monotonic clock

    def ranges(self, *, from_earliest: bool = False) -> OffsetRanges:
        """How the topic is read, for a query's `ranges`. from_earliest: as in `OffsetRanges`."""
        return OffsetRanges(
            self._segment, self.slots, within=self._place.topic, begins=self.begin,
            from_earliest=from_earliest,
        )  # fmt: skip

    def begin(self, partition: str) -> int:
        """From which offset on a partition is labelled. Raises UnavailableError where nobody has claimed the
        topic yet, RangesError where two label it, or where another topic of that name was labelled."""
        with self._lock:
            return self._stands()[0].begin(partition)

    def slots(self, partition: str, begin: int, end: int) -> Pieces:
        """The pieces of a range. What lies before the labels began, or those that are kept, is nobody's. Raises as
        `begin`, and as `PublishedRanges.slots`."""
        with self._lock:
            claim, noted = self._stands()
            try:
                return self._pieces(claim, noted, partition, begin, end)
            except UnavailableError:
                self._look(noted)
            return self._pieces(claim, noted, partition, begin, end)

    def _pieces(
        self, claim: TopicClaim, noted: _Noted, partition: str, begin: int, end: int
    ) -> list[tuple[int, int, int | None]]:
        kept = max(claim.begin(partition), noted.begin(partition))
        labelled = min(max(begin, kept), end)
        before: list[tuple[int, int, int | None]] = (
            [(begin, labelled, None)] if begin < labelled else []
        )
        if before and not self._reported:
            self._reported = True
            log.warning(
                "topic %r: offsets %d to %d of partition %r were there before %s began to label it, or what was noted "
                "of them is complete and deleted: they are not tracked, as others before its beginning",
                self._place.topic, begin, labelled - 1, partition, claim.owner,
            )  # fmt: skip
        if labelled == end:
            return before
        return [*before, *published_pieces(noted.of(partition), partition, labelled, end)]

    def _look(self, noted: _Noted) -> None:
        """Reads what has been noted since; not more often than its store is to be asked."""
        if time.monotonic() >= self._looks_again_at:
            self._wait_for_next()
            noted.read_on()

    def _wait_for_next(self) -> None:
        self._looks_again_at = time.monotonic() + self._place.files.POLL_S[0]

    def _stands(self) -> tuple[TopicClaim, _Noted]:
        if self._claim is None or self._noted is None:
            if time.monotonic() < self._looks_again_at:
                raise self._unclaimed()
            self._wait_for_next()
            try:
                self._claim, self._noted = self._find()
            except StateError as error:
                raise RangesError(str(error)) from None
            self._looks_again_at = 0.0  # what has been noted is read at once
        return self._claim, self._noted

    def _find(self) -> tuple[TopicClaim, _Noted]:
        place = self._place
        front, writer = place.claim_of(place.front(self._segment)), place.claim_of(place.writer)
        if writer is not None and self._segment not in writer.segments:
            writer = None
        if front is not None and writer is not None:
            raise StateError(
                f"topic {place.topic!r} is labelled for segment {self._segment!r} by {front.owner} and by "
                f"{writer.owner}, so that its records would count twice: let one of them be, in a new "
                f"pipeline",
                Code.STATE_TOPIC,
            )
        claim = front or writer
        if claim is None:
            raise self._unclaimed()
        if self._topic_id is not None:
            place.check_id(claim, self._topic_id)
        if front is not None:
            return claim, _Journals(place, place.front(self._segment))
        return claim, _Manifests(place, self._segment)

    def _unclaimed(self) -> UnavailableError:
        return UnavailableError(
            f"topic {self._place.topic!r}, which nobody labels for segment {self._segment!r} in "
            f"{self._place.directory}: start a KafkaFront for it, or the tracked query that writes it",
            Code.UNAVAILABLE_SLOTS,
        )


class _Noted(ABC):
    """What has been noted of a topic's partitions for one segment."""

    @abstractmethod
    def read_on(self) -> None:
        """Reads what was noted since the last time."""

    @abstractmethod
    def of(self, partition: str) -> Sequence[PublishedPieces]: ...

    def begin(self, partition: str) -> int:
        """From which offset on all of a partition is noted still: before it nothing waits to be read."""
        return 0


class _Journals(_Noted):
    """The journals of a topic's fronts: of one for all partitions, or of a group for each."""

    def __init__(self, place: TopicPlace, directory: str) -> None:
        self._place, self._directory = place, directory
        self._journals: dict[str, Journal] = {}

    def read_on(self) -> None:
        for name in self._place.files.names(self._directory):
            if name.endswith(".ranges") and name not in self._journals:
                where = child(self._directory, name)
                self._journals[name] = journal_of(self._place.files, where)
        for journal in self._journals.values():
            journal.read_on()

    def of(self, partition: str) -> Sequence[PublishedPieces]:
        found = (journal.published.get(partition) for journal in self._journals.values())
        return [pieces for pieces in found if pieces is not None]

    def begin(self, partition: str) -> int:
        """A journal lets go of what is complete in the whole pipeline; who comes there later was not waited for."""
        begins = (journal.begin(partition) for journal in self._journals.values())
        return min((begin for begin in begins if begin is not None), default=0)


class _Manifests(_Noted):
    """The manifests of the query that writes a topic."""

    def __init__(self, place: TopicPlace, segment: str) -> None:
        self._log, self._segment = ManifestLog(place), segment
        self._next: int | None = None
        self._first: Manifest | None = None
        """The oldest that is kept, where some before it were deleted."""
        self._looks = 0
        """Since they were listed."""
        self._records = PublishedRecords()

    def begin(self, partition: str) -> int:
        """One is deleted when all that it created is consumed; so what a reader finds before is nobody's."""
        if self._first is None:
            return 0
        begins = (begin for p, begin, _ in self._first.ranges if p == partition)
        return next(begins, self._first.ends.get(partition, 0))

    def read_on(self) -> None:
        if self._next is None or self._looks >= _LISTED_AFTER_LOOKS:
            self._list()
            self._looks = 0
        self._looks += 1
        while self._next is not None and (manifest := self._log.read(self._next)) is not None:
            slot = manifest.slots.get(self._segment)
            self._records.add(self._next, manifest.ranges, slot)
            self._next += 1

    def _list(self) -> None:
        """Those that were complete may have been deleted, from the first on: it goes on with the next that is there, and
        forgets them."""
        after, numbers = self._next or 0, self._log.numbers()
        self._records.forget(range(min(numbers, default=0), after))
        found = min((number for number in numbers if number >= after), default=None)
        if found is None:
            return
        while found > after and self._log.read(found - 1) is not None:
            found -= 1  # a listing may lag
        if found > after:
            self._first = self._log.read(found)
        self._next = found

    def of(self, partition: str) -> Sequence[PublishedPieces]:
        found = self._records.published.get(partition)
        return [] if found is None else [found]


def topic_ranges(
    topics: str, pipeline: str, topic: str, segment: str, *, from_earliest: bool = False
) -> OffsetRanges:
    """How a topic is read by a query whose plan is not at hand: for the `ranges` of an AttachedQuery, by
    the number of its source. topics: the directory in which the topic's labels are noted. from_earliest:
    the query began with startingOffsets=earliest, so that labelled records before its first one had been
    removed by then. Raises FilesError where the directory is out of reach."""
    place = TopicPlace(topics, pipeline, topic)
    return TopicLabels(place, segment).ranges(from_earliest=from_earliest)


def topic_reads(
    read: QueryReads,
    sources: Sequence[Source],
    place_of: Callable[[str], TopicPlace],
    topic_id: Callable[[str, Mapping[str, str]], str],
) -> QueryReads:
    """Takes the topics out of what a query's `reads` and `untracked` name, by the sources of its plan.

    place_of: where it is kept what is known of a topic; topic_id: asks the brokers that the options of a
    source name. Raises TrackingError for a topic that is not accounted for, or that two sources read."""
    reads, untracked = read.reads, read.untracked
    found: dict[str, OffsetRanges | Sequence[OffsetRanges]] = dict(read.ranges)
    passed: set[str] = set()
    names: set[str] = set()
    for source in sources:
        if source.topics is None or source.number in found or source.number in untracked:
            continue
        topics = _topics(source.topics, reads, untracked)
        if twice := names.intersection(topics):
            raise TrackingError(
                f"topic {min(twice)!r} is read by two sources of the query, so that its records would be "
                f"consumed twice; read it once, and use the one frame twice"
            )
        names.update(topics)
        segments = {name: _segment(source, name, reads, untracked) for name in topics}
        options = source.topics.options
        first = {key.lower(): value for key, value in options.items()}.get("startingoffsets", "")
        labelled = tuple(
            TopicLabels(place_of(name), segment, topic_id(name, options)).ranges(
                from_earliest=first.lower() == "earliest"
            )
            for name, segment in segments.items()
            if segment is not None
        )
        passed.update(name for name, segment in segments.items() if segment is None)
        if labelled:
            found[source.number] = labelled
        else:
            passed.add(source.number)
    left = reads if isinstance(reads, str) else {k: v for k, v in reads.items() if k not in names}
    numbers = {source.number for source in sources}
    return QueryReads(
        left,
        tuple(sorted((passed & numbers) | {u for u in untracked if u not in names})),
        found,
        tuple(sorted(passed - numbers)),
    )


def _topics(
    asked: TopicsSource, reads: str | Mapping[str, str], untracked: Sequence[str]
) -> tuple[str, ...]:
    """The topics of a source, as far as they are known before it reads: of a pattern, those named."""
    if asked.pattern is None:
        return asked.topics
    named = [*untracked, *(() if isinstance(reads, str) else reads)]
    return tuple(name for name in named if re.fullmatch(asked.pattern, name))


def _segment(
    source: Source, topic: str, reads: str | Mapping[str, str], untracked: Sequence[str]
) -> str | None:
    """The segment of a topic's records; None if they are not tracked."""
    if topic in untracked:
        return None
    segment = reads if isinstance(reads, str) else reads.get(topic)
    if segment is None:
        raise TrackingError(
            f"topic {topic!r} of source {source.number} is not accounted for: name its segment in reads, "
            f"as {{{topic!r}: SEGMENT}}, or the topic in untracked, if min time may pass what comes from "
            f"there"
        )
    return segment


class KafkaFormat(Format):
    """Topics of Kafka's, whose records are numbered by the offsets of their partitions."""

    name = "kafka"

    def source(self, leaf: Leaf) -> Source | None:
        if leaf.what != self.name or not leaf.has("extraOptions"):
            return None
        options = leaf.node.extraOptions().asCaseSensitiveMap()
        given = {str(entry.getKey()): str(entry.getValue()) for entry in options.entrySet()}
        lower = {name.lower(): value for name, value in given.items()}
        topics: list[str] = []
        if "subscribe" in lower:
            topics = [name.strip() for name in lower["subscribe"].split(",")]
        elif "assign" in lower:
            topics = list(json.loads(lower["assign"]))
        asked = TopicsSource(tuple(t for t in topics if t), lower.get("subscribepattern"), given)
        return Source(leaf.number, leaf.what, topics=asked)

    def reads(self, read: QueryReads, plan: SourcePlan) -> QueryReads:
        def topic_id(topic: str, options: Mapping[str, str]) -> str:
            from local_tracker.spark.formats.brokers import JvmTopic

            with closing(JvmTopic(plan.session, topic, options)) as asked:
                return asked.ends().topic_id

        return topic_reads(read, plan.sources, plan.place_of, topic_id)

    def sink(self, plan: SinkPlan) -> Sink:
        from local_tracker.spark.formats.kafka_starting import KafkaSink

        return KafkaSink(plan)

    def writer(self, writing: Writing) -> BatchWriter:
        from local_tracker.spark.writers.topic_writer import TopicWriter

        return TopicWriter(writing)
