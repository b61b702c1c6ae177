"""Spark's logs, as files of its own format: what a batch read, what its sink committed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from local_tracker.spark.query import logs
from local_tracker.spark.query.logs import CheckpointLog, SinkLog
from tracker.files import End, Files, FilesError, LocalFiles, Stores

QUERY = "273fdfcb-d16a-40ef-b9f7-d1b725e4e0b2"


def name(k: int, n: int) -> str:
    return f"file:///in/k{k}-{n}%20é.parquet"


class Checkpoint:
    """Writes a checkpoint of one file source and its sink as Spark 4.3 does."""

    def __init__(self, root: Path, compact_every: int = 10) -> None:
        self.root, self.compact_every = root, compact_every
        for directory in ("cp/offsets", "cp/commits", "cp/sources/0", "out/_spark_metadata"):
            (root / directory).mkdir(parents=True)
        (root / "cp/metadata").write_text(json.dumps({"id": QUERY}))
        self.source: list[list[str]] = []
        self.sink: list[list[str]] = []

    @property
    def log(self) -> CheckpointLog:
        return CheckpointLog(str(self.root / "cp"))

    @property
    def sink_log(self) -> SinkLog:
        return SinkLog(f"file:{self.root}/out")

    def read(self, files: int) -> None:
        """The source logs its next entry."""
        k = len(self.source)
        self.source.append([name(k, n) for n in range(files)])
        first = 0 if self._compacts(k) else k
        lines = [
            json.dumps({"path": path, "timestamp": 1, "batchId": number}, ensure_ascii=False)
            for number in range(first, k + 1)
            for path in self.source[number]
        ]
        self._write(self.root / "cp/sources/0", k, lines)

    def plan(self, batch: int, log_offset: int | None = None) -> None:
        """The batch's offsets are logged; by default up to the last source entry."""
        offset = len(self.source) - 1 if log_offset is None else log_offset
        header = {"batchWatermarkMs": 0, "batchTimestampMs": 1_700_000_000_000 + batch, "conf": {}}
        lines = ["v1", json.dumps(header), json.dumps({"logOffset": offset})]
        (self.root / f"cp/offsets/{batch}").write_text("\n".join(lines))

    def commit(self, batch: int, files: int) -> None:
        """The sink commits files for the batch, and the batch is over."""
        self.sink.append([f"file:///out/b{batch}-{n}.parquet" for n in range(files)])
        listed = self.sink if self._compacts(batch) else self.sink[-1:]
        lines = [
            json.dumps({"path": p, "size": 5, "isDir": False, "action": "add"})
            for paths in listed
            for p in paths
        ]
        self._write(self.root / "out/_spark_metadata", batch, lines)
        (self.root / f"cp/commits/{batch}").write_text('v1\n{"nextBatchWatermarkMs":0}')
        (self.root / f"cp/commits/.{batch}.crc").write_bytes(b"crc")

    def _compacts(self, number: int) -> bool:
        return (number + 1) % self.compact_every == 0

    def _write(self, directory: Path, number: int, lines: list[str]) -> None:
        suffix = ".compact" if self._compacts(number) else ""
        (directory / f"{number}{suffix}").write_text("\n".join(["v1", *lines]), "utf-8")


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    return Checkpoint(tmp_path)


def test_a_batch_read_the_entries_after_the_one_before(checkpoint: Checkpoint) -> None:
    checkpoint.read(2)
    checkpoint.plan(0)
    checkpoint.commit(0, 1)
    checkpoint.read(1)  # logged by a driver that was killed before it planned a batch
    checkpoint.read(1)
    checkpoint.plan(1)
    log = checkpoint.log
    assert log.query_id == QUERY
    assert log.committed() == [0] and log.planned() == [0, 1]
    assert log.is_committed(0) and not log.is_committed(1)
    assert log.offsets(1).timestamp_ms == 1_700_000_000_001
    assert log.consumed(0) == {"0": (name(0, 0), name(0, 1))}
    assert log.consumed(1) == {"0": (name(1, 0), name(2, 0))}


