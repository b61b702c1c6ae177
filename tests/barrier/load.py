"""Two fronts that publish files for as long as they are let, one behind the other."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

from examples.history import Recorder
from fronts.files import FileFront
from fronts.front import FrontOptions
from tests.barrier.pipeline import DIRECT, FED, NAME, QUERIED, direct_directory, read_directory
from tests.waits import HANG_S

KEYS = 40
BEHIND_NS = 400_000_000
"""So much older are the labels of the front whose rows take the shorter way."""
ROWS_A_FILE, FILES_A_SECOND = 50, 10


class LoadedFront:
    """One front in a thread. Each row is written down with the slot of its file before anybody can see it."""

    def __init__(self, target: str, root: Path, front: str, recorder: Recorder, seed: str) -> None:
        self._name, self._recorder = front, recorder
        self._random = random.Random(f"{seed} {front}")
        direct = front == DIRECT
        self._front = FileFront(
            target,
            NAME,
            front,
            FED[front],
            direct_directory(root) if direct else read_directory(root),
            format="json",
            options=FrontOptions(
                clock=(lambda: time.time_ns() - BEHIND_NS) if direct else time.time_ns
            ),
        )
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"load-{front}")
        self.failure: Exception | None = None
        self.rows = 0

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        """Publishes no more; the front has left on return, unless it has failed."""
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            self._front.start(HANG_S)
            while not self._over.wait(1 / FILES_A_SECOND):
                self._publish()
            self._front.leave()
        except Exception as error:
            self.failure = error
        finally:
            self._front.close()

    def _publish(self) -> None:
        names = [f"{self._name}-{self.rows + number}" for number in range(ROWS_A_FILE)]
        rows = [{"key": f"k{self._random.randrange(KEYS):02d}", "id": name} for name in names]
        begun_ns = time.monotonic_ns()
        file = self._front.write(rows)
        assert file is not None
        self.rows += len(rows)
        for row in rows:
            self._recorder.write("row_in", begun_ns, row=row["id"], slot=file.slot, key=row["key"])


FRONTS = (QUERIED, DIRECT)
