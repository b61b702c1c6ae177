"""What a deployment of several groups costs beside one of a single group, and how a client finds a pipeline in it.

Ticks and notifications go through processes, in turns: the same pipelines and the same ticks in one group, and spread over
four. What sixteen groups take is simulated as in `benchmarks/scale.py`, one behind the other: they know nothing of
each other's ticks.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import tempfile
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from acker.v1 import node_service_pb2 as node_pb
from acker.v1.node_service_pb2_grpc import NodeServiceStub
from benchmarks import looping
from benchmarks.bars import BARS
from benchmarks.figures import Budget, Figure, percentile
from benchmarks.latency import Case, notifications
from benchmarks.pairs import FEWEST_ROUNDS, ratios, take_turns
from benchmarks.scale import Load
from benchmarks.throughput import (
    TICKS_PER_SLOT,
    TICKS_TOGETHER,
    commit,
    messages_of,
    numbered_tick,
)
from tests.cluster.tracker import Tracker, asked
from tests.waits import until
from tracker.client import Admin, Subscriber
from tracker.client.connection import Connection
from tracker.core.model import PipelineSpec

GROUPS, PIPELINES = 4, 40
TICKS = 2_500
"""Of each pipeline in a turn: so many that what a turn takes besides hardly counts."""
TIMEOUT_S = 120.0
SIMULATED_GROUPS, SIMULATED_TICKS_PER_S = 16, 10_000


@dataclass(frozen=True)
class Deployment:
    """Groups, each a process with one shard, that have found each other."""

    groups: list[Tracker]

    @property
    def target(self) -> str:
        return ",".join(group.target for group in self.groups)

    @property
    def directory(self) -> Path:
        return self.groups[0].directory

    def register(self, spec: PipelineSpec) -> None:
        """In its last group, which is not the directory's where there are several."""
        self.place([(spec, len(self.groups) - 1)])

    def place(self, homes: Iterable[tuple[PipelineSpec, int]]) -> None:
        """Registers pipelines, each in the group of a number."""
        with Admin(self.target, TIMEOUT_S) as admin:
            for spec, group in homes:
                admin.apply(spec, group=group)

    def processor_s(self) -> float:
        return sum(group.processor_s() for group in self.groups)


def find(budget: Budget) -> Iterable[Figure]:
    with tempfile.TemporaryDirectory(prefix="lowmark-bench-") as directory, ExitStack() as stack:
        one = started(Path(directory) / "one", 1, stack)
        more = started(Path(directory) / "more", GROUPS, stack)
        rounds = budget.pick(FEWEST_ROUNDS, 2 * FEWEST_ROUNDS)
        yield from _ticks(one, more, rounds)
        yield from _notifications(one, more, rounds)
        yield from _first_calls(more)
    yield from _simulated(budget)


def started(directory: Path, groups: int, stack: ExitStack) -> Deployment:
    made = [Tracker(directory / "group-0")]
    for group in range(1, groups):
        options = ("--group", str(group), "--directory", made[0].target)
        made.append(Tracker(directory / f"group-{group}", options=options))
    for each in made:
        stack.enter_context(each)
    for each in made:
        until(
            lambda each=each: len(asked(each.target, lambda admin: admin.groups()) or []) == groups,  # type: ignore[misc]
            each.errors,
        )
    return Deployment(made)


def _ticks(one: Deployment, more: Deployment, rounds: int) -> Iterable[Figure]:
    messages = messages_of([numbered_tick(n, 1) for n in range(2, TICKS + 2)], TICKS_TOGETHER)
    turns = itertools.count()
    costs = take_turns(
        {
            "one": lambda: _cost_us(one, next(turns), messages),
            "more": lambda: _cost_us(more, next(turns), messages),
        },
        rounds,
    )
    yield Figure(
        f"processor time of a tick, all processes together, with {GROUPS} groups / with 1",
        ratios(costs["more"], costs["one"]),
        "",
        f"{PIPELINES} pipelines, {PIPELINES * TICKS:,} ticks a turn, {TICKS_TOGETHER} a message; {median(costs['one']):.0f} µs with one",
        BARS["tick with 4 groups"],
        least=min(costs["more"]) / min(costs["one"]),
    )


