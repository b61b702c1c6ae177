"""The demo from start to end: starts the processes, shows what is announced, and proves the result.

Everything is a process of its own, as in production: the tracker's shards, the Spark driver, three
airports, the dead-letter node. This one starts them, subscribes, and at the end asks: is everything
complete, was every flight counted once, does the history hold?
"""

from __future__ import annotations

import fcntl
import json
import os
import queue
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from examples import history as histories
from examples.children import ROOT, Child, Said, free_ports
from examples.flights.data import AIRPORTS, FLIGHTS
from examples.flights.expected import Expected, expected
from examples.flights.form import DemoFailed, Form, Worker
from examples.flights.pipeline import NAME, Places
from examples.flights.proof import Result, dead_rows, differences
from examples.flights.replay import ReplayClock
from examples.flights.view import Progress, View, make_view, min_time_text
from examples.latency import notification_latencies_ms, percentile
from lowmark import FOREVER, Admin, LowmarkError, Subscriber
from lowmark.admin import PipelineDescription

SHARDS = 2
BLOCK_SLOTS = 7
"""A week of one shard, then one of the next."""
START_TIMEOUT_S = 300.0
STALL_TIMEOUT_S = 45.0
"""How long min time may stand still while the year goes on, or after it."""
LEAD_S = 1.0
"""From the starting signal to the first moment of the year."""
SHOW_INTERVAL_S = 0.25
STATE_INTERVAL_S = 1.0
SETTLE_TIMEOUT_S = 5.0

CHECK_TIMEOUT_S = 300.0


@dataclass
class Outcome:
    """What the demo comes to. `problems`: what was wrong, in words; none if it is proved."""

    problems: list[str] = field(default_factory=list)
    violations: int = 0
    """Of what was promised, as the judge of the history counts them."""
    flights: int = 0
    seconds: float = 0.0
    replay_seconds: float = 0.0
    announcements: int = 0
    min_times: dict[str, int] = field(default_factory=dict)
    latencies_ms: list[float] = field(default_factory=list)
    history: str = ""
    history_lines: int = 0
    check: str = ""


