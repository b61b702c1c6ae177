"""A store that lags, throttles, or gives a part: it is asked again, and not for ever."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tracker.files import AwayError, FilesError, LocalFiles
from tracker.files.interface import ATTEMPTS, PAUSES_S


class SlowDownError(Exception):
    """What a store says that throttles."""


class Weak(LocalFiles):
    """A directory that behaves as stores do on bad days. fails: what stands before an operation, by its
    name: called with the bytes that it would give, or None; raises, or returns others."""

    MAY_LAG: ClassVar[bool] = True
    PROBED: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__(pauses_s=())
        self.fails: dict[str, list[Callable[[Any], Any]]] = {}

    def _weakly(self, operation: str, done: Callable[[], Any], *, after: bool = True) -> Any:
        faults = self.fails.get(operation, [])
        fault = faults.pop(0) if faults else None
        if fault is None:
            return done()
        return fault(done() if after else None)

    def _names(self, directory: str) -> list[str]:
        found: list[str] = self._weakly("names", lambda: super(Weak, self)._names(directory))
        return found

    def _read(self, path: str, begin: int, end: int) -> bytes:
        found: bytes = self._weakly("read", lambda: super(Weak, self)._read(path, begin, end))
        return found

    def _read_whole(self, path: str, most_bytes: int) -> bytes:
        found: bytes = self._weakly(
            "whole", lambda: super(Weak, self)._read_whole(path, most_bytes)
        )
        return found

    def _create_if_absent(self, path: str, data: bytes) -> None:
        self._weakly("create", lambda: super(Weak, self)._create_if_absent(path, data))


def throttled(found: Any) -> Any:
    raise SlowDownError("please reduce your request rate")


def absent(found: Any) -> Any:
    raise FileNotFoundError("not there yet")


def half(found: bytes) -> bytes:
    return found[: len(found) // 2]


@pytest.fixture
def weak() -> Weak:
    return Weak()


def test_a_store_that_throttles_is_asked_again(weak: Weak, tmp_path: Path) -> None:
    weak.create(f"{tmp_path}/a", b"0123")
    weak.fails = {"names": [throttled] * (ATTEMPTS - 1), "read": [throttled, throttled]}
    before = weak.requests.counted()
    assert weak.names(str(tmp_path)) == ["a"]
    assert weak.read(f"{tmp_path}/a", 0, 4) == b"0123"
    after = weak.requests.counted()
    assert after["list"] - before["list"] == ATTEMPTS
    assert after["read"] - before["read"] == 3


def test_a_store_that_goes_on_throttling_is_away(weak: Weak, tmp_path: Path) -> None:
    weak.fails = {"names": [throttled] * ATTEMPTS}
    with pytest.raises(AwayError, match=r"did not answer in 5 tries: SlowDownError: please reduce"):
        weak.names(str(tmp_path))
    assert weak.names(str(tmp_path)) == []  # and may be back later
    assert len(PAUSES_S) == ATTEMPTS - 1


def test_a_part_of_a_file_is_never_taken_for_it(weak: Weak, tmp_path: Path) -> None:
    weak.create(f"{tmp_path}/a", b"0123")
    weak.fails = {"read": [half, half]}
    assert weak.read(f"{tmp_path}/a", 0, 4) == b"0123"
    weak.fails = {"read": [half] * ATTEMPTS}
    with pytest.raises(AwayError, match="2 bytes of 4 came"):
        weak.read(f"{tmp_path}/a", 0, 4)


def test_a_file_that_was_heard_of_is_looked_for_again(weak: Weak, tmp_path: Path) -> None:
    weak.create(f"{tmp_path}/a", b"0123")
    weak.fails = {"whole": [absent, absent]}
    assert weak.read_whole(f"{tmp_path}/a", 10, is_there=True) == b"0123"
    weak.fails = {"whole": [absent]}
    assert weak.read_whole(f"{tmp_path}/a", 10) is None
    weak.fails = {"whole": [absent] * ATTEMPTS}
    assert weak.read_whole(f"{tmp_path}/a", 10, is_there=True) is None


def test_who_created_a_file_and_did_not_hear_so_has_created_it(weak: Weak, tmp_path: Path) -> None:
    """The store has done it, the answer was lost, and the retry finds the file there."""
    weak.create_if_absent(f"{tmp_path}/tried-out", b"1")
    weak.fails = {"create": [throttled]}
    assert weak.create_if_absent(f"{tmp_path}/a", b"mine")
    weak.fails = {"create": [throttled]}
    assert not weak.create_if_absent(f"{tmp_path}/a", b"yours")
    assert weak.read_whole(f"{tmp_path}/a", 10) == b"mine"


def test_a_store_that_does_not_heed_the_condition_is_refused(tmp_path: Path) -> None:
    class Careless(Weak):
        def _create_if_absent(self, path: str, data: bytes) -> None:
            self._create(path, data)

    careless = Careless()
    careless.create(f"{tmp_path}/a", b"theirs")
    for _ in range(2):
        with pytest.raises(FilesError, match="wrote over a file"):
            careless.create_if_absent(f"{tmp_path}/a", b"mine")
    assert careless.names(str(tmp_path)) == ["a"]
    assert careless.read_whole(f"{tmp_path}/a", 10) == b"theirs"


def test_a_disk_that_refuses_is_not_asked_again(tmp_path: Path) -> None:
    files = LocalFiles()
    (tmp_path / "folder").mkdir()
    with pytest.raises(FilesError, match="folder is not a file"):
        files.size(f"{tmp_path}/folder")
    with pytest.raises(FilesError, match="folder"):
        files.create(f"{tmp_path}/folder", b"1")
    assert files.names(str(tmp_path)) == ["folder"]
    assert files.requests.counted() == {"list": 1, "read": 1, "write": 1}


def test_a_file_system_without_hard_links_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(source: str, target: str) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr("os.link", no_links)
    files = LocalFiles()
    with pytest.raises(FilesError, match="its file system has no hard links"):
        files.create_if_absent(f"{tmp_path}/a", b"1")
    assert files.walk(str(tmp_path)) == []
