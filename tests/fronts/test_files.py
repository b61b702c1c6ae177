"""The file front: whole files or none, under the slot that their names tell, through crashes."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fronts import places
from fronts.files import SLOT_COLUMN, VALUE_COLUMN, FileFront, PublishedFile
from fronts.front import FrontOptions
from tests.fronts.fake_node import FakeTracker
from tests.fronts.runs import FileRuns
from tests.waits import HANG_S
from tracker.core.model.ack_values import root_values, unit_value
from tracker.core.model.units import parse_file_name, slot_in_name, unit_name
from tracker.errors import StateError, TrackingError
from tracker.files.local import sync


class Directory(FileRuns):
    """Runs of a file front into a directory of this machine."""

    @property
    def path(self) -> Path:
        return Path(self.where)

    def names(self) -> list[str]:
        """What Spark would list."""
        return sorted(n for n in os.listdir(self.where) if n[0] not in "._")

    def hidden(self) -> list[str]:
        return sorted(n for n in os.listdir(self.where) if n.endswith(".tmp"))


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Directory]:
    directory = Directory(str(tmp_path / "in put"))
    yield directory
    directory.close()


def read(file: PublishedFile) -> list[dict[str, object]]:
    if file.path.suffix == ".json":
        return [json.loads(line) for line in file.path.read_text().splitlines()]
    return pq.ParquetFile(file.path).read().to_pylist()


ROWS = [{"a": 1, "b": "x y"}, {"a": 2, "b": "ü\u2028"}]


@pytest.mark.parametrize("fmt", ["parquet", "json"])
def test_a_file_is_an_item_under_the_slot_in_its_name(directory: Directory, fmt: str) -> None:
    front = directory.start(format=fmt)
    directory.now_ns = -25
    # Slots before the grant (0) are never given; the clock is far behind it.
    first = front.write(ROWS)
    directory.now_ns = 125
    second = front.write(pa.Table.from_pylist(ROWS))
    assert first is not None and second is not None
    assert (first.slot, first.batch, second.slot, second.batch) == (0, 0, 12, 1)
    assert directory.names() == [f"s0-f-00000000.{fmt}", f"s12-f-00000001.{fmt}"]
    assert read(first) == read(second) == ROWS
    assert front.wait_durable(HANG_S)
    names = [unit_name(str(each.path)) for each in (first, second)]
    assert all("/in%20put/" in name for name in names)
    assert directory.created() == names
    assert directory.tracker.created == [
        (slot_in_name(name), unit_value(name), 1) for name in names
    ]
    assert front.published() == [first, second]


@pytest.mark.parametrize("fmt", ["parquet", "json"])
def test_rows_are_items_by_columns_of_their_own(directory: Directory, fmt: str) -> None:
    front = directory.start(format=fmt, items="rows")
    directory.now_ns = 70
    file = front.write(ROWS)
    assert file is not None and front.wait_durable(HANG_S)
    rows = read(file)
    values = [int(v) for v in root_values("f", 0, range(2))]
    assert [row.pop(SLOT_COLUMN) for row in rows] == [7, 7]
    assert [int(row.pop(VALUE_COLUMN)) % 2**64 for row in rows] == values  # type: ignore[call-overload]
    assert rows == ROWS
    assert directory.tracker.created == [(7, values[0] ^ values[1], 2)]
    assert directory.tracker.units == []


def test_labels_before_1970_are_in_names_too(directory: Directory) -> None:
    directory.tracker.grant = -(2**63)
    directory.now_ns = -25
    front = directory.start(format="json")
    file = front.write(ROWS)
    assert file is not None and file.path.name == "s-3-f-00000000.json"
    assert front.published() == [file]


def test_no_rows_make_no_file(directory: Directory) -> None:
    front = directory.start()
    assert front.write([]) is None and front.write(pa.table({"a": []})) is None
    assert directory.names() == []


def test_rows_that_cannot_be_written_leave_nothing_and_hold_nothing(directory: Directory) -> None:
    front = directory.start(format="json")
    with pytest.raises(TypeError, match="not JSON serializable"):
        front.write([{"a": object()}])
    assert directory.names() == directory.hidden() == []
    directory.now_ns = 90
    directory.tracker.wait(lambda: directory.tracker.heartbeat == 9)
    assert front.write(ROWS) is not None
    assert front.wait_durable(HANG_S)


def test_rows_that_a_format_has_no_place_for_hold_nothing(directory: Directory) -> None:
    """What its library raises then is of many kinds."""
    front = directory.start()
    with pytest.raises(NotImplementedError, match="struct type 'a'"):
        front.write([{"a": {}}])
    assert directory.names() == directory.hidden() == []
    file = front.write(ROWS)
    assert file is not None and file.batch == 0 and front.wait_durable(HANG_S)


def test_where_nothing_can_be_written_nothing_is_published_and_later_it_goes_on(
    directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On what is mounted to be read only, nothing can be removed either, be it there or not."""
    front = directory.start(format="json")

    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="Read-only"):
        patch.setattr(places, "open", refused, raising=False)
        patch.setattr(Path, "unlink", refused)
        front.write(ROWS)
    file = front.write(ROWS)
    assert file is not None and file.batch == 0 and front.wait_durable(HANG_S)