class Demo:
    """One run, with its files under `places` and its processes ended in the end."""

    start_timeout_s = START_TIMEOUT_S

    def __init__(
        self,
        form: Form,
        programs: Mapping[str, Worker],
        places: Places,
        duration_s: float,
        sabotage: str | None,
    ) -> None:
        """programs: the workers by name, those that come first in the pipeline first."""
        self.form, self.programs = form, programs
        self.places, self.duration_s, self.sabotage = places, duration_s, sabotage
        port = free_ports(SHARDS + 1)
        self.addresses = [f"127.0.0.1:{port + shard}" for shard in range(SHARDS)]
        self.target = ",".join(self.addresses)
        self.listened = self.addresses
        """Where subscribers ask, each at one."""
        self.dashboard = f"127.0.0.1:{port + SHARDS}"
        self.progress = Progress()
        self.said: queue.Queue[Said] = queue.Queue()
        self.tracker: list[Child] = []
        self.workers: dict[str, Child] = {}
        self.ready: set[str] = set()
        self.gone: set[str] = set()
        self.recorder = histories.Recorder(places.histories / "demo.jsonl")
        self._subscribers: list[Subscriber] = []
        self._listening: list[threading.Thread] = []
        self._moved_s = time.monotonic()

    # --- running ----------------------------------------------------------------------------------

    def run(self, view: View) -> float:
        """Replays the year; returns the seconds from its start until all was complete. Raises
        DemoFailed or LowmarkError."""
        self._show_phase(view, "starting the tracker")
        self._start_tracker()
        self._register()
        for name in reversed(list(self.programs)):
            self._start(name, self.programs[name])
        self._show_phase(view, "starting Spark")
        self._wait(view, lambda: self.programs.keys() <= self.ready, "all to be ready")
        self._show_phase(view, "the first day")
        self._wait(view, lambda: "aggregate" in self.progress.rows, "the first day's flights")
        start_ns = time.monotonic_ns() + int(LEAD_S * 1e9)
        clock = ReplayClock(start_ns, self.duration_s)
        for airport in AIRPORTS:
            self.workers[airport].tell(
                json.dumps({"start_ns": start_ns, "seconds": self.duration_s})
            )
        self._show_phase(view, "replaying")
        self._replay(view, clock)
        return (time.monotonic_ns() - start_ns) / 1e9

    @property
    def is_served(self) -> bool:
        """Whether the tracker was started."""
        return bool(self.tracker)

    def _start_tracker(self) -> None:
        serve = ["--set", f"block_slots={BLOCK_SLOTS}", "--store", f"sqlite:{self.places.store}"]
        if self.sabotage is None:
            listen = ["--listen", self.addresses[0], "--shards", str(SHARDS)]
            serve += ["--dashboard-listen", self.dashboard]
            self._start_shards("tracker", ["tracker.cli", "serve", *listen, *serve])
            print(f"dashboard: http://{self.dashboard}/", flush=True)
        else:
            # The first shard runs with the fault, the other as always.
            for shard in range(SHARDS):
                one = ["--shard", str(shard), "--peers", self.target, *serve]
                planted = ["tests.sabotage", self.sabotage, "--"] if shard == 0 else ["tracker.cli"]
                self._start_shards(f"tracker-{shard}", [*planted, "serve", *one])

    def _register(self) -> None:
        with Admin(self.target) as admin:
            admin.register(self.form.spec)
        self.recorder.header(self.form.spec, self.form.fronts)
        for shard, address in enumerate(self.listened):
            subscriber = Subscriber(address, NAME)
            thread = threading.Thread(target=self._listen, args=(shard, subscriber), daemon=True)
            thread.start()
            self._subscribers.append(subscriber)
            self._listening.append(thread)

    def _start_shards(self, name: str, arguments: list[str]) -> None:
        self.tracker.append(Child(name, arguments, self.places.logs, self.said))

    def _start(self, name: str, program: Worker) -> None:
        command = [program.module, self.target, str(self.places.root), *program.arguments]
        logs, python = self.places.logs, program.python
        self.workers[name] = Child(name, command, logs, self.said, python=python)

    def _listen(self, shard: int, subscriber: Subscriber) -> None:
        """Writes down what one shard announces, at once; the first one's is shown."""
        try:
            for update in subscriber.updates():
                self.recorder.heard(f"shard {shard}", update.segment, update.min_time)
                if shard == 0:
                    self.progress.announcements += 1
                    if update.segment is not None:
                        self.progress.min_times[update.segment] = update.min_time
                        self._moved_s = time.monotonic()
        except LowmarkError as error:
            self.said.put(Said("subscriber", {"event": "failed", "reason": str(error)}))

    def _replay(self, view: View, clock: ReplayClock) -> None:
        self._moved_s = time.monotonic()
        with Admin(self.target) as admin:
            asked_s = 0.0
            while not self._complete():
                self.progress.clock_ns = clock.now_ns()
                if time.monotonic() - asked_s >= STATE_INTERVAL_S:
                    asked_s = time.monotonic()
                    for segment in admin.pipeline(NAME).state.segments:
                        self.progress.open_items[segment.segment] = segment.open_items
                self._hear(view, SHOW_INTERVAL_S)
                if (stalled_s := time.monotonic() - self._moved_s) > STALL_TIMEOUT_S:
                    raise DemoFailed(
                        f"min time has not moved for {stalled_s:.0f} s; it stands at "
                        f"{self._min_time_texts()}"
                    )

    def _complete(self) -> bool:
        return all(slot == FOREVER for slot in self.progress.min_times.values())

    def _min_time_texts(self) -> dict[str, str]:
        return {name: min_time_text(slot) for name, slot in self.progress.min_times.items()}

    # --- what the processes say -------------------------------------------------------------------

    def _show_phase(self, view: View, name: str) -> None:
        self.progress.phase = name
        view.show(self.progress)

    def _wait(self, view: View, condition: Callable[[], bool], what: str) -> None:
        deadline_s = time.monotonic() + self.start_timeout_s
        while not condition():
            self._hear(view, SHOW_INTERVAL_S)
            if time.monotonic() > deadline_s:
                raise DemoFailed(
                    f"waited {self.start_timeout_s:g} s for {what}; ready are {sorted(self.ready)}, rows "
                    f"{self.progress.rows}"
                )

    def _hear(self, view: View, timeout_s: float) -> None:
        """Takes what was said within some time, then shows the progress."""
        deadline_s = time.monotonic() + timeout_s
        while (left_s := deadline_s - time.monotonic()) > 0:
            try:
                self._take(self.said.get(timeout=left_s))
            except queue.Empty:
                break
        view.show(self.progress)

    def _take(self, said: Said) -> None:
        if said.event is None:
            self._take_end(said)
            return
        match said.event.get("event"):
            case "ready":
                self.ready.add(said.child)
            case "progress":
                self.progress.rows[said.event.get("query", said.child)] = said.event["rows"]
            case "failed":
                raise DemoFailed(f"{said.child}: {said.event}")

    def _take_end(self, said: Said) -> None:
        """An airport ends when its last flight is gone; others only when they are told to."""
        program = self.programs.get(said.child)
        if program is None or not program.ends or said.status != 0:
            child = next(c for c in self._children() if c.name == said.child)
            raise DemoFailed(
                f"{said.child} has ended with status {said.status}; {child.log} ends with:\n"
                f"{child.log_tail()}"
            )
        self.gone.add(said.child)
        last = {name for name, each in self.programs.items() if each.after_year}
        if self.gone == {name for name, each in self.programs.items() if each.ends} - last:
            self._let_leave()

    def _let_leave(self) -> None:
        """The year is over for all but those who are told so."""
        for name, each in self.programs.items():
            if each.after_year:
                self.workers[name].tell("leave")

    def _children(self) -> list[Child]:
        return [*self.workers.values(), *self.tracker]

    # --- the end ----------------------------------------------------------------------------------

    def stop_workers(self) -> None:
        """Ends everything but the tracker: who comes first in the pipeline first, so that those
        behind come to rest. The driver commits what is over."""
        for name, program in self.programs.items():
            if name in self.workers:
                self.workers[name].stop(terminate=program.terminated)

    def write_final(self) -> None:
        """Writes down what each process of the tracker says now, and what it should say."""
        for shard, state in enumerate(self._settled_states()):
            self.recorder.final(f"shard {shard}", state)
        self.recorder.expected(dict.fromkeys(self.progress.min_times, FOREVER))

    def _settled_states(self) -> list[PipelineDescription]:
        """The pipeline as each process sees it, when they have heard all of each other: when all say
        the same, and have for a moment; or after a while in any case."""
        deadline_s = time.monotonic() + SETTLE_TIMEOUT_S
        before: list[PipelineDescription] = []
        while True:
            states = []
            for address in self.addresses:
                with Admin(address, timeout_s=10.0) as admin:
                    states.append(admin.pipeline(NAME).state)
            segments = [state.segments for state in states]
            agreed = all(one == segments[0] for one in segments)
            if agreed and segments == [state.segments for state in before]:
                return states
            if time.monotonic() > deadline_s:
                return states
            before = states
            time.sleep(SHOW_INTERVAL_S)

    def stop(self) -> None:
        """Ends every process that was started."""
        for subscriber in self._subscribers:
            subscriber.close()
        for thread in self._listening:
            thread.join(10.0)
        self.stop_workers()
        for child in self.tracker:
            child.stop()
        self.recorder.close()


