"""A node that is gone for good is retired; what it left open is waited for, or written off (rule 9)."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from tests import inside
from tests.core.driver import Cluster, HandNode, content, plain
from tracker.core.home.home import KEPT_GONE_NODES, MAX_CELLS_PER_WRITE_OFF
from tracker.core.log import (
    Answer,
    Joined,
    JoinNode,
    RetireNode,
    SessionRefused,
    StageContributions,
)
from tracker.core.model import (
    Batch,
    Cells,
    Edge,
    PipelineSpec,
    Refusal,
    RefusalCode,
    WrittenOffCell,
)
from tracker.core.shard.written_off import MAX_LISTED_CELLS, WrittenOffLedger

SPEC = PipelineSpec("p", ("work", "next"), (Edge("work", "next"),), fronts=("a",))
SHARDS = [1, 2, 3]
AT_MS = 1_700_000_000_000
LOST = [(0, 3, 33), (0, 4, 44)]
"""What the worker took with it."""


@dataclass
class World:
    cluster: Cluster
    front: HandNode
    worker: HandNode
    other: HandNode

    def retire(self, node_id: str = "worker", cells: Cells | None = None) -> object:
        home = self.cluster.routing.home("p", node_id)
        given = Cells.empty() if cells is None else cells
        return self.cluster.ask(home, RetireNode, "p", node_id, given, AT_MS)

    def shown(self, *places: tuple[int, int]) -> Cells:
        """The cells at (segment, slot) as their owners would show them now."""
        rows = []
        for segment, slot in places:
            owner = self.cluster.processes[self.cluster.routing.owner(slot)]
            checksum, items = inside.pipeline(owner).shard.cells.value(segment, slot)
            rows.append((segment, slot, checksum, items))
        return Cells.of(rows)

    def listed(self) -> list[tuple[int, int, int, str, bool]]:
        """(segment, slot, items, node, whether they came back) of all that is written off."""
        return sorted(
            (cell.segment, cell.slot, cell.items, cell.node_id, cell.came_back)
            for process in self.cluster.processes.values()
            for cell in inside.pipeline(process).shard.written_off.cells.values()
        )

    def late_items(self) -> int:
        self.cluster.settle()
        return self.cluster.processes[0].describe("p", self.cluster.now_ns).late_items


def running(shards: int) -> World:
    """Items in slots 3 and 4 that a worker has taken, and will say nothing of any more."""
    cluster = Cluster(shards)
    cluster.register(SPEC)
    nodes = [cluster.node(SPEC, node_id) for node_id in ("front", "worker", "other")]
    front = nodes[0]
    front.join_front("a")
    front.commit(created=[*LOST, (0, 6, 66)])
    front.commit(heartbeats={"a": 20})
    assert cluster.agreed(SPEC) == (3, 3)
    return World(cluster, *nodes)


@pytest.mark.parametrize("shards", SHARDS)
def test_a_retired_node_can_commit_no_more(shards: int) -> None:
    world = running(shards)
    assert world.retire() is None
    over = [e for e in world.cluster.effects if isinstance(e, SessionRefused)]
    assert [e.refusal.code for e in over] == [RefusalCode.FENCED]
    assert "retired" in over[0].refusal.message
    (again,) = [e for e in world.worker.attach() if isinstance(e, SessionRefused)]
    assert again.refusal.code is RefusalCode.FENCED
    assert "was retired by an operator" in again.refusal.message


@pytest.mark.parametrize("durable", [False, True])
def test_a_retired_node_can_stage_no_more_and_is_told_why(durable: bool) -> None:
    world = running(1)
    staging = StageContributions("s", "p", "worker", ())
    world.cluster.handle(0, RetireNode("r", "p", "worker", Cells.empty(), AT_MS))
    if durable:
        world.cluster.settle()
    (answer,) = [e for e in world.cluster.handle(0, staging) if isinstance(e, Answer)]
    refusal = refused(answer.result)
    assert refusal.code is RefusalCode.FENCED
    assert "was retired by an operator" in refusal.message


@pytest.mark.parametrize("shards", SHARDS)
def test_what_it_left_is_waited_for(shards: int) -> None:
    """Nothing is given up unless it is named: another node may still consume it."""
    world = running(shards)
    world.retire()
    assert world.cluster.agreed(SPEC) == (3, 3)
    world.other.commit(consumed=LOST)
    assert world.cluster.agreed(SPEC) == (6, 6)
    assert world.listed() == []


@pytest.mark.parametrize("shards", SHARDS)
def test_the_fronts_of_a_retired_node_hold_nothing(shards: int) -> None:
    world = running(shards)
    gone = world.cluster.node(SPEC, "gone")
    gone.join_front("b")
    world.front.commit(heartbeats={"a": 50})
    world.other.commit(consumed=[*LOST, (0, 6, 66)])
    assert world.cluster.agreed(SPEC) == (3, 3), "the second front has promised nothing"
    world.retire("gone")
    assert world.cluster.agreed(SPEC) == (50, 50)


@pytest.mark.parametrize("shards", SHARDS)
def test_what_is_written_off_is_listed_and_min_time_goes_on(shards: int) -> None:
    world = running(shards)
    world.retire(cells=world.shown((0, 3), (0, 4)))
    assert world.cluster.agreed(SPEC) == (6, 6)
    assert world.listed() == [(0, 3, 1, "worker", False), (0, 4, 1, "worker", False)]
    for process in world.cluster.processes.values():
        assert process.describe("p", world.cluster.now_ns).written_off_items == 2


@pytest.mark.parametrize("shards", SHARDS)
def test_a_cell_that_is_not_as_it_was_shown_stays(shards: int) -> None:
    """Somebody else's item has come into it since: it must not be given up with the rest."""
    world = running(shards)
    shown = world.shown((0, 3), (0, 4))
    world.other.commit(consumed=[(0, 6, 66)])
    newer = world.cluster.node(SPEC, "newer")
    newer.commit(created=[(0, 4, 99)])
    world.retire(cells=shown)
    assert world.cluster.agreed(SPEC) == (4, 4)
    assert world.listed() == [(0, 3, 1, "worker", False)]
    newer.commit(consumed=[(0, 4, 99)])
    world.retire(cells=world.shown((0, 4)))
    assert [slot for _, slot, *_ in world.listed()] == [3, 4]
    assert inside.pipeline(world.cluster.processes[0]).combiner.low(0) > 4


