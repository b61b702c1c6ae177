"""The options of the readers of tables that no log keeps, noted beside the query's own logs.

What a batch took of a Delta table depends on options of its reader. Spark takes `startingVersion` once: of a
source that has an offset it counts no more. What `skipChangeCommits` has left out stays left out when the
query goes on without it. So both are noted before a query is started, and of batches whose ticks are not
durable yet, what was noted counts, whatever the options say now. Of Kafka's topics it is `startingOffsets`, which
Spark takes once, too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from local_tracker.spark.formats.interface import Reading, Source, TableSource
from local_tracker.spark.formats.registry import table_format
from local_tracker.spark.query.logs import CheckpointLog
from tracker.core.model import Batch
from tracker.errors import Code, FilesError, TrackingError

_NOTE = "_lowmark/reader-options"
_MAX_NOTE_BYTES = 1 << 20
_STARTING = "startingOffsets"


class ReaderOptions:
    """Of the sources of one query that is going to be started."""

    def __init__(
        self,
        node_id: str,
        query_id: str,
        checkpoint: CheckpointLog | None,
        sources: Sequence[Source] | None,
        last_batches: Sequence[Batch],
    ) -> None:
        """checkpoint: None where the query keeps none. sources: of the plan, where that is known.
        last_batches: what the tracker has of the node. Raises TrackingError where nothing tells any more
        with which version a source began; FilesError, and AwayError."""
        self._node_id, self._checkpoint = node_id, checkpoint
        self._reads: dict[str, Reading] = {}
        self._starting: dict[str, str] = {}
        """Of sources of topics, with what they began; empty where nothing tells."""
        tables = {
            source.number: source.table
            for source in sources or ()
            if source.table is not None and _given(source.table) is not None
        }
        if checkpoint is not None and tables:
            self._take(
                checkpoint,
                tables,
                max((batch.id for batch in last_batches if batch.scope == query_id), default=-1),
            )
        if checkpoint is not None:
            self._take_topics(checkpoint, [source for source in sources or () if source.topics])
        self.sources = None if sources is None else tuple(map(self._as_it_reads, sources))
        """The sources with the options that count."""

    def note(self) -> None:
        """Notes them, before the query is started; durable when it returns. Raises AwayError."""
        if self._checkpoint is not None and (self._reads or self._starting):
            reads = {number: [read.first, read.skips] for number, read in self._reads.items()}
            data = reads | {number: [given] for number, given in self._starting.items()}
            path = f"{self._checkpoint.root}/{_NOTE}"
            self._checkpoint.files.create(path, json.dumps(data).encode())

    def _take(
        self,
        checkpoint: CheckpointLog,
        tables: Mapping[str, TableSource],
        durable: int,
    ) -> None:
        """durable: the last batch that the tracker has; -1 before the first."""
        planned = checkpoint.planned()
        noted = _noted(checkpoint) if planned else {}
        for number, table in tables.items():
            now = _given(table)
            assert now is not None
            known = noted.get(number)
            if planned and planned[-1] > durable and known is not None:
                now = Reading(now.first, now.skips or known.skips)
            if planned and checkpoint.offsets(planned[-1]).sources.get(number) is not None:
                began = known or self._began(checkpoint, number, table, planned, durable)
                now = now if began is None else Reading(began.first, now.skips)
            self._reads[number] = now

    def _take_topics(self, checkpoint: CheckpointLog, sources: Sequence[Source]) -> None:
        for source in sources:
            assert source.topics is not None
            given = {name.lower(): value for name, value in source.topics.options.items()}
            now = given.get(_STARTING.lower(), "")
            if checkpoint.initial_offset(source.number) is not None:
                now = _noted_starting(checkpoint).get(source.number, "")
            self._starting[source.number] = now

    def _began(
        self,
        checkpoint: CheckpointLog,
        number: str,
        table: TableSource,
        planned: Sequence[int],
        durable: int,
    ) -> Reading | None:
        """How a source has begun of which nothing is noted; None if that counts no more."""
        if durable >= 0 and durable not in planned:
            return None
        if durable >= 0 and checkpoint.offsets(durable).sources.get(number) is not None:
            return None
        offsets = (checkpoint.offsets(batch).sources.get(number) for batch in planned)
        first = next(offset for offset in offsets if offset is not None)
        if table_format(table.format).begins_whole(first):
            return Reading(None, False)
        raise TrackingError(
            f"query {self._node_id!r} has begun to read table {table.location} before it was tracked, and "
            f"nothing tells with which startingVersion: follow it from outside up to now, which names that "
            f"(lowmark query attach --set starting={number}=VERSION), or start over with an empty checkpoint and "
            f"another node id"
        )

    def _as_it_reads(self, source: Source) -> Source:
        if (topics := source.topics) is not None and source.number in self._starting:
            given = {n: v for n, v in topics.options.items() if n.lower() != _STARTING.lower()}
            if began := self._starting[source.number]:
                given[_STARTING] = began
            return replace(source, topics=replace(topics, options=given))
        read = self._reads.get(source.number)
        # What is refused is not to be told from nothing: options that count are left as they are.
        if read is None or source.table is None or read == _given(source.table):
            return source
        options = table_format(source.table.format).with_reading(source.table.options, read)
        return replace(source, table=replace(source.table, options=options))


def _given(table: TableSource) -> Reading | None:
    """How a source reads by its own options; None where a log says all."""
    return table_format(table.format).reading(table.options)


def _noted(checkpoint: CheckpointLog) -> dict[str, Reading]:
    """How each source of a table has read so far; nothing of what is not noted. Raises FilesError."""
    return {number: Reading(*read) for number, read in _note(checkpoint).items() if len(read) == 2}


def _noted_starting(checkpoint: CheckpointLog) -> dict[str, str]:
    """With what each source of topics has begun; as `_noted`."""
    return {number: str(read[0]) for number, read in _note(checkpoint).items() if len(read) == 1}


def _note(checkpoint: CheckpointLog) -> dict[str, list[Any]]:
    path = f"{checkpoint.root}/{_NOTE}"
    text = checkpoint.files.read_whole(path, _MAX_NOTE_BYTES)
    if text is None:
        return {}
    try:
        noted = {str(number): list(read) for number, read in json.loads(text).items()}
        if all(len(read) in (1, 2) for read in noted.values()):
            return noted
        raise ValueError("an entry of another length")
    except (AttributeError, TypeError, ValueError) as error:
        raise FilesError(f"{path} is not what was noted: {error!r}", Code.FILES_LOG) from None
