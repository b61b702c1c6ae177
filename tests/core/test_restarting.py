"""A pipeline begins anew from its min time: what was open is dropped and listed, older ticks are nothing,
fronts are told from where to go on, and no announcement goes back."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest

from tests import inside
from tests.core.driver import MS, Cluster, HandNode, content, plain
from tracker.core.log import (
    Announced,
    Answer,
    Joined,
    JoinNode,
    Restart,
    RestartPipeline,
    RetireNode,
    SessionRefused,
    StageContributions,
    TickRefused,
)
from tracker.core.model import (
    Batch,
    Cells,
    DroppedCells,
    Edge,
    PipelineSpec,
    Refusal,
    RefusalCode,
    StagedContribution,
    Unit,
)
from tracker.core.model.slots import FOREVER
from tracker.core.pipeline.pipeline import MAX_LISTED_RESTARTS

SPEC = PipelineSpec("p", ("work", "next"), (Edge("work", "next"),), fronts=("a",))
SHARDS = [1, 2, 3]
AT_MS = 1_700_000_000_000


def running(shards: int) -> tuple[Cluster, HandNode, HandNode]:
    """An item at 23 in the first segment and one at 25 in the second, of a front that is at 40."""
    cluster = Cluster(shards)
    cluster.register(SPEC)
    front, worker = cluster.node(SPEC, "front"), cluster.node(SPEC, "worker")
    front.join_front("a")
    front.commit(created=[(0, 23, 1), (0, 25, 2)], units_created=[Unit(0, "file:///x", 23)])
    front.commit(heartbeats={"a": 40})
    worker.commit(consumed=[(0, 25, 2)], created=[(1, 25, 3)], batch=Batch("q", 0, b"f"))
    assert cluster.agreed(SPEC) == (23, 23)
    return cluster, front, worker


def restart(cluster: Cluster, generation: int = 0, from_slot: int | None = None) -> object:
    shard = cluster.routing.registrar("p")
    return cluster.ask(shard, RestartPipeline, "p", generation, from_slot, AT_MS)


def over(cluster: Cluster, node: HandNode) -> Refusal:
    """How a node's stream ended."""
    refusals = [
        e.refusal
        for e in cluster.effects
        if isinstance(e, SessionRefused) and e.session == node.session
    ]
    return refusals[0]


@pytest.mark.parametrize("shards", SHARDS)
def test_it_begins_at_its_min_time_and_fronts_are_told(shards: int) -> None:
    cluster, front, worker = running(shards)
    assert restart(cluster) == Restart(1, 23, AT_MS)
    for node in (front, worker):
        assert over(cluster, node).code is RefusalCode.FENCED
        assert "generation 1 begins at slot 23" in over(cluster, node).message
        (again,) = [e for e in node.attach() if isinstance(e, SessionRefused)]
        assert again.refusal.code is RefusalCode.FENCED
        assert "commit anew what was published or read from that slot on" in again.refusal.message
    assert cluster.agreed(SPEC) == (23, 23)

    front = cluster.node(SPEC, "front")
    assert (front.joined.generation, front.joined.replay_from) == (1, 23)
    assert front.joined.last_batches == () and front.joined.fronts == ()
    assert front.join_front("a").slot == 23
    front.commit(created=[(0, 23, 1), (0, 25, 2)])
    front.commit(heartbeats={"a": 40})
    assert cluster.agreed(SPEC) == (23, 23)
    worker = cluster.node(SPEC, "worker")
    worker.commit(consumed=[(0, 23, 1)], batch=Batch("q", 0, b"g"))
    assert cluster.agreed(SPEC) == (25, 25), "the batch counts, though its number did before"
    worker.commit(consumed=[(0, 25, 2)])
    assert cluster.agreed(SPEC) == (40, 40)


