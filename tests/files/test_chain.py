"""A log in a store: whoever takes it has it, and nobody who had it before writes it again."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from tests.files.stores import STORES, Store
from tracker.files import AwayError, Chain, Files, FilesError, TakenOverError


@pytest.fixture(params=["local", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with STORES[request.param](tmp_path) as store:
        yield store


def chain(store: Store) -> Chain:
    return Chain(store.files, store.at("log"))


def read(store: Store) -> list[object]:
    log = chain(store)
    return [record.value for record in log.read(log.numbers())]


def test_what_is_appended_is_read_by_the_next_run(store: Store) -> None:
    first = chain(store)
    assert first.take() == []
    numbers = [first.append({"n": n}) for n in range(3)]
    second = chain(store)
    assert [r.value for r in second.take()] == [{"n": 0}, {"n": 1}, {"n": 2}]
    number = second.append({"n": 3})
    assert number > max(numbers)
    assert read(store)[-2:] == [None, {"n": 3}]


def test_whoever_had_it_before_is_refused(store: Store) -> None:
    first, second = chain(store), chain(store)
    first.take()
    first.append({"n": 0})
    second.take()
    for _ in range(2):
        with pytest.raises(TakenOverError, match="taken over by another process"):
            first.append({"n": 1})
    second.append({"n": 2})
    assert read(store) == [None, {"n": 0}, None, {"n": 2}]


def test_it_is_refused_after_everything_that_it_wrote_was_deleted_too(store: Store) -> None:
    first, second = chain(store), chain(store)
    first.take()
    kept = [first.append({"n": n}) for n in range(3)]
    second.take()
    kept += [second.append({"n": n}) for n in range(3, 6)]
    second.delete(kept[:-1])
    with pytest.raises(TakenOverError):
        first.append({"n": 9})
    assert [r.value for r in chain(store).take()] == [{"n": 5}]
    assert read(store) == [None, None, {"n": 5}, None]


def test_only_the_last_beginning_is_read(store: Store) -> None:
    """However often a process was started, and died."""
    first = chain(store)
    first.take()
    first.append({"n": 0})
    for _ in range(4):
        chain(store).take()
    before = store.files.requests.counted()["read"]
    assert [r.value for r in chain(store).take()] == [{"n": 0}]
    assert store.files.requests.counted()["read"] - before <= 4, "itself, and what it names"


def test_of_many_who_take_it_at_once_one_has_it(store: Store) -> None:
    chains = [chain(store) for _ in range(6)]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda each: each.take(), chains))

    def appends(each: Chain) -> bool:
        try:
            each.append({"a": 1})
        except TakenOverError:
            return False
        return True

    assert [appends(each) for each in chains].count(True) == 1


def test_one_that_takes_it_while_it_is_written_and_pruned_finds_its_end(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number that it would begin with has been written and deleted since it looked."""
    first, second = chain(store), chain(store)
    first.take()
    numbers = [first.append({"n": 0})]
    listed = Chain.numbers

    def overtaken(self: Chain) -> list[int]:
        found = listed(self)
        if self is second and len(numbers) == 1:
            numbers.extend(first.append({"n": n}) for n in range(1, 4))
            first.delete(numbers[:-1])
        return found

    monkeypatch.setattr(Chain, "numbers", overtaken)
    assert [r.value for r in second.take()] == [{"n": 3}]
    with pytest.raises(TakenOverError):
        first.append({"n": 9})
    second.append({"n": 4})
    found = [value for value in read(store) if value is not None]
    assert found[-1] == {"n": 4}


# --- requests that are lost -----------------------------------------------------------------------


@pytest.mark.parametrize("arrives", [False, True])
def test_a_record_of_which_no_answer_comes_is_there_once(
    store: Store, arrives: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is settled before the next one, whatever that is."""
    first = chain(store)
    first.take()
    monkeypatch.setattr(store.files, "_pauses_s", ())
    create = getattr(type(store.files), "_create_if_absent")  # noqa: B009 - what a store does

    def lost(self: Files, path: str, data: bytes) -> None:
        if arrives:
            with suppress(FileExistsError):
                create(self, path, data)
        raise ConnectionError("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(type(store.files), "_create_if_absent", lost)
        with pytest.raises(AwayError):
            first.append({"n": 0})
    first.append({"n": 1})
    assert read(store) == [None, {"n": 0}, {"n": 1}]


def test_a_record_that_is_damaged_is_said(store: Store) -> None:
    first = chain(store)
    first.take()
    store.files.create(store.at("log/000000000002.json"), b"{}")
    with pytest.raises(FilesError, match=r"000000000002.json is damaged: restore it"):
        chain(store).take()


def test_what_each_step_costs(store: Store) -> None:
    """docs/object-stores.md: a record is one request, taking the log two listings and one."""
    chain(store).take()  # the store has been tried out
    first, requests = chain(store), store.files.requests
    before = requests.counted()
    first.take()
    taken = requests.counted()
    first.append({"n": 0})
    added = requests.counted()
    assert {kind: taken[kind] - before[kind] for kind in ("list", "write")} == {
        "list": 2,
        "write": 1,
    }
    assert {kind: added[kind] - taken[kind] for kind in added} == {"list": 0, "read": 0, "write": 1}