@pytest.mark.parametrize("shards", SHARDS)
def test_writing_off_twice_changes_nothing(shards: int) -> None:
    world = running(shards)
    shown = world.shown((0, 3), (0, 4))
    for _ in range(2):
        assert world.retire(cells=shown) is None
        assert world.cluster.agreed(SPEC) == (6, 6)
        assert [items for _, _, items, *_ in world.listed()] == [1, 1]


@pytest.mark.parametrize("shards", SHARDS)
def test_what_is_consumed_after_all_goes_to_the_late_ledger(shards: int) -> None:
    """Min time has passed it: by the home's word, or by a sweep where the home has not heard."""
    world = running(shards)
    world.retire(cells=world.shown((0, 3), (0, 4)))
    assert world.cluster.agreed(SPEC) == (6, 6)
    world.other.commit(consumed=LOST)
    assert world.late_items() == 2
    world.other.commit(consumed=[(0, 6, 66)])
    assert world.cluster.agreed(SPEC) == (20, 20)


@pytest.mark.parametrize("shards", SHARDS)
def test_what_is_consumed_after_all_is_late_before_min_time_has_passed_it(shards: int) -> None:
    world = running(shards)
    world.retire(cells=world.shown((0, 4)))
    assert world.cluster.agreed(SPEC) == (3, 3)
    world.other.commit(consumed=[(0, 4, 44)])
    assert world.late_items() == 1
    assert world.listed() == [(0, 4, 1, "worker", True)]
    world.other.commit(consumed=[(0, 3, 33)])
    assert world.cluster.agreed(SPEC) == (6, 6)
    described = world.cluster.processes[0].describe("p", world.cluster.now_ns)
    assert described.written_off_items == 0, "it was not lost"


