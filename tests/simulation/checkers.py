"""What must hold in every run, whatever happens; each violation is a `Failure` that says its kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tests import inside
from tests.simulation.oracle import frontier, standing
from tests.simulation.plan import WINDOW_LIMIT
from tests.simulation.world import World
from tracker.core.log import HomeEntry, Record
from tracker.core.log.steps import CellsMoved, NodesMoved
from tracker.core.model.slots import FOREVER, LOWEST_SLOT
from tracker.core.process import Process

Logged = Mapping[int, int]
"""By min time the generation in which it was last made durable."""


class Failure(AssertionError):
    """A promise was broken. `kind`: false, lost, regressed, or broken (an invariant of the core)."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind


@dataclass(slots=True)
class _Generation:
    """What was announced in one generation of a pipeline, and the truth of it."""

    world: World
    highest: list[int]
    checked_version: int = -1
    raised: bool = False


class AnnouncementChecker:
    """Hears every announcement of every process on one pipeline (promises 1 and 4). What is announced
    is of a generation, and has to be true of it; what was announced of the pipeline as a whole has to
    be true of all later ones as well."""

    def __init__(self, world: World) -> None:
        self._start = [world.spec.start_slot] * len(world.spec.segments)
        self._generations = {0: _Generation(world, list(self._start))}
        self.since = 0
        """Since which generation there is this pipeline: those before it are of one that was deleted."""
        self._whole: dict[int, int] = {}
        """By shard what was said of the pipeline as a whole."""
        self._said: dict[tuple[int, int], list[int]] = {}
        """The last word of each process, by (shard, epoch)."""
        self._newest: Counter[int] = Counter()
        self.lost: set[int] = set()
        """Shards that are lost for good. What they have said stays true, and no other need know it."""

    @property
    def world(self) -> World:
        return self._newest_generation.world

    @property
    def _newest_generation(self) -> _Generation:
        return self._generations[max(self._generations)]

    @property
    def highest(self) -> list[int]:
        """What was announced in the newest generation, by segment."""
        return self._newest_generation.highest

    @property
    def said_of_the_whole(self) -> list[int]:
        """What each process has said of the pipeline as a whole."""
        return [*self._whole.values()]

    def begin(self, shard: int, epoch: int) -> None:
        """Another process owns a shard: it may say nothing below what those before it have said."""
        before = self._said.get((shard, self._newest[shard]), self._start)
        self._said[shard, epoch] = list(before)
        self._newest[shard] = epoch

    def arrive(self, shards: Iterable[int]) -> None:
        """The pipeline has come to the group of these shards, which say nothing below what any has said of it."""
        every = [said for (shard, _), said in self._said.items() if shard not in self.lost]
        wholes = [said for shard, said in self._whole.items() if shard not in self.lost]
        highest = [
            max((said[n] for said in every if n < len(said)), default=first)
            for n, first in enumerate(self._start)
        ]
        for shard in shards:
            said = self._said.setdefault((shard, self._newest[shard]), list(highest))
            said[:] = map(max, highest, [*said, *highest[len(said) :]])
            if wholes:
                self._whole[shard] = max(wholes)

    def begin_generation(self, world: World) -> None:
        """The pipeline was restarted."""
        self._generations[world.generation] = _Generation(world, list(self._start))

    def begin_anew(self, world: World) -> None:
        """The pipeline was deleted, and another one of its name is to come: nothing is said of that yet."""
        self._start = [world.spec.start_slot] * len(world.spec.segments)
        self.since = world.generation
        self._said.clear()
        self._whole.clear()
        self.begin_generation(world)

    def hear_whole(self, shard: int, epoch: int, min_time: int) -> None:
        """A process says how far the pipeline is as a whole."""
        if epoch < self._newest[shard]:
            return
        if min_time < self._whole.get(shard, min_time):
            raise Failure(
                "regressed",
                f"shard {shard} said {self._whole[shard]} for the whole pipeline, now {min_time}",
            )
        self._whole[shard] = min_time
        self._newest_generation.raised = True

    def hear(
        self, shard: int, epoch: int, min_times: list[tuple[int, int]], logged: Mapping[int, Logged]
    ) -> None:
        """A process says min times, by segment number: it announces them, or answers with them.
        `logged`: by segment, in which generation the shard has made each of them durable."""
        said = self._said.setdefault((shard, epoch), list(self._start))
        self.grow(max((segment for segment, _ in min_times), default=-1) + 1)
        if not self.world.may_be_called_complete(s for s, slot in min_times if slot == FOREVER):
            raise Failure("false", f"shard {shard} said that an open pipeline is complete")
        newest = said
        if epoch != self._newest[shard]:
            newest = self._said.get((shard, self._newest[shard]), self._start)
        for segment, min_time in min_times:
            if min_time < said[segment]:
                raise Failure(
                    "regressed",
                    f"shard {shard} said {said[segment]} for segment {segment}, now {min_time}",
                )
            said[segment] = min_time
            if min_time > newest[segment]:
                raise Failure(
                    "regressed",
                    f"a former owner of shard {shard} says {min_time} for segment {segment}, and "
                    f"the one after it {newest[segment]}",
                )
            number = logged.get(segment, {}).get(min_time, self.since)
            generation = self._generations.get(max(number, self.since))
            if generation is None:
                raise Failure("false", f"shard {shard} announces {min_time} in generation {number}")
            if min_time > generation.highest[segment]:
                generation.highest[segment] = min_time
                generation.raised = True

    def grow(self, segments: int) -> None:
        """The pipeline has so many by now, and nothing is said of the new ones."""
        first = self._start[0]
        highest = [generation.highest for generation in self._generations.values()]
        for known in (self._start, *self._said.values(), *highest):
            known += [first] * (segments - len(known))

    def check(self) -> None:
        """Nothing announced lies beyond the truth; cheap where neither has changed."""
        for generation in self._generations.values():
            if generation.raised or generation.checked_version != generation.world.version:
                generation.raised = False
                generation.checked_version = generation.world.version
                self._check(generation)

    def _check(self, generation: _Generation) -> None:
        truth = frontier(generation.world)
        # Of an older generation nothing is said of segments that have come since.
        for segment, (said, true) in enumerate(zip(generation.highest, truth, strict=False)):
            if said > true:
                raise Failure(
                    "false",
                    f"min time {said} is announced for segment {segment}, and slot {true} "
                    "still has an item or can get one",
                )
        if generation.world is self.world and self.world.generation and self.world.begun:
            whole = max(self._whole.values(), default=self._start[0])
            if whole > min(truth):
                raise Failure(
                    "false",
                    f"min time {whole} is announced for the whole pipeline, which was restarted, "
                    f"and slot {min(truth)} has an item or can get one",
                )


