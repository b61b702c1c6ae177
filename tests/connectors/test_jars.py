"""Fetching: a set is exactly what is pinned, whole or not there, and who can't fetch it is told why."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.connectors.parts import cache, jars
from tests.connectors.parts.cache import Unavailable, made_once, run_fetcher
from tests.connectors.parts.jars import WrongJars, refuse_others

PINNED = {"a-1.jar": "aa", "b-2.jar": "bb"}


def test_each_set_has_its_digests() -> None:
    assert {path.stem for path in jars.SETS.glob("*.sha256")} == set(jars.names())
    for name in jars.names():
        assert all(len(digest) == 64 for digest in jars.pinned_jars(name).values())
        assert all(jar.endswith(".jar") for jar in jars.pinned_jars(name))


def test_what_is_pinned_is_taken() -> None:
    refuse_others("set", dict(PINNED), PINNED)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({"a-1.jar": "aa", "b-2.jar": "xx"}, "b-2.jar has the sha256 xx, pinned is bb"),
        ({"a-1.jar": "aa"}, r"b-2.jar has the sha256 \(missing\)"),
        ({**PINNED, "c-3.jar": "cc"}, r"c-3.jar has the sha256 cc, pinned is \(none\)"),
    ],
)
def test_anything_else_is_refused(found: dict[str, str], said: str) -> None:
    with pytest.raises(WrongJars, match=said):
        refuse_others("set", found, PINNED)


def test_a_folder_is_made_once_by_whoever_comes_first(tmp_path: Path) -> None:
    begun, go_on, waited = threading.Event(), threading.Event(), []

    def first() -> None:
        with made_once(tmp_path / "set") as part:
            assert part is not None
            begun.set()
            go_on.wait()
            (part / "file").write_text("whole")

    def second() -> None:
        with made_once(tmp_path / "set") as part:
            waited.append((part, (tmp_path / "set/file").read_text()))

    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    threads[0].start()
    begun.wait()
    threads[1].start()
    assert not (tmp_path / "set").exists()
    go_on.set()
    for thread in threads:
        thread.join()
    assert waited == [(None, "whole")]


def test_what_failed_half_way_is_begun_anew(tmp_path: Path) -> None:
    with pytest.raises(Unavailable), made_once(tmp_path / "set") as part:
        assert part is not None
        (part / "left").write_text("half")
        raise Unavailable("no network")
    assert not (tmp_path / "set").exists()
    with made_once(tmp_path / "set") as part:
        assert part is not None
        assert list(part.iterdir()) == []


def test_without_the_fetcher_the_reason_names_it() -> None:
    with pytest.raises(Unavailable, match=r"jars of x: there is no mvn-missing on the PATH"):
        run_fetcher("jars of x", ["mvn-missing"])


def test_of_what_a_fetcher_says_its_first_error_is_the_reason() -> None:
    script = "echo begun; echo '[ERROR] no such host'; echo '[ERROR] more'; exit 1"
    with pytest.raises(Unavailable, match=r"x: not fetched: \[ERROR\] no such host$"):
        run_fetcher("x", ["sh", "-c", script])


def test_one_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "HANG_S", 0.1)
    with pytest.raises(Unavailable, match=r"x: not fetched within 0.1 s"):
        run_fetcher("x", ["sleep", "60"])