@pytest.mark.parametrize("shards", SHARDS)
def test_an_item_made_again_in_a_written_off_cell_is_waited_for(shards: int) -> None:
    """Made again under the same ack value, the cell reads just as when the lost one is consumed."""
    world = running(shards)
    world.retire(cells=world.shown((0, 4)))
    maker = world.cluster.node(SPEC, "maker")
    maker.commit(created=[(0, 4, 44)])
    world.other.commit(consumed=[(0, 3, 33), (0, 6, 66)])
    assert world.cluster.agreed(SPEC) == (4, 4)
    assert world.late_items() == 0
    world.other.commit(consumed=[(0, 4, 44)])
    assert world.cluster.agreed(SPEC) == (20, 20)
    assert world.listed() == [(0, 4, 1, "worker", False)]


@pytest.mark.parametrize("shards", SHARDS)
def test_a_part_that_comes_back_opens_the_cell_until_it_is_written_off_too(shards: int) -> None:
    world = running(shards)
    more = world.cluster.node(SPEC, "more")
    more.commit(created=[(0, 4, 45)])
    world.retire(cells=world.shown((0, 4)))
    world.other.commit(consumed=[(0, 4, 44)])
    world.other.commit(consumed=[(0, 3, 33), (0, 6, 66)])
    assert world.cluster.agreed(SPEC) == (4, 4)
    world.retire(cells=world.shown((0, 4)))
    assert world.cluster.agreed(SPEC) == (20, 20)
    assert world.listed() == [(0, 4, 1, "worker", False)], "one of the two is still missing"


@pytest.mark.parametrize("shards", SHARDS)
def test_ticks_under_way_come_before_the_write_off(shards: int) -> None:
    """The node's last tick and its retiring are in one log: nobody sees the second without the first."""
    world = running(shards)
    shown = world.shown((0, 3))
    away = [s for s in range(shards) if s != world.worker.home]
    world.cluster.held = {(world.worker.home, shard) for shard in away}
    world.worker.begin(consumed=[(0, 3, 33)], created=[(1, 3, 7)])
    world.cluster.handle(world.worker.home, RetireNode("r", "p", "worker", shown, AT_MS))
    world.cluster.settle()
    answered = [e for e in world.cluster.effects if isinstance(e, Answer) and e.request == "r"]
    assert bool(answered) == (shards == 1), "every shard must have it before the operator is told"
    world.cluster.held = set()
    world.cluster.pass_time(world.cluster.config.retransmit_ms + 1)
    assert [e.result for e in world.cluster.effects if isinstance(e, Answer)][-1] is None
    assert world.listed() == [], "it had been consumed"
    assert world.cluster.agreed(SPEC) == (4, 3)


@pytest.mark.parametrize("shards", SHARDS)
@pytest.mark.parametrize("snapshot", [False, True])
def test_it_outlives_every_process(shards: int, snapshot: bool) -> None:
    world = running(shards)
    world.retire(cells=world.shown((0, 4)))
    world.other.commit(consumed=[(0, 6, 66)])
    before = world.listed()
    for shard in range(shards):
        if snapshot:
            world.cluster.take_snapshot(shard)
        known = plain(world.cluster.processes[shard].snapshot().pipelines[0].nodes)
        assert plain(world.cluster.restart(shard).snapshot().pipelines[0].nodes) == known
    assert world.listed() == before
    (again,) = [e for e in world.worker.attach() if isinstance(e, SessionRefused)]
    assert "retired" in again.refusal.message
    world.other.attach()
    world.other.commit(consumed=[(0, 4, 44)])
    assert world.listed() == [(0, 4, 1, "worker", True)], "it is still watched"
    world.other.commit(consumed=[(0, 3, 33)])
    assert world.cluster.agreed(SPEC) == (20, 20)


@pytest.mark.parametrize("shards", SHARDS)
@pytest.mark.parametrize("durable", [0, 1, 2])
def test_an_operator_whose_answer_was_lost_asks_again(shards: int, durable: int) -> None:
    """The home dies when none, the first or both of the records are durable."""
    world = running(shards)
    shown = world.shown((0, 3), (0, 4))
    home = world.worker.home
    world.cluster.handle(home, RetireNode("lost", "p", "worker", shown, AT_MS))
    world.cluster.store(home, durable)
    world.cluster.restart(home)
    assert world.retire(cells=shown) is None
    world.other.attach()
    world.front.attach()
    assert world.cluster.agreed(SPEC) == (6, 6)
    assert [items for _, _, items, *_ in world.listed()] == [1, 1]


