"""What happens to a few processes amid anything else, drawn by a seed: frames and commits one by one, pipelines that begin, change and end,
nodes that create, consume and hold, fronts that are silent, shards that come and go, processes that die and come back."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

from tests import inside
from tests.core.driver import HandNode, content
from tests.core.judged import LIFE, Feeder, Judged
from tracker.core.log import (
    Answer,
    DeletePipeline,
    Event,
    Joined,
    JoinNode,
    JoinShard,
    RegisterPipeline,
    RescaleShards,
    RestartPipeline,
    SessionRefused,
    ShardNumber,
    TickRefused,
)
from tracker.core.model import Edge, PipelineSpec, Refused, SilentFront
from tracker.core.process import ProcessConfig

SPEC = PipelineSpec("p", ("a", "b"), (Edge("a", "b", 0),), front_count=1)
EVICTS = replace(SPEC, silent_front=SilentFront.EVICT, evict_after_ms=400)
CONFIG = ProcessConfig(rescale_margin_ms=40, join_timeout_ms=2_000, evict_check_ms=400)


class Schedule:
    """Processes, and what may happen to them at any time: `amid` has that, as often as each is to be drawn."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.cluster = Judged(self.random.choice([4, 5, 5, 6]), CONFIG)
        self.specs = {f"p{number}": replace(SPEC, name=f"p{number}") for number in range(3)}
        self.specs["p3"] = replace(EVICTS, name="p3")
        self.numbers = count(1)
        self.coming: list[int] = []
        self.said: list[Any] = []
        self.amid = [self.step] * 4 + [self.hold] * 4 + [self.release] * 2 + [self.register] * 2
        self.amid += (
            [self.change] * 2 + [self.restart] * 2 + [self.delete] * 2 + [self.join_node] * 4
        )
        self.amid += (
            [self.tick] * 8 + [self.come_back] * 2 + [self.join, self.wait] + [self.begin] * 3
        )
        self.amid += [self.rescale] * 2

    # --- what happens -----------------------------------------------------------------------------

    def alive(self) -> list[int]:
        return sorted(self.cluster.processes)

    def some(self) -> int:
        return self.random.choice(self.alive())

    def ask(self, shard: int, make: Callable[..., Event], *arguments: Any) -> list[Any]:
        """Asks, and returns what is answered at once."""
        request = f"asked {next(self.numbers)}"
        effects = self.cluster.handle(shard, make(request, *arguments))
        return [e.result for e in effects if isinstance(e, Answer) and e.request == request]

    def go(self, most: int) -> None:
        for _ in range(most):
            if not self.cluster.move_once():
                self.cluster.pass_time_without_commits()
        for shard in self.cluster.gone & self.cluster.processes.keys():
            self.cluster.crash(shard)

    def registered(self) -> tuple[str, int] | None:
        """A name and its registrar, if that one is there and knows it."""
        name = self.random.choice([*self.specs])
        shard = self.cluster.routing.registrar(name)
        there = shard in self.cluster.processes
        return (
            (name, shard)
            if there and name in inside.pipelines(self.cluster.processes[shard])
            else None
        )

    def step(self) -> None:
        """One commit, or one frame."""
        waiting = [shard for shard, records in self.cluster.pending.items() if records]
        links = self.cluster.deliverable()
        if waiting and (not links or self.random.random() < 0.4):
            self.cluster.commit(self.random.choice(waiting), self.random.randrange(1, 3))
        elif links:
            self.cluster.deliver(*self.random.choice(links), frames=1)

    def hold(self) -> None:
        self.cluster.held.add((self.some(), self.some()))

    def release(self) -> None:
        if self.cluster.held:
            self.cluster.held.remove(self.random.choice(sorted(self.cluster.held)))

    def wait(self) -> None:
        """Time in which silent fronts are evicted."""
        self.cluster.now_ns += 500_000_000
        self.go(4)

    def register(self) -> None:
        name = self.random.choice([*self.specs])
        shard = self.cluster.routing.registrar(name)
        if shard in self.cluster.processes:
            self.ask(shard, RegisterPipeline, self.specs[name])

    def change(self) -> None:
        if (known := self.registered()) is not None:
            spec = inside.pipeline(self.cluster.processes[known[1]], known[0]).spec
            new = f"s{len(spec.segments)}"
            edges = (*spec.edges, Edge("b", new, 0))
            self.ask(
                known[1],
                RegisterPipeline,
                replace(spec, segments=(*spec.segments, new), edges=edges),
                True,
            )

    def restart(self) -> None:
        if (known := self.registered()) is not None:
            generation = inside.pipeline(self.cluster.processes[known[1]], known[0]).generation
            self.ask(known[1], RestartPipeline, known[0], generation, None, 0)

    def delete(self) -> None:
        if (known := self.registered()) is not None:
            pipeline = inside.pipeline(self.cluster.processes[known[1]], known[0])
            self.ask(known[1], DeletePipeline, known[0], pipeline.generation, True, 0)
            next_life = pipeline.registered.start_slot + LIFE
            self.specs[known[0]] = replace(self.specs[known[0]], start_slot=next_life)

    def join_node(self) -> None:
        name, shard = self.random.choice([*self.specs]), self.some()
        table = self.cluster.processes[shard].routing
        ids = (f"n{next(self.numbers)}" for _ in range(100))
        node_id = next((each for each in ids if table.home(name, each) == shard), "n")
        self.feeder(name, shard, node_id)

    def feeder(self, name: str, shard: int, node_id: str) -> Feeder | None:
        request = f"joins {node_id}"
        self.cluster.handle(shard, JoinNode(request, name, node_id, "front"))
        if not (answers := self.cluster.answers(request)):
            self.cluster.commit(shard)
            answers = self.cluster.answers(request)
        if not answers or not isinstance(joined := answers[0], Joined):
            return None
        node = HandNode(self.cluster, self.specs[name], shard, joined)
        feeder = Feeder(node, (name, joined.generation))
        node.attach()
        self.cluster.feeders[node.session] = feeder
        self.send(feeder, joins={"f": 0})
        return feeder

    def tick(self) -> None:
        feeders = [
            f for f in self.cluster.feeders.values() if f.node.home in self.cluster.processes
        ]
        if not feeders:
            return
        feeder = self.random.choice(feeders)
        there = sorted(item for item in self.cluster.open[feeder.generation] if item[2] > 0)
        ahead, value = self.random.randrange(20), next(self.numbers)
        if feeder.labels is not None and self.random.random() < 0.6:
            self.label(feeder, feeder.labels + ahead, value)
        elif there:
            _, slot, _ = taken = self.random.choice(there)
            made: list[dict[str, Any]] = [{"created": [(1, slot + ahead, value)]}, {}]
            made += [{"holds": {"state": (1, slot)}}]
            self.send(feeder, consumed=[taken], **self.random.choice(made))

    def label(self, feeder: Feeder, slot: int, value: int) -> None:
        what = self.random.randrange(3)
        if what == 0:
            self.send(feeder, created=[(0, slot, value)])
        elif what == 1 and self.send(feeder, heartbeats={"f": slot}):
            feeder.labels = slot
        elif what == 2 and self.send(feeder, leaves=["f"]):
            feeder.labels = None

    def send(self, feeder: Feeder, **what: Any) -> bool:
        """Sends a tick; whether it is accepted."""
        node, number = feeder.node, feeder.node.last + 1
        effects = node.send(number, content(**what))
        if any(isinstance(e, TickRefused | SessionRefused) for e in effects):
            return False
        node.last = number
        for item in what.get("created", ()):
            feeder.created[number] = item
        if what.get("holds"):
            moved = [*feeder.held.values(), *filter(None, [feeder.holds])]
            feeder.holds = (*what["holds"]["state"], -next(self.numbers))
            self.cluster.open[feeder.generation] -= {*moved}
            feeder.held = {number: feeder.holds}
        self.cluster.open[feeder.generation] -= {*what.get("consumed", ())}
        return True

    # --- shards come and go -----------------------------------------------------------------------

    def come_back(self) -> None:
        """A process dies and comes back, from a snapshot or from the whole log."""
        shard = self.some()
        if self.random.random() < 0.5:
            self.cluster.take_snapshot(shard)
        self.cluster.restart(shard)

    def join(self) -> None:
        sequencer = self.cluster.sequencer
        if sequencer not in self.cluster.processes:
            return
        request = f"host-{next(self.numbers)}:1"
        self.cluster.handle(sequencer, JoinShard(request, request))
        self.go(6)
        self.coming += [
            a.shard for a in self.cluster.answers(request) if isinstance(a, ShardNumber)
        ]

    def begin(self) -> None:
        for shard in [*self.coming]:
            try:
                self.cluster.bootstrap(shard, self.some())
                self.coming.remove(shard)
            except Refused:
                pass

    def rescale(self) -> None:
        sequencer = self.cluster.sequencer
        if sequencer in self.cluster.processes:
            members = sorted(self.cluster.processes[sequencer].membership.members)
            number = max(2, len(members) - self.random.randrange(2))
            without = (self.random.choice(members),) if self.random.random() < 0.5 else ()
            number -= len(without)
            self.ask(sequencer, RescaleShards, number, self.random.random() < 0.7, without)