@pytest.mark.parametrize("shards", SHARDS)
def test_what_a_segment_had_come_to_before_says_nothing_of_the_pipeline_now(shards: int) -> None:
    """What the whole pipeline is said to be never mixes two generations."""
    spec = PipelineSpec("p", ("one", "other"), front_count=1)
    cluster = Cluster(shards)
    cluster.register(spec)
    front = cluster.node(spec, "front")
    front.join_front("a", 0)
    assert cluster.agreed(spec) == (0, FOREVER), "nothing feeds the other"
    assert restart(cluster) == Restart(1, 0, AT_MS)
    front = cluster.node(spec, "front")
    front.join_front("a", 1)
    assert cluster.agreed(spec) == (FOREVER, FOREVER), "each was, in some generation"
    assert {p.pipeline_min_time("p") for p in cluster.processes.values()} == {0}
    cluster.effects.clear()
    front.commit(created=[(1, 7, 1)])
    front.commit(heartbeats={"a": 9})
    cluster.settle()
    assert {p.pipeline_min_time("p") for p in cluster.processes.values()} == {7}
    told = [e.pipeline_min_time for e in cluster.effects if isinstance(e, Announced)]
    assert told == [7] * shards, "it is told, though no segment has anything new to say"


@pytest.mark.parametrize("shards", SHARDS)
def test_the_slot_from_which_it_begins_is_announced_as_soon_as_fronts_hold_no_less(
    shards: int,
) -> None:
    cluster, *_ = running(shards)
    assert restart(cluster, from_slot=30) == Restart(1, 30, AT_MS)
    assert cluster.agreed(SPEC) == (23, 23), "its front may not be heard of yet"
    cluster.node(SPEC, "front").join_front("a")
    assert cluster.agreed(SPEC) == (30, 30)


@pytest.mark.parametrize("shards", SHARDS)
def test_what_was_open_is_dropped_and_listed(shards: int) -> None:
    cluster, *_ = running(shards)
    restart(cluster)
    listed = [
        cells
        for process in cluster.processes.values()
        for dropped in inside.pipeline(process).restarts
        for cells in dropped.cells
    ]
    assert sorted(listed, key=lambda cells: cells.segment) == [
        DroppedCells(0, 1, 1, 23, 23),
        DroppedCells(1, 1, 1, 25, 25),
    ]
    for process in cluster.processes.values():
        state = process.describe("p", cluster.now_ns)
        assert [segment.open_slots for segment in state.segments] == [0, 0]
        assert (state.nodes, state.fronts, state.generation) == ((), (), 1)
    keeper = cluster.processes[cluster.routing.names_keeper("p", 0)]
    assert keeper.resolve_units("p", 0, ["file:///x"]) == [None]


@pytest.mark.parametrize("shards", SHARDS)
def test_the_pipeline_waits_for_its_declared_fronts_again(shards: int) -> None:
    cluster, *_ = running(shards)
    restart(cluster)
    other = cluster.node(SPEC, "other")
    other.join_front("b")
    other.commit(heartbeats={"b": 90})
    assert cluster.agreed(SPEC) == (23, 23)


@pytest.mark.parametrize("shards", SHARDS)
def test_a_segment_that_was_further_says_nothing_new_until_it_is_there_again(shards: int) -> None:
    cluster, front, worker = running(shards)
    worker.commit(consumed=[(0, 23, 1)], created=[(1, 23, 4)])
    assert cluster.agreed(SPEC) == (40, 23)
    restart(cluster)
    assert cluster.agreed(SPEC) == (40, 23)
    front = cluster.node(SPEC, "front")
    assert front.join_front("a").slot == 23, "what is to be done again lies below 40"
    front.commit(created=[(0, 30, 5)])
    front.commit(heartbeats={"a": 60})
    assert cluster.agreed(SPEC) == (40, 30)
    cluster.node(SPEC, "worker").commit(consumed=[(0, 30, 5)])
    assert cluster.agreed(SPEC) == (60, 60)


