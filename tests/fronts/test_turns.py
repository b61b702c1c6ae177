"""Whose turn it is takes all files that there are, each once it can be seen."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import cast

from fronts.files import FileFront, PublishedFile
from fronts.turns import Turns


class TakingFront:
    """Takes what it can see: nothing of `hidden`, and no folder."""

    def __init__(self) -> None:
        self.front = self
        self.hidden: set[str] = set()
        self.asked: list[str] = []

    def start(self, timeout_s: float, lock_timeout_s: float) -> None: ...

    def check_running(self) -> None: ...

    def take(self, path: str) -> PublishedFile | None:
        name = Path(path).name
        self.asked.append(name)
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