@contextmanager
def one_at_a_time(build: Path, name: str) -> Iterator[None]:
    """Raises DemoFailed if another run of a name has its files in `build`; a lock ends with its process."""
    build.mkdir(exist_ok=True)
    with open(build / f"{name}.lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DemoFailed(
                f"another demo runs in {build}; wait for its end, or use another checkout"
            ) from None
        yield


def run_demo(form: Form, build: Path, duration_s: float, sabotage: str | None) -> Outcome:
    """Runs the demo with its files in a folder of `build`; the outcome says what it came to. Raises
    DemoFailed if another one is running there, and as `Form.around`."""
    with one_at_a_time(build, form.name):
        began_s = time.monotonic()
        shutil.rmtree(build / form.name, ignore_errors=True)
        places = Places(build / form.name)
        places.make()
        outcome = Outcome()
        with form.around(places) as programs:
            replay_year(Demo(form, programs, places, duration_s, sabotage), outcome)
        _prove(form, places, outcome, build / f"{form.name}-history.jsonl")
        outcome.seconds = time.monotonic() - began_s
        return outcome


def replay_year(demo: Demo, outcome: Outcome) -> None:
    """Runs the demo to its end, whatever becomes of it, and ends all that it has started."""
    try:
        with make_view() as view:
            outcome.replay_seconds = demo.run(view)
            demo.progress.phase = "proving"
            view.show(demo.progress)
    except (DemoFailed, LowmarkError) as error:
        outcome.problems.append(str(error))
    finally:
        _end(demo, outcome)
    outcome.min_times = dict(demo.progress.min_times)
    outcome.announcements = demo.progress.announcements


