"""Whose turn it is takes all files that there are, each once it can be seen."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import cast

import pytest

from fronts.files import FileFront, PublishedFile
from fronts.turns import Turns


class TakingFront:
    """Takes what it can see: nothing of `hidden`, and no folder."""

    def __init__(self) -> None:
        self.front = self
        self.hidden: set[str] = set()
        self.troubles: dict[str, Exception] = {}
        self.asked: list[str] = []

    def start(self, timeout_s: float, lock_timeout_s: float) -> None: ...

    def check_running(self) -> None: ...

    def take(self, path: str) -> PublishedFile | None:
        name = Path(path).name
        self.asked.append(name)
        if name in self.troubles:
            raise self.troubles[name]
        if name in self.hidden or Path(path).is_dir():
            return None
        Path(path).unlink()
        return PublishedFile(path, 0, 0)


def test_a_file_that_is_listed_and_cannot_be_seen_yet_is_taken_later(tmp_path: Path) -> None:
    """Some stores lag, and some files are deleted and written once more. A folder is not asked for again and again."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    front = TakingFront()
    turns = Turns(str(tmp_path), lambda: cast(FileFront, front), "m", "group 'g': member 'm'")
    turns.begin()
    front.hidden.add("file")
    turns.look(threading.Event())
    front.hidden.clear()
    turns.look(threading.Event())
    turns.look(threading.Event())
    assert turns.taken == 1
    assert front.asked == ["file", "folder", "file"]


def test_a_file_that_cannot_be_taken_keeps_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor does it end who runs the front, and then the next one. It is said once, and tried again."""
    for name in ("a", "b", "c"):
        (tmp_path / name).touch()
    front = TakingFront()
    front.troubles = {"a": ValueError("a name of 300 bytes"), "b": OSError("403")}
    turns = Turns(str(tmp_path), lambda: cast(FileFront, front), "m", "group 'g': member 'm'")
    turns.begin()
    for _ in range(2):
        turns.look(threading.Event())
    assert (turns.taken, turns.members) == (1, ["m"])
    assert [record.getMessage().split(" yet: ") for record in caplog.records] == [
        [f"group 'g': member 'm' cannot take {tmp_path}/a", "a name of 300 bytes"],
        [f"group 'g': member 'm' cannot take {tmp_path}/b", "403"],
    ]
    front.troubles.clear()
    turns.look(threading.Event())
    assert turns.taken == 3
