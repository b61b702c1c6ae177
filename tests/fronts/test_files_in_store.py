"""The file front in an object store: every file once, whole, and under its slot, whatever request is the last."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fronts.files import FileFront
from tests.files.s3 import s3_bucket
from tests.fronts.in_store import Killed, counted, killed_at, requests_of
from tests.fronts.runs import FileRuns, making
from tests.waits import HANG_S
from tracker.core.model.units import slot_in_name, unit_name
from tracker.errors import FencedError, StateError, TrackingError
from tracker.files import STORES, AwayError, Files, child

ROWS = [{"a": 1, "b": "x y"}, {"a": 2, "b": "ü"}]
WRITE_COSTS = 5
"""docs/object-stores.md: put beside, recorded, looked for, copied, deleted."""


class InStore(FileRuns):
    """Runs of a file front into a directory of a bucket."""

    def start(self, timeout_s: float = HANG_S, **options: Any) -> FileFront:
        return super().start(timeout_s, **{"format": "json", **options})

    @property
    def files(self) -> Files:
        return STORES.files(self.where)

    def staged(self) -> list[str]:
        return self.files.names(child(self.where, "_lowmark/fronts/f/staged"))


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    with s3_bucket() as bucket:
        yield bucket


@pytest.fixture
def make(bucket: str, request: pytest.FixtureRequest) -> Iterator[Callable[[], InStore]]:
    with making(InStore, f"{bucket}/{request.node.name}") as make:
        yield make


@pytest.fixture(params=["here", "in a store"])
def either(
    make: Callable[[], InStore], tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[FileRuns]:
    """A directory of either kind."""
    runs = make() if request.param == "in a store" else FileRuns(str(tmp_path))
    yield runs
    runs.close()


@pytest.mark.parametrize("items", ["files", "rows"])
def test_files_are_published_and_committed(make: Callable[[], InStore], items: str) -> None:
    directory = make()
    front = directory.start(items=items)
    directory.now_ns = 125
    first = front.write(ROWS)
    assert first is not None and (first.slot, first.batch) == (12, 0)
    assert first.location == f"{directory.where}/s12-f-00000000.json"
    with pytest.raises(ValueError, match="is in a store"):
        assert first.path
    read = directory.files.read_whole(first.location, 10_000)
    assert read is not None
    rows = [json.loads(line) for line in read.splitlines()]
    assert [{k: row[k] for k in ("a", "b")} for row in rows] == ROWS
    assert front.published() == [first] and front.wait_durable(HANG_S)
    assert sum(count for *_, count in directory.tracker.created) == (1 if items == "files" else 2)
    if items == "files":
        assert directory.created() == directory.visible() == [unit_name(first.location)]


def test_what_a_file_costs(make: Callable[[], InStore]) -> None:
    directory = make()
    front = directory.start()
    front.write(ROWS)  # the store has been tried out
    before = counted(directory.where)
    for _ in range(10):
        front.write(ROWS)
    assert counted(directory.where) - before == 10 * WRITE_COSTS


@pytest.mark.parametrize("arrives", [False, True])
@pytest.mark.parametrize("request_", range(WRITE_COSTS))
def test_killed_at_any_request_of_a_write(
    make: Callable[[], InStore], request_: int, arrives: bool
) -> None:
    """What was recorded is published once; of what was not nothing is seen, then or later."""
    directory = make()
    items = "rows" if request_ == 2 else "files"
    front = directory.start(items=items)
    front.write(ROWS)
    directory.now_ns = 50
    with killed_at(directory.where, request_, arrives=arrives), pytest.raises(Killed):
        front.write(ROWS)
    directory.kill()
    is_recorded = request_ > 1 or (request_ == 1 and arrives)
    directory.now_ns = 20
    again = directory.start(items=items)
    assert len(directory.visible()) == (2 if is_recorded else 1)
    last = again.write(ROWS)
    assert last is not None and last.batch == (2 if is_recorded else 1)
    assert again.wait_durable(HANG_S)
    slots = {slot_in_name(name) for name in directory.visible()}
    assert {slot for slot, *_ in directory.tracker.created} == slots
    if items == "files":
        assert directory.created() == directory.visible(), "each that is seen counts, once"
    counts = sum(count for *_, count in directory.tracker.created)
    assert counts == len(directory.visible()) * (1 if items == "files" else 2)
    assert directory.staged() == []


@pytest.mark.parametrize("arrives", [False, True])
def test_killed_at_any_request_of_the_recovery(make: Callable[[], InStore], arrives: bool) -> None:
    """The run before died between its record and the file's place; so does each that comes to finish it."""
    directory = make()
    front = directory.start()
    with killed_at(directory.where, 2, arrives=False), pytest.raises(Killed):
        front.write(ROWS)
    directory.kill()
    for request in range(40):
        try:
            with killed_at(directory.where, request, arrives=arrives):
                last = directory.start()
            break
        except Killed:
            if directory.tracker.node is not None:
                directory.kill()
    else:
        raise AssertionError("no recovery ends")
    assert request > 5, "there was something to be killed in"
    assert last.wait_durable(HANG_S)
    assert directory.created() == directory.visible() and len(directory.visible()) == 1
    assert directory.staged() == []


