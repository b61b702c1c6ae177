"""A child process's end of its standard input: a line tells it to finish, the end of it that its parent is
gone."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable


def end_with_parent() -> None:
    """Ends this process at once, as if it had been killed, when its standard input does."""
    _listen(lambda line: None)


def told_to_finish() -> threading.Event:
    """Set when the line `finish` has come. Without its parent the process ends as if killed."""
    finish = threading.Event()
    _listen(lambda line: finish.set() if line == b"finish" else None)
    return finish


def _listen(heard: Callable[[bytes], None]) -> None:
    def listen() -> None:
        said = b""
        while text := os.read(0, 4096):  # unbuffered: a buffer's lock would be held while it ends
            *lines, said = (said + text).split(b"\n")
            for line in lines:
                heard(line)
        os._exit(1)

    threading.Thread(target=listen, daemon=True).start()
