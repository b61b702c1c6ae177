"""What is asked of files, of every store alike: tests, for modules that have the fixtures `store` and
`exclusive` (a store that creates only if absent)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from tests.files.stores import Store
from tracker.files import End, FilesError, OpenedFile

THREADS = 8
RACES = 10
MOST_BYTES = 1 << 20


@contextmanager
def set_at_end(event: threading.Event) -> Iterator[None]:
    """Whoever waits for it is not left waiting where the test fails."""
    try:
        yield
    finally:
        event.set()


def test_a_file_is_read_as_it_was_written(store: Store) -> None:
    where = store.at("deep/in/a file ä%20.json")
    store.files.create(where, b"0123456789")
    assert store.files.size(where) == 10
    assert store.files.read_whole(where, 10) == b"0123456789"
    assert store.files.read(where, 2, 5) == b"234"
    assert store.files.read(where, 0, 10) == b"0123456789"
    assert store.files.read(where, 4, 4) == b""


def test_the_end_of_a_file_comes_with_its_size(store: Store) -> None:
    where = store.at("log")
    store.files.create(where, b"0123456789")
    assert store.files.read_end(where, 3) == End(10, b"789")
    assert store.files.read_end(where, 10) == End(10, b"0123456789")
    assert store.files.read_end(where, 99) == End(10, b"0123456789")
    assert store.files.read_end(store.at("none"), 3) is None


def test_an_empty_file_is_a_file(store: Store) -> None:
    where = store.at("empty")
    store.files.create(where, b"")
    assert store.files.size(where) == 0
    assert store.files.read_whole(where, 0) == b""
    assert store.files.read_end(where, 5) == End(0, b"")
    assert store.files.names(store.root) == ["empty"]


def test_what_is_not_there_is_absent_and_no_error(store: Store) -> None:
    where = store.at("not/there")
    assert store.files.size(where) is None
    assert store.files.read_whole(where, MOST_BYTES) is None
    assert store.files.names(where) == []
    assert store.files.walk(where) == []
    assert not store.files.is_directory(where)
    store.files.delete(where)
    store.files.delete_all(where)


def test_bytes_that_a_file_has_not_are_refused(store: Store) -> None:
    where = store.at("short")
    store.files.create(where, b"0123456789")
    with pytest.raises(FilesError, match="short"):
        store.files.read(where, 5, 11)
    with pytest.raises(FilesError, match="does not exist"):
        store.files.read(store.at("none"), 0, 1)


def test_a_file_that_is_too_large_is_not_read_whole(store: Store) -> None:
    where = store.at("large")
    store.files.create(where, b"0123456789")
    with pytest.raises(FilesError, match=r"large has 10 bytes; files of at most 9 "):
        store.files.read_whole(where, 9)


def test_a_directory_lists_what_is_in_it(store: Store) -> None:
    assert store.files.names(store.root) == []
    for name in ("1", "2", "a=b/3.json", "a=b/c=d/4.json", ".hidden", "_log/5"):
        store.files.create(store.at(name), name.encode())
    assert sorted(store.files.names(store.root)) == [".hidden", "1", "2", "_log", "a=b"]
    assert store.files.names(store.at("a=b/c=d")) == ["4.json"]
    assert store.files.walk(store.root) == [
        ".hidden", "1", "2", "_log/5", "a=b/3.json", "a=b/c=d/4.json",
    ]  # fmt: skip
    assert store.files.is_directory(store.at("a=b"))
    assert not store.files.is_directory(store.at("1"))


def test_a_file_is_replaced_as_a_whole(store: Store) -> None:
    """Whoever reads meanwhile finds the old one or the new one, and nothing that is half of either."""
    where = store.at("record")
    texts = [bytes([digit]) * size for digit in b"abc" for size in (1, 50_000, 200_000)]
    store.files.create(where, texts[0])
    written = threading.Event()
    seen: list[bytes | None] = []

    def look() -> None:
        while not written.is_set():
            seen.append(store.files.read_whole(where, MOST_BYTES))
            seen.append(
                store.files.read_whole(store.at(store.files.names(store.root)[0]), MOST_BYTES)
            )

    with ThreadPoolExecutor(2) as pool, set_at_end(written):
        lookers = [pool.submit(look) for _ in range(2)]
        for text in texts * 3:
            store.files.create(where, text)
    for looker in lookers:
        looker.result()
    assert set(seen) <= set(texts)
    assert store.files.names(store.root) == ["record"]


def test_of_those_who_create_one_file_one_wins(exclusive: Store) -> None:
    """And all of them read what the winner has written."""
    start = threading.Barrier(THREADS)

    def race(thread: int, round_: int) -> tuple[bool, bytes | None]:
        where, own = exclusive.at(f"manifest-{round_}"), f"{thread}-".encode() * 2_000
        start.wait()
        won = exclusive.files.create_if_absent(where, own)
        there = exclusive.files.read_whole(where, MOST_BYTES)
        assert won == (there == own)
        return won, there

    with ThreadPoolExecutor(THREADS) as pool:
        for round_ in range(RACES):
            done = list(pool.map(race, range(THREADS), [round_] * THREADS))
            assert [won for won, _ in done].count(True) == 1
            assert len({there for _, there in done}) == 1
    assert len(exclusive.files.names(exclusive.root)) == RACES


def test_whoever_looks_while_a_file_is_created_finds_all_of_it_or_nothing(exclusive: Store) -> None:
    whole = b"x" * 300_000
    created = threading.Event()
    seen: set[bytes | None] = set()

    def look() -> None:
        while not created.is_set():
            for name in exclusive.files.names(exclusive.root):
                seen.add(exclusive.files.read_whole(exclusive.at(name), MOST_BYTES))

    with ThreadPoolExecutor(1) as pool, set_at_end(created):
        looker = pool.submit(look)
        for number in range(10):
            assert exclusive.files.create_if_absent(exclusive.at(str(number)), whole)
    looker.result()
    assert seen <= {whole, None}


def test_creating_again_is_told_the_same(exclusive: Store) -> None:
    """Also where the first answer was lost, so that a retry finds its own file."""
    where = exclusive.at("manifest")
    for _ in range(2):
        assert exclusive.files.create_if_absent(where, b"mine")
        assert not exclusive.files.create_if_absent(where, b"yours, longer")
        assert not exclusive.files.create_if_absent(where, b"your")
    assert exclusive.files.read_whole(where, MOST_BYTES) == b"mine"


def test_a_file_that_was_deleted_can_be_created(exclusive: Store) -> None:
    where = exclusive.at("manifest")
    assert exclusive.files.create_if_absent(where, b"one")
    exclusive.files.delete(where)
    assert exclusive.files.size(where) is None
    assert exclusive.files.create_if_absent(where, b"two")


def test_an_empty_file_is_not_created_only_if_absent(store: Store) -> None:
    """Some stores write over a file that is there."""
    where = store.at("manifest")
    store.files.create(where, b"full")
    with pytest.raises(ValueError, match="was to be created empty"):
        store.files.create_if_absent(where, b"")
    assert store.files.read_whole(where, MOST_BYTES) == b"full"


def test_a_store_that_cannot_exclude_says_so(store: Store) -> None:
    if not store.excludes:
        with pytest.raises(FilesError):
            store.files.create_if_absent(store.at("one"), b"1")
    else:
        assert store.files.create_if_absent(store.at("one"), b"1")
    assert store.files.names(store.root) == (["one"] if store.excludes else [])


def test_a_folder_is_deleted_with_all_that_is_below(store: Store) -> None:
    for name in ("gone/1", "gone/deep/2", "gone too"):
        store.files.create(store.at(name), b"1")
    store.files.delete_all(store.at("gone"))
    assert store.files.names(store.root) == ["gone too"]


def test_a_file_is_put_into_another_place_once(store: Store) -> None:
    """Whoever comes again finds it done; what is in its place stays as it is."""
    source, target = store.at("hidden/part ä%20"), store.at("shown/deep/part ä%20")
    store.files.create(source, b"0123456789")
    store.files.move(source, target)
    assert store.files.read_whole(target, MOST_BYTES) == b"0123456789"
    assert store.files.size(source) is None
    store.files.move(source, target)
    store.files.create(source, b"0123456789")  # as where a store has copied it and was killed then
    store.files.move(source, target)
    assert store.files.size(source) is None
    assert store.files.walk(store.root) == ["shown/deep/part ä%20"]
    with pytest.raises(FilesError, match="is gone, and"):
        store.files.move(source, store.at("shown/another"))


def test_a_library_reads_by_position(store: Store) -> None:
    where = store.at("data")
    store.files.create(where, b"0123456789")
    with OpenedFile(store.files, where) as file:
        assert file.seek(-4, 2) == 6
        assert file.read(2) == b"67"
        assert file.read() == b"89"
        assert file.read(5) == b""
        file.seek(1)
        buffer = bytearray(4)
        assert file.readinto(memoryview(buffer)) == 4 and buffer == b"1234"
    with pytest.raises(FilesError, match="does not exist"):
        OpenedFile(store.files, store.at("none"))


def test_requests_are_counted(store: Store) -> None:
    store.files.create(store.at("1"), b"1")
    before = store.files.requests.counted()
    store.files.size(store.at("1"))
    store.files.names(store.root)
    store.files.create(store.at("2"), b"2")
    after = store.files.requests.counted()
    assert {kind: after[kind] - before[kind] for kind in after} == {
        "list": 1,
        "read": 1,
        "write": 1,
    }
