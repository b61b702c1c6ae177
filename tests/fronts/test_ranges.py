"""The front of a partitioned log, and its readers: ranges cancel however they are cut, through crashes."""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from local_tracker.spark.formats.ranges import (
    OffsetRanges,
    PublishedRanges,
    RangesError,
    range_cells,
    ranges,
)
from tests.fronts.runs import RangeRuns, making
from tests.waits import HANG_S
from tracker.core.model.ack_values import range_value
from tracker.core.model.ranges import NotedRanges, note
from tracker.errors import StateError, TrackingError, UnavailableError
from tracker.files import STORES, AwayError, child
from tracker.files.locations import scheme


@pytest.fixture
def log(tmp_path: Path) -> Iterator[RangeRuns]:
    log = RangeRuns(str(tmp_path / "ranges"))
    yield log
    log.close()


def test_what_is_new_is_one_batch_under_one_slot(log: RangeRuns) -> None:
    front = log.start(first={"b": 100})
    log.now_ns = 50
    assert front.publish({"a": 3, "b": 104}) == 0
    assert front.publish({"a": 3}) is None
    log.now_ns = 70
    assert front.publish({"a": 7}) == 1
    assert front.wait_durable(HANG_S)
    both = range_value("a", 0, 3) ^ range_value("b", 100, 104)
    assert log.tracker.created == [(5, both, 7), (7, range_value("a", 3, 7), 4)]
    assert front.ends == {"a": 7, "b": 104}


def test_ends_do_not_go_back(log: RangeRuns) -> None:
    front = log.start()
    front.publish({"a": 3})
    with pytest.raises(ValueError, match="ends at 2 and was at 3 before"):
        front.publish({"a": 2})


def test_a_reader_finds_the_slots_of_its_own_ranges(log: RangeRuns) -> None:
    reader = log.reader()
    with pytest.raises(UnavailableError):
        reader.slots("a", 0, 1)
    front = log.start()
    for slot, end in ((5, 3), (6, 4), (9, 10)):
        log.now_ns = slot * 10
        front.publish({"a": end})
    assert reader.slots("a", 0, 10) == [(0, 3, 5), (3, 4, 6), (4, 10, 9)]
    assert reader.slots("a", 2, 5) == [(2, 3, 5), (3, 4, 6), (4, 5, 9)]
    assert reader.slots("a", 5, 6) == [(5, 6, 9)]
    with pytest.raises(UnavailableError, match=r"offsets up to 11 .* those up to 10"):
        reader.slots("a", 5, 11)
    log.now_ns = 110
    front.publish({"a": 12})
    assert reader.slots("a", 9, 11) == [(9, 10, 9), (10, 11, 11)]


def test_what_nobody_published_is_an_error(log: RangeRuns) -> None:
    log.start(first={"a": 5}).publish({"a": 8})
    with pytest.raises(RangesError, match="no front has published offset 3 of partition 'a'"):
        log.reader().slots("a", 3, 7)


cuts = st.lists(st.integers(min_value=1, max_value=40), max_size=6, unique=True).map(sorted)


@given(cuts, cuts, st.lists(st.integers(min_value=0, max_value=3), min_size=7, max_size=7))
def test_a_readers_ranges_cancel_a_fronts_however_both_cut(
    tmp_path_factory: pytest.TempPathFactory,
    published: list[int],
    read: list[int],
    slots: list[int],
) -> None:
    """In each slot apart: what was created and not yet consumed is what the reader has not read."""
    journal = tmp_path_factory.mktemp("log") / "ranges"
    ends = [0, *published, 41]
    cells: dict[int, int] = {}
    lines = []
    for number, (begin, end) in enumerate(itertools.pairwise(ends)):
        slot = slots[number % len(slots)]
        lines.append(note(NotedRanges(number, slot, (("p", begin, end),))) + "\n")
        cells[slot] = cells.get(slot, 0) ^ range_value("p", begin, end)
    journal.write_text("".join(lines))
    source = OffsetRanges("in", PublishedRanges(str(journal)).slots)
    offsets = [0, *read, 41]
    for before, after in itertools.pairwise(offsets):
        batch = ranges(0, source, f'{{"p": {before}}}', f'{{"p": {after}}}', "batch")
        for _, slot, checksum, _ in range_cells(source, batch).rows():
            cells[slot] ^= checksum
    assert set(cells.values()) == {0}


# --- crashes --------------------------------------------------------------------------------------


def test_what_was_noted_is_committed_by_the_next_run(log: RangeRuns) -> None:
    front = log.start()
    front.publish({"a": 3})
    assert front.wait_durable(HANG_S)
    log.tracker.holding = True
    log.now_ns = 50
    front.publish({"a": 9})
    log.kill()
    log.now_ns = 90
    front = log.start()
    assert front.ends == {"a": 9}
    assert front.publish({"a": 10}) == 2
    assert front.wait_durable(HANG_S)
    assert log.tracker.created[1:] == [
        (5, range_value("a", 3, 9), 6), (9, range_value("a", 9, 10), 1),
    ]  # fmt: skip


def test_a_line_that_was_cut_off_was_not_published(log: RangeRuns) -> None:
    log.start().publish({"a": 3})
    log.kill()
    with open(log.where, "a") as file:
        file.write("1 7 a:3:")
    assert log.reader().slots("a", 1, 3) == [(1, 3, 0)]
    log.now_ns = 90
    front = log.start()
    assert front.publish({"a": 9}) == 1
    assert log.reader().slots("a", 3, 9) == [(3, 9, 9)]


