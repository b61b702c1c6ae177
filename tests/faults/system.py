"""A whole system of processes, and what there is to kill, pause and cut off in it."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from examples.history import Recorder, merge
from tests.check.history import read_history
from tests.check.rules import violations
from tests.cluster.children import Running, discard, ends_of_logs, now_slot
from tests.cluster.network import Network
from tests.cluster.tracker import Server, Tracker, local_tracker, socket_in
from tests.faults.nodes import FRONTS, PAUSE_S, PAUSE_VARIABLE, PIPELINE, SEGMENTS, read, spec
from tests.waits import HANG_S, until
from tracker.core.model.slots import FOREVER


class System:
    """The tracker's processes, a standby, the nodes, the subscribers; not started."""

    def __init__(
        self,
        directory: Path,
        network: Network,
        *,
        shards: int = 3,
        standbys: int = 1,
        store: str = "redis",
        sabotage: str = "",
        subscribers: int = 2,
        hears_last_shard: bool = False,
        options: tuple[str, ...] = (),
        pause_s: float = PAUSE_S,
    ) -> None:
        """hears_last_shard: one of the subscribers asks the last shard's process alone; pause_s: of the nodes, between
        their steps."""
        self._pace = {PAUSE_VARIABLE: str(pause_s)}
        self.directory, self.network = directory, network
        self._stack = ExitStack()
        self.work = directory / "work"
        self.work.mkdir(parents=True)
        self.tracker = Tracker(
            directory, shards, standbys, store=store, options=options, network=network,
            fault=sabotage,
        )  # fmt: skip
        self._stack.callback(self.tracker.close)
        self.target = self.tracker.target
        """What clients are given, also where more processes come later."""
        self.nodes = {name: self._node("front", name) for name in FRONTS}
        self.nodes["parse"] = self._node("query", "parse", ",".join(FRONTS), "mid")
        self.nodes["join"] = self._node("staging", "join", "parse", "out")
        self.local_tracker = local_tracker(self.target, PIPELINE, directory, node_id="eager")
        self.worker = self._nodes_process("worker", socket_in(directory), "worker", "join")
        turns = [self._turned(turn) for turn in range(subscribers)]
        if hears_last_shard:
            turns[-1] = self.tracker.shards[-1].address
        self.subscribers: list[Running] = []
        for turn in turns:
            self.subscriber(turn)

    def subscriber(self, target: str) -> Running:
        """One more, which asks there first; not started."""
        errors = self.directory / f"subscriber-{len(self.subscribers)}.log"
        self.subscribers.append(Running("tests.cluster.listener", target, PIPELINE, errors=errors))
        return self.subscribers[-1]

    def _turned(self, by: int) -> str:
        targets = self.target.split(",")
        by %= len(targets)
        return ",".join(targets[by:] + targets[:by])

    def _node(self, kind: str, name: str, *more: str) -> Running:
        return self._nodes_process(kind, self.target, name, *more)

    def _nodes_process(self, kind: str, target: str, name: str, *more: str) -> Running:
        return Running(
            "tests.faults.nodes", kind, target, name, str(self.work), *more,
            errors=self.directory / f"{name}.log", environment=self._pace,
        )  # fmt: skip

    def start(self) -> None:
        self.tracker.start()
        self.tracker.register(spec(now_slot()))
        for process in self._clients():
            process.start()

    def _clients(self) -> list[Running]:
        return [self.local_tracker, *self.nodes.values(), self.worker, *self.subscribers]

    def check_alive(self) -> None:
        """Nothing has ended that was not killed."""
        self.tracker.check_alive()
        for process in self._clients():
            assert not process.has_ended(), f"{process.command} has ended: {process.errors()}"

    def close(self) -> None:
        """Ends what still runs, however the run went."""
        discard(self._clients())
        self._stack.close()

    # --- looking ----------------------------------------------------------------------------------

    def heard(self) -> list[tuple[int, int, int]]:
        """(subscriber, moment, min time of the pipeline), in the order in which each heard it."""
        found = []
        for number, subscriber in enumerate(self.subscribers):
            for _, line in list(subscriber.lines):
                update = json.loads(line)
                if update["segment"] is None:
                    found.append((number, update["at_ns"], update["min_time"]))
        return found

    def hears_of(self, slot: int, timeout_s: float = HANG_S) -> float:
        """Waits until a subscriber has heard that all before a slot is complete; returns the moment
        (seconds of the monotonic clock)."""

        def moments() -> list[int]:
            return [at_ns for _, at_ns, min_time in self.heard() if min_time >= slot]

        said = until(moments, lambda: f"slot {slot} is not announced\n{self.errors()}", timeout_s)
        return min(said) / 1e9

    def moments(self) -> list[int]:
        """When any of the subscribers heard that min time has moved."""
        return sorted(at_ns for _, at_ns, _ in self.heard())

    def gap_s(self, since_ns: int) -> float:
        """The longest time since then in which no subscriber heard that min time has moved."""
        after = [at for at in self.moments() if at >= since_ns]
        assert after, "nothing has been heard since"
        return max(b - a for a, b in zip([since_ns, *after], after, strict=False)) / 1e9

    def goes_on(self, timeout_s: float = HANG_S) -> float:
        """Waits until what is labelled from now on is announced; returns how long that took."""
        start = time.monotonic()
        return self.hears_of(now_slot() + 1, timeout_s) - start

    def acknowledged(self) -> int:
        """Ticks that nodes know to be durable."""
        return sum(
            path.read_bytes().count(b'{"kind":"durable"') for path in self.work.glob("*.steps")
        )

    def owner_of(self, shard: int) -> Server | None:
        return self.tracker.owner_of(shard)

    def errors(self) -> str:
        return ends_of_logs(self.directory)

    # --- ending and judging -----------------------------------------------------------------------

    def finish(self, timeout_s: float = HANG_S) -> None:
        """Lets the fronts leave, waits until all is complete and everybody has heard it, and ends the local tracker."""
        self.leave(timeout_s)
        assert self.local_tracker.stop() == 0, self.local_tracker.errors()

    def leave(self, timeout_s: float = HANG_S) -> None:
        """Lets the fronts leave, and waits until all is complete and everybody has heard it."""
        (self.work / "finish").touch()
        self.hears_of(FOREVER, timeout_s)
        for process in (*self.nodes.values(), self.worker, *self.subscribers):
            process.ends_well()

    def stop_nodes(self) -> None:
        """Ends all that writes down what happens, where a run cannot be finished."""
        discard(self._clients())

    def history(self) -> Path:
        """Writes down all that has happened, as `tests.check` reads it."""
        recorder = Recorder(self.directory / "parts" / "run.jsonl")
        registered = spec(0)
        recorder.header(registered, dict.fromkeys(FRONTS, "in"))
        for path in sorted(self.work.glob("*.steps")):
            record_steps(recorder, list(read(path)))
        for number, subscriber in enumerate(self.subscribers):
            for _, line in subscriber.lines:
                update = json.loads(line)
                recorder.write(
                    "heard", update["at_ns"], subscriber=f"subscriber-{number}",
                    segment=update["segment"], min_time=update["min_time"],
                )  # fmt: skip
        self.tracker.record_final(recorder, PIPELINE)
        recorder.expected(dict.fromkeys(SEGMENTS, FOREVER))
        recorder.close()
        path = self.directory / "history.jsonl"
        merge([recorder.path], path)
        return path

    def violations(self) -> list[str]:
        """What the recorded history breaks."""
        return violations(read_history(self.history()))


def record_steps(recorder: Recorder, lines: list[dict[str, Any]]) -> None:
    """A node's record as lines of a history: each step's items, and one tick for it."""
    steps = {line["batch"]: line for line in lines if line["kind"] == "step"}
    told: set[int] = set()
    for line in steps.values():
        for segment, slot, item in line["created"]:
            recorder.created(segment, slot, item, line["at_ns"])
        for segment, _, item in line["consumed"]:
            recorder.consumed(segment, item, line["at_ns"])
    for line in lines:
        if line["kind"] != "durable" or line["batch"] in told:
            continue
        told.add(line["batch"])
        step = steps[line["batch"]]
        recorder.write(
            "tick", line["at_ns"], node=line["node"], number=line["number"],
            handed_ns=line["handed_ns"], acknowledged_ns=line["at_ns"],
            created=[[s, slot, 1] for s, slot, _ in step["created"]],
            consumed=[[s, slot, 1] for s, slot, _ in step["consumed"]],
            promises=[], leaves=[],
        )  # fmt: skip