@pytest.mark.parametrize("shards", SHARDS)
def test_it_may_begin_later_and_what_lies_before_is_given_up(shards: int) -> None:
    cluster, *_ = running(shards)
    assert restart(cluster, from_slot=30) == Restart(1, 30, AT_MS)
    front = cluster.node(SPEC, "front")
    assert front.join_front("a").slot == 30
    refused = front.refused(created=[(0, 29, 9)])
    assert refused.code is RefusalCode.BELOW_MIN_TIME
    front.commit(heartbeats={"a": 35})
    assert cluster.agreed(SPEC) == (35, 35)


@pytest.mark.parametrize("shards", SHARDS)
@pytest.mark.parametrize("durable", [False, True])
def test_an_operator_who_asks_twice_restarts_once(shards: int, durable: bool) -> None:
    cluster, *_ = running(shards)
    registrar = cluster.routing.registrar("p")
    cluster.handle(registrar, RestartPipeline("lost", "p", 0, None, AT_MS))
    if durable:
        cluster.store(registrar)
    cluster.restart(registrar)
    first = restart(cluster)
    assert first == Restart(1, 23, AT_MS) == restart(cluster)
    conflict = restart(cluster, from_slot=30)
    assert isinstance(conflict, Refusal) and conflict.code is RefusalCode.CONFLICT
    assert restart(cluster, generation=1) == Restart(2, 23, AT_MS)
    stale = restart(cluster)
    assert isinstance(stale, Refusal) and stale.code is RefusalCode.CONFLICT


def test_two_requests_at_once_restart_once() -> None:
    cluster, *_ = running(1)
    for request in ("one", "two"):
        cluster.handle(0, RestartPipeline(request, "p", 0, None, AT_MS))
    cluster.settle()
    answers = {e.request: e.result for e in cluster.effects if isinstance(e, Answer)}
    assert answers["one"] == answers["two"] == Restart(1, 23, AT_MS)


def test_what_cannot_be_is_refused() -> None:
    cluster, front, worker = running(2)
    spec_horizon = SPEC.horizon_slots
    for from_slot, code in (
        (22, RefusalCode.BELOW_MIN_TIME),
        (23 + spec_horizon, RefusalCode.BEYOND_HORIZON),
    ):
        answer = restart(cluster, from_slot=from_slot)
        assert isinstance(answer, Refusal) and answer.code is code
    registrar = cluster.routing.registrar("p")
    answer = cluster.ask(1 - registrar, RestartPipeline, "p", 0, None, AT_MS)
    assert isinstance(answer, Refusal) and answer.home == registrar
    worker.commit(consumed=[(0, 23, 1), (1, 25, 3)])
    front.commit(leaves=["a"])
    assert cluster.agreed(SPEC) == (FOREVER, FOREVER)
    complete = restart(cluster)
    assert isinstance(complete, Refusal) and complete.code is RefusalCode.COMPLETE


@pytest.mark.parametrize("shards", SHARDS)
@pytest.mark.parametrize("snapshot", [False, True])
def test_it_outlives_every_process(shards: int, snapshot: bool) -> None:
    cluster, front, worker = running(shards)
    worker.commit(consumed=[(0, 23, 1)], created=[(1, 23, 4)])
    restart(cluster)
    front = cluster.node(SPEC, "front")
    front.join_front("a")
    front.commit(created=[(0, 30, 5)])
    front.commit(heartbeats={"a": 60})
    assert cluster.agreed(SPEC) == (40, 30)
    for shard in range(shards):
        if snapshot:
            cluster.take_snapshot(shard)
        before = inside.pipeline(cluster.processes[shard])
        after = inside.pipeline(cluster.restart(shard))
        for known in ("restarts", "restart", "floor", "said", "reached"):
            assert plain(getattr(after, known)) == plain(getattr(before, known))
        cluster.settle()
    assert cluster.agreed(SPEC) == (40, 30)
    front.attach()
    cluster.node(SPEC, "worker").commit(consumed=[(0, 30, 5)])
    assert cluster.agreed(SPEC) == (60, 60)


