"""A Kafka topic that a tracked query writes: what each batch has created there.

After batch N is over, the records of its winning tasks lie below the topic's ends. So may others: batch
N+1 may have begun to write, and a task or a run that was killed leaves what it had written. They are all
covered with batch N, by one contiguous range of each partition, under the oldest slot of N and of every
batch that was planned by the time at which the ends had been asked. So no record has a later slot than its
batch has: min time never passes a record that its batch has yet to count. What lost attempts left behind
is new items, of whichever range they fell into: safe for completeness, and no lineage.

What lies beyond the last manifest while nothing is planned was written by no batch that counts. It is
nobody's, and said so, in order that readers of it do not wait.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from local_tracker.spark.formats.manifests import KEPT_MANIFESTS, Manifest, ManifestLog
from local_tracker.spark.formats.outputs import BatchLabels, Output, Records
from local_tracker.spark.query.compose import ComposeError
from local_tracker.spark.query.logs import CheckpointLog
from tracker.client.topics import Topic, TopicClaim, TopicEnds, TopicPlace, check_ends
from tracker.core.model import Cells
from tracker.core.model.slots import FOREVER, LOWEST_SLOT
from tracker.errors import Code, LowmarkError, StateError, UnavailableError

_PRUNE_EVERY = 100

log = logging.getLogger("lowmark.spark")


@dataclass(frozen=True, slots=True)
class Seen:
    """How far the topic had come after a batch was over. newest: the last batch that was planned when the
    brokers had answered, so that nothing below the ends is of a later one."""

    found: TopicEnds
    newest: int


class TopicSink:
    """What one query writes to one topic. Thread-safe."""

    def __init__(
        self,
        place: TopicPlace,
        topic: Topic,
        segments: Mapping[str, int],
        query: str,
        close: Callable[[], object] = lambda: None,
    ) -> None:
        """segments: those that the query creates in, with their numbers; query: its id. close: of what the
        topic is asked by."""
        self.place, self.topic, self.segments = place, topic, dict(segments)
        self.owner, self.close = f"query {query}", close
        self._log = ManifestLog(place)
        self._lock = threading.RLock()
        self._checkpoint: CheckpointLog | None = None
        self._claim: TopicClaim | None = None
        self._next = 0
        self._ends: dict[str, int] = {}
        self._of_batches: dict[int, Manifest] = {}  # from some batch on, all
        self._older: list[int] = []  # manifests that have not been read, in order
        self._since_pruned = 0

    @property
    def name(self) -> str:
        """As people know it."""
        return f"topic {self.topic.name!r}"

    def check(self, checkpoint: CheckpointLog) -> None:
        """Whether the query may write the topic; claims nothing. checkpoint: with which it is to be started.
        Raises StateError where the topic is another query's, was made anew or has lost records, or where
        the checkpoint has batches of before the query was tracked; UnavailableError."""
        found = self.topic.ends()
        stands = self.place.claim_of(self.place.writer)
        if stands is not None:
            self.place.check_owner(stands, self.owner)
            self.place.check_id(stands, found.topic_id)
            self._check_segments(stands)
        elif planned := checkpoint.planned():
            raise StateError(
                f"{checkpoint.root} has batches up to {planned[-1]}, which were planned before the query was "
                f"tracked with topic {self.topic.name!r}, so what they have written there cannot be told; "
                f"start it on an empty checkpoint, from the offsets where it is now",
                Code.STATE_TOPIC,
            )

    def begin(self) -> None:
        """Claims the topic for the query, before that is started; what is there by then is nobody's. Raises
        as `check`."""
        found = self.topic.ends()
        wanted = TopicClaim(self.owner, found.topic_id, found.ends, tuple(sorted(self.segments)))
        self._claim = self.place.claim(self.place.writer, wanted)
        self._check_segments(self._claim)
        self._recover()
        check_ends(self.topic.name, self._ends, found.ends)

    def resume(self) -> bool | None:
        """Goes on with what an earlier run has claimed, without asking the brokers. False if another query
        has, None if nobody has so far."""
        stands = self.place.claim_of(self.place.writer)
        if stands is None or stands.owner != self.owner:
            return None if stands is None else False
        self._check_segments(stands)
        self._claim = stands
        self._recover()
        return True

    def _check_segments(self, claim: TopicClaim) -> None:
        if set(claim.segments) != set(self.segments):
            raise StateError(
                f"{self.owner} has created in {sorted(claim.segments)} by topic {self.topic.name!r}, and "
                f"is now to create in {sorted(self.segments)}: segments are named from the first start on",
                Code.STATE_TOPIC,
            )

    def follow(self, checkpoint: CheckpointLog) -> None:
        """The query runs, with this checkpoint."""
        self._checkpoint = checkpoint

    def _recover(self) -> None:
        """Finds where the manifests end."""
        assert self._claim is not None
        self._older = self._log.numbers()
        self._of_batches = {}
        self._next = self._older[-1] + 1 if self._older else 0
        self._ends = dict(self._read(self._older[-1]).ends if self._older else self._claim.begins)

    def _read(self, number: int) -> Manifest:
        manifest = self._log.read(number)
        if manifest is None:
            raise StateError(
                f"manifest {number} of topic {self.topic.name!r} is gone; restore it",
                Code.STATE_TOPIC,
            )
        return manifest

    def named(self, slots: Mapping[int, int]) -> dict[str, int]:
        """Slots by segment number, by the names of those that the query creates in. Where one is complete what is written
        is late, whatever its slot: by the lowest one, whoever reads it sees that, and creates by what it reads beside."""
        found = {name: slots[n] for name, n in self.segments.items() if n in slots}
        return {name: LOWEST_SLOT if slot == FOREVER else slot for name, slot in found.items()}

    # --- of a batch -------------------------------------------------------------------------------

    def look(self) -> Seen:
        """Asks for the topic's ends now that a batch is over. Raises UnavailableError, and StateError where
        the topic was made anew, or has lost records."""
        assert self._claim is not None
        with self._lock:
            covered = dict(self._ends)
        found = self.topic.ends()
        self.place.check_id(self._claim, found.topic_id)
        check_ends(self.topic.name, covered, found.ends)
        return Seen(found, self._newest_planned())

    def covered(self, batch: int) -> Manifest | None:
        """The manifest of a batch, if it has one. Raises as `begin`, but for the brokers."""
        with self._lock:
            while self._older and min(self._of_batches, default=batch + 1) > batch:
                manifest = self._log.read(self._older.pop())
                if manifest is None:
                    self._older.clear()  # it was complete, and has been deleted
                elif manifest.batch is not None:
                    self._of_batches[manifest.batch] = manifest
            return self._of_batches.get(batch)

    def cover(self, batch: int, seen: Seen, slots: Mapping[str, int]) -> Manifest:
        """Covers what was seen after a batch; durable on return. slots: by segment, of N and of all that may
        have written. Raises StateError where ends moved back, and AwayError."""
        with self._lock:
            ranges = self._new(seen.found)
            ends = {**self._ends, **_ends_of(ranges)}
            manifest = Manifest(batch, seen.found.topic_id, ends, dict(slots), ranges)
            manifest = self._create(manifest)
            if manifest.batch != batch:
                raise StateError(
                    f"topic {self.topic.name!r}: manifest {self._next - 1} is of batch {manifest.batch}, "
                    f"and was to be of batch {batch}: another run of {self.owner} writes them",
                    Code.STATE_TOPIC,
                )
            self._of_batches[batch] = manifest
            return manifest

    def _new(self, found: TopicEnds) -> tuple[tuple[str, int, int], ...]:
        # What was seen for a later batch may be covered before what an earlier look has seen.
        ends = {p: max(end, self._ends.get(p, 0)) for p, end in found.ends.items()}
        return tuple(
            (partition, self._begin(partition), end)
            for partition, end in sorted(ends.items())
            if self._begin(partition) < end
        )

    def _begin(self, partition: str) -> int:
        assert self._claim is not None
        return self._ends.get(partition, self._claim.begin(partition))

    def _create(self, manifest: Manifest) -> Manifest:
        stands = self._log.create(self._next, manifest)
        self._next += 1
        self._since_pruned += 1
        self._ends = dict(stands.ends)
        return stands

    def durable(self, batch: int, min_times: Callable[[], Mapping[int, int]]) -> None:
        """A batch's tick is durable: now and then, manifests that no reader needs are deleted."""
        with self._lock:
            for earlier in [number for number in self._of_batches if number < batch]:
                del self._of_batches[earlier]
            if self._since_pruned < _PRUNE_EVERY:
                return
            self._since_pruned = 0
            newest = self._next
        try:
            self._prune(newest - KEPT_MANIFESTS, min_times())
        except LowmarkError as error:
            log.warning("topic %r: manifests are not pruned: %s", self.topic.name, error)

    def _prune(self, below: int, min_times: Mapping[int, int]) -> None:
        """Deletes from the oldest on, up to the first that is not complete."""
        for number in self._log.numbers():
            if number >= below:
                return
            manifest = self._log.read(number)
            open_in = [
                name
                for name, slot in ({} if manifest is None else manifest.slots).items()
                if slot >= min_times[self.segments[name]]
            ]
            if open_in:
                return
            self._log.delete(number)

    # --- at rest ----------------------------------------------------------------------------------

    def sweep(self, last_durable: int) -> bool:
        """Where nothing is planned behind the last batch that is durable: what has been written beyond the
        last manifest is nobody's. True if there was such. Raises as `cover` and `look`."""
        with self._lock:
            if self._newest_planned() != last_durable:
                return False
            seen = self.look()
            if seen.newest != last_durable:
                return False
            ranges = self._new(seen.found)
            if not ranges:
                return False
            ends = {**self._ends, **_ends_of(ranges)}
            self._create(Manifest(None, seen.found.topic_id, ends, {}, ranges))
        log.warning(
            "topic %r: %s were written by no batch of %s that counts, but by a task or a run of it that was "
            "lost, or by somebody else: min time does not wait for them",
            self.topic.name, _shown(ranges), self.owner,
        )  # fmt: skip
        return True

    def _newest_planned(self) -> int:
        assert self._checkpoint is not None
        return max(self._checkpoint.planned(), default=-1)