def _end(demo: Demo, outcome: Outcome) -> None:
    try:
        demo.stop_workers()
        if demo.is_served:
            demo.write_final()
    except (LowmarkError, OSError) as error:
        outcome.problems.append(f"the tracker's last state could not be read: {error}")
    finally:
        demo.stop()


def _prove(form: Form, places: Places, outcome: Outcome, history: Path) -> None:
    """Compares, merges the history, and has it checked by a program that knows nothing else."""
    truth: Expected = expected()
    if truth.flights != FLIGHTS:
        outcome.problems.append(f"the data has {truth.flights} flights, expected {FLIGHTS}")
    result = Result(form.totals(places), dead_rows(places.dead_letters))
    outcome.flights = result.flights
    if not outcome.problems:  # else the year was given up, and most of it is missing
        outcome.problems += [*differences(result, truth), *form.problems(places)]
    if outcome.flights != FLIGHTS:
        outcome.problems.append(f"{outcome.flights} flights were counted, there are {FLIGHTS}")
    outcome.history = os.path.relpath(history, ROOT)
    outcome.history_lines = histories.merge(places.histories.glob("*.jsonl"), history)
    outcome.latencies_ms = notification_latencies_ms(
        form.spec, form.fronts, histories.read(history)
    )
    checked = subprocess.run(
        [sys.executable, "-m", "tests.check", str(history)],
        cwd=ROOT, capture_output=True, text=True, timeout=CHECK_TIMEOUT_S, check=False,
    )  # fmt: skip
    lines = (checked.stdout + checked.stderr).splitlines()
    outcome.check = lines[-1] if lines else ""
    if checked.returncode != 0:
        outcome.problems += lines
        counted = re.search(r" violations=(\d+)", outcome.check)
        outcome.violations = int(counted[1]) if counted else 0


def summary(form: Form, outcome: Outcome) -> dict[str, object]:
    """What the last line shows."""
    return {
        "flights": outcome.flights,
        "seconds": round(outcome.seconds),
        "min_time": min_time_text(min(outcome.min_times.values(), default=form.spec.start_slot)),
        "announcements": outcome.announcements,
        "notification_p50_ms": _latency(outcome, 50, 1),
        "notification_p99_ms": _latency(outcome, 99, 1),
        **({"violations": outcome.violations} if outcome.violations else {}),
    }


def _latency(outcome: Outcome, percent: int, digits: int) -> float | None:
    """A percentile of the notification latencies; None if none was measured."""
    if not outcome.latencies_ms:
        return None
    return round(percentile(outcome.latencies_ms, percent), digits)


def details(outcome: Outcome) -> dict[str, object]:
    """What `demo.json` has beside the summary."""
    return {
        "replay_seconds": round(outcome.replay_seconds, 1),
        "notification_latency_ms": {
            f"p{percent}": _latency(outcome, percent, 3) for percent in (50, 90, 99, 100)
        },
        "notifications_measured": len(outcome.latencies_ms),
        "final_min_times": {
            segment: "complete" if slot == FOREVER else slot
            for segment, slot in outcome.min_times.items()
        },
        "history": outcome.history,
        "history_lines": outcome.history_lines,
        "check": outcome.check,
        "problems": outcome.problems,
    }
