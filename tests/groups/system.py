"""A deployment of groups, the pipelines that live there with their nodes and subscribers, and what is recorded of where each lives."""

from __future__ import annotations

import json
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import astuple
from pathlib import Path

from examples.history import Recorder, merge
from tests.check.groups import Claim, Harm, Tenure
from tests.check.judging import Judged, judge
from tests.cluster.children import Running, discard
from tests.cluster.tracker import Server, Tracker, asked, lowmark
from tests.groups.load import FRONTS, SEGMENTS, spec
from tests.waits import HANG_S, until
from tracker.client import Admin, RefusedError, UnavailableError
from tracker.core.model.slots import FOREVER

DIRECTORY = 0
SHAPES = ((1, 0), (2, 0), (1, 1), (1, 0))
"""Shards and standbys of each group; the last comes later."""
LOADS = 3
"""Processes with nodes; each has its share of the pipelines."""
INTERVAL_MS = 400.0
MOST_STILL_S = 12.0
"""For how long a pipeline may not be announced to move while others are moved, killed and stopped. A client whose process has died
asks the next ones, and gives up one that is stopped after five seconds (KEEPALIVE_MS, KEEPALIVE_TIMEOUT_MS): a group that is stopped has
two at the most. Who waited for a group to come back would stand for longer."""
CLAIMED_EVERY_S = 1.0  # paces: its looks
MOVE_S = 60.0
"""How long one call for a move waits; it is made again until it is decided where the pipeline is."""