class SubscriberChecker:
    """One subscriber, moving between processes: what one connection says never goes back, nor does
    what it hears of the same shard again after a restart. (Only a former owner of the shard may be
    behind the one that it heard before; a subscriber keeps the largest that it has heard.)"""

    def __init__(self, since: int = 0) -> None:
        """since: the generation in which the pipeline that it hears of was registered."""
        self.since = since
        self._of_shard: dict[int, tuple[int, list[int]]] = {}
        self._heard: list[int] = []
        self._shard = -1
        self._stay = 0
        self._of_stay: dict[int, list[int]] = {}
        """By stay in a group the most that it has heard: whoever has the pipeline in a later one says no less."""

    def connect(self, shard: int, epoch: int, min_times: tuple[int, ...], stay: int = 0) -> None:
        """A new connection: the current values come first. stay: how often the pipeline has come to a group before."""
        self._shard, self._stay = shard, stay
        newest, before = self._of_shard.get(shard, (0, list(min_times)))
        if epoch >= newest:
            self._heard = before
            self._of_shard[shard] = epoch, before
        else:
            self._heard = list(min_times)
        self.hear(list(enumerate(min_times)))

    def hear(self, min_times: list[tuple[int, int]]) -> None:
        heard = self._heard
        self._check_stays(min_times)
        for segment, min_time in min_times:
            heard += [LOWEST_SLOT] * (segment + 1 - len(heard))
            if min_time < heard[segment]:
                raise Failure(
                    "regressed",
                    f"a subscriber of shard {self._shard} heard {heard[segment]} for segment "
                    f"{segment}, then {min_time}",
                )
            heard[segment] = min_time

    def forget_stays(self) -> None:
        """A shard is lost, of which it may have heard more than others know."""
        self._of_stay.clear()

    def _check_stays(self, min_times: list[tuple[int, int]]) -> None:
        most = self._of_stay.setdefault(self._stay, [])
        before = [slots for stay, slots in self._of_stay.items() if stay < self._stay]
        for segment, min_time in min_times:
            most += [LOWEST_SLOT] * (segment + 1 - len(most))
            most[segment] = max(most[segment], min_time)
            for slots in before:
                if segment < len(slots) and min_time < slots[segment]:
                    raise Failure(
                        "regressed",
                        f"a subscriber heard {slots[segment]} for segment {segment} in one group, then {min_time} in another",
                    )


MAX_SESSIONS = 24
"""Streams of ticks: of each of the few nodes the newest, and what a death has left of older ones."""
MAX_UNCONFIRMED = 384
"""Entries that some shard has not confirmed, while one is away for as long as a run lets it; to a process
that has just restarted none is confirmed since its snapshot."""
SAID_OF_A_PIPELINE = 3
"""Records by which a process says at once what has become of a pipeline: pins, min times and grants."""
MAX_STEPS = 16
"""Steps by which shards come and go, and what is handed over in pieces, those of one home or of a pipeline's cells at once as one:
those that wait for the store. There are as many pieces as a home has nodes, staged contributions, open cells and names of
units, which have limits of their own."""
MAX_HELD_REPORTS = 24
"""Reports to one shard that wait for a pin to be durable: one an interval, for the same time."""
MAX_CLOSED_KEYS = 96
"""Closed keys that some shard has not heard of."""
MAX_RUNS = 48
"""Own runs of a pipeline outside M: one an interval and home, while a shard is away."""