def test_a_full_disk_leaves_nothing(directory: Directory, monkeypatch: pytest.MonkeyPatch) -> None:
    front = directory.start(format="json")
    sync = os.fsync

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        front.write(ROWS)
    assert directory.names() == directory.hidden() == []
    monkeypatch.setattr(os, "fsync", sync)
    file = front.write(ROWS)
    assert file is not None and file.batch == 0


def test_a_file_of_which_it_is_unknown_whether_it_stays_ends_the_run(
    directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the rename readers may have it: it is not withdrawn, and the next run commits it."""
    front = directory.start(format="json")
    monkeypatch.setattr(places, "sync", _fails_for_directories)
    with pytest.raises(TrackingError, match="may not survive a power failure"):
        front.write(ROWS)
    monkeypatch.undo()
    directory.now_ns = 90
    with pytest.raises(StateError, match="start the front again"):
        front.write(ROWS)
    assert directory.names() == ["s0-f-00000000.json"]
    assert directory.tracker.heartbeat <= 0
    directory.kill()
    assert directory.start(format="json").wait_durable(HANG_S)
    assert len(directory.created()) == 1


def _fails_for_directories(path: Path) -> None:
    if path.is_dir():
        raise OSError(5, "Input/output error")


# --- crashes --------------------------------------------------------------------------------------


class Killed(BaseException):
    """The process ends here."""


def at(function: str, monkeypatch: pytest.MonkeyPatch, *, after: bool) -> Callable[[], None]:
    """Ends the process at the next call of a function of `os`; returns how to make it work again."""
    real = getattr(os, function)

    def killing(*arguments: object) -> None:
        if after:
            real(*arguments)
        raise Killed

    monkeypatch.setattr(os, function, killing)
    return monkeypatch.undo


@pytest.mark.parametrize("takes", [False, True])
def test_a_rename_whose_answer_was_lost_has_published(
    directory: Directory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, takes: bool
) -> None:
    """Over a network it is asked for again, and then the file is gone from where it was. Readers see it under its label:
    the next one must not get its number, and nobody else its rows."""
    front = directory.start()
    source = tmp_path / "source.json"
    source.write_text("{}")
    rename = os.rename

    def lost(old: str, new: str) -> None:
        rename(old, new)
        raise FileNotFoundError(2, "No such file or directory", str(old))

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", lost)
        file = front.take(source) if takes else front.write([{"a": 1}])
    assert file is not None and [file.path.name] == directory.names()
    front.write([{"a": 2}])
    assert front.wait_durable(HANG_S)
    assert directory.created() == directory.visible()
    assert [file.batch for file in front.published()] == [0, 1]


@pytest.mark.parametrize("takes", [False, True])
def test_a_rename_of_which_nothing_can_be_told_is_not_taken_for_none(
    directory: Directory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, takes: bool
) -> None:
    """The answer was lost since the server is away, which does not say either what is there. Were the batch given up, the
    next one would get its number, and readers consume a file that nobody creates."""
    front = directory.start()
    source = tmp_path / "source.json"
    source.write_text("{}")
    rename = os.rename

    def away(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    def lost(old: str, new: str) -> None:
        rename(old, new)
        away()

    with monkeypatch.context() as patch, pytest.raises((TrackingError, OSError)):
        patch.setattr(os, "rename", lost)
        patch.setattr(os, "lstat", away)
        front.take(source) if takes else front.write([{"a": 1}])
    with pytest.raises(StateError, match="start the front again"):
        front.write([{"a": 2}])
    directory.kill()
    assert directory.start().wait_durable(HANG_S)
    assert directory.created() == directory.visible() != []


def test_a_file_that_is_taken_is_as_young_as_its_label(
    directory: Directory, tmp_path: Path
) -> None:
    """Readers pass over what is much older than what they have read, as Spark's source does (maxFileAge)."""
    source = tmp_path / "brought.csv"
    source.write_text("1,2")
    os.utime(source, (0, 0))
    taken = directory.start().take(source)
    assert taken is not None and taken.path.stat().st_mtime > 0


@pytest.mark.parametrize("items", ["files", "rows"])
def test_killed_between_write_and_rename(
    directory: Directory, monkeypatch: pytest.MonkeyPatch, items: str
) -> None:
    front = directory.start(items=items)
    undo = at("rename", monkeypatch, after=False)
    with pytest.raises(Killed):
        front.write(ROWS)
    undo()
    directory.kill()
    assert directory.names() == [] and len(directory.hidden()) == 1
    again = directory.start(items=items)
    assert directory.hidden() == [], "what was not published is gone"
    directory.now_ns = 70
    directory.tracker.wait(lambda: directory.tracker.heartbeat == 7)
    file = again.write(ROWS)
    assert file is not None and (file.batch, file.slot) == (0, 7)
    assert again.wait_durable(HANG_S)
    assert sum(count for _, _, count in directory.tracker.created) == (1 if items == "files" else 2)


@pytest.mark.parametrize("items", ["files", "rows"])
@pytest.mark.parametrize("fmt", ["parquet", "json"])
def test_killed_between_rename_and_commit(
    directory: Directory, monkeypatch: pytest.MonkeyPatch, items: str, fmt: str
) -> None:
    tracker = directory.tracker
    front = directory.start(items=items, format=fmt)
    directory.now_ns = 50
    tracker.wait(lambda: tracker.heartbeat == 5)
    undo = at("rename", monkeypatch, after=True)
    with pytest.raises(Killed):
        front.write(ROWS)
    undo()
    directory.kill()
    assert directory.names() == [f"s5-f-00000000.{fmt}"] and tracker.created == []

    directory.now_ns = 20
    again = directory.start(items=items, format=fmt)
    assert again.wait_durable(HANG_S)
    (file,) = again.published()
    if items == "files":
        assert tracker.created == [(5, unit_value(unit_name(str(file.path))), 1)]
    else:
        checksum = int(np.bitwise_xor.reduce(root_values("f", 0, range(2))))
        assert tracker.created == [(5, checksum, 2)]
    following = again.write(ROWS)
    assert following is not None and (following.batch, following.slot) == (1, 5)


def test_what_a_killed_run_has_renamed_is_durable_before_it_is_committed(
    directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a machine that loses power then has no such file, which is waited for."""
    front = directory.start(format="json")
    undo = at("rename", monkeypatch, after=True)
    with pytest.raises(Killed):
        front.write(ROWS)
    undo()
    directory.kill()
    synced: list[tuple[str, int]] = []

    def noted(path: os.PathLike[str] | str) -> None:
        synced.append((str(path), len(directory.tracker.units)))
        sync(path)

    monkeypatch.setattr(places, "sync", noted)
    assert directory.start(format="json").wait_durable(HANG_S)
    assert len(directory.tracker.units) == 1 and (directory.where, 0) in synced


def test_other_fronts_and_other_files_in_the_directory_are_left_alone(
    directory: Directory,
) -> None:
    directory.path.mkdir()
    others = ["s5-g-00000003.json", "part-0.json", ".s5-g-00000004.json.tmp", "notes.txt"]
    for name in others:
        (directory.path / name).write_text("{}\n")
    front = directory.start()
    assert front.published() == [] and set(others) <= set(os.listdir(directory.path))
    file = front.write(ROWS)
    assert file is not None and file.batch == 0 and file.slot == 0


def test_files_that_the_tracker_has_may_be_cleaned_away(directory: Directory) -> None:
    front = directory.start(format="json")
    for _ in range(3):
        front.write(ROWS)
    assert front.wait_durable(HANG_S)
    for each in front.published():
        each.path.unlink()
    directory.kill()
    again = directory.start(format="json")
    file = again.write(ROWS)
    assert file is not None and file.batch == 3


def test_a_file_that_is_gone_before_the_tracker_has_it_is_an_error(directory: Directory) -> None:
    front = directory.start(format="json")
    directory.tracker.holding = True
    files = [front.write(ROWS) for _ in range(3)]
    directory.kill()
    assert files[1] is not None
    files[1].path.unlink()
    with pytest.raises(StateError, match="holds batch 2 where 1 was expected; the tracker"):
        directory.start(format="json")
    assert directory.tracker.created == []


def test_a_file_that_was_renamed_to_another_slot_is_an_error(directory: Directory) -> None:
    front = directory.start(format="json")
    file = front.write(ROWS)
    assert file is not None and front.wait_durable(HANG_S)
    directory.kill()
    file.path.rename(file.path.with_name("s9-f-00000000.json"))
    with pytest.raises(StateError, match="published batch 0 differs"):
        directory.start(format="json")


def test_a_name_that_makes_no_file_names_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="give the front a shorter name"):
        FileFront("unused:1", "p", "f" * 250, "in", tmp_path)


def test_names_are_percent_encoded(tmp_path: Path) -> None:
    tracker = FakeTracker()
    with FileFront(
        "unused:1",
        "p",
        "a/b é",
        "in",
        tmp_path,
        format="json",
        options=FrontOptions(node_id="n", node=tracker.connect()),
    ) as front:
        file = front.write(ROWS)
        assert file is not None and file.path.parent == tmp_path
        labelled = parse_file_name(file.path.name)
        assert labelled is not None and labelled.front == "n/a/b é"
        assert front.published() == [file]


def test_it_says_whether_it_has_left_in_order(tmp_path: Path) -> None:
    """Who has not, and is known to the tracker no more, must not commit anew what was committed."""
    tracker = FakeTracker()

    def started() -> FileFront:
        options = FrontOptions(node=tracker.connect())
        return FileFront("unused:1", "p", "f", "in", tmp_path, format="json", options=options)

    for leaves, said in ((False, True), (True, True), (False, False)):
        with started() as front:
            assert tracker.node is not None and tracker.node.never_left is said
            if leaves:
                front.leave()
