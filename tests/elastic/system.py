"""A tracker under a steady load, with its subscribers and its history."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from examples.history import Recorder, read
from tests.cluster.children import Running, discard, processor_s
from tests.elastic.fleet import Fleet
from tests.elastic.load import FRONTS, PIPELINE, spec
from tests.elastic.windows import Sample, samples
from tests.waits import HANG_S
from tracker.core.model import PipelineSpec

INTERVAL_MS, ITEMS = 75.0, 4
"""Of each of two fronts."""


class System:
    """A fleet, the load, and subscribers; `finish` ends them as they should, `close` in any case."""

    def __init__(
        self,
        directory: Path,
        shards: int,
        *,
        sabotage: str = "",
        interval_ms: float = INTERVAL_MS,
        items: int = ITEMS,
        subscribers: int = 2,
        finish_s: float = HANG_S,
    ) -> None:
        self.directory = directory
        self.parts = directory / "parts"
        self.parts.mkdir(parents=True)
        self.fleet = Fleet(directory / "tracker", shards, sabotage)
        self._load_options = (str(interval_ms), str(items))
        self._subscribers, self._finish_s = subscribers, finish_s
        self.load: Running | None = None
        self.listener: Running | None = None
        self.spec: PipelineSpec = spec()
        self.standing: Any = None
        """Cells that stay open, if there are any; ends with this one."""
        self.others: list[Running] = []
        """More processes that end with this one."""

    def start(self) -> None:
        self.fleet.start()
        self.spec = spec()
        self.fleet.register(self.spec)
        addresses = self.fleet.addresses
        turned = [addresses[n % len(addresses) :] + addresses for n in range(self._subscribers)]
        self.listener = self.fleet.listening(
            self.parts, PIPELINE, *(",".join(dict.fromkeys(targets)) for targets in turned)
        )
        self.load = Running(
            "tests.elastic.load", self.fleet.target, str(self.parts), *self._load_options,
            errors=self.directory / "load.log",
        )  # fmt: skip
        self.load.start()
        self.load.until_says("started")

    def other(self, module: str, *arguments: str, errors: str) -> Running:
        """One more process, not started."""
        process = Running(module, *arguments, errors=self.directory / errors)
        self.others.append(process)
        return process

    def processor_s(self) -> float:
        """Processor time of the tracker, the load and the subscribers so far."""
        own = [p.pid for p in (self.load, self.listener) if p is not None]
        return self.fleet.processor_s() + sum(map(processor_s, own))

    def finish(self) -> Path:
        """Lets the fronts leave, waits until everybody has heard that all is complete, and writes the
        history. Raises AssertionError if something does not come to its end."""
        assert self.load is not None and self.listener is not None
        self.load.tell("finish")
        deadline = time.monotonic() + self._finish_s
        for process in (self.load, self.listener):
            process.ends_well(deadline - time.monotonic())
        return self.history()

    def history(self) -> Path:
        """Joins what all have written down, with what the tracker says now."""
        recorder = Recorder(self.parts / "run.jsonl")
        recorder.header(self.spec, FRONTS)
        return self.fleet.completed(recorder, self.spec)

    def samples(self, from_ns: int, to_ns: int) -> list[Sample]:
        """Of a finished run."""
        lines: list[dict[str, Any]] = read(self.directory / "history.jsonl")
        return samples(self.spec, FRONTS, lines, from_ns, to_ns)

    def errors(self) -> str:
        logs = [self.directory / "load.log", self.directory / "listener.log"]
        tails = [path.read_text(errors="replace")[-1500:] for path in logs if path.exists()]
        return "\n".join([*tails, self.fleet.errors()])

    def stop_writing(self) -> None:
        """Ends all that writes down what happens, where a run cannot be finished."""
        discard(process for process in (self.listener, self.load, *self.others) if process)

    def close(self) -> None:
        self.stop_writing()
        if self.standing is not None:
            self.standing.close()
        self.fleet.close()

    def __enter__(self) -> System:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
