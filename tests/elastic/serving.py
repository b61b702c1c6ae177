"""A tracker process that ends with whoever has started it, however that one ends.

    python -m tests.elastic.serving ''|early|lost|double -- serve --listen ...

What follows `--` is the normal command line, in the same process, with a planted fault if one is named
(see `tests.sabotage`). Its standard input is a pipe that nobody writes to: when that closes, it is gone.
"""

from __future__ import annotations

import os
import sys
import threading

from tests.sabotage import FAULTS


def end_with_parent() -> None:
    """Ends this process at once when its standard input does."""

    def wait() -> None:
        while os.read(0, 1):  # unbuffered: a buffer's lock would be held while the process ends
            pass
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def main(arguments: list[str]) -> None:
    end_with_parent()
    if arguments[0]:
        FAULTS[arguments[0]]()
    from tracker.cli import main as command_line

    sys.argv = ["lowmark", *arguments[2:]]
    command_line()


if __name__ == "__main__":
    main(sys.argv[1:])