def test_a_batch_without_input_read_nothing(checkpoint: Checkpoint) -> None:
    checkpoint.read(1)
    checkpoint.plan(0)
    checkpoint.plan(1)
    assert checkpoint.log.consumed(1) == {}


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=35), st.data()
)
def test_compactions_hide_nothing(
    tmp_path_factory: pytest.TempPathFactory, batches: list[tuple[int, int]], data: st.DataObject
) -> None:
    checkpoint = Checkpoint(tmp_path_factory.mktemp("cp"), data.draw(st.sampled_from([2, 3, 10])))
    for batch, (read, wrote) in enumerate(batches):
        checkpoint.read(read)
        checkpoint.plan(batch)
        checkpoint.commit(batch, wrote)
        # Read as it commits, by one who comes later, and once more at the end.
        assert checkpoint.sink_log.created(batch) == tuple(checkpoint.sink[batch])
    for batch in range(len(batches)):
        expected = tuple(checkpoint.source[batch])
        assert checkpoint.log.consumed(batch) == ({"0": expected} if expected else {})
        assert checkpoint.sink_log.created(batch) == tuple(checkpoint.sink[batch])


def test_blocks_may_cut_lines_anywhere(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    for batch in range(10):
        checkpoint.read(2)
        checkpoint.plan(batch)
        checkpoint.commit(batch, 2)
    for block_bytes in (1, 7, 64):
        monkeypatch.setattr(logs, "_BLOCK_BYTES", block_bytes)
        assert checkpoint.log.consumed(9) == {"0": tuple(checkpoint.source[9])}
        assert checkpoint.sink_log.created(9) == tuple(checkpoint.sink[9])


def test_purged_source_entries_are_found_in_a_later_compaction(checkpoint: Checkpoint) -> None:
    for batch in range(12):
        checkpoint.read(1)
        checkpoint.plan(batch)
    (checkpoint.root / "cp/sources/0/4").unlink()
    assert checkpoint.log.consumed(4) == {"0": (name(4, 0),)}


def test_what_was_purged_is_not_guessed(checkpoint: Checkpoint) -> None:
    for batch in range(20):
        checkpoint.read(1)
        checkpoint.plan(batch)
        checkpoint.commit(batch, 1)
    (checkpoint.root / "out/_spark_metadata/4").unlink()
    with pytest.raises(FilesError, match="batch 4 is gone into a compaction"):
        checkpoint.sink_log.created(4)
    (checkpoint.root / "out/_spark_metadata/12").unlink()
    with pytest.raises(FilesError, match="_spark_metadata/12 has been purged"):
        checkpoint.sink_log.created(19)
    for number in range(5):
        (checkpoint.root / f"cp/offsets/{number}").unlink()
    with pytest.raises(FilesError, match="what batch 5 consumed cannot be told"):
        checkpoint.log.consumed(5)
    with pytest.raises(FilesError, match="offsets/3 does not exist"):
        checkpoint.log.consumed(3)


def test_a_batch_without_sink_entry_created_nothing(checkpoint: Checkpoint) -> None:
    assert checkpoint.sink_log.created(0) == ()


class LaggingFiles(LocalFiles):
    """As a store's, of which what ends with `unseen` is found at the third look."""

    MAY_LAG: ClassVar[bool] = True

    def __init__(self, unseen: str) -> None:
        super().__init__(pauses_s=())
        self.unseen, self.looks = unseen, 0

    def _size(self, path: str) -> int:
        self._look(path)
        return super()._size(path)

    def _read_end(self, path: str, most_bytes: int) -> End:
        self._look(path)
        return super()._read_end(path, most_bytes)

    def _look(self, path: str) -> None:
        if path.endswith(self.unseen):
            self.looks += 1
            if self.looks < 3:
                raise FileNotFoundError(path)


@pytest.mark.parametrize("batch", [8, 9], ids=["entry", "compaction"])
def test_what_a_batch_wrote_is_not_taken_for_nothing_where_a_store_lags(
    checkpoint: Checkpoint, batch: int
) -> None:
    """One without input, say, which emits windows: nothing else says that it has written."""
    for number in range(batch + 1):
        checkpoint.plan(number)
        checkpoint.commit(number, 1)
    entry = "_spark_metadata/9.compact" if batch == 9 else "_spark_metadata/8"
    log = checkpoint.sink_log
    log._files = LaggingFiles(entry)  # noqa: SLF001 - a store that lags
    assert log.created(batch) == (f"file:///out/b{batch}-0.parquet",)
    log = checkpoint.sink_log
    log._files = LaggingFiles(entry)  # noqa: SLF001 - a store that lags
    assert log.has(batch)
    assert not log.has(batch + 1)


def test_sources_may_be_silent_named_or_no_files(checkpoint: Checkpoint) -> None:
    offsets = checkpoint.root / "cp/offsets"
    header = json.dumps({"batchTimestampMs": 5})
    (offsets / "0").write_text(f"v1\n{header}\n-\n7")
    assert checkpoint.log.offsets(0).sources == {"0": None, "1": "7"}
    assert checkpoint.log.consumed(0) == {}
    named = checkpoint.root / "cp/sources/mine"
    named.mkdir()
    (named / "0").write_text(
        "v1\n" + json.dumps({"path": "file:///in/a.parquet", "timestamp": 1, "batchId": 0})
    )
    (offsets / "1").write_text(f'v2\n{header}\nmine:{{"logOffset":0}}')
    assert checkpoint.log.consumed(1) == {"mine": ("file:///in/a.parquet",)}


@pytest.mark.parametrize(
    ("path", "content", "message"),
    [
        ("cp/offsets/0", b"v3\n{}\n", "version 'v3'"),
        ("cp/offsets/0", b"v1\n[1]\n", "does not begin with its metadata"),
        ("cp/offsets/0", b'v1\n{"batchTimestampMs": "x"}', "batchTimestampMs"),
        ("cp/offsets/0", b'v1\n{"batchTimestampMs": 1}\n{"logOffset":1e99}', "logOffset"),
        ("cp/offsets/0", b"v1\n\xff\xfe", "is not text"),
        ("cp/sources/0/0", b"v2\n{}", "has version b'v2"),
        ("cp/sources/0/0", b'v1\n{"batchId":0}', "names no file"),
        ("cp/sources/0/0", b'v1\n{"path":"file:///a"}', "batchId"),
        ("cp/sources/0/0", b"v1\n" + b"[" * 100_000, "is not JSON"),
    ],
)
def test_garbage_is_refused_with_its_place(
    checkpoint: Checkpoint, path: str, content: bytes, message: str
) -> None:
    checkpoint.read(1)
    checkpoint.plan(0)
    (checkpoint.root / path).write_bytes(content)
    with pytest.raises(FilesError, match=message):
        checkpoint.log.consumed(0)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200), st.sampled_from(["offsets/0", "sources/0/0", "metadata"]))
def test_any_bytes_give_a_log_error_or_an_answer(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, path: str
) -> None:
    checkpoint = Checkpoint(tmp_path_factory.mktemp("cp"))
    checkpoint.read(1)
    checkpoint.plan(0)
    (checkpoint.root / "cp" / path).write_bytes(content)
    for ask in (lambda: checkpoint.log.consumed(0), lambda: checkpoint.log.query_id):
        try:
            ask()
        except FilesError:
            pass


def test_a_store_without_a_way_to_it_is_refused_by_name() -> None:
    def nobody(kind: str) -> Files:
        raise FilesError(f"no way to {kind}:")

    with pytest.raises(FilesError, match="no way to hdfs:"):
        CheckpointLog("hdfs://host/a", Stores(nobody))