def refused(answer: object) -> Refusal:
    assert isinstance(answer, Refusal)
    return answer


def test_what_cannot_be_is_refused_and_changes_nothing() -> None:
    world = running(2)
    unknown = refused(world.retire("nobody"))
    assert unknown.code is RefusalCode.UNKNOWN_NODE and "lowmark explain" in unknown.message
    for cells, code in (
        (Cells.of([(2, 3, 1, 1)]), RefusalCode.UNKNOWN_SEGMENT),
        (Cells.of([(0, 3, 1, 1)] * (MAX_CELLS_PER_WRITE_OFF + 1)), RefusalCode.INVALID),
    ):
        assert refused(world.retire(cells=cells)).code is code
    world.worker.commit(consumed=LOST)
    elsewhere = world.cluster.ask(
        1 - world.worker.home, RetireNode, "p", "worker", Cells.empty(), AT_MS
    )
    assert refused(elsewhere).home == world.worker.home


def test_who_was_retired_by_mistake_joins_again_and_finds_its_batches() -> None:
    world = running(1)
    world.worker.commit(batch=Batch("q", 7, b"f"))
    world.retire()
    again = world.cluster.node(SPEC, "worker")
    assert again.joined.last_batches == (Batch("q", 7, b"f"),)
    again.commit(consumed=LOST)
    assert world.cluster.agreed(SPEC) == (6, 6)


def test_a_node_that_has_only_just_asked_to_join_can_be_retired() -> None:
    cluster = Cluster(1)
    cluster.register(SPEC)
    cluster.handle(0, JoinNode("j", "p", "n", "other"))
    cluster.handle(0, RetireNode("r", "p", "n", Cells.empty(), AT_MS))
    cluster.settle()
    answers = {e.request: e.result for e in cluster.effects if isinstance(e, Answer)}
    assert isinstance(answers["j"], Joined) and answers["r"] is None


def test_the_last_gone_nodes_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tracker.core.home.home.KEPT_GONE_NODES", 2)
    assert KEPT_GONE_NODES > 2
    world = running(1)
    for name in ("one", "two", "three"):
        world.cluster.node(SPEC, name)
        world.retire(name)
    home = inside.pipeline(world.cluster.processes[0]).home
    assert [n for n, node in home.nodes.items() if node.retired] == ["two", "three"]
    assert refused(world.retire("one")).code is RefusalCode.UNKNOWN_NODE


def test_the_list_is_bounded_and_the_sum_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tracker.core.shard.written_off.MAX_LISTED_CELLS", 3)
    assert MAX_LISTED_CELLS > 3
    ledger = WrittenOffLedger()
    for slot in range(5):
        ledger.add(WrittenOffCell(0, slot, slot + 1, 10, "n", AT_MS))
    assert [slot for _, slot in ledger.cells] == [2, 3, 4]
    assert ledger.items == {0: 50}
    ledger.validate()


# --- any schedule ---------------------------------------------------------------------------------


@dataclass
class Item:
    segment: int
    slot: int
    value: int
    parent: Item | None = None
    """What comes of an item that is written off and was not lost, is not waited for either."""


