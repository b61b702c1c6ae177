"""The flights of a year, while the pipeline is changed and the processes of its tracker are ended and started again one by one:
those of the release before as this one, back, and for good, until the upgrade is finished."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import Queue

from examples.children import Said
from examples.flights.data import AIRPORTS
from examples.flights.form import DemoFailed, Form, Worker
from examples.flights.pipeline import NAME, Places
from examples.flights.proof import newest_totals
from examples.flights.replay import ReplayClock
from examples.flights.run import BLOCK_SLOTS, SHARDS, SHOW_INTERVAL_S, Demo
from examples.flights.view import View
from lowmark import FOREVER, Admin, PipelineSpec
from scripts.summary import ROOT
from tests.change.pipeline import BEFORE, GROWN, PULSE, REMOVED, SEGMENTS, SHRUNK
from tests.cluster.before import NoReleaseBefore, release_before
from tests.cluster.tracker import Server, Tracker, asked
from tests.faults.failover import standby_watches
from tests.waits import HANG_S, until

STALLED_S = 45.0
STALLED_SABOTAGED_S = 15.0
"""How long the flights' segments may stand still."""
PARTLY = ("halved",)
"""Faults that only one process has."""
ADD_AT, FIRST_AT, KILL_AT, BACK_AT, REMOVE_AT, LAST_AT, UPGRADED_AT = (
    0.08,
    0.2,
    0.3,
    0.4,
    0.5,
    0.7,
    0.82,
)
"""When what happens begins, at the earliest, as parts of the year."""


@dataclass(frozen=True, slots=True)
class Happened:
    """What was done, and between which moments (nanoseconds of CLOCK_MONOTONIC). to_tracker: to the tracker, else to queries."""

    what: str
    from_ns: int
    to_ns: int
    to_tracker: bool = True


def root_before() -> Path:
    """The files of the release before, or those of this one where that cannot be had."""
    try:
        return release_before()
    except NoReleaseBefore as reason:
        print(f"no process is of another release: {reason}", flush=True)
        return ROOT


@contextmanager
def workers(sabotage: str) -> Iterator[Mapping[str, Worker]]:
    """Those of the demo, with a driver that takes steps, and a pulse."""
    driver = (sabotage,) if sabotage else ()
    yield {
        **{name: Worker("examples.flights.airport", (name,), ends=True) for name in AIRPORTS},
        PULSE: Worker("tests.change.pulse", terminated=False, ends=True, after_year=True),
        "driver": Worker("tests.change.driver", driver, terminated=False),
        "dead-letters": Worker("examples.flights.dead_letters"),
    }


def form(sabotage: str) -> Form:
    return Form(
        name="change",
        spec=BEFORE,
        fronts={**dict.fromkeys(AIRPORTS, "parse"), PULSE: PULSE},
        around=lambda _: workers(sabotage),
        totals=lambda places: newest_totals(places.totals),
    )


