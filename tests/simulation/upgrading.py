"""Runs in which the tracker is upgraded, and taken back: processes of the release before among those of this one (rule 10).

The release before is the same core that speaks the level below. Its stores are there before the run begins; processes are
ended and started again as the other release, one by one, both ways, among all the faults of a run. An operator asks that the
upgrade be finished, early and late, twice, and of a sequencer that dies; who comes back late with the older release is
refused. In some runs nobody finishes it: then all can still be the release before, if no shard was declared lost, which
raises the level, too.

The judge knows no level of a process: nothing above the level that stands in the sequencer's log is ever durable or sent; no
store has anything that a release reads only at a level above the number that it carries; and the sequencer logs a level only when the
release of every machine speaks it.
"""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.simulation.checkers import Failure
from tests.simulation.plan import MS
from tracker.core.log import (
    Entries,
    FinishUpgrade,
    Frame,
    HomeEntry,
    ReceivedEntries,
    Record,
    TickRun,
    Told,
)
from tracker.core.log.losses import LossDeclared, LossHeard, ShardLost
from tracker.core.log.steps import FeatureLevelRaised
from tracker.core.model import Refusal, RefusalCode
from tracker.core.model.levels import LOSSES, NEWEST_LEVEL, RUNS
from tracker.core.model.routing import RoutingTable
from tracker.core.process import Process

if TYPE_CHECKING:
    from tests.simulation.processes import Running, Shard
    from tests.simulation.simulator import Simulator

BEFORE = NEWEST_LEVEL - 1
"""The level that the release before speaks."""
SHARE = 0.12
"""Of all runs, those in which the tracker is upgraded."""
NEEDS: dict[type, int] = {
    TickRun: RUNS,
    LossDeclared: LOSSES,
    LossHeard: LOSSES,
    ShardLost: LOSSES,
}
"""By what homes say, the level that a process has to speak to read it, where that is not the oldest."""
REQUEST = "finish"
ASK_AGAIN_NS = 8 * MS
REFUSED_FOR_NOW = (RefusalCode.NOT_READY, RefusalCode.NOT_HOME)
UPGRADED_BY_NS = 60 * MS
LATE_WITHIN_NS, LATE_STAYS_NS = 3 * MS, 10 * MS
"""How soon a machine has the release before again when another level is logged, and how long."""


@dataclass(frozen=True)
class Way:
    """What becomes of an upgrade. back: how many processes are taken back before all are upgraded; again: whether it is asked
    for once more when it is finished; late: whether a machine has the release before again by then."""

    finishes: bool
    back: int
    again: bool
    late: bool


def draw_way(seed: int) -> Way | None:
    """How the tracker is upgraded in the run of a seed; None in most."""
    rng = random.Random(f"upgrade {seed}")
    if rng.random() >= SHARE:
        return None
    finishes = rng.random() < 0.8
    return Way(finishes, rng.choice([0, 1, 2]), rng.random() < 0.5, finishes and rng.random() < 0.5)


