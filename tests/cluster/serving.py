"""A tracker process that ends with whoever has started it, however that one ends.

    python -m tests.cluster.serving ''|early|lost|double -- serve --listen ...

What follows `--` is the normal command line, in the same process, with a planted fault if one is named
(see `tests.sabotage`). Its standard input is a pipe that nobody writes to: when that closes, it is gone.
"""

from __future__ import annotations

import sys

from tests.cluster.told import end_with_parent


def main(fault: str, *arguments: str) -> None:
    end_with_parent()
    if fault:
        from tests.sabotage import FAULTS, OTHERS

        (FAULTS | OTHERS)[fault]()
    from tracker.cli import main as command_line

    sys.argv = ["lowmark", *arguments[1:]]
    command_line()


if __name__ == "__main__":
    main(*sys.argv[1:])
