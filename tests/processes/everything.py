"""A tracker of some shards, two fronts, a reader and a subscriber: all that a test kills parts of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.cluster.children import Running, discard, now_slot
from tests.cluster.tracker import Tracker
from tests.processes.reading import FileReader
from tracker.client import Admin
from tracker.core.model import Edge, PipelineSpec
from tracker.core.model.slots import FOREVER

FRONTS = ("a", "b")
PIPELINE = "p"
MORE_FILES = 30


class Everything:
    """The processes, and the reader that the test brings."""

    reader: FileReader

    def __init__(self, shard_count: int, directory: Path, **settings: Any) -> None:
        """settings: of the pipeline, beside its graph and its fronts."""
        self._settings = settings
        self.tracker = Tracker(directory, shard_count)
        self.shards, self.target = self.tracker.shards, self.tracker.target
        self.files = files = directory / "in"
        files.mkdir()
        self.fronts = [
            Running(
                "tests.processes.front", self.target, PIPELINE, name, str(files),
                errors=directory / f"front-{name}.log",
            )
            for name in FRONTS
        ]  # fmt: skip
        self.listener = Running(
            "tests.cluster.listener", self.target, PIPELINE, errors=directory / "listener.log"
        )

    def start(self, reader: FileReader) -> None:
        """Starts everything; the reader when the pipeline is registered."""
        self.reader = reader
        self.tracker.start()
        spec = PipelineSpec(
            PIPELINE, ("in", "out"), (Edge("in", "out"),), fronts=FRONTS, start_slot=now_slot(),
            **self._settings,
        )  # fmt: skip
        self.tracker.register(spec)
        for process in (*self.fronts, self.listener):
            process.start()
        self.reader.start()

    def hears_of(self, slot: int) -> None:
        """Waits until the subscriber has heard that all before a slot is complete."""
        self.listener.until(lambda line: is_reached(line, slot))

    def goes_on(self) -> None:
        """Waits until fronts have published, the reader has read and the subscriber has heard."""
        self.reader.until_more(MORE_FILES)
        self.hears_of(now_slot())

    def finish(self) -> None:
        for front in self.fronts:
            front.tell("finish")
        for front in self.fronts:
            front.ends_well()
        self.reader.finish()
        self.hears_of(FOREVER)
        self.listener.ends_well()

    def discard(self) -> None:
        discard([*self.fronts, self.listener])
        self.tracker.close()

    # --- what must hold ---------------------------------------------------------------------------

    def check(self) -> None:
        self.check_files()
        self.check_heard()
        self.check_empty()

    def check_files(self) -> None:
        """Each front numbered its files without a gap, in the order of their slots."""
        for name in FRONTS:
            mine = [r.file.labels for r in self.reader.read if r.file.labels.front == name]
            mine.sort(key=lambda labels: labels.batch)
            assert [labels.batch for labels in mine] == list(range(len(mine)))
            slots = [labels.slot for labels in mine]
            assert slots == sorted(slots) and slots

    def check_heard(self) -> None:
        """Nothing was heard before its time, and nothing went back."""
        before: dict[tuple[int, str | None], int] = {}
        for run, line in self.listener.lines:
            heard = json.loads(line)
            segment, min_time = heard["segment"], heard["min_time"]
            assert min_time > before.get((run, segment), min_time - 1), f"went back: {line}"
            before[run, segment] = min_time
            for read in self.reader.read:
                done_ns = read.file_done_ns if segment == "in" else read.child_done_ns
                if read.file.slot < min_time:
                    assert done_ns <= heard["at_ns"], f"{read.file.name} was open at {line}"

    def check_empty(self) -> None:
        """No shard has a cell left, and nothing came too late."""
        for address in self.target.split(","):
            with Admin(address) as admin:
                state = admin.pipeline(PIPELINE).state
            assert [segment.open_slots for segment in state.segments] == [0, 0]
            assert state.late_items == 0


def is_reached(line: str, slot: int) -> bool:
    heard = json.loads(line)
    return heard["segment"] is None and heard["min_time"] >= slot
