"""What is done to a deployment of groups, one after the other, by a seed."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import cycle

from tests.cluster.children import paused
from tests.cluster.tracker import Server
from tests.faults.failover import standby_watches
from tests.groups.system import DIRECTORY, Deployment
from tests.waits import HANG_S, until
from tracker.client import Admin, LowmarkError
from tracker.core.model import PipelineSpec
from tracker.service.failpoints import VARIABLE

SOURCE, TARGET, PLACES = "source", "target", "directory"
DEATHS = (
    (SOURCE, "ask-where"), (PLACES, "answer-where"),
    (SOURCE, "step-append"), (SOURCE, "step-append:2"), (SOURCE, "answer-piece"),
    (SOURCE, "ask-coming"), (TARGET, "step-append"), (TARGET, "answer-coming"),
    (SOURCE, "ask-keep"), (TARGET, "answer-keep"), (TARGET, "step-append:2"),
    (SOURCE, "ask-place"), (PLACES, "answer-place"),
    (SOURCE, "ask-end"), (TARGET, "step-append:3"), (TARGET, "answer-end"),
    (SOURCE, "ask-end:2"), (SOURCE, "step-append:3"), (SOURCE, "answer-end"),
)  # fmt: skip
"""In the order of a move, who dies, and where: begun, at rest, handed over, kept, turned, ended in one group and in both."""
SOME_DEATHS = DEATHS[2::5]
AWAY_SAYS = "the directory does not answer"
SILENT_SAYS = "does not answer"
LATER_S = 0.3
"""Within so long after a move began somebody is killed at any moment of it."""
GROUPS_BEFORE = 3


@dataclass(frozen=True)
class Form:
    """How much of everything: the seconds that it takes at least, who dies where, how long groups are away and stopped, and how many
    moves are given up, each of which takes a minute."""

    seconds: float
    deaths: tuple[tuple[str, str], ...]
    away_s: float
    stopped_s: float
    given_up: int


class Events:
    """Makes them, and counts them."""

    def __init__(self, deployment: Deployment, seed: int) -> None:
        self._deployment, self._random = deployment, random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.stayed: list[str] = []
        """Why moves were given up."""
        self._begun_s = time.monotonic()

    def run(self, form: Form) -> None:
        """All kinds at least once, and on until the time is over."""
        deaths: list[Callable[[], None]] = [partial(self.die, *death) for death in form.deaths]
        first: list[Callable[[], None]] = [
            self.move, self.move, self.kill, self.add_group, self.drain, self.kill_in_a_move,
            lambda: self.stop(form.stopped_s), lambda: self.directory_away(form.away_s),
            *deaths, *[self.give_up] * form.given_up,
        ]  # fmt: skip
        for event in first:
            self._make(event)
        more: list[Callable[[], None]] = [
            self.move, self.kill_in_a_move, self.move, self.kill, self.drain, self.kill_in_a_move,
            lambda: self.stop(form.stopped_s),
        ]  # fmt: skip
        for event in cycle(more):
            if time.monotonic() - self._begun_s >= form.seconds:
                return
            self._make(event)

    def only_moves(self, moves: int) -> None:
        for _ in range(moves):
            self._make(self.move)

    def _make(self, event: Callable[[], None]) -> None:
        event()
        self._deployment.check_alive()

    def _tell(self, what: str) -> None:
        print(f"{time.monotonic() - self._begun_s:6.1f} s: {what}", flush=True)

    # --- moves --------------------------------------------------------------------------------------

    def _move(self, name: str, to: int) -> None:
        source, began_s = self._deployment.tenures[name][-1].group, time.monotonic()
        why = self._deployment.move(name, to)
        self.counts["stayed" if why else "moves"] += 1
        if why:
            self.stayed.append(why)
        took_s = time.monotonic() - began_s
        self._tell(
            f"{name} {f'stays in {source}: {why}' if why else f'has moved from {source} to {to}'} ({took_s:.1f} s)"
        )

    def _chosen(self, *, source: int | None = None, without: int | None = None) -> tuple[str, int]:
        """A pipeline that is not in a group, but in `source` if that is named, and another group for it."""
        deployment = self._deployment
        groups = [group for group in range(len(deployment.groups)) if group != without]
        of = groups if source is None else [source]
        name = self._random.choice([name for group in of for name in deployment.living_in(group)])
        there = deployment.tenures[name][-1].group
        return name, self._random.choice([group for group in groups if group != there])

    def move(self) -> None:
        self._move(*self._chosen())

    def drain(self) -> None:
        deployment = self._deployment
        group = self._random.choice(
            [g for g in range(len(deployment.groups)) if deployment.living_in(g)]
        )
        began_s = time.monotonic()
        gone = deployment.drain(group)
        self.counts["drains"] += 1
        self.counts["moves"] += gone
        self._tell(f"group {group} was drained of {gone} ({time.monotonic() - began_s:.1f} s)")

    def add_group(self) -> None:
        """And the first pipelines go there."""
        group = self._deployment.add_group()
        self.counts["groups_added"] += 1
        self._tell(f"group {group} is there")
        for _ in range(2):
            name, _ = self._chosen(without=group)
            self._move(name, group)

    # --- kills --------------------------------------------------------------------------------------

    def kill(self) -> None:
        """Of any process, while nothing moves."""
        group = self._random.randrange(len(self._deployment.groups))
        self._kill_one_of(group)

    def _kill_one_of(self, group: int) -> None:
        with self._deployment.harmed(group, "a process is killed") as tracker:
            victim = self._random.choice(tracker.servers)
            victim.kill()
            victim.start()
        self.counts["kills"] += 1
        self._tell(f"{victim.name} of group {group} was killed")

    def kill_in_a_move(self) -> None:
        """Of any process of those that take part, at any moment."""
        name, to = self._chosen()
        source = self._deployment.tenures[name][-1].group
        with self._moving(name, to):
            time.sleep(self._random.uniform(0, LATER_S))  # paces: the fault
            self._kill_one_of(self._random.choice([source, to, DIRECTORY]))

    def die(self, who: str, where: str) -> None:
        """The leader of a group that takes part dies at a step of a move."""
        deployment = self._deployment
        name, to = self._chosen()
        group = {SOURCE: deployment.tenures[name][-1].group, TARGET: to, PLACES: DIRECTORY}[who]
        doomed = self._doomed_leader(group, where)
        with self._moving(name, to), deployment.harmed(group, f"dies at {where}") as tracker:
            until(
                doomed.has_ended, lambda: f"the {who} does not come to {where}: {doomed.errors()}"
            )
            doomed.end()
            tracker.replaced(doomed).start()
        self.counts["kills"] += 1
        self._tell(f"the {who} of it, {doomed.name} of group {group}, has died at {where}")

    def give_up(self) -> None:
        """The last group, which has no standby, dies when it has heard of a pipeline that comes, and stays away until that is decided:
        the pipeline goes on where it was."""
        deployment = self._deployment
        to = len(deployment.groups) - 1
        name, _ = self._chosen(without=to)
        doomed = self._doomed_leader(to, "answer-coming")
        with deployment.harmed(to, "away") as tracker:
            try:
                with self._moving(name, to):
                    until(doomed.has_ended, lambda: f"it does not die: {doomed.errors()}")
                    doomed.end()
            finally:  # what is judged then waits for the group
                tracker.replaced(doomed).start()
        assert deployment.tenures[name][-1].group != to, f"{name} is in a group that was away"
        self.counts["given_up"] += 1

    def _doomed_leader(self, group: int, where: str) -> Server:
        """Whoever leads a group from now on, and dies at a place; where there is a standby, another stands by then."""
        leader = self._deployment.leader(group)
        with self._deployment.harmed(group, "its leader is replaced") as tracker:
            waiting = [s for s in tracker.servers if tracker.standbys and s is not leader]
            victim = waiting[0] if waiting else leader
            victim.kill()
            doomed = tracker.replaced(victim, **{VARIABLE: where})
            doomed.start()
            if waiting:
                standby_watches(tracker)
                leader.kill()
                until(lambda: tracker.owner_of(0) is doomed, tracker.errors)
                leader.start()
        return doomed

    @contextmanager
    def _moving(self, name: str, to: int) -> Iterator[None]:
        """A move goes on meanwhile; it is decided in the end."""
        with ThreadPoolExecutor(1) as pool:
            moving = pool.submit(self._move, name, to)
            yield
            moving.result(HANG_S)

    # --- groups that do not answer ------------------------------------------------------------------

    def stop(self, seconds: float) -> None:
        """All processes of a group stand still for a while; pipelines move between the others, and none begins to move there."""
        deployment = self._deployment
        group = self._random.choice(range(1, len(deployment.groups)))
        with deployment.harmed(group, "stopped") as tracker, paused(*tracker.servers):
            until_s = time.monotonic() + seconds
            self._move(*self._chosen(without=group))
            name, _ = self._chosen(without=group)
            self._refused(name, lambda admin: admin.move(name, group), SILENT_SAYS)
            time.sleep(max(0.0, until_s - time.monotonic()))  # paces: the fault
        self.counts["pauses"] += 1
        self._tell(f"group {group} was stopped for {seconds:.0f} s")

    def directory_away(self, seconds: float) -> None:
        """Nothing moves and nothing is registered; what there is goes on."""
        deployment = self._deployment
        with deployment.harmed(DIRECTORY, "away") as tracker:
            until_s = time.monotonic() + seconds
            for server in tracker.servers:
                server.kill()
            name, to = self._chosen(without=DIRECTORY)
            self._refused(name, lambda admin: admin.move(name, to), AWAY_SAYS)
            new = PipelineSpec("new", ("s",))
            self._refused(name, lambda admin: admin.register(new), AWAY_SAYS)
            time.sleep(max(0.0, until_s - time.monotonic()))  # paces: the fault
            for server in tracker.servers:
                server.start()
        self.counts["pauses"] += 1
        self._tell(f"the directory was away for {seconds:.0f} s")

    def _refused(self, name: str, call: Callable[[Admin], object], says: str) -> None:
        """It cannot be done now, says the process that leads the group of a pipeline, and is not begun: so that is given no time to
        stand still."""
        leader = self._deployment.leader(self._deployment.tenures[name][-1].group)
        with Admin(leader.address, 8.0) as admin:  # expires: nobody can do it
            try:
                call(admin)
            except LowmarkError as error:
                assert says in str(error), f"it is refused, and not since {says!r}: {error}"
            else:
                raise AssertionError(f"it was not refused, though {says!r}")
