"""What every store promises, held against each of them alike."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tracker.store import Fenced, MemoryStore, SqliteStore, Store, StoreError

Reopen = Callable[[], Store]


@pytest.fixture(params=["memory", "sqlite"])
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Reopen:
    """Opens the same store again, as a process does that starts after another one died."""
    memory = MemoryStore()
    opened: list[Store] = []

    def open_again() -> Store:
        store = memory if request.param == "memory" else SqliteStore(tmp_path / "shard.db", 3)
        opened.append(store)
        return store

    def close_all() -> None:
        for store in opened:
            store.close()

    request.addfinalizer(close_all)
    return open_again


def held(store: Store, epoch: int) -> tuple[object, list[tuple[int, bytes]]]:
    stored = store.load(epoch)
    return stored.snapshot, list(stored.records)


def test_a_new_store_holds_nothing(reopen: Reopen) -> None:
    store = reopen()
    assert held(store, store.acquire("a")) == (None, [])


def test_what_was_committed_is_there_for_the_next_owner_in_order(reopen: Reopen) -> None:
    store = reopen()
    epoch = store.acquire("a")
    store.commit(epoch, [(1, b"one"), (2, b"two")])
    store.commit(epoch, [(3, b"three")])
    again = reopen()
    assert held(again, again.acquire("b")) == (None, [(1, b"one"), (2, b"two"), (3, b"three")])


def test_each_owner_gets_a_larger_epoch_and_fences_those_before(reopen: Reopen) -> None:
    old = reopen()
    first = old.acquire("a")
    old.commit(first, [(1, b"one")])
    new = reopen()
    second = new.acquire("b")
    assert second > first
    for write in (
        lambda: old.commit(first, [(2, b"from the dead")]),
        lambda: old.write_snapshot(first, 1, b"from the dead"),
        lambda: old.load(first),
    ):
        with pytest.raises(Fenced):
            write()
    new.commit(second, [(2, b"two")])
    assert held(new, second) == (None, [(1, b"one"), (2, b"two")])


def test_a_snapshot_stands_for_the_records_up_to_it(reopen: Reopen) -> None:
    store = reopen()
    epoch = store.acquire("a")
    store.commit(epoch, [(1, b"one"), (2, b"two"), (3, b"three")])
    store.write_snapshot(epoch, 2, b"one and two")
    assert held(store, epoch) == ((2, b"one and two"), [(3, b"three")])
    store.commit(epoch, [(4, b"four")])
    store.write_snapshot(epoch, 4, b"all")
    again = reopen()
    assert held(again, again.acquire("b")) == ((4, b"all"), [])


def test_a_commit_that_does_not_continue_the_log_leaves_nothing(reopen: Reopen) -> None:
    store = reopen()
    epoch = store.acquire("a")
    store.commit(epoch, [(1, b"one")])
    with pytest.raises(StoreError):
        store.commit(epoch, [(2, b"two"), (1, b"again")])
    assert held(store, epoch) == (None, [(1, b"one")])
    with pytest.raises(StoreError):
        store.commit(epoch, [(5, b"after a gap")])
    assert held(store, epoch) == (None, [(1, b"one")])


def test_the_log_continues_after_a_snapshot_of_everything(reopen: Reopen) -> None:
    store = reopen()
    epoch = store.acquire("a")
    store.commit(epoch, [(1, b"one"), (2, b"two")])
    store.write_snapshot(epoch, 2, b"all")
    again = reopen()
    epoch = again.acquire("b")
    with pytest.raises(StoreError):
        again.commit(epoch, [(2, b"two again")])
    again.commit(epoch, [(3, b"three")])
    assert held(again, epoch) == ((2, b"all"), [(3, b"three")])
