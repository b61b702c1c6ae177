"""What is read beside a query: Spark's logs, manifests of published batches, journals of offsets.

Damaged in any way, they are read as what they say, or refused by an error that names the file. None of
this needs Spark.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from local_tracker.spark.formats.published import Manifest, PublishedBatches
from local_tracker.spark.formats.ranges import (
    OffsetRanges,
    PublishedRanges,
    RangesError,
    partitions,
    range_cells,
    ranges,
)
from local_tracker.spark.query.compose import ComposeError, Evaluations, count_contributions
from local_tracker.spark.query.logs import CheckpointLog, SinkLog
from tests.fuzz.examples import fuzz
from tests.fuzz.mangling import damaged, int64s
from tests.spark.test_logs import Checkpoint
from tracker.core.model import Cells, StagedContribution
from tracker.core.model.ranges import NotedRanges, note, parse_note
from tracker.errors import UnavailableError
from tracker.files import FilesError

BATCHES = 12
IN_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def written(root: Path) -> None:
    """A checkpoint and a sink after so many batches that both have been compacted."""
    checkpoint = Checkpoint(root, compact_every=5)
    for batch in range(BATCHES):
        checkpoint.read(batch % 3)
        checkpoint.plan(batch)
        checkpoint.commit(batch, (batch + 1) % 3)
    directory = root / "cp/sources/1"
    directory.mkdir()
    (directory / "0").write_bytes(b'\0v1\n{"topic":{"0":5}}')
    for batch in (10, 11):  # of another version, with a source that numbers its records
        lines = ["v2", '{"batchTimestampMs": 5}', f'0:{{"logOffset":{batch}}}']
        lines.append(f'1:{{"topic":{{"0":{batch * 100}}}}}')
        (root / f"cp/offsets/{batch}").write_text("\n".join(lines))


def snapshot() -> dict[str, bytes]:
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as directory:
        written(Path(directory))
        files = [path for path in Path(directory).rglob("*") if path.is_file()]
        return {str(path.relative_to(directory)): path.read_bytes() for path in sorted(files)}


FILES = snapshot()
LINES = st.sampled_from(
    [
        b"", b"v1", b"v2", b"v9", b"null", b"[]", b"{", b"-", b'{"path":5}', b'{"path":"file:///x"}',
        b'{"path":"file:///x","batchId":1e3}', b'{"batchId":99999999999999999999,"path":"x"}',
        b'{"logOffset":4611686018427387904}', b'{"logOffset":-7}', b'{"logOffset":true}', b"\xff\xfe",
        b"\x000:{}", b"..:{}", b"0:-", b":", b"[" * 50_000, b"9" * 5_000, b"\0" * 70_000,
    ]
)  # fmt: skip


@st.composite
def damage(draw: st.DrawFn) -> Callable[[Path], None]:
    """What happens to one file of a checkpoint or sink."""
    name = draw(st.sampled_from(sorted(FILES)))
    data = FILES[name]
    way = draw(st.sampled_from(("bytes", "bytes", "line", "line", "gone", "folder", "elsewhere")))
    if way == "bytes":
        data = draw(damaged(data))
    elif way == "line":
        lines = data.split(b"\n")
        lines[draw(st.integers(0, len(lines) - 1))] = draw(LINES)
        data = b"\n".join(lines)
    moved = draw(st.sampled_from(sorted(FILES)))

    def apply(root: Path) -> None:
        path = root / name
        if path.is_dir():
            path.rmdir()
        if way in ("bytes", "line"):
            path.write_bytes(data)
        elif way == "elsewhere":
            path.write_bytes(FILES[moved])
        else:
            path.unlink(missing_ok=True)
            if way == "folder":
                path.mkdir()

    return apply


def read_all(root: Path) -> list[Any]:
    """Whatever can be asked of the logs; an error of theirs stands for its answer."""
    log, sink = CheckpointLog(str(root / "cp")), SinkLog(f"file:{root}/out")
    asked: list[Callable[[], Any]] = [lambda: log.query_id, log.committed, log.planned]
    for batch in range(-1, BATCHES + 2):
        asked += [
            partial(log.consumed, batch),
            partial(log.offset_pair, batch, "1"),
            partial(log.previous_offsets, batch),
            partial(log.is_committed, batch),
            partial(sink.created, batch),
        ]
    answers: list[Any] = []
    for ask in asked:
        try:
            answers.append(ask())
        except FilesError as error:
            assert str(root) in str(error) or "source" in str(error), error
            assert len(str(error)) < 2_000
            answers.append(FilesError)
    return answers


def answers_of_the_whole() -> list[Any]:
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as directory:
        written(Path(directory))
        return read_all(Path(directory))


WHOLE = answers_of_the_whole()


@fuzz(st.lists(damage(), min_size=1, max_size=2), share=0.8)
def test_logs_are_read_or_refused_by_name(damages: list[Callable[[Path], None]]) -> None:
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as directory:
        root = Path(directory)
        for name, data in FILES.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(data)
        for each in damages:
            each(root)
        answers = read_all(root)
        assert len(answers) == len(WHOLE)


# --- manifests, offsets, journals -----------------------------------------------------------------

MANIFEST = json.dumps(
    {"offsets": "[1]", "run": "r", "slot": 5, "files": [["a.parquet", "b/c.parquet"]]}
).encode()
JSONS = st.sampled_from(
    [
        b"[" * 100_000, b"{}", b"null", b"9" * 5_000, b'{"files":[1],"slot":1}', b"\xff",
        b'{"offsets":1,"run":2,"slot":1e400,"files":[]}', b'{"files":[["\\ud800","x"]]}',
        b'{"offsets":1,"run":2,"slot":"x","files":["ab"]}',
    ]
)  # fmt: skip


@fuzz(damaged(MANIFEST) | JSONS, st.sampled_from(["00000003", "²", "-1", "x", "٣"]))
def test_a_manifest_is_read_or_refused_by_name(data: bytes, other: str) -> None:
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as directory:
        published = PublishedBatches(directory)
        path = Path(directory) / "_lowmark" / "q" / "00000003.json"
        path.parent.mkdir(parents=True)
        path.write_bytes(data)
        path.with_name(f"{other}.json").write_bytes(data)
        assert 3 in published.numbers("q")
        try:
            manifest = published.manifest("q", 3)
        except FilesError as error:
            assert str(path) in str(error)
        else:
            assert isinstance(manifest, Manifest)


OFFSETS = st.sampled_from(
    [
        '{"t":{"0":5,"1":7}}', '{"t":{"0":9223372036854775807}}', '{"0":-5}', "7", '{"t":{"0":1.5}}',
        '{"t":{"0":99999999999999999999999}}', '{"t":null}', "[" * 100_000, '{"a":' * 50_000, "9" * 5_000,
        '{"t":{"0":9,"1":8,"2":1}}', "", "-", "{}", '{"\\ud800":4}',
    ]
)  # fmt: skip


@fuzz(st.none() | OFFSETS, st.none() | OFFSETS)
def test_offsets_are_ranges_or_an_error_that_names_the_source(
    before: str | None, after: str | None
) -> None:
    source = OffsetRanges("in", lambda partition, begin, end: [(begin, end, 7)])
    try:
        found = ranges(0, source, before, after, "source 1")
        cells = range_cells(source, found)
    except RangesError as error:
        assert len(str(error)) < 2_000
        return
    assert len(cells) == len(found)
    assert all(each.begin < each.end for each in found)
    assert len(partitions(after, "source 1")) >= len(found)


NOTES = [
    note(NotedRanges(0, 5, (("t/0", 0, 10), ("t/1", 4, 9)))),
    note(NotedRanges(1, -7, (("t/0", 10, 12),))),
]


@fuzz(damaged("\n".join([*NOTES, ""]).encode()), st.integers(0, 12), st.integers(0, 12), share=2)
def test_a_journal_tells_slots_or_refuses(data: bytes, begin: int, end: int) -> None:
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as directory:
        path = f"{directory}/journal"
        Path(path).write_bytes(data)
        try:
            pieces = list(PublishedRanges(path).slots("t/0", begin, end))
        except RangesError as error:
            assert len(str(error)) < 2_000
        except UnavailableError:
            pass
        else:
            assert begin >= end or (pieces[0][0], pieces[-1][1]) == (begin, end)


@fuzz(
    st.text(max_size=30)
    | st.sampled_from(NOTES)
    .flatmap(lambda n: damaged(n.encode()))
    .map(lambda data: data.decode(errors="replace")),
    share=3,
)
def test_a_line_notes_ranges_or_is_refused(line: str) -> None:
    try:
        batch = parse_note(line)
    except ValueError:
        return
    assert parse_note(note(batch)) == batch


# --- contributions --------------------------------------------------------------------------------

contributions = st.builds(
    StagedContribution,
    query=st.just("q"), run=st.sampled_from(["r1", "r2"]), batch=st.just(3),
    execution=st.integers(0, 1), operator=st.sampled_from(["op", "other"]), stage=st.integers(0, 1),
    partition=st.integers(0, 2), attempt=int64s,
    created=st.sampled_from([Cells.empty(), Cells.of([(0, 5, 7, 1)]), Cells.of([(0, 5, 8, 1)])]),
    consumed=st.sampled_from([Cells.empty(), Cells.of([(1, 5, 7, 1)])]),
)  # fmt: skip


@fuzz(
    st.lists(contributions, max_size=6), st.sampled_from([(), ("r1",), ("r2", "r1")]),
    st.sampled_from([None, "r1", "r9"]), st.sampled_from([None, 1, 2, 3]), share=3,
)  # fmt: skip
def test_contributions_are_counted_or_refused_by_operator(
    staged: list[StagedContribution],
    runs: tuple[str, ...],
    published_by: str | None,
    tasks: int | None,
) -> None:
    evaluations = Evaluations(runs, published_by, lambda stage: tasks)
    try:
        created, consumed = count_contributions("q", 3, staged, evaluations)
    except ComposeError as error:
        assert "operator 'op" in str(error) or "operator 'other'" in str(error)
        return
    ways = {(c.execution, c.stage, c.partition, c.operator) for c in staged}
    assert len(created) + len(consumed) <= 2 * len(ways)
