"""Tries out of a store whether it creates a file only if it is absent: `python -m tests.files.race LOCATION`.

LOCATION is a directory of it, by any scheme that `tracker.files` writes to. In each race eight threads create one
file; one must win, and the others must find what it wrote. It ends with 1 where that is not so.
"""

from __future__ import annotations

import sys
import threading
from uuid import uuid4

from tracker.files import STORES, Files, child

RACES, RACERS = 30, 8


def race(files: Files, path: str) -> bool:
    """Whether one of those who create a file has won, and the file is its."""
    start, won = threading.Barrier(RACERS), list[bytes]()

    def create(content: bytes) -> None:
        start.wait()
        if files.create_if_absent(path, content):
            won.append(content)

    threads = [threading.Thread(target=create, args=(b"%d" % n,)) for n in range(RACERS)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return len(won) == 1 and files.read_whole(path, RACERS) == won[0]


def main(text: str) -> int:
    where = child(STORES.location(text), uuid4().hex)
    files = STORES.files(where)
    failed = sum(not race(files, child(where, f"{number}")) for number in range(RACES))
    files.delete_all(where)
    print(f"race: {'FAILED' if failed else 'OK'} races={RACES} racers={RACERS} failed={failed}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
