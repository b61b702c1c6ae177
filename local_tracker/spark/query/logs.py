"""What a micro-batch read and wrote, from the logs that Spark itself keeps.

Structured Streaming writes down what each batch takes from its sources before it runs (`offsets/N`
and, for file sources, `sources/<s>/<k>`), what a file sink has committed of it
(`_spark_metadata/N`), and that it is over (`commits/N`). Each file appears whole, by a rename, so
reading them needs no help of the query: it works the same while it runs, after it was killed, and
in another process.

File sources count their log entries per source, not per batch: batch N consumed the entries `k`
with logOffset(previous batch) < k <= logOffset(N). Every tenth entry (by default) is a compaction,
`9.compact`, which repeats what came before it; both logs append, so a batch's own lines are at the
end, and they are read backwards from there. Old entries are purged (`offsets` and `commits` after
`spark.sql.streaming.minBatchesToRetain` batches, the others after a time as well).

All reading goes through `tracker.files`, so the logs may be wherever Spark writes them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tracker.core.model.units import canonical_name
from tracker.errors import Code
from tracker.files import STORES, End, Files, FilesError, Stores, child

MAX_ENTRY_BYTES = 64 * 2**20
"""The largest entry that is read whole; of a compaction only the needed lines are read."""

MAX_LINE_BYTES = 1 << 20
"""The longest line of a log: one file's name and size."""

_BLOCK_BYTES = 1 << 16
_KEPT_OFFSETS = 2
_COMPACT = ".compact"


@dataclass(frozen=True, slots=True)
class BatchOffsets:
    """One entry of the offset log.

    `timestamp_ms` is what `current_timestamp()` says in this batch; `watermark_ms` the watermark by which it
    lets go of state, in milliseconds since 1970, 0 while there is none; `sources` the offset's JSON text
    by source (its directory under `sources/`), None for a source that has had no data yet; `text`
    timestamp and offsets as logged, the same whenever this batch is read again.
    """

    batch: int
    timestamp_ms: int
    sources: dict[str, str | None]
    text: str
    watermark_ms: int = 0

    def log_offset(self, source: str) -> int | None:
        """The last entry of a file source's log that the batch covers; -1 before the first; None if
        the source is not a file source."""
        text = self.sources.get(source)
        if text is None:
            return -1
        value = _json(text, f"offset of source {source} in batch {self.batch}")
        if isinstance(value, dict) and set(value) == {"logOffset"}:
            return _integer(value["logOffset"], f"logOffset of source {source}", least=-1)
        return None


@dataclass(frozen=True, slots=True)
class Watermarks:
    """Of a batch that is over, in ms since 1970; 0 where there is none yet. at_ms: by which it has emitted;
    next_ms: which it leaves to the batch after it."""

    at_ms: int
    next_ms: int