class Machines:
    """Which release is on whose machine, and what is recorded and sent by which level."""

    def __init__(self, seed: int) -> None:
        self.way = draw_way(seed)
        self.rng = random.Random(f"machines {seed}")
        self.begins = NEWEST_LEVEL if self.way is None else BEFORE
        self.logged = self.begins
        """The level that stands in the sequencer's log."""
        self.by_loss = False
        """Whether shards were declared lost: that raises the level, too."""
        self.when_logged: Callable[[], None] = lambda: None
        """Called when a higher one does."""
        self._speaks: dict[int, int] = {}
        """By shard what the release on its machine speaks, where that is not what all begin with."""

    def speaks(self, shard: int) -> int:
        return self._speaks.get(shard, self.begins)

    def install(self, shard: int, level: int) -> None:
        self._speaks[shard] = level

    def first_store(self, shard: int, table: RoutingTable) -> bytes | None:
        """What a process of the release before has written when it began; None where the tracker begins with this one."""
        if self.way is None:
            return None
        return pickle.dumps(Process(shard, table, 0, speaks=BEFORE).snapshot())

    # --- the judge --------------------------------------------------------------------------------

    def take(self, record: Record, shard: Shard) -> None:
        """A record has become durable, in the store of a shard."""
        for entry in _entries(record):
            if level := _raised_to(entry):
                if isinstance(record, HomeEntry):
                    self.by_loss |= isinstance(entry, LossDeclared)
                    self._is_logged(level)
                shard.store.format = max(shard.store.format, level)
            needs = NEEDS.get(type(entry), 0)
            if needs > min(self.logged, shard.store.format):
                raise Failure(
                    "broken",
                    f"shard {shard.number} records {type(entry).__name__} of level {needs}; level {self.logged} is "
                    f"logged, and its store is of {shard.store.format}",
                )

    def _is_logged(self, level: int) -> None:
        if level > self.logged:
            self.logged = level
            self.when_logged()

    def check_appended(self, record: Record, sequencer: Running, present: list[Shard]) -> None:
        """A process logs a record: if that raises the level, every machine must have a release that speaks it. A machine that
        was taken back a moment ago is beyond anyone's knowledge, where the connection to the process that ended is not
        known to have broken: its next process is refused, as one is that is taken back a moment later."""
        if not isinstance(record, HomeEntry) or not (level := _raised_to(record.entry)):
            return
        if sequencer.deposed:
            return  # that is never durable
        known = sequencer.process.membership
        # Others read nothing more: those that have left or were given up; with lost shards go those that only join.
        by_loss = isinstance(record.entry, LossDeclared)
        there = known.members if by_loss else known.with_newcomers
        behind = [
            number
            for number in sorted(there & {each.number for each in present})
            if self.speaks(number) < level and sequencer.hears(number) < level
        ]
        if level > self.logged and behind:
            raise Failure("broken", f"level {level} is logged, which shards {behind} do not speak")

    def check_sent(self, frame: Frame) -> None:
        """A process sends a frame."""
        if (needs := needed_by(frame)) > self.logged:
            raise Failure(
                "broken", f"a frame of level {needs} is sent, and {self.logged} is logged"
            )


def needed_by(frame: Frame) -> int:
    """The lowest level that a process has to speak to read a frame."""
    entries = frame.body.entries if isinstance(frame.body, Entries) else ()
    return max(map(_needed, entries), default=0)


def _needed(entry: Told) -> int:
    if isinstance(entry, FeatureLevelRaised):
        return entry.level
    return NEEDS.get(type(entry), 0)


def _raised_to(entry: Told) -> int:
    """The level from which on all record, where it may be another one by an entry; else 0."""
    if isinstance(entry, FeatureLevelRaised):
        return entry.level
    return LOSSES if isinstance(entry, LossDeclared) else 0


def _entries(record: Record) -> Iterator[Told]:
    if isinstance(record, HomeEntry):
        yield record.entry
    elif isinstance(record, ReceivedEntries):
        yield from record.entries


