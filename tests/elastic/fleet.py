"""The tracker's processes of a run, which come and go, and what they tell of themselves."""

from __future__ import annotations

import resource
from pathlib import Path

from examples.history import Recorder
from tests.cluster.children import Running, discard
from tests.cluster.tracker import Server, Tracker, lowmark
from tests.service.scraping import samples_of, text_of
from tests.spark_matrix.recording import write_settled
from tracker.core.model import PipelineSpec
from tracker.core.model.slots import FOREVER

MARGIN_MS = 100
"""How far beyond the highest slot new shards begin to own: all here have one clock."""
MOVED = "lowmark_cells_moved_total"
PAGE_BYTES = resource.getpagesize()


class Fleet(Tracker):
    """Each process has a store of its own."""

    def __init__(self, directory: Path, shards: int, sabotage: str = "") -> None:
        super().__init__(
            directory, shards, fault=sabotage, metrics=True,
            options=("--set", f"rescale_margin_ms={MARGIN_MS}"),
        )  # fmt: skip
        self._listeners: list[Running] = []

    def listening(self, parts: Path, pipeline: str, *targets: str) -> Running:
        """Subscribers that write down what they hear, one at each of the targets, or one at all
        processes; each has heard something. They end with the fleet, if not before."""
        listener = Running(
            "tests.cluster.recording_listener", str(parts), pipeline, *(targets or [self.target]),
            errors=parts.parent / "listener.log",
        )  # fmt: skip
        self._listeners.append(listener)
        listener.start()
        listener.until_says("heard")
        return listener

    def completed(self, recorder: Recorder, spec: PipelineSpec) -> Path:
        """Ends the record of a pipeline of which all is to be complete, and joins it with all that lies
        beside it: the history."""
        self.record_final(recorder, spec.name)
        recorder.expected(dict.fromkeys(spec.segments, FOREVER))
        recorder.close()
        parts = recorder.path.parent
        write_settled(parts, parts.parent / "history.jsonl")
        return parts.parent / "history.jsonl"

    def close(self) -> None:
        discard(self._listeners)
        super().close()

    def changed(self, shards: int, *, evacuate: bool = False, by_command: bool = False) -> int:
        """Returns when it is done, and those that were to go have ended by themselves: how many cells
        were moved. by_command: as an operator does it."""
        before = self.metrics(MOVED)[MOVED]
        if by_command:
            more = ["--evacuate"] if evacuate else []
            said = lowmark("shards", str(shards), "--target", self.target, *more)
            assert said.returncode == 0, f"{said.stdout[-2000:]}{said.stderr[-2000:]}"
        else:
            self.rescale(shards, evacuate=evacuate)
        gone = self.left()
        return int(self.metrics(MOVED)[MOVED] - before) + sum(map(_handed_over, gone))

    def metrics(self, *names: str) -> dict[str, float]:
        """Sums of metrics over the processes that are there, and all labels."""
        sums = dict.fromkeys(names, 0.0)
        for server in self.servers:
            for (name, _), value in samples_of(text_of(server.metrics)).items():
                if name in sums:
                    sums[name] += value
        return sums

    def memory_bytes(self) -> dict[str, int]:
        """What each process has in memory, by address."""
        return {
            server.address: PAGE_BYTES
            * int(Path(f"/proc/{server.pid}/statm").read_text().split()[1])
            for server in self.servers
        }


def _handed_over(server: Server) -> int:
    """How many cells a process that has left has handed over, as it says."""
    said = [event for event in server.events() if event["event"] == "handed_over"]
    return sum(event["moved_cells"] for event in said)