class Changing(Demo):
    """A run of the demo on shards with a standby."""

    start_timeout_s = HANG_S

    def __init__(
        self,
        form: Form,
        programs: Mapping[str, Worker],
        places: Places,
        duration_s: float,
        sabotage: str | None,
    ) -> None:
        super().__init__(form, programs, places, duration_s, sabotage)
        fault = sabotage if sabotage in ("early", "lost") else ""
        options = ("--set", f"block_slots={BLOCK_SLOTS}")
        self.cluster = Tracker(places.store, SHARDS, 1, options=options, fault=fault)
        if sabotage in PARTLY:
            last = self.cluster.shards[-1]
            directory = self.cluster.directory
            self.cluster.shards[-1] = Server(last.place, last.way, directory, fault=sabotage)
        self.before = root_before()
        for server in self.cluster.servers:
            server.root = self.before
        self.level = 0
        """The feature level by which all record in the end."""
        self.target, addresses = self.cluster.target, self.cluster.addresses
        turns = range(len(addresses))
        self.listened = [",".join(addresses[turn:] + addresses[:turn]) for turn in turns]
        self.progress.min_times = dict.fromkeys(SEGMENTS, BEFORE.start_slot)
        self.happened: list[Happened] = []
        self.stopped_ns: list[int] = []
        """When `enrich` had ended each time, by the clock that stamps files."""
        self._done: Queue[dict[str, int]] = Queue()
        self._failure: Exception | None = None
        self._may_leave = False

    @property
    def is_served(self) -> bool:
        return all(server.run >= 0 for server in self.cluster.shards)

    def _start_tracker(self) -> None:
        self.cluster.start()

    def _take(self, said: Said) -> None:
        if said.event is not None and said.event.get("event") == "done":
            self._done.put(said.event)
        else:
            super()._take(said)

    def _let_leave(self) -> None:
        """The pulse goes on until all has happened."""
        self._may_leave = True

    def _replay(self, view: View, clock: ReplayClock) -> None:
        changing = threading.Thread(target=self._change, args=(clock,), daemon=True)
        changing.start()
        most_s = STALLED_S if self.sabotage is None else STALLED_SABOTAGED_S
        stood_s, stands = time.monotonic(), dict(self.progress.min_times)
        while not self._complete():
            if self._may_leave and not changing.is_alive():
                self._may_leave = False
                super()._let_leave()
            self.progress.clock_ns = clock.now_ns()
            self._hear(view, SHOW_INTERVAL_S)
            if self._failure is not None:
                raise DemoFailed(f"a change failed: {self._failure!r}") from self._failure
            if (now := {**self.progress.min_times, PULSE: 0}) != stands:
                stood_s, stands = time.monotonic(), now
            if time.monotonic() - stood_s > most_s:
                raise DemoFailed(
                    f"min time has not moved for {most_s:g} s; it stands at "
                    f"{self._min_time_texts()}; {self.cluster.errors()}"
                )

    # --- what happens -----------------------------------------------------------------------------

    def _change(self, clock: ReplayClock) -> None:
        """In a thread of its own: all changes, one after the other."""
        begin_s = clock.start_ns / 1e9

        def at(part: float) -> None:
            left_s = begin_s + part * clock.duration_s - time.monotonic()
            time.sleep(max(0.0, left_s))  # paces: what happens when

        try:
            at(ADD_AT)
            floors = self._apply(GROWN, "a segment is added")
            self._step("add", floor=floors["dead_letters"])
            at(FIRST_AT)
            first, second, standby = self.cluster.servers
            self._replace(first, ROOT)
            at(KILL_AT)
            self._replace(second, ROOT, killed=True)
            at(BACK_AT)
            self._replace(first, self.before)
            at(REMOVE_AT)
            self._step("detach")
            self._apply(SHRUNK, "a segment is removed", killed=first)
            until(lambda: self.progress.min_times[REMOVED] == FOREVER, self.cluster.errors)
            self._step("end")
            at(LAST_AT)
            self._replace(standby, ROOT)
            at(UPGRADED_AT)
            self._replace(first, ROOT)
            self._finish_upgrade()
        except Exception as error:
            self._failure = error

    def _apply(self, spec: PipelineSpec, what: str, killed: Server | None = None) -> dict[str, int]:
        """Changes the pipeline, and kills a process meanwhile if one is named; returns the largest min times that any process
        reports then."""
        shard = None if killed is None else self._shard_of(killed)
        with Admin(self.target, HANG_S) as admin, ThreadPoolExecutor(1) as pool:
            asked_ns = time.monotonic_ns()
            answer = pool.submit(admin.apply, spec)
            if killed is not None:
                killed.kill()
            answer.result()
        floors = self._reported()
        self.recorder.changed(spec, asked_ns, floors)
        if killed is None:
            self._note(what, asked_ns)
        else:
            self._start_again(killed, shard, f"{what}, {killed.name} is killed", asked_ns)
        return floors

    def _reported(self) -> dict[str, int]:
        """By segment the largest min time that any process reports."""

        def reports() -> list[dict[str, int]] | None:
            told = [
                asked(address, lambda admin: admin.pipeline(NAME).state.segments)
                for address in self.cluster.serving()
            ]
            found = [{each.segment: each.min_time for each in one} for one in told if one]
            return found if len(found) == len(told) else None

        all_reports = until(reports, self.cluster.errors)
        assert all_reports is not None
        return {name: max(one[name] for one in all_reports) for name in all_reports[0]}

    def _finish_upgrade(self) -> None:
        from_ns = time.monotonic_ns()
        with Admin(self.target, HANG_S) as admin:
            self.level = admin.finish_upgrade().table.level
        self._note("the upgrade is finished", from_ns)

    def _replace(self, server: Server, root: Path, *, killed: bool = False) -> None:
        """Ends a process, and starts it again as that of a release, whose files are there."""
        shard = self._shard_of(server)
        from_ns = time.monotonic_ns()
        if killed:
            server.kill()
        else:
            server.stop()
        server.root = root
        release = "the release before" if root != ROOT else "this release"
        what = f"{server.name} is {'killed' if killed else 'stopped'}, and started as {release}"
        self._start_again(server, shard, what, from_ns)

    def _shard_of(self, server: Server) -> int | None:
        """The shard that a process owns, when the one that owns none is ready to take its place; None: it owns none."""
        standby_watches(self.cluster)
        owners = {shard: self.cluster.owner_of(shard) for shard in range(SHARDS)}
        return next((shard for shard, owner in owners.items() if owner is server), None)

    def _start_again(self, server: Server, shard: int | None, what: str, from_ns: int) -> None:
        """Starts a process that has ended, when another one owns what it owned."""

        def is_owned() -> bool:
            return shard is None or self.cluster.owner_of(shard) not in (None, server)

        until(is_owned, self.cluster.errors)
        server.start()
        standby_watches(self.cluster)
        self._note(what, from_ns)

    def _step(self, name: str, **fields: int) -> None:
        """Lets the driver make a step."""
        from_ns = time.monotonic_ns()
        self.workers["driver"].tell(json.dumps({"step": name, **fields}))
        done = self._done.get(timeout=HANG_S)
        if "stopped_ns" in done:
            self.stopped_ns.append(done["stopped_ns"])
        self._note(f"the driver takes the step {name}", from_ns, to_tracker=False)

    def _note(self, what: str, from_ns: int, *, to_tracker: bool = True) -> None:
        self.happened.append(Happened(what, from_ns, time.monotonic_ns(), to_tracker))
        print(f"{what}: {(self.happened[-1].to_ns - from_ns) / 1e9:.1f} s", flush=True)

    # --- the end ----------------------------------------------------------------------------------

    def write_final(self) -> None:
        self.addresses = self.cluster.serving()
        super().write_final()

    def stop(self) -> None:
        super().stop()
        self.cluster.close()