class Deployment:
    """Groups 0 to 2, another one when it is added, and pipelines in all of them; not started."""

    def __init__(
        self, directory: Path, pipelines: int, *, sabotage: str = "", finish_s: float = HANG_S
    ) -> None:
        self.directory, self._sabotage, self._finish_s = directory, sabotage, finish_s
        self.parts = directory / "parts"
        self.parts.mkdir(parents=True)
        self.names = [f"pipeline-{number:02}" for number in range(pipelines)]
        self.groups: list[Tracker] = []
        for _ in SHAPES[:-1]:
            self.groups.append(self._made())
        self.target = ",".join(tracker.target for tracker in self.groups)
        """What clients are given, also where another group comes later."""
        self.tenures: dict[str, list[Tenure]] = defaultdict(list)
        self.harms: list[Harm] = []
        self._claims: dict[str, list[Claim]] = defaultdict(list)
        self._specs = {name: spec(name) for name in self.names}
        self._from_ns = 0
        self._finished = threading.Event()
        self._claiming = threading.Thread(target=self._claim, daemon=True)
        share = [self.names[turn::LOADS] for turn in range(LOADS)]
        self._clients = [self._load(number, names) for number, names in enumerate(share) if names]
        self._clients.append(
            Running(
                "tests.cluster.recording_listener", str(self.parts), ",".join(self.names), self.target,
                errors=directory / "listener.log",
            )
        )  # fmt: skip

    def _made(self) -> Tracker:
        number = len(self.groups)
        shards, standbys = SHAPES[number]
        options: tuple[str, ...] = ()
        if number != DIRECTORY:
            options = ("--group", str(number), "--directory", self.groups[DIRECTORY].target)
        place = self.directory / f"group-{number}"
        return Tracker(place, shards, standbys, fault=self._sabotage, options=options)

    def _load(self, number: int, names: Sequence[str]) -> Running:
        return Running(
            "tests.groups.load", self.target, str(self.parts), str(INTERVAL_MS), ",".join(names),
            errors=self.directory / f"load-{number}.log",
        )  # fmt: skip

    def start(self) -> None:
        """Returns when everything goes on."""
        for tracker in self.groups:
            tracker.start()
        self._all_known()
        for name in self.names:
            asked_ns = time.monotonic_ns()
            with Admin(self.target, HANG_S) as admin:
                admin.register(self._specs[name])
            self._lives(name, asked_ns)
        *loads, listener = self._clients
        for process in (listener, *loads):
            process.start()
        listener.until_says("heard")
        for load in loads:
            load.until_says("started")
        self._from_ns = time.monotonic_ns()
        self._claiming.start()

    def add_group(self) -> int:
        """Another group is there, and known to all; returns its number."""
        self.groups.append(self._made())
        self.groups[-1].start()
        self._all_known()
        return len(self.groups) - 1

    def _all_known(self) -> None:
        for tracker in self.groups:
            until(lambda tracker=tracker: self._knows_all(tracker), self.errors)  # type: ignore[misc]

    def _knows_all(self, tracker: Tracker) -> bool:
        found = asked(tracker.target, lambda admin: admin.groups()) or []
        return len(found) == len(self.groups) and not any(group.silent for group in found)

    # --- where pipelines live -----------------------------------------------------------------------

    def group_of(self, name: str) -> int:
        """The group in which a pipeline lives, when one says so."""

        def found() -> tuple[int] | None:
            group = asked(self.target, lambda admin: admin.pipeline(name).group)
            return None if group is None else (group,)

        answer = until(found, self.errors)
        assert answer is not None
        return answer[0]

    def living_in(self, group: int) -> list[str]:
        return [name for name in self.names if self.tenures[name][-1].group == group]

    def _lives(self, name: str, asked_ns: int) -> None:
        group = self.group_of(name)
        self.tenures[name].append(Tenure(group, asked_ns, time.monotonic_ns()))

    def move(self, name: str, to: int) -> str:
        """Moves a pipeline, and returns when it is decided where that is: why it stayed, or nothing."""
        asked_ns = time.monotonic_ns()
        why = self._moved(name, to)
        if not why:  # the group before has not let go of it everywhere yet
            until(lambda: self.group_of(name) == to, self.errors, self._finish_s)
        self._lives(name, asked_ns)
        return why

    def _moved(self, name: str, to: int) -> str:
        deadline = time.monotonic() + HANG_S
        while True:
            try:
                with Admin(self.target, MOVE_S) as admin:
                    admin.move(name, to)
                return ""
            except RefusedError as error:
                return str(error)
            except UnavailableError as error:
                assert time.monotonic() < deadline, f"{error}\n{self.errors()}"

    def drain(self, group: int) -> int:
        """Lets a group be drained as an operator does, who repeats what was not done in time, and be given pipelines again; returns
        how many have gone."""
        asked_ns, names = time.monotonic_ns(), self.living_in(group)
        words = ("--target", self.target, "groups", "drain", str(group))
        until(lambda: lowmark(*words).returncode == 0, self.errors)
        for name in names:
            until(lambda name=name: self.group_of(name) != group, self.errors)  # type: ignore[misc]
            self._lives(name, asked_ns)
        with Admin(self.target, HANG_S) as admin:
            admin.cordon(group, False)
        return len(names)

    def _claim(self) -> None:
        """Asks, again and again, which group has what, of its own word."""
        while not self._finished.wait(CLAIMED_EVERY_S):
            from_ns = time.monotonic_ns()
            groups = asked(self.target, lambda admin: admin.groups()) or []
            leaving = {group.group: group.leaving for group in groups if not group.silent}
            infos = asked(self.target, lambda admin: admin.pipelines()) or []
            to_ns = time.monotonic_ns()
            for info in infos:
                name = info.spec.name
                if name not in leaving.get(info.group, (name,)):
                    self._claims[name].append(Claim(info.group, from_ns, to_ns))

    # --- what is done to groups ---------------------------------------------------------------------

    @contextmanager
    def harmed(self, group: int, what: str) -> Iterator[Tracker]:
        """Something is done to a group meanwhile; it is over when all of its processes serve or wait again."""
        from_ns, tracker = time.monotonic_ns(), self.groups[group]
        yield tracker
        tracker.wait_connected()
        self.harms.append(Harm(group, from_ns, time.monotonic_ns(), what))

    def leader(self, group: int) -> Server:
        """The process that leads a group: it serves shard 0."""
        tracker = self.groups[group]
        found = until(lambda: tracker.owner_of(0), tracker.errors)
        assert found is not None
        return found

    def check_alive(self) -> None:
        """Nothing has ended that was not killed."""
        for tracker in self.groups:
            tracker.check_alive()
        for process in self._clients:
            assert not process.has_ended(), f"{process.command} has ended: {process.errors()}"

    def errors(self) -> str:
        return "\n".join(tracker.errors() for tracker in self.groups)

    # --- ending and judging -------------------------------------------------------------------------

    def finish(self) -> None:
        """Lets the fronts leave, and waits until everybody has heard that all is complete."""
        *loads, listener = self._clients
        for load in loads:
            load.tell("finish")
        deadline = time.monotonic() + self._finish_s
        for process in (*loads, listener):
            process.ends_well(max(0.0, deadline - time.monotonic()))

    def stop_writing(self) -> None:
        """Ends all that writes down what happens, where a run cannot be finished."""
        self._finished.set()
        discard(self._clients)

    def judge(self) -> dict[str, Judged]:
        """What the checker says of each pipeline's history."""
        self.stop_writing()
        if self._claiming.is_alive():
            self._claiming.join(HANG_S)
        return {name: judge(self._history(name)) for name in self.names}

    def _history(self, name: str) -> Path:
        recorder = Recorder(self.parts / f"{name}-run.jsonl")
        recorder.header(self._specs[name], FRONTS)
        homes = {
            server.address: number
            for number, tracker in enumerate(self.groups)
            for server in tracker.servers
        }
        recorder.write(
            "groups", self._from_ns, homes=homes, most_still_ns=int(MOST_STILL_S * 1e9),
            tenures=[astuple(each) for each in self.tenures[name]],
            claims=[astuple(each) for each in self._claims[name]],
            harms=[astuple(each) for each in self.harms],
        )  # fmt: skip
        self.groups[self.tenures[name][-1].group].record_final(recorder, name)
        recorder.expected(dict.fromkeys(SEGMENTS, FOREVER))
        recorder.close()
        path = self.directory / "histories" / f"{name}.jsonl"
        path.parent.mkdir(exist_ok=True)
        merge(self.parts.glob(f"{name}-*.jsonl"), path)
        return path

    def counted(self) -> dict[str, int]:
        """Of all histories: ticks that were acknowledged, and announcements that were heard."""
        kinds = [
            json.loads(line)["kind"]
            for path in (self.directory / "histories").glob("*.jsonl")
            for line in path.read_text().splitlines()
        ]
        return {"acknowledged": kinds.count("tick"), "announcements": kinds.count("heard")}

    def close(self) -> None:
        """Ends what still runs, however the run went."""
        self.stop_writing()
        with ExitStack() as stack:
            for tracker in self.groups:
                stack.callback(tracker.close)