def test_a_reader_goes_by_no_line_that_a_crash_of_the_machine_would_take_back(
    log: RangeRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the front labels anew behind it would be created once more, under another slot, and never consumed."""
    front, reader, fsync = log.start(), log.reader(), os.fsync
    durable: list[int] = []

    def fails(file: int) -> None:
        raise OSError(errno.EIO, "broken")

    def looked(file: int) -> None:
        monkeypatch.setattr(os, "fsync", fails)
        with pytest.raises(AwayError, match="broken"):
            reader.slots("a", 0, 3)
        monkeypatch.setattr(os, "fsync", noted)
        assert reader.slots("a", 0, 3) == [(0, 3, 0)], "the front has not made it durable"
        assert durable == [Path(log.where).stat().st_size]
        fsync(file)

    def noted(file: int) -> None:
        fsync(file)
        if os.path.samestat(os.fstat(file), os.stat(log.where)):
            durable.append(os.fstat(file).st_size)

    monkeypatch.setattr(os, "fsync", looked)
    front.publish({"a": 3})
    assert len(durable) == 1


def test_a_full_disk_publishes_nothing(log: RangeRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    front = log.start()
    front.publish({"a": 3})
    whole = Path(log.where).read_bytes()

    class Full(FileIO):
        def write(self, line: Any) -> int:
            super().write(line[: len(line) // 2])
            raise OSError(errno.ENOSPC, "no space left")

    with monkeypatch.context() as patch:
        patch.setattr("fronts.journals.open", lambda path, *_, **__: Full(path, "a"), raising=False)
        with pytest.raises(OSError, match="no space left"):
            front.publish({"a": 9})
    assert Path(log.where).read_bytes() == whole
    log.now_ns = 90
    assert front.publish({"a": 9}) == 1
    assert front.wait_durable(HANG_S)
    assert log.tracker.created[-1] == (9, range_value("a", 3, 9), 6)


def test_a_journal_that_cannot_be_opened_publishes_nothing_and_later_goes_on(
    log: RangeRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    front = log.start()

    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="Read-only"):
        patch.setattr("fronts.journals.open", refused, raising=False)
        front.publish({"a": 3})
    assert front.publish({"a": 3}) == 0 and front.wait_durable(HANG_S)


def test_a_line_that_readers_may_have_seen_is_not_taken_back(
    log: RangeRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some file systems find out that they are full when a line is synced; by then it can be read. Under another slot
    the front would create what nobody consumes, and the reader consume what nobody creates."""
    front = log.start()
    front.publish({"a": 3})
    reader, seen, fsync = log.reader(), list[Any](), os.fsync

    def full(fd: int) -> None:
        patch.setattr(os, "fsync", fsync)  # of the reader, who finds room again
        seen.append(reader.slots("a", 3, 9))
        raise OSError(errno.ENOSPC, "no space left")

    log.now_ns = 50
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises((TrackingError, OSError), match="no space left"):
            front.publish({"a": 9})
    log.now_ns = 90
    with pytest.raises(StateError, match="start the front again"):
        front.publish({"a": 9})
    log.kill()
    front = log.start()
    assert front.publish({"a": 9}) is None and front.wait_durable(HANG_S)
    assert seen == [[(3, 9, 5)]]
    assert log.tracker.created[-1] == (5, range_value("a", 3, 9), 6)


# --- here and in a store --------------------------------------------------------------------------


@pytest.fixture(params=["here", "in a store"])
def anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RangeRuns]:
    place: AbstractContextManager[str] = nullcontext(str(tmp_path))
    if request.param == "in a store":
        pytest.importorskip("boto3", reason="the client is installed alone")
        from tests.files.s3 import s3_bucket

        place = s3_bucket()
    with place as root, making(RangeRuns, root) as make:
        yield make()


def test_a_journal_that_is_not_the_trackers_is_refused(anywhere: RangeRuns) -> None:
    front = anywhere.start()
    front.publish({"a": 3})
    front.publish({"a": 5})
    assert front.wait_durable(HANG_S)
    anywhere.kill()
    for damage in damages(anywhere.where):
        damage()
        with pytest.raises(StateError, match=r"restore"):
            anywhere.start()


def damages(where: str) -> Iterator[Callable[[], object]]:
    if scheme(where):
        yield lambda: STORES.files(where).delete(child(where, "000000000003.json"))
        return
    for left in ("", "0 0 a:0:3\n", "0 0 a:0:3\nnothing\n"):
        yield partial(Path(where).write_text, left)


def test_what_is_below_min_time_goes_when_the_journal_is_long(
    anywhere: RangeRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = anywhere.where
    monkeypatch.setattr("fronts.journals.PRUNE_ABOVE_RECORDS", 10)
    front = anywhere.start(**({} if scheme(where) else {"prune_above_bytes": 200}))
    reader = anywhere.reader()
    front.publish({"quiet": 1})
    for number in range(40):
        anywhere.now_ns, anywhere.min_time = number * 10, number - 5
        front.publish({"a": number + 1})
        if number % 5 == 0 or not scheme(where):
            assert reader.slots("a", max(0, number - 5), number + 1)
    if scheme(where):
        assert len(STORES.files(where).names(where)) < 40
    else:
        assert Path(where).stat().st_size < 400
    with pytest.raises(RangesError, match="below min time"):
        anywhere.reader().slots("a", 0, 40)
    assert front.wait_durable(HANG_S)
    anywhere.kill()
    front = anywhere.start()
    assert front.ends == {"quiet": 1, "a": 40}
    assert front.publish({"a": 41}) == 41