def check_bounds(process: Process) -> None:
    """Whether a process holds no more than it may, after an event."""
    if (
        len(inside.sessions(process)) > MAX_SESSIONS
        or len(inside.outbox(process))
        > MAX_UNCONFIRMED * (1 + 2 * bool(process.membership.joining))
        or _wait_too_many_records(process)
        or len(inside.held_frames(process)) > MAX_HELD_REPORTS * max(1, len(process.links))
        or len(inside.closed_keys(process)) > MAX_CLOSED_KEYS
    ):
        raise Failure(
            "broken",
            f"shard {process.shard} holds too much: {len(inside.sessions(process))} sessions, "
            f"{len(inside.outbox(process))} unconfirmed entries, {len(inside.unasked_records(process))} records "
            f"that nobody has asked for, {len(inside.pending_steps(process))} steps, "
            f"{len(inside.held_frames(process))} held reports, {len(inside.closed_keys(process))} closed keys",
        )
    for name, pipeline in inside.pipelines(process).items():
        if len(inside.own_runs(pipeline.combiner)) > MAX_RUNS:
            runs = len(inside.own_runs(pipeline.combiner))
            raise Failure("broken", f"shard {process.shard} keeps {runs} runs of {name}")


def _wait_too_many_records(process: Process) -> bool:
    waiting = len(inside.pending(process))
    if waiting <= min(MAX_STEPS, process.config.max_backlog_records - 1 + WINDOW_LIMIT):
        return False  # as after most events
    return (
        len(inside.unasked_records(process)) > _most_unasked_records(process)
        or _steps_at_once(inside.pending_steps(process)) > MAX_STEPS
    )


def _steps_at_once(records: list[Record]) -> int:
    entries = [record.entry for record in records if isinstance(record, HomeEntry)]
    pieces = [
        (e.version, e.pipeline, e.home if isinstance(e, NodesMoved) else None)
        for e in entries
        if isinstance(e, NodesMoved | CellsMoved)
    ]
    return len(entries) - len(pieces) + len({*pieces})


def _most_unasked_records(process: Process) -> int:
    """How many records may wait for the store that no request has asked for, however long the store stalls, and
    whatever has come while the process stood still. Nothing is read any more of what nodes and other shards say
    once there are `max_backlog_records`; the last message read before that may be a window of ticks. What was read is
    then reported and announced once, and nothing follows from it before it is durable. Beside that a silent front is
    evicted once, and the droppings of closed keys may all follow from one confirmation."""
    limit = process.config.max_backlog_records - 1 + WINDOW_LIMIT
    for pipeline in inside.pipelines(process).values():
        limit += SAID_OF_A_PIPELINE + pipeline.graph.size + len(pipeline.shard.fronts)
    return limit + inside.keys_being_dropped(process)


def has_arrived(world: World, process: Process) -> bool:
    """Whether a process says the final min times (promise 2). In an open pipeline a segment that
    nothing can reach any more holds where it is, if it was not removed, and one of which a front was evicted anywhere;
    after a restart, one that had come further does."""
    if world.spec.name not in inside.pipelines(process):
        return False  # a newcomer that has not begun
    said = process.min_times(world.spec.name)
    if len(said) < len(world.spec.segments):
        return False  # it has not heard of the last change
    reached, stand = inside.pipeline(process, world.spec.name).durable, standing(world)
    waits = [world.spec.open and name not in world.spec.removed for name in world.spec.segments]
    return all(
        low <= min_time <= true
        or segment in stand
        or (true == FOREVER and waits[segment] and min_time != FOREVER)
        or (world.generation > 0 and min_time > true and low <= now <= true)
        for segment, (min_time, now, low, true) in enumerate(
            zip(said, reached, frontier(world, with_floors=False), frontier(world), strict=True)
        )
    )


def what_is_left(world: World, process: Process, present: set[str]) -> list[str]:
    """What a process still holds though everything is processed; nothing, in the end. `present`: the
    nodes that have not left."""
    name, shard = world.spec.name, process.shard
    state = inside.pipeline(process, name)
    held = {
        "open cells": any(state.shard.cells.open_slots),
        "open units": any(len(names) for names in state.shard.units.values()),
        # What an executor hands over of a run from before a restart waits for the query's next batch.
        "staged contributions": 0 if world.generation else state.home.staged_count,
        "unconfirmed entries": len(inside.outbox(process)),
        "closed keys": len(inside.closed_keys(process)),
        "runs outside the cut": len(state.combiner.own_runs()),
        "fronts that hold": len(state.combiner.unsettled_fronts),
        "a change under way": state.graph_change.is_under_way,
    }
    left = [f"shard {shard} has {what}: {number}" for what, number in held.items() if number]
    gone = [str(key) for key in state.shard.keys if key.node_id not in present]
    if gone or len(state.shard.keys) > len(present):
        left.append(f"shard {shard} keeps keys {gone or list(state.shard.keys)}")
    late = sum(low.late_items for view in state.combiner.views.values()
               for low in view.lows.values())  # fmt: skip
    if world.exact_late and late != world.late_consumed:
        left.append(f"{late} items are in the late ledger, late were {world.late_consumed}")
    return left
