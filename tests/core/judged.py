"""Processes whose word is judged, and nodes of which is known what is open: what schedules of any kind may be driven by."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import count

from tests import inside
from tests.core.driver import Cluster, HandNode, Item
from tracker.core.log import Announced, Effect, Event, FrontGranted, TicksDurable
from tracker.core.process import ProcessConfig

LIFE = 100_000
"""A pipeline that is registered anew begins so many slots above the one before, so that of a name nothing ever goes back."""
VALIDATES = 10
"""Each how many events of the processes the invariants of one are looked at."""


class Broken(Exception):
    """A promise is."""


@dataclass(eq=False)
class Feeder:
    """A node that creates, consumes and holds, and what of that is open."""

    node: HandNode
    generation: tuple[str, int]
    created: dict[int, Item] = field(default_factory=dict)
    """By the tick that creates it."""
    held: dict[int, Item] = field(default_factory=dict)
    """The same of its hold."""
    holds: Item | None = None
    labels: int | None = None
    """From which slot on its front labels; None before it is granted, and when it has left."""


class Judged(Cluster):
    """Processes whose word is judged: what each announces never goes back, nor is a front granted less than anybody has announced,
    and nothing that is durable and open, or held, lies below."""

    def __init__(self, shards: int, config: ProcessConfig) -> None:
        self.feeders: dict[object, Feeder] = {}
        self.open: dict[tuple[str, int], set[Item]] = defaultdict(set)
        self.told: dict[tuple[int, str], int] = {}
        self.most: dict[tuple[str, int], int] = {}
        self.events = count()
        super().__init__(shards, config=config)

    def handle(self, shard: int, event: Event) -> list[Effect]:
        process = self.processes[shard]
        effects = process.handle(event, self.now_ns)
        self._take(shard, effects)
        if next(self.events) % VALIDATES == 0:
            process.validate()
        return effects

    def _take(self, shard: int, effects: list[Effect]) -> None:
        super()._take(shard, effects)
        for effect in effects:
            if isinstance(effect, Announced):
                self._announced(shard, effect)
            elif isinstance(effect, TicksDurable) and effect.session in self.feeders:
                self._durable(self.feeders[effect.session], effect.number)
            elif isinstance(effect, FrontGranted) and effect.session in self.feeders:
                self._granted(shard, effect)

    def _granted(self, shard: int, effect: FrontGranted) -> None:
        feeder, slot = self.feeders[effect.session], effect.grant.slot
        if feeder.generation[0] not in inside.pipelines(self.processes[shard]):
            return  # it is deleted by now
        told = self.most.get(self._life(shard, feeder.generation[0]), slot)
        if slot < told:
            raise Broken(f"granted {effect.grant}, and somebody has announced {told}")
        feeder.labels = max(slot, effect.grant.heartbeat)

    def _life(self, shard: int, name: str) -> tuple[str, int]:
        return name, inside.pipeline(self.processes[shard], name).registered.start_slot

    def _announced(self, shard: int, said: Announced) -> None:
        pipeline = inside.pipelines(self.processes[shard]).get(said.pipeline)
        if pipeline is None:
            return
        slot, life = said.pipeline_min_time, self._life(shard, said.pipeline)
        if slot < (before := self.told.get((shard, said.pipeline), slot)):
            raise Broken(
                f"shard {shard} had announced {before} of {said.pipeline}, and says {slot}"
            )
        self.told[shard, said.pipeline] = min(slot, life[1] + LIFE - 1)
        self.most[life] = max(slot, self.most.get(life, slot))
        least = dict(said.min_times)
        for segment, at, value in self.open[said.pipeline, pipeline.generation]:
            if at < max(slot, least.get(segment, slot)):
                raise Broken(
                    f"shard {shard} says {said}, and item {value} of {segment} is open at {at}"
                )

    def _durable(self, feeder: Feeder, number: int) -> None:
        for made in (feeder.created, feeder.held):
            for tick in [tick for tick in made if tick <= number]:
                self.open[feeder.generation].add(made.pop(tick))