class CheckpointLog:
    """The logs in a query's checkpoint directory."""

    def __init__(self, location: str, stores: Stores = STORES) -> None:
        """root: the location as `Stores.location` writes it. Raises FilesError where it is out of reach."""
        self.stores, self.root = stores, stores.location(location)
        self.files = stores.files(self.root)
        self._newest_over = -1
        """Of the batches that were found to be over."""
        self._kept: dict[int, BatchOffsets] = {}
        """The last entries that were read of batches that are over, which nobody writes anew."""

    @cached_property
    def query_id(self) -> str:
        """The query's id, which survives restarts."""
        return self._named_query()

    def _named_query(self) -> str:
        value = _json(self._whole(f"{self.root}/metadata"), f"{self.root}/metadata")
        if not isinstance(value, dict) or not isinstance(value.get("id"), str):
            raise FilesError(
                f"{self.root}/metadata names no query: {_short(value)}", Code.FILES_LOG
            )
        return str(value["id"])

    def exists(self) -> bool:
        """Whether a query has been started with this checkpoint."""
        return self.files.size(f"{self.root}/metadata") is not None

    def check_stands(self, batch: int) -> bool:
        """Whether the checkpoint is there. Raises FilesError where it is no longer the one of which a batch was the last
        that was read: then others have its numbers, and what they read and wrote would never be told."""
        if not self.exists():
            return False
        advice = "attach to it anew, or restore the checkpoint that was here"
        if (now := self._named_query()) != self.query_id:
            raise FilesError(
                f"{self.root} was made anew while it was followed, and is of query {now}: {advice}",
                Code.FILES_LOG,
            )
        if (known := self._kept.get(batch)) is None:
            return True
        is_there = self.files.size(f"{self.root}/offsets/{batch}") is not None
        is_same = is_there and self._read_offsets(batch).text == known.text
        if not is_same and (is_there or max(self.planned(), default=-1) < batch):
            raise FilesError(
                f"{self.root} was rolled back while it was followed: batch {batch} is not the one that was read: "
                f"{advice}",
                Code.FILES_LOG,
            )
        return True

    def committed(self) -> list[int]:
        """The batches that are over, as far as they are still logged, in order."""
        over = sorted(_numbers(self.files.names(f"{self.root}/commits")))
        self._newest_over = max([self._newest_over, *over[-1:]])
        return over

    def readable(self) -> list[int]:
        """The batches that are over and whose input is known: it lies between two entries of the
        offset log, so that of the first that is left cannot, unless it is the query's first."""
        planned = set(self.planned())
        first = min(planned, default=0)
        return [b for b in self.committed() if b in planned and (b > first or b == 0)]

    def is_committed(self, batch: int) -> bool:
        is_over = self.files.size(f"{self.root}/commits/{batch}") is not None
        if is_over:
            self._newest_over = max(self._newest_over, batch)
        return is_over

    def planned(self) -> list[int]:
        """The batches whose input is fixed, as far as they are still logged, in order."""
        offsets = f"{self.root}/offsets"
        planned = sorted(_numbers(self.files.names(offsets)))
        newest = max(planned, default=-1)
        # Of one that a listing does not show yet tasks may be writing.
        while self.files.MAY_LAG and self.files.size(f"{offsets}/{newest + 1}") is not None:
            newest += 1
            planned.append(newest)
        return planned

    def is_planned(self, batch: int) -> bool:
        """Whether a batch's input is fixed, and still logged."""
        return self.files.seen(lambda: self.files.size(f"{self.root}/offsets/{batch}")) is not None

    def offsets(self, batch: int) -> BatchOffsets:
        """The entry of one batch. Raises FilesError if it was purged or cannot be read."""
        if (kept := self._kept.get(batch)) is not None:
            return kept
        offsets = self._read_offsets(batch)
        if batch <= self._newest_over:
            self._kept = dict([*self._kept.items(), (batch, offsets)][-_KEPT_OFFSETS:])
        return offsets

    def _read_offsets(self, batch: int) -> BatchOffsets:
        path = f"{self.root}/offsets/{batch}"
        version, header, lines = self._offset_entry(path)
        timestamp_ms = _integer(header.get("batchTimestampMs"), f"batchTimestampMs in {path}")
        sources: dict[str, str | None] = {}
        for index, line in enumerate(lines):
            name, text = (str(index), line) if version == "v1" else _named(line, path)
            sources[name] = None if text == "-" else text
        text = "\n".join([str(timestamp_ms), *lines])
        watermark_ms = _integer(header.get("batchWatermarkMs", 0), f"batchWatermarkMs in {path}")
        return BatchOffsets(batch, timestamp_ms, sources, text, watermark_ms)

    def settings(self, batch: int) -> dict[str, Any]:
        """The Spark settings that a batch was planned with, of those that Spark notes. Raises FilesError
        as `offsets`."""
        settings = self._offset_entry(f"{self.root}/offsets/{batch}")[1].get("conf", {})
        return settings if isinstance(settings, dict) else {}

    def watermarks(self, batch: int) -> Watermarks:
        """Of a batch that is over. Raises FilesError where its entries were purged, or do not say it."""
        at_ms, commits = self.offsets(batch).watermark_ms, f"{self.root}/commits/{batch}"
        version, newline, text = self._whole(commits).partition("\n")
        if version not in ("v1", "v2") or not newline:
            raise FilesError(
                f"{commits} has version {version[:20]!r}: known are v1 and v2", Code.FILES_LOG
            )
        left = _json(text, commits)
        next_ms = left.get("nextBatchWatermarkMs") if isinstance(left, dict) else None
        return Watermarks(at_ms, _integer(next_ms, f"nextBatchWatermarkMs in {commits}"))

    def _offset_entry(self, path: str) -> tuple[str, dict[str, Any], list[str]]:
        """An offset log entry's version, its metadata, and its lines of offsets."""
        version, *lines = self._whole(path).split("\n")
        if version not in ("v1", "v2") or not lines:
            raise FilesError(
                f"{path} has version {version[:20]!r}: known are v1 and v2", Code.FILES_LOG
            )
        if not lines[0] and lines[1:]:
            raise FilesError(
                f"{path} is of a query with a continuous trigger, whose epochs are no batches: what they "
                f"read and wrote cannot be told; use trigger(processingTime=...)",
                Code.FILES_LOG,
            )
        header = _json(lines[0], path)
        if not isinstance(header, dict):
            raise FilesError(
                f"{path} does not begin with its metadata: {_short(header)}", Code.FILES_LOG
            )
        return version, header, lines[1:]

    def previous_offsets(self, batch: int) -> BatchOffsets | None:
        """The entry before a batch's; None if it is the query's first.

        Raises FilesError if there must be one and it has been purged.
        """
        path = f"{self.root}/offsets/{batch - 1}"
        if batch > 0 and (batch - 1 in self._kept or self.files.size(path) is not None):
            return self.offsets(batch - 1)
        earlier = [number for number in self.planned() if number < batch]
        if earlier:
            return self.offsets(earlier[-1])
        if batch > 0:
            raise FilesError(
                f"{self.root}/offsets: what batch {batch} consumed cannot be told, since the entry "
                f"before it has been purged; follow a query before it is "
                f"spark.sql.streaming.minBatchesToRetain batches ahead",
                Code.FILES_LOG,
            )
        return None

    def consumed(self, batch: int) -> dict[str, tuple[str, ...]]:
        """The names of the files that a batch consumed, by file source; a source that is not a file
        source, or had nothing, is absent."""
        offsets, previous = self.offsets(batch), self.previous_offsets(batch)
        found: dict[str, tuple[str, ...]] = {}
        for source in offsets.sources:
            last = offsets.log_offset(source)
            before = previous.log_offset(source) if previous else -1
            if last is None or before is None:
                continue
            names = tuple(
                name for k in range(before + 1, last + 1) for name in self._source_entry(source, k)
            )
            if names:
                found[source] = names
        return found

    def consumed_until(self, batch: int, only: str | None = None) -> Iterator[str]:
        """The names of all files that the query, or one source of it, has consumed up to a batch, in any order.
        Raises FilesError if the batch's entry was purged."""
        offsets = self.offsets(batch)
        for source in offsets.sources if only is None else (only,):
            last = offsets.log_offset(source)
            if last is not None:
                yield from self._entries_until(source, last)

    def _entries_until(self, source: str, last: int) -> Iterator[str]:
        """The files of a source's entries up to one, from a compaction and those after it."""
        directory = f"{self.root}/sources/{source}"
        compactions = sorted(_numbers(self.files.names(directory), compact=True))
        whole = next((n for n in compactions if n >= last), max(compactions, default=-1))
        if whole >= 0:
            path = f"{directory}/{whole}{_COMPACT}"
            for line, where in _lines_backwards(self.files, path) or ():
                entry = _file_entry(line, where)
                if _integer(entry.get("batchId"), f"batchId in {where}") <= last:
                    yield entry["path"]
        for number in range(whole + 1, last + 1):
            yield from self._source_entry(source, number)

    def offset_pair(self, batch: int, source: str) -> tuple[str | None, str | None]:
        """The offsets, as JSON, before and after a batch, of a source that is not a file source. None
        where the source has had nothing yet, and recorded no beginning."""
        offsets, previous = self.offsets(batch), self.previous_offsets(batch)
        after = offsets.sources.get(source)
        before = previous.sources.get(source) if previous else None
        if before is None and after is not None:
            before = self.initial_offset(source)
        return before, after

    def is_first_of(self, batch: int, source: str) -> bool:
        """Whether a source had had nothing before a batch."""
        previous = self.previous_offsets(batch)
        return previous is None or previous.sources.get(source) is None

    def initial_offset(self, source: str) -> str | None:
        """Where a source began, as it wrote down before its first batch: Kafka's `v1` and the offset,
        behind a byte that old versions looked for; Iceberg's the offset alone, in `offsets/0`."""
        path = f"{self.root}/sources/{source}/0"
        if self.files.size(path) is None:
            alone = self.files.read_whole(f"{self.root}/sources/{source}/offsets/0", MAX_LINE_BYTES)
            return None if alone is None else alone.decode().strip()
        version, newline, text = self._whole(path).lstrip("\0").partition("\n")
        if version != "v1" or not newline:
            raise FilesError(f"{path} has version {version[:20]!r}: known is v1", Code.FILES_LOG)
        return text.strip()

    def _source_entry(self, source: str, number: int) -> list[str]:
        """The files of entry `number` of a source's log."""
        directory = f"{self.root}/sources/{source}"
        lines = _lines_backwards(self.files, f"{directory}/{number}")
        if lines is None:
            lines = self._compacted(directory, number)
        names: list[str] = []
        for line, path in lines:
            entry = _file_entry(line, path)
            entry_number = _integer(entry.get("batchId"), f"batchId in {path}")
            if entry_number < number:
                break  # a compaction is in order of batchId: the rest is older
            if entry_number == number:
                names.append(entry["path"])
        return names[::-1]

    def _compacted(self, directory: str, number: int) -> Iterator[tuple[str, str]]:
        """The lines, backwards, of the first compaction that holds an entry."""
        later = sorted(
            n for n in _numbers(self.files.names(directory), compact=True) if n >= number
        )
        for compaction in later:
            lines = _lines_backwards(self.files, f"{directory}/{compaction}{_COMPACT}")
            if lines is not None:
                return lines
        raise FilesError(
            f"{directory} has no entry {number}, nor a compaction that holds it", Code.FILES_LOG
        )

    def _whole(self, path: str) -> str:
        data = self.files.read_whole(path, MAX_ENTRY_BYTES, is_there=True)
        if data is None:
            raise FilesError(
                f"{path} does not exist: it has been purged, or was never written", Code.FILES_LOG
            )
        return _text(data, path)