class WrittenTopic(Records):
    """What a writer in `foreachBatch` has written to a topic, which covers each batch before that is over."""

    def __init__(self, sink: TopicSink) -> None:
        self._sink = sink

    def cells(self, labels: BatchLabels, seen: object) -> Cells:
        manifest = self._sink.covered(labels.batch)
        return Cells.empty() if manifest is None else manifest.cells(self._sink.segments)

    def durable(self, batch: int, min_times: Callable[[], Mapping[int, int]]) -> None:
        self._sink.durable(batch, min_times)


class SunkTopic(WrittenTopic):
    """What Kafka's own sink has written, which is covered when the batch is over."""

    def look(self) -> Seen | None:
        """None if no broker answers: then they are asked again."""
        try:
            return self._sink.look()
        except UnavailableError as error:
            if error.code != Code.UNAVAILABLE_BROKER:
                raise
            log.warning("%s: %s", self._sink.owner, error)
            return None

    def cells(self, labels: BatchLabels, seen: object) -> Cells:
        sink = self._sink
        manifest = sink.covered(labels.batch)
        try:
            if manifest is None:
                found = seen if isinstance(seen, Seen) else sink.look()
                slots = _oldest_slots(labels, found)
                if not (slots and labels.had_input):  # nor may all segments be held
                    slots = labels.with_moment(slots, sink.segments.values())
                named = sink.named(slots)
                _check_labelled(labels, sink, named)
                manifest = sink.cover(labels.batch, found, named)
        except StateError as error:
            raise ComposeError(f"batch {labels.batch}: {error}") from None
        return manifest.cells(sink.segments)


