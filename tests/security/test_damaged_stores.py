"""A store whose file was damaged is said to be, and its process ends with that: it does not wait for ever."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cluster.tracker import lowmark
from tracker.store import SqliteStore, StoreDamaged, StoreError, StoreUnavailable

HEADER_BYTES = 100
SCHEMA_FORMAT_AT = 47


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a store that was closed."""
    directory = tmp_path_factory.mktemp("whole")
    store = SqliteStore(directory / "shard-0.db", 0)
    store.commit(store.acquire("a"), [(1, b"one")])
    store.close()
    return directory


def mangled(whole: Path, directory: Path, at: int, value: int) -> Path:
    """A copy with another byte in the file's header."""
    shutil.copytree(whole, directory, dirs_exist_ok=True)
    path = directory / "shard-0.db"
    data = bytearray(path.read_bytes())
    data[at] = value
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("value", [0, 1, 0x7F, 0xFF])
def test_no_byte_of_a_header_makes_its_owner_wait_for_ever(
    whole: Path, tmp_path: Path, value: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tracker.store.sqlite._WAL_BYTES", 0)  # it need not be filled so often
    for at in range(HEADER_BYTES):
        path = mangled(whole, tmp_path / str(at), at, value)
        try:
            store = SqliteStore(path, 0)
            try:
                epoch = store.acquire("b")
                store.commit(epoch, [(2, b"two")])
                store.renew(epoch, 0)
            finally:
                store.close()
        except StoreUnavailable as error:
            raise AssertionError(f"byte {at}: {error}") from error
        except StoreError:
            pass  # it is said, and not tried again


def test_a_header_that_asks_for_a_newer_sqlite_is_damage(whole: Path, tmp_path: Path) -> None:
    path = mangled(whole, tmp_path, SCHEMA_FORMAT_AT, 0xFF)
    with pytest.raises(StoreDamaged, match=r"shard-0\.db is damaged or not SQLite.*backup"):
        SqliteStore(path, 0)


def test_a_process_ends_that_finds_its_store_damaged(whole: Path, tmp_path: Path) -> None:
    mangled(whole, tmp_path, SCHEMA_FORMAT_AT, 0xFF)
    ended = lowmark("serve", "--listen", "127.0.0.1:0", "--store", f"sqlite:{tmp_path}")
    assert ended.returncode == 1
    assert "is damaged or not SQLite" in ended.stderr and "store_away" not in ended.stderr