class SinkLog:
    """The log that a file sink keeps beside its files, in `_spark_metadata`."""

    def __init__(self, location: str, stores: Stores = STORES) -> None:
        """Raises FilesError where the location is out of reach."""
        self.directory = child(stores.location(location), "_spark_metadata")
        self._files = stores.files(self.directory)
        self._last_read: tuple[int, tuple[str, ...]] | None = None
        """The batch whose entry was read last, and its names: nobody writes an entry anew."""

    def created(self, batch: int) -> tuple[str, ...]:
        """The names of the files that the sink committed for a batch; none if it has no entry.

        Raises FilesError if the entry has been purged, or the batches before a compaction have.
        """
        if self._last_read is not None and self._last_read[0] == batch:
            return self._last_read[1]
        # One for each batch: where it is not found, a store may lag.
        added = self._files.seen(lambda: self._entry(batch))
        if added is not None:
            self._last_read = batch, tuple(added[::-1])
            return self._last_read[1]
        compactions = _numbers(self._files.names(self.directory), compact=True)
        if any(number > batch for number in compactions):
            raise FilesError(
                f"{self.directory}: the entry of batch {batch} is gone into a compaction, so what "
                f"the batch wrote cannot be told; follow a query before it is that far ahead, or "
                f"raise spark.sql.streaming.fileSink.log.cleanupDelay",
                Code.FILES_LOG,
            )
        return ()

    def has(self, batch: int) -> bool:
        """Whether there is an entry of the batch, be it of no file; Spark writes one for each."""
        if self._last_read is not None and self._last_read[0] == batch:
            return True
        path = f"{self.directory}/{batch}"

        def find() -> int | None:
            sizes = (self._files.size(name) for name in (path, path + _COMPACT))
            return next((size for size in sizes if size is not None), None)

        return self._files.seen(find) is not None

    def batches(self) -> list[int]:
        """The batches that have an entry, as far as they are still logged, in order."""
        names = self._files.names(self.directory)
        return sorted({*_numbers(names), *_numbers(names, compact=True)})

    def check_is_of(self, checkpoint: CheckpointLog | None) -> None:
        """Raises FilesError where the log is ahead of a query's, so that it is another one's: Spark writes no batch whose
        number it has. checkpoint: None where the query begins anew."""
        newest = max(self.batches(), default=-1)
        planned = max(checkpoint.planned() if checkpoint else (), default=-1)
        if newest > planned:
            raise FilesError(
                f"{self.directory} has batches up to {newest}, and the query's checkpoint ends at {planned}: they are "
                f"another query's, or the checkpoint has been rolled back, and Spark leaves out what is written under "
                f"their numbers; restore the checkpoint that goes with them, or write to an empty directory",
                Code.FILES_LOG,
            )

    def created_until(self, batch: int) -> tuple[str, ...]:
        """The names of all files that the sink has committed up to a batch that is logged, and a compaction
        that was at least as far. Raises FilesError if there is neither."""
        names = self._files.names(self.directory)
        compactions = sorted(_numbers(names, compact=True))
        later = [number for number in compactions if number >= batch]
        if later:
            return tuple(self._listed(f"{self.directory}/{later[0]}{_COMPACT}")[::-1])
        whole = max(compactions, default=-1)
        found = self._listed(f"{self.directory}/{whole}{_COMPACT}")[::-1] if compactions else []
        for number in range(whole + 1, batch + 1):
            found += self._listed(f"{self.directory}/{number}")[::-1]
        return tuple(found)

    def _entry(self, batch: int) -> list[str] | None:
        """The files that a batch's entry adds, last first; None if it does not exist."""
        path = f"{self.directory}/{batch}"
        added = self._added(path, frozenset)
        if added is None:
            added = self._added(path + _COMPACT, lambda: self._listed_before(batch))
        return added

    def _listed_before(self, batch: int) -> frozenset[str]:
        """Names at which reading a batch's compaction backwards may stop: those of the entries since
        the compaction before; if they list none, of that compaction."""
        names = self._files.names(self.directory)
        last_compaction = max((n for n in _numbers(names, compact=True) if n < batch), default=-1)
        listed: set[str] = set()
        for number in range(last_compaction + 1, batch):
            listed.update(self._listed(f"{self.directory}/{number}"))
        if not listed and last_compaction >= 0:
            listed.update(self._listed(f"{self.directory}/{last_compaction}{_COMPACT}"))
        return frozenset(listed)

    def _listed(self, path: str) -> list[str]:
        names = self._added(path, frozenset)
        if names is None:
            raise FilesError(
                f"{path} has been purged, so what a later compaction adds to it cannot be told; "
                f"follow a query before it is that far ahead, or raise "
                f"spark.sql.streaming.fileSink.log.cleanupDelay",
                Code.FILES_LOG,
            )
        return names

    def _added(self, path: str, listed_before: Callable[[], frozenset[str]]) -> list[str] | None:
        """The files that an entry adds, last first, up to one that was listed before; None if it does not
        exist."""
        lines = _lines_backwards(self._files, path)
        if lines is None:
            return None
        names: list[str] = []
        stop_at = listed_before()
        for line, where in lines:
            entry = _file_entry(line, where)
            if entry["path"] in stop_at:
                break
            if entry.get("action", "add") == "add" and not entry.get("isDir", False):
                names.append(entry["path"])
        return names