def test_a_tick_of_the_older_generation_that_comes_later_is_nothing() -> None:
    """It was accepted and acknowledged before; another shard hears of it after the restart."""
    cluster, front, _ = running(2)
    registrar = cluster.routing.registrar("p")
    node = next(
        cluster.node(SPEC, name)
        for name in map(str, range(99))
        if cluster.routing.home("p", name) != registrar
    )
    cluster.held = {(node.home, registrar), (registrar, node.home)}
    slots = {cluster.routing.owner(slot): slot for slot in (31, 32)}
    node.begin(created=[(0, slot, 7) for slot in slots.values()])
    cluster.settle()
    assert node.durable == 1
    cluster.handle(registrar, RestartPipeline("r", "p", 0, None, AT_MS))
    cluster.settle()
    assert not [e for e in cluster.effects if isinstance(e, Answer) and e.request == "r"]
    cluster.held = set()
    cluster.pass_time(cluster.config.retransmit_ms + 1)
    assert [e.result for e in cluster.effects if isinstance(e, Answer) and e.request == "r"]
    for process in cluster.processes.values():
        assert not any(inside.pipeline(process).shard.cells.open_slots)
        assert not inside.pipeline(process).shard.node_times
    front = cluster.node(SPEC, "front")
    front.join_front("a")
    front.commit(heartbeats={"a": 60})
    assert cluster.agreed(SPEC) == (60, 60)


def test_a_shard_may_hear_of_a_generation_by_its_first_key() -> None:
    """A home that has begun it opens a key, and its log arrives before the registrar's does."""
    cluster, *_ = running(3)
    registrar = cluster.routing.registrar("p")
    home, away = (shard for shard in range(3) if shard != registrar)
    cluster.held = {(registrar, away)}
    cluster.handle(registrar, RestartPipeline("r", "p", 0, None, AT_MS))
    cluster.settle()
    assert inside.pipeline(cluster.processes[home]).generation == 1
    assert inside.pipeline(cluster.processes[away]).generation == 0
    name = next(n for n in map(str, range(99)) if cluster.routing.home("p", n) == home)
    node = cluster.node(SPEC, name)
    assert inside.pipeline(cluster.processes[away]).generation == 1
    slot = next(slot for slot in range(50, 60) if cluster.routing.owner(slot) == away)
    node.commit(created=[(0, slot, 8)])
    cluster.held = set()
    cluster.pass_time(cluster.config.retransmit_ms + 1)
    assert [e.result for e in cluster.effects if isinstance(e, Answer) and e.request == "r"]
    cells = inside.pipeline(cluster.processes[away]).shard.cells
    assert cells.value(0, slot) == (8, 1), "the restart itself came later and changed nothing"


def test_a_node_that_joins_while_it_restarts_is_told_to_join_again() -> None:
    cluster, *_ = running(1)
    cluster.handle(0, RestartPipeline("r", "p", 0, None, AT_MS))
    cluster.handle(0, JoinNode("early", "p", "n", "other"))
    cluster.settle()
    (answer,) = [
        e.result for e in cluster.effects if isinstance(e, Answer) and e.request == "early"
    ]
    assert isinstance(answer, Refusal) and answer.code is RefusalCode.NOT_READY
    joined = cluster.ask(0, JoinNode, "p", "n", "other")
    assert isinstance(joined, Joined) and joined.generation == 1


def test_what_becomes_durable_after_the_restart_is_of_the_older_generation() -> None:
    """A tick, a promise, pins, staged contributions and a write-off are on their way to the store."""
    cluster, front, worker = running(1)
    cells = Cells.of([(0, 23, 1, 1)])
    cluster.handle(0, RestartPipeline("r", "p", 0, None, AT_MS))
    front.send(front.last + 1, content(created=[(0, 41, 9)], joins={"b": 1}))
    worker.send(worker.last + 1, content(consumed=[(0, 23, 1), (1, 25, 3)]))
    contribution = StagedContribution("q", "r", 1, 0, "o", 0, 0, 0, cells, Cells.empty())
    cluster.handle(0, StageContributions("s", "p", "worker", (contribution,)))
    cluster.handle(0, RetireNode("w", "p", "worker", cells, AT_MS))
    cluster.commit(0)
    cluster.settle()
    assert cluster.agreed(SPEC) == (23, 23)
    process = cluster.processes[0]
    pipeline = inside.pipeline(process)
    assert not any(pipeline.shard.cells.open_slots) and not pipeline.shard.fronts
    assert not pipeline.shard.written_off.cells and not pipeline.home.staged
    assert plain(cluster.restart(0).snapshot().pipelines) == plain(process.snapshot().pipelines)