def _cost_us(deployment: Deployment, turn: int, messages: list[bytes]) -> float:
    """Microseconds of processors a tick, until each pipeline is announced complete. They are deleted then: no turn meets
    what those before it have left."""
    homes = {f"t{turn}-{n}": n % len(deployment.groups) for n in range(PIPELINES)}
    deployment.place(
        (PipelineSpec(name, ("in",), front_count=1), home) for name, home in homes.items()
    )
    placed = [(name, deployment.groups[home]) for name, home in homes.items()]

    async def commit_all() -> None:
        await asyncio.gather(*(commit(group, name, messages, TICKS) for name, group in placed))

    before_s = deployment.processor_s()
    looping.run(commit_all())
    for name, group in placed:
        with Subscriber(group.target, name) as subscriber:
            assert subscriber.wait_until((TICKS + 1) // TICKS_PER_SLOT, timeout_s=TIMEOUT_S)
    cost_us = (deployment.processor_s() - before_s) / (TICKS * PIPELINES) * 1e6
    with Admin(deployment.target, TIMEOUT_S) as admin:
        for name, _ in placed:
            admin.delete(name, admin.pipeline(name).state.generation, drop_open=True)
    return cost_us


def _notifications(one: Deployment, more: Deployment, rounds: int) -> Iterable[Figure]:
    case = Case()
    pipelines = (f"n{turn}" for turn in itertools.count())

    def taken(deployment: Deployment) -> list[float]:
        heard_at = [deployment.target]
        return notifications(deployment, heard_at, next(pipelines), case)

    found = take_turns({"one": lambda: taken(one), "more": lambda: taken(more)}, rounds)
    for percent in (50, 99):
        of_one, of_more = (
            [percentile(each, percent) for each in found[name]] for name in ("one", "more")
        )
        yield Figure(
            f"notification p{percent} with {GROUPS} groups / with 1: {case}",
            ratios(of_more, of_one),
            "",
            f"{case.samples} a round; {min(of_one):.2f} ms with one",
            BARS[f"notification p{percent}, 4 groups"],
            least=min(of_more) / min(of_one),
        )


class Counted(Connection):
    """Counts its calls, those that are refused too."""

    calls = 0

    async def attempt(self, method: Callable[..., Any], request: Any, timeout_s: float) -> Any:
        self.calls += 1
        return await super().attempt(method, request, timeout_s)


def _first_calls(more: Deployment) -> Iterable[Figure]:
    """A client knows one process alone, of another group than the one in which the pipeline lives."""
    more.register(PipelineSpec("far", ("in",), front_count=1))
    calls: list[int] = []
    for group in more.groups[:-1]:
        connection = Counted(group.target)
        request = node_pb.JoinNodeRequest(pipeline="far", node_id=f"node-{len(calls)}")
        connection.call(lambda channel: NodeServiceStub(channel).JoinNode, request, TIMEOUT_S)
        calls.append(connection.calls)
        connection.close()
    yield Figure(
        "calls until one is answered that goes to another group than its pipeline's first",
        (max(calls),),
        "",
        f"joins of a node; the most of {len(calls)} groups",
        BARS["calls through another group"],
        exact=True,
    )


class Grouped:
    """A load over groups, each of one shard."""

    def __init__(self, groups: int, pipelines: int, nodes: int) -> None:
        self.loads = [Load(1, pipelines // groups, nodes // groups) for _ in range(groups)]

    def run(self, seconds: float, ticks_a_second: int) -> float:
        """So much simulated time at work; microseconds of processor time a tick, of all of them."""
        share = ticks_a_second // len(self.loads)
        costs = [load.run(seconds, share) for load in self.loads]
        return sum(costs) / len(costs)


def _simulated(budget: Budget) -> Iterable[Figure]:
    """What a large load takes where each shard is a group, and what ten times as many pipelines need."""
    pipelines, nodes = budget.pick(160, 992), budget.pick(1_600, 9_920)
    rate = SIMULATED_TICKS_PER_S
    load = Grouped(SIMULATED_GROUPS, pipelines, nodes)
    gc.collect()
    load.run(0.1, rate)
    yield Figure(
        f"processors that are busy with core and codecs in {SIMULATED_GROUPS} groups",
        tuple(load.run(0.5, rate) * rate / 1e6 for _ in range(FEWEST_ROUNDS)),
        "",
        f"{pipelines:,} pipelines, {nodes:,} nodes, {rate:,} ticks a second",
        BARS["processors of 16 groups"],
    )
    del load
    share = rate // SIMULATED_GROUPS
    more = Load(1, 10 * pipelines // SIMULATED_GROUPS, nodes // SIMULATED_GROUPS)
    more.run(0.1, share)
    yield Figure(
        "... with ten times as many pipelines",
        (more.run(0.5, share) * rate / 1e6,),
        "",
        f"one of {SIMULATED_GROUPS} groups with {10 * pipelines // SIMULATED_GROUPS:,} pipelines and a sixteenth of the "
        "ticks, sixteen times",
    )