def _lines_backwards(files: Files, path: str) -> Iterator[tuple[str, str]] | None:
    """The lines of an entry after its version line, last first, each with the path for messages; None if
    it does not exist."""
    last = files.read_end(path, _BLOCK_BYTES)
    return None if last is None else _backwards(files, path, last)


def _backwards(files: Files, path: str, last: End) -> Iterator[tuple[str, str]]:
    """The same, of an entry whose last bytes have been read."""
    is_whole = len(last.data) == last.size
    version = last.data[:3] if is_whole else files.read(path, 0, 3)
    if version not in (b"v1", b"v1\n"):
        raise FilesError(f"{path} has version {version!r}: known is v1", Code.FILES_LOG)
    rest, end = b"", last.size
    while end > 0:
        begin = max(0, end - _BLOCK_BYTES)
        block = last.data if end == last.size else files.read(path, begin, end)
        rest, *lines = (block + rest).split(b"\n")
        if len(rest) > MAX_LINE_BYTES:
            raise FilesError(
                f"{path} has a line longer than {MAX_LINE_BYTES} bytes", Code.FILES_LOG
            )
        for line in reversed(lines):
            if line:
                yield _text(line, path), path
        end = begin


def _text(raw: bytes, path: str) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise FilesError(f"{path} is not text: {error}", Code.FILES_LOG) from None