def test_the_list_of_restarts_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tracker.core.pipeline.pipeline.MAX_LISTED_RESTARTS", 2)
    assert MAX_LISTED_RESTARTS > 2
    cluster, *_ = running(1)
    for generation in range(4):
        restart(cluster, generation)
    restarts = inside.pipeline(cluster.processes[0]).restarts
    assert [dropped.restart.generation for dropped in restarts] == [3, 4]


def test_an_open_pipeline_without_fronts_stays_open() -> None:
    spec = replace(SPEC, fronts=(), open=True)
    cluster = Cluster(2)
    cluster.register(spec)
    cluster.settle()
    restart(cluster)
    assert cluster.agreed(spec) == (0, 0)


# --- any schedule ---------------------------------------------------------------------------------


@dataclass
class Item:
    segment: int
    slot: int
    value: int
    generation: int


@dataclass
class Play:
    """A front makes items, workers move them from segment to segment, an operator restarts now and then,
    and everybody joins again when told that it is over. What a process says must be true of the items
    of its own generation, and be no less than before."""

    seed: int
    shards: int
    steps: int = 90
    items: list[Item] = field(default_factory=list)
    said: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """By shard, what it said last."""

    def run(self) -> int:
        """Returns how often it was restarted."""
        choose = random.Random(self.seed)
        cluster = self.cluster = Cluster(self.shards)
        cluster.register(SPEC)
        values = iter(lambda: choose.getrandbits(64), 0)
        self.said = dict.fromkeys(range(self.shards), (0, 0))
        self.joined: dict[str, HandNode] = {}
        self.promised, self.highest = 0, 0
        for _ in range(self.steps):
            match choose.randrange(12):
                case 0 | 1 if "front" in self.joined:
                    slot = self.promised + choose.randrange(5)
                    item = Item(0, slot, next(values), self.joined["front"].joined.generation)
                    if self.send("front", created=[(0, slot, item.value)]):
                        self.items.append(item)
                case 2 | 3 if "front" in self.joined:
                    slot = self.promised + choose.randrange(4)
                    if self.send("front", heartbeats={"a": slot}):
                        self.promised = slot
                case 4 | 5 | 6:
                    self.move(choose, values)
                case 7:
                    self.join(choose.choice(["front", "w0", "w1"]))
                case 8 if choose.random() < 0.4:
                    generation = max(
                        inside.pipeline(p).generation for p in cluster.processes.values()
                    )
                    asked = RestartPipeline(object(), "p", generation, None, AT_MS)
                    cluster.handle(cluster.routing.registrar("p"), asked)
                case 9:
                    pairs = [
                        (a, b) for a in range(self.shards) for b in range(self.shards) if a != b
                    ]
                    cluster.held = {link for link in pairs if choose.random() < 0.4}
                case 10:
                    self.crash(choose)
                case 11:
                    cluster.now_ns += choose.randrange(600) * MS
                    cluster.settle()
                case _:
                    shard = choose.randrange(self.shards)
                    cluster.store(shard, choose.randrange(3))
                    if cluster.stored[shard]:
                        cluster.commit(shard, 0)
            self.check()
        self.finish(choose, values)
        return max(inside.pipeline(p).generation for p in cluster.processes.values())

    def send(self, name: str, **what: object) -> bool:
        """Whether a node's next tick is accepted; one whose generation is over joins again later."""
        node = self.joined[name]
        effects = node.send(node.last + 1, content(**what))  # type: ignore[arg-type]
        for effect in effects:
            if isinstance(effect, SessionRefused):
                del self.joined[name]
                return False
            if isinstance(effect, TickRefused):
                return False
        node.last += 1
        return True

    def move(self, choose: random.Random, values: Iterator[int]) -> None:
        workers = [name for name in ("w0", "w1") if name in self.joined]
        if not workers:
            return
        name = choose.choice(workers)
        generation = self.joined[name].joined.generation
        mine = [item for item in self.items if item.generation == generation]
        if not mine:
            return
        item = choose.choice(mine)
        made = [Item(1, item.slot, next(values), generation)] if item.segment == 0 else []
        consumed = [(item.segment, item.slot, item.value)]
        if self.send(name, consumed=consumed, created=[(1, m.slot, m.value) for m in made]):
            self.items.remove(item)
            self.items += made

    def join(self, name: str) -> None:
        if name in self.joined:
            return
        cluster = self.cluster
        if (
            name == "front"
        ):  # it needs the answers of all shards; others may join while links are held
            cluster.held = set()
            cluster.pass_time(cluster.config.retransmit_ms + 1)
        home = cluster.routing.home("p", name)
        joined = cluster.ask(home, JoinNode, "p", name, "other")
        if isinstance(joined, Refusal):
            assert joined.code is RefusalCode.NOT_READY  # it was restarted just then
            return
        node = self.joined[name] = HandNode(cluster, SPEC, home, joined)
        if any(isinstance(e, SessionRefused) for e in node.attach()):
            del self.joined[name]
        elif name == "front":
            grant = node.join_front("a")
            self.promised = max(grant.slot, grant.heartbeat)

    def crash(self, choose: random.Random) -> None:
        cluster, shard = self.cluster, choose.randrange(self.shards)
        cluster.commit(shard)  # what was accepted is durable: the items' own record goes by that
        if choose.random() < 0.3:
            cluster.take_snapshot(shard)
        cluster.restart(shard)
        for name, node in list(self.joined.items()):
            if any(isinstance(e, SessionRefused) for e in node.attach()):
                del self.joined[name]

    def check(self) -> None:
        for shard, process in self.cluster.processes.items():
            pipeline = inside.pipeline(process)
            before, said = self.said[shard], process.min_times("p")
            assert all(b <= s for b, s in zip(before, said, strict=True)), "it went back"
            self.said[shard] = said
            mine = [item for item in self.items if item.generation == pipeline.generation]
            for item in mine:
                assert item.slot >= min(said), f"shard {shard} said {said} with {item}"
                for segment in range(item.segment, 2):
                    assert item.slot >= pipeline.reached[segment], f"shard {shard}: {item}"

    def finish(self, choose: random.Random, values: Iterator[int]) -> None:
        cluster = self.cluster
        cluster.held = set()
        cluster.pass_time(cluster.config.retransmit_ms + 1)
        cluster.pass_time(cluster.config.retransmit_ms + 1)
        generations = {inside.pipeline(p).generation for p in cluster.processes.values()}
        assert len(generations) == 1, "a shard has not begun the newest generation"
        for name in ("front", "w0", "w1"):
            node = self.joined.get(name)
            if node is not None and any(isinstance(e, SessionRefused) for e in node.attach()):
                del self.joined[name]
            self.join(name)
        self.items = [item for item in self.items if item.generation in generations]
        while self.items:
            self.move(choose, values)
            self.check()
        assert self.send("front", heartbeats={"a": self.promised + 100})
        cluster.settle()
        self.check()
        end = self.promised + 100
        assert cluster.agreed(SPEC) == (end, end), "completion was lost"


@pytest.mark.parametrize("shards", SHARDS)
def test_no_schedule_of_restarts_says_what_is_not_true(shards: int) -> None:
    restarts = sum(Play(seed, shards).run() for seed in range(30))
    assert restarts > 20, "the schedules must restart"