def _oldest_slots(labels: BatchLabels, seen: Seen) -> dict[int, int]:
    """The least slots of a batch and of those that may have written beside it; by segment."""
    oldest = dict(labels.slots)
    for batch in labels.planned():
        if labels.batch < batch <= seen.newest:
            later = labels.least_slots(batch)
            oldest |= {s: min(slot, oldest.get(s, slot)) for s, slot in later.items()}
    return oldest


def _check_labelled(labels: BatchLabels, sink: TopicSink, named: Mapping[str, int]) -> None:
    if lacking := sorted(set(sink.segments) - set(named)):
        raise ComposeError(
            f"batch {labels.batch} of query {labels.query_id} wrote to topic {sink.topic.name!r} for segment "
            f"{lacking[0]!r}, but no edge leads there from the segments that it read; register one"
        )


def topic_output(
    sink: TopicSink, segments: tuple[int, ...], records: Records | None = None
) -> Output:
    """Of a writer in `foreachBatch` to a topic, unless `records` are of another."""
    return Output(
        segments, lambda batch: (), lambda batch: sink.covered(batch) is not None,
        records=records or WrittenTopic(sink),
    )  # fmt: skip


def _ends_of(ranges: Sequence[tuple[str, int, int]]) -> dict[str, int]:
    return {partition: end for partition, _, end in ranges}


def _shown(ranges: Sequence[tuple[str, int, int]]) -> str:
    return ", ".join(f"offsets {begin} to {end - 1} of {p!r}" for p, begin, end in ranges[:3])