def _json(text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FilesError(f"{what} is not JSON ({error}): {_short(text)}", Code.FILES_LOG) from None


def _named(line: str, path: str) -> tuple[str, str]:
    """A source's name and offset, from a line of an offset log of version 2."""
    name, colon, text = line.partition(":")
    if not colon or not name.isprintable() or "/" in name or name in ("", ".", ".."):
        raise FilesError(
            f"{path} has an offset without a source's name: {_short(line)}", Code.FILES_LOG
        )
    return name, text


def _file_entry(line: str, path: str) -> dict[str, Any]:
    value = _json(line, path)
    if not isinstance(value, dict) or not isinstance(value.get("path"), str):
        raise FilesError(f"{path} has a line that names no file: {_short(line)}", Code.FILES_LOG)
    value["path"] = canonical_name(value["path"])
    return value


def _integer(value: object, what: str, least: int = -(2**63)) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**63:
        raise FilesError(f"{what} is not a whole number: {_short(value)}", Code.FILES_LOG)
    return value


def _numbers(names: list[str], *, compact: bool = False) -> list[int]:
    """The numbers of a log's entries (or of its compactions) among a directory's names."""
    suffix = _COMPACT if compact else ""
    stems = [name[: len(name) - len(suffix)] for name in names if name.endswith(suffix)]
    return [int(stem) for stem in stems if stem.isascii() and stem.isdigit() and len(stem) < 19]


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