@pytest.mark.parametrize("items", ["files", "rows"])
@pytest.mark.parametrize("arrived", [False, True])
def test_killed_while_ticks_are_out(either: FileRuns, arrived: bool, items: str) -> None:
    """Each file's items are created exactly once, whether or not the tick arrived."""
    for run in range(4):
        front = either.start(items=items, format="json")
        either.tracker.holding = True
        either.now_ns = 40 * run
        for _ in range(3):
            front.write(ROWS)
        either.kill(arrived)
    last = either.start(items=items, format="json")
    assert last.wait_durable(HANG_S)
    assert [file.batch for file in last.published()] == list(range(12))
    slots = [file.slot for file in last.published()]
    assert slots == sorted(slots)
    if items == "files":
        assert either.created() == either.visible()
    counts = sum(count for *_, count in either.tracker.created)
    assert counts == 12 * (1 if items == "files" else 2)


# --- two of one name ------------------------------------------------------------------------------


def test_a_second_run_is_refused_while_the_first_goes_on(either: FileRuns) -> None:
    front = either.start(format="json")
    with pytest.raises(FencedError, match="'f' runs in another process"):
        either.start(timeout_s=0.0, format="json")
    assert front.write(ROWS) is not None
    front.close()
    assert either.start(format="json").write(ROWS) is not None


def test_who_comes_back_after_another_run_began_publishes_nothing(
    make: Callable[[], InStore],
) -> None:
    """It was cut off or paused, and the tracker let another one in."""
    directory = make()
    first = directory.start()
    first.write(ROWS)
    assert first.wait_durable(HANG_S)
    node = directory.tracker.node
    assert node is not None
    node.owner = ""  # its session is gone, which it does not know
    second = directory.start()
    second.write(ROWS)
    with pytest.raises(TrackingError, match="taken over by another process"):
        first.write(ROWS)
    second.write(ROWS)
    assert second.wait_durable(HANG_S)
    assert directory.created() == directory.visible() and len(directory.visible()) == 3


# --- a store that is slow, or away ----------------------------------------------------------------