@dataclass
class Play:
    """Two workers move items of a front; one of them is retired now and then, and some of what is open
    then is written off. An item is open from its creation's tick until its consumption's tick is sent;
    what a shard cleared is given up from that moment on, and what is made of it."""

    seed: int
    shards: int
    steps: int = 70
    open_items: list[Item] = field(default_factory=list)

    def run(self) -> int:
        """Returns how many items were given up."""
        choose = random.Random(self.seed)
        world = running(self.shards)
        cluster = world.cluster
        world.other.commit(consumed=[*LOST, (0, 6, 66)])
        workers, values = ["w0", "w1"], iter(lambda: choose.getrandbits(64), 0)
        nodes = {name: cluster.node(SPEC, name) for name in workers}
        front, promised = world.front, 20
        for _ in range(self.steps):
            match choose.randrange(9):
                case 0 | 1:
                    item = Item(0, promised + choose.randrange(5), next(values))
                    front.begin(created=[(item.segment, item.slot, item.value)])
                    self.open_items.append(item)
                case 2:
                    promised += choose.randrange(4)
                    front.begin(heartbeats={"a": promised})
                case 3 | 4 if self.open_items:
                    self.move(nodes[choose.choice(workers)], choose, values)
                case 5:
                    self.write_off(world, nodes, choose)
                case 6:
                    shard = choose.randrange(self.shards)
                    cluster.commit(shard)
                case 7:
                    links = [
                        (a, b) for a in range(self.shards) for b in range(self.shards) if a != b
                    ]
                    cluster.held = {link for link in links if choose.random() < 0.3}
                case 8:
                    if choose.random() < 0.7:
                        cluster.settle()
                    else:
                        self.restart(world, nodes, choose.randrange(self.shards))
            self.check(world)
        cluster.held = set()
        cluster.pass_time(cluster.config.retransmit_ms + 1)
        cluster.settle()
        self.check(world)
        for item in self.alive(world):
            world.other.begin(consumed=[(item.segment, item.slot, item.value)])
        front.begin(heartbeats={"a": promised + 100})
        cluster.settle()
        left = [cell for process in cluster.processes.values()
                for cell in inside.pipeline(process).shard.cells.open_cells().rows()]  # fmt: skip
        if not left:
            assert cluster.agreed(SPEC) == (promised + 100, promised + 100), "completion was lost"
        return sum(items for *_, items, _, _ in world.listed())

    def move(self, node: HandNode, choose: random.Random, values: Iterator[int]) -> None:
        item = self.open_items.pop(choose.randrange(len(self.open_items)))
        made = []
        if item.segment == 0:
            child = Item(1, item.slot, next(values), parent=item)
            made.append((1, child.slot, child.value))
            self.open_items.append(child)
        effects = node.send(
            node.last + 1, content(consumed=[(item.segment, item.slot, item.value)], created=made)
        )
        if any(type(e).__name__ in ("TickRefused", "SessionRefused") for e in effects):
            self.open_items.append(item)  # below min time: it was given up, and its child cannot be
            if made:
                self.open_items.remove(child)
        else:
            node.last += 1

    def write_off(self, world: World, nodes: dict[str, HandNode], choose: random.Random) -> None:
        cells = Cells.concatenate(
            inside.pipeline(process).shard.cells.open_cells()
            for process in world.cluster.processes.values()
        )
        chosen = [row for row in cells.rows() if choose.random() < 0.3]
        name = choose.choice(list(nodes))
        home = nodes[name].home
        world.cluster.handle(home, RetireNode(object(), "p", name, Cells.of(chosen), AT_MS))
        world.cluster.held = set()
        world.cluster.settle()
        nodes[name] = world.cluster.node(SPEC, name)

    def restart(self, world: World, nodes: dict[str, HandNode], shard: int) -> None:
        world.cluster.commit(shard)
        world.cluster.restart(shard)
        for node in [world.front, world.other, *nodes.values()]:
            node.attach()

    def alive(self, world: World) -> list[Item]:
        """The open items of which no shard has given up the cell."""
        return [item for item in self.open_items if self.counts(world, item)]

    def counts(self, world: World, item: Item) -> bool:
        ledgers = (
            inside.pipeline(process).shard.written_off.cells
            for process in world.cluster.processes.values()
        )
        place = (item.segment, item.slot)
        if any(place in cells for cells in ledgers):
            return False
        return item.parent is None or self.counts(world, item.parent)

    def check(self, world: World) -> None:
        for shard, said in world.cluster.said:
            for segment, min_time in said.min_times:
                for item in self.alive(world):
                    reaches = item.segment == segment or (item.segment, segment) == (0, 1)
                    assert not (reaches and item.slot < min_time), (
                        f"shard {shard} said {min_time} of segment {segment} with {item} open"
                    )
        world.cluster.said.clear()


@pytest.mark.parametrize("shards", SHARDS)
def test_no_schedule_makes_a_write_off_complete_what_was_not_given_up(shards: int) -> None:
    given_up = sum(Play(seed, shards).run() for seed in range(25))
    assert given_up > 20, "the schedules must give up something"