class Upgrading:
    """An operator who upgrades the machines one by one, now and then goes back, and asks that it be finished."""

    def __init__(self, sim: Simulator) -> None:
        self.sim, self.machines = sim, sim.machines
        self._asks = False
        """Whether it was ever asked that it be finished, or that a shard be lost."""
        self._answered = 0
        self._to_come = 0
        """Machines that are about to get another release."""

    def begin(self) -> None:
        """Plans what happens in a run in which the tracker is upgraded."""
        way, rng = self.machines.way, self.machines.rng
        if way is None:
            return
        self.machines.when_logged = self._is_logged
        first = [shard.number for shard in self.sim.shards]
        for shard in first:
            self._in_time(rng.randrange(UPGRADED_BY_NS), shard, NEWEST_LEVEL)
        for _ in range(way.back):
            back_ns = rng.randrange(UPGRADED_BY_NS)
            shard = rng.choice(first)
            self._in_time(back_ns, shard, BEFORE)
            self._in_time(back_ns + rng.randrange(UPGRADED_BY_NS), shard, NEWEST_LEVEL)
        if way.finishes:
            self.sim.after(rng.randrange(2 * UPGRADED_BY_NS), self._ask)

    @property
    def settled(self) -> bool:
        way = self.machines.way
        if way is None or self._to_come:
            return way is None
        return not way.finishes or self._answered > way.again

    def stays(self) -> None:
        """An operator asks for what the newer release alone reads: from here on none goes back."""
        self._asks = True

    def _in_time(self, after_ns: int, shard: int, level: int) -> None:
        self._to_come += 1
        self.sim.after(after_ns, self._install, shard, level)

    def _install(self, shard: int, level: int) -> None:
        """A machine gets the other release: its process ends, and starts again as that."""
        self._to_come -= 1
        machines, there = self.machines, self.sim.shards[shard]
        if level < machines.speaks(shard) and self._asks:
            return  # who has asked that it be finished does not go back
        if level == machines.speaks(shard):
            self.sim.not_a_step()
            return
        self.sim.count("processes_upgraded" if level > BEFORE else "processes_taken_back")
        self._start_as(there, level)

    def _start_as(self, there: Shard, level: int) -> None:
        self.machines.install(there.number, level)
        if there.running is not None:
            self.sim.kill(there.running)

    def newcomer_speaks(self) -> int:
        """What the release of a process speaks that is to join."""
        older = self.machines.way is not None and self.machines.rng.random() < 0.5
        return BEFORE if older else NEWEST_LEVEL

    def is_numbered(self, shard: int, speaks: int) -> None:
        """It has become a shard, or is about to; one of the release before is upgraded as any other."""
        self.machines.install(shard, speaks)
        if speaks < NEWEST_LEVEL:
            self.sim.count("older_newcomers")
            self._in_time(self.machines.rng.randrange(UPGRADED_BY_NS), shard, NEWEST_LEVEL)

    # --- who finishes it ----------------------------------------------------------------------------

    def _ask(self) -> None:
        """Asks until it is answered, and of whom it may be by now."""
        self.stays()
        if self._answered > (self.machines.way is not None and self.machines.way.again):
            self.sim.not_a_step()
            return
        self.sim.call(None, self.sim.sequencer, FinishUpgrade((REQUEST, 0), NEWEST_LEVEL))
        self.sim.after(ASK_AGAIN_NS, self._ask)

    def hear(self, result: object) -> None:
        """What the sequencer answers."""
        if isinstance(result, Refusal):
            if result.code not in REFUSED_FOR_NOW:
                raise Failure("broken", f"that the upgrade is finished was answered {result}")
            self.sim.count("upgrades_finished_too_early")
            return
        if self.machines.logged < NEWEST_LEVEL:
            raise Failure("broken", "the upgrade is finished, and its level is in no log")
        self._answered += 1
        self.sim.count("upgrades_finished" if self._answered == 1 else "upgrades_finished_again")

    def _is_logged(self) -> None:
        assert self.machines.way is not None
        if self.machines.way.late:
            self._to_come += 1
            self.sim.after(self.machines.rng.randrange(LATE_WITHIN_NS), self._come_back_late)

    def _come_back_late(self) -> None:
        """A machine has the release before once more: its store refuses that, or else the other processes do."""
        self._to_come -= 1
        there = self.machines.rng.choice(self.sim.present)
        self.sim.count("older_releases_after_all_is_finished")
        self._start_as(there, BEFORE)
        self._in_time(LATE_STAYS_NS, there.number, NEWEST_LEVEL)

    def check_end(self, process: Process) -> None:
        """What every process records by, when all has come to rest."""
        way, level = self.machines.way, process.membership.level
        if level != self.machines.logged:
            raise Failure(
                "lost",
                f"shard {process.shard} records by level {level}, {self.machines.logged} is logged",
            )
        if way is not None and not way.finishes:
            self.sim.count("upgrades_left_unfinished")
            if level > BEFORE and not self.machines.by_loss:
                raise Failure("broken", "nobody has finished the upgrade")
