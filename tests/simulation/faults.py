"""Faults planted into the production core, one at a time, from outside: the simulator has to find
each of them. Production code has no switches for this."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest import mock

from tests import inside
from tracker.core.cut.combiner import Combiner
from tracker.core.log import Entries, KeyTick, ReceivedEntries, TickRun, Told
from tracker.core.model import FrontId, NodeKey
from tracker.core.model.slots import FOREVER, LOWEST_SLOT
from tracker.core.pipeline.pipeline import Pipeline
from tracker.core.pipeline.pipelines import Pipelines
from tracker.core.process.receiver import Receiver
from tracker.core.replication.links import Link
from tracker.core.reporting.reporter import Reporter
from tracker.core.shard.shard import ShardPipeline


@dataclass
class _Reported:
    """A shard's report: its vector, lowest open slots by segment, fronts' (segment, promise)."""

    vector: dict[int, int]
    lows: dict[int, int]
    fronts: dict[FrontId, tuple[int, int]]


@contextmanager
def published_rule() -> Iterator[None]:
    """Accept what a shard reports once its vector is at most the element-wise minimum of all
    vectors, and combine what was accepted; what was touched outside that minimum is not looked at."""
    move_cut = Reporter._move_cut

    def move_and_queue(self: Reporter, shard: int, applied: Iterable[tuple[int, int]]) -> None:
        move_cut(self, shard, applied)
        for pipeline in self._pipelines.values():
            combiner = pipeline.combiner
            state = _Reported(
                dict(self._cut.vectors.of(shard)),
                {low.segment: low.slot for low in combiner.views[shard].lows.values()},
                {f: (r.segment, r.heartbeat) for f, r in combiner.views[shard].fronts.items()},
            )
            combiner.__dict__.setdefault("waiting", {}).setdefault(shard, deque()).append(state)
            self._pipelines.mark(pipeline.spec.name)

    def accept(combiner: Combiner) -> dict[int, _Reported]:
        accepted: dict[int, _Reported] = combiner.__dict__.setdefault("accepted", {})
        cut = inside.cut_of(combiner)
        for shard, queue in combiner.__dict__.setdefault("waiting", {}).items():
            while queue and all(queue[0].vector.get(home, 0) <= cut[home] for home in cut):
                accepted[shard] = queue.popleft()
        return accepted

    def low(self: Combiner, segment: int) -> int:
        accepted = accept(self)
        if accepted.keys() != self.views.keys():
            return LOWEST_SLOT
        return min(state.lows.get(segment, FOREVER) for state in accepted.values())

    def promise(self: Combiner, segment: int) -> int:
        promises = []
        for state in accept(self).values():
            if not self.settled_fronts.keys() <= state.fronts.keys():
                return LOWEST_SLOT  # the rule knows fixed fronts: they hold until all are there
            promises += [promise for fed, promise in state.fronts.values() if fed == segment]
        return min(promises, default=FOREVER)

    with (
        mock.patch.object(Reporter, "_move_cut", move_and_queue),
        mock.patch.object(Combiner, "low", low),
        mock.patch.object(Combiner, "promise", promise),
    ):
        yield


def _set_node_time(shard: ShardPipeline, key: NodeKey, number: int) -> None:
    if key in shard.keys:
        shard.keys[key].number = number


@contextmanager
def no_duplicate_check() -> Iterator[None]:
    """A shard takes entries of a home log that it has taken before for new ones, and applies their
    ticks whatever their numbers are."""
    take, apply = Receiver._take_entries, ShardPipeline.apply_tick

    def is_plain_tick(pipelines: Pipelines, entry: Told) -> bool:
        """Of a key that is still known, and without fronts: what is left is cells alone."""
        if isinstance(entry, TickRun):
            promises = any(each.heartbeats for each in entry.keys)
            return not promises and all(is_plain_tick(pipelines, part) for _, part in entry.ticks())
        if not isinstance(entry, KeyTick) or entry.tick.pipeline not in pipelines:
            return False
        content = entry.tick.content
        known = pipelines[entry.tick.pipeline].shard.keys
        return entry.tick.key in known and not (content.heartbeats + content.joins + content.leaves)

    def take_again(self: Receiver, shard: int, link: Link, body: Entries) -> None:
        repeated = body.last <= link.accepted
        if repeated and all(is_plain_tick(self._pipelines, entry) for entry in body.entries):
            self._journal.append(ReceivedEntries(shard, body.first, body.entries))
        else:
            take(self, shard, link, body)

    def apply_again(
        self: ShardPipeline, entry: KeyTick, home: int, *, by_former: bool = False
    ) -> set[int]:
        key, number = entry.tick.key, entry.tick.number
        applied = self.keys[key].number if key in self.keys else 0
        _set_node_time(self, key, number - 1)
        units = apply(self, entry, home, by_former=by_former)
        _set_node_time(self, key, max(applied, number))
        return units

    with (
        mock.patch.object(Receiver, "_take_entries", take_again),
        mock.patch.object(ShardPipeline, "apply_tick", apply_again),
    ):
        yield


@contextmanager
def early() -> Iterator[None]:
    """What is announced is a slot further than what the reports allow."""
    new_announcements = Pipeline.new_announcements

    def further(self: Pipeline, is_open: bool) -> tuple[tuple[int, int], ...]:
        return tuple(
            (segment, slot if slot == FOREVER else slot + 1)
            for segment, slot in new_announcements(self, is_open)
        )

    with mock.patch.object(Pipeline, "new_announcements", further):
        yield


@contextmanager
def _one_in_ten_ticks(apply: Callable[..., set[int]]) -> Iterator[None]:
    """Of some ticks with items, by their numbers, `apply` does what it does."""
    apply_tick: Callable[..., set[int]] = ShardPipeline.apply_tick

    def apply_some(
        self: ShardPipeline, entry: KeyTick, home: int, *, by_former: bool = False
    ) -> set[int]:
        content, as_it_is = entry.tick.content, partial(apply_tick, by_former=by_former)
        if len(content.created) and entry.tick.number % 10 == 2:
            return apply(as_it_is, self, entry, home)
        return as_it_is(self, entry, home)

    with mock.patch.object(ShardPipeline, "apply_tick", apply_some):
        yield


@contextmanager
def lost() -> Iterator[None]:
    """Of some acknowledged ticks only the numbers are remembered."""

    def forget(
        apply_tick: Callable[..., set[int]], shard: ShardPipeline, entry: KeyTick, home: int
    ) -> set[int]:
        _set_node_time(shard, entry.tick.key, entry.tick.number)
        return set()

    with _one_in_ten_ticks(forget):
        yield


@contextmanager
def double() -> Iterator[None]:
    """Some ticks pass the check for repeated numbers and are applied twice."""

    def twice(
        apply_tick: Callable[..., set[int]], shard: ShardPipeline, entry: KeyTick, home: int
    ) -> set[int]:
        arrived: set[int] = apply_tick(shard, entry, home)
        _set_node_time(shard, entry.tick.key, entry.tick.number - 1)
        return arrived | apply_tick(shard, entry, home)

    with _one_in_ten_ticks(twice):
        yield


SABOTAGE: dict[str, Callable[[], Any]] = {"early": early, "lost": lost, "double": double}
"""What `make sim SABOTAGE=...` plants."""
FAULTS: dict[str, Callable[[], Any]] = {
    "published-rule": published_rule,
    "no-duplicate-check": no_duplicate_check,
    **SABOTAGE,
}