def test_throttling_is_waited_out(
    make: Callable[[], InStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = make()
    front = directory.start()
    front.write(ROWS)
    monkeypatch.setattr("fronts.holds._AWAY_PAUSE_S", 0.0)
    monkeypatch.setattr(directory.files, "_pauses_s", ())
    refused = 0

    def slow_down(send: Callable[[], Any]) -> Any:
        nonlocal refused
        refused += 1
        if refused % 14 < 7:
            raise OSError(16, "Please reduce your request rate.")
        return send()

    with requests_of(directory.where, slow_down):
        front.write(ROWS)
    assert refused > 7
    assert front.wait_durable(HANG_S)
    assert directory.created() == directory.visible() and len(directory.visible()) == 2


@pytest.mark.parametrize("arrives", [False, True])
def test_a_store_that_stays_away_ends_the_run_where_it_is_not_known_what_it_took(
    make: Callable[[], InStore], monkeypatch: pytest.MonkeyPatch, arrives: bool
) -> None:
    directory = make()
    front = directory.start()
    front.write(ROWS)
    monkeypatch.setattr("fronts.holds._AWAY_PAUSE_S", 0.0)
    monkeypatch.setattr(directory.files, "_pauses_s", ())

    def away(send: Callable[[], Any]) -> Any:
        raise ConnectionError("no answer")

    with requests_of(directory.where, away), pytest.raises(OSError, match="was not published"):
        front.write(ROWS, timeout_s=0.0)
    assert front.write(ROWS) is not None, "nothing had got out, and it goes on"
    sent = 0

    def away_after_staging(send: Callable[[], Any]) -> Any:
        nonlocal sent
        sent += 1
        if sent == 1 or (sent == 2 and arrives):
            send()
        if sent == 1:
            return None
        raise ConnectionError("no answer")

    with requests_of(directory.where, away_after_staging), pytest.raises(TrackingError):
        front.write(ROWS, timeout_s=0.0)
    directory.kill()
    again = directory.start()
    assert again.wait_durable(HANG_S)
    assert directory.created() == directory.visible()
    assert len(directory.visible()) == (3 if arrives else 2)


# --- records --------------------------------------------------------------------------------------


def test_records_that_nobody_needs_go(
    make: Callable[[], InStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fronts.places.PRUNE_ABOVE_RECORDS", 3)
    directory = make()
    for _run in range(3):
        front = directory.start()
        for _ in range(6):
            front.write(ROWS)
            assert front.wait_durable(HANG_S)
        directory.kill()
    records = directory.files.names(child(directory.where, "_lowmark/fronts/f/log"))
    assert len(records) <= 3 + 2 + 3, "of the runs, and a few batches"
    last = directory.start().write(ROWS)
    assert last is not None and last.batch == 18


@pytest.mark.parametrize("items", ["files", "rows"])
def test_a_file_that_a_reader_has_removed_is_committed(
    make: Callable[[], InStore], items: str
) -> None:
    """Also before the tracker has it, as `cleanSource` may: its record says all but what its rows are."""
    directory = make()
    front = directory.start(items=items)
    front.write(ROWS)
    assert front.wait_durable(HANG_S)
    directory.files.delete(front.published()[0].location)
    directory.tracker.holding = True
    removed = front.write(ROWS)
    directory.kill()
    assert removed is not None
    directory.files.delete(removed.location)
    if items == "rows":
        with pytest.raises(StateError, match=r"labels of batch 1 .* does not exist"):
            directory.start(items=items)
        return
    again = directory.start(items=items)
    last = again.write(ROWS)
    assert last is not None and last.batch == 2 and again.wait_durable(HANG_S)
    assert unit_name(removed.location) in directory.created()


def test_a_file_that_was_to_be_taken_and_is_nowhere_is_an_error(
    make: Callable[[], InStore],
) -> None:
    """It may be that nobody has ever seen it in its place."""
    directory = make()
    front = directory.start()
    directory.tracker.holding = True
    taken = front.take(bring(directory, "a.csv")[0])
    directory.kill()
    assert taken is not None
    directory.files.delete(taken.location)
    with pytest.raises(StateError, match=r"was published, and .* is gone"):
        directory.start()


def test_a_front_that_has_left_goes_on_from_there(either: FileRuns) -> None:
    front = either.start(format="json")
    front.write(ROWS)
    front.leave()
    either.tracker.left, either.tracker.last = False, None  # the tracker has forgotten it
    last = either.start(format="json").write(ROWS)
    assert last is not None and last.batch == 1
    assert either.runs[-1].wait_durable(HANG_S)
    assert either.created() == either.visible()


# --- files that others bring ----------------------------------------------------------------------

TAKE_COSTS = 5
"""Looked for, recorded, looked for in its place, copied, deleted."""


def bring(directory: InStore, *names: str) -> list[str]:
    where = [f"{directory.where}-inbox/{name}" for name in names]
    for each in where:
        directory.files.create(each, b"contents of " + each.encode())
    return where


def test_a_file_that_is_there_is_taken_as_it_is(make: Callable[[], InStore]) -> None:
    directory = make()
    front = directory.start()
    first, second = bring(directory, "a.csv", "b")
    taken = front.take(first)
    assert taken is not None and taken.location.endswith("/s0-f-00000000.csv")
    before = counted(directory.where)
    assert front.take(second) is not None
    assert counted(directory.where) - before == TAKE_COSTS
    assert front.take(first) is None, "it is gone"
    assert directory.files.read_whole(taken.location, 1000) == b"contents of " + first.encode()
    assert directory.files.size(first) is None
    assert front.wait_durable(HANG_S) and directory.created() == directory.visible()


@pytest.mark.parametrize("arrives", [False, True])
@pytest.mark.parametrize("request_", range(TAKE_COSTS))
def test_killed_at_any_request_of_a_take(
    make: Callable[[], InStore], request_: int, arrives: bool
) -> None:
    directory = make()
    front = directory.start()
    first, second = bring(directory, "a.csv", "b.csv")
    front.take(first)
    with killed_at(directory.where, request_, arrives=arrives), pytest.raises(Killed):
        front.take(second)
    directory.kill()
    again = directory.start()
    again.take(second)
    assert again.wait_durable(HANG_S)
    assert directory.files.size(second) is None
    assert directory.created() == directory.visible() and len(directory.visible()) == 2


def test_another_front_does_not_take_from_the_same_directory(make: Callable[[], InStore]) -> None:
    one, other = make(), make()
    (file,) = bring(one, "a.csv")
    assert one.start().take(file) is not None
    (file,) = bring(one, "b.csv")
    with pytest.raises(OSError, match="another front takes the files there"):
        other.start().take(file)


def test_a_file_of_another_store_is_refused(make: Callable[[], InStore]) -> None:
    with pytest.raises(ValueError, match="is not in the store of"):
        make().start().take("s3://another-bucket/a.csv")


def test_a_store_that_does_not_answer_keeps_a_front_from_starting(
    make: Callable[[], InStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = make()
    monkeypatch.setattr(directory.files, "_pauses_s", ())

    def away(send: Callable[[], Any]) -> Any:
        raise ConnectionError("no answer")

    with requests_of(directory.where, away), pytest.raises(AwayError):
        directory.start()
