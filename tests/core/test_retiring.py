"""A node that is gone for good is retired; what it left open is waited for, or written off (rule 9)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import pytest

from tests.core.driver import Cluster, HandNode, refused
from tracker.core.home.home import KEPT_GONE_NODES, MAX_CELLS_PER_WRITE_OFF
from tracker.core.log import (
    Answer,
    Joined,
    JoinNode,
    RestartPipeline,
    RetireNode,
    StageContributions,
)
from tracker.core.model import Batch, Cells, Edge, PipelineSpec, RefusalCode, WrittenOffCell
from tracker.core.shard.written_off import MAX_LISTED_CELLS, WrittenOffLedger

SPEC = PipelineSpec("p", ("work", "next"), (Edge("work", "next"),), fronts=("a",))
AT_MS = 1_700_000_000_000
LOST = [(0, 3, 33), (0, 4, 44)]
"""What the worker took with it."""


@dataclass
class World:
    cluster: Cluster
    front: HandNode
    worker: HandNode
    other: HandNode

    def retire(
        self,
        node_id: str = "worker",
        cells: Cells | None = None,
        incarnation: int | None = None,
        generation: int | None = None,
    ) -> object:
        given = Cells.empty() if cells is None else cells
        return self.cluster.ask_home(node_id, RetireNode, given, AT_MS, incarnation, generation)

    def shown(self, *places: tuple[int, int]) -> Cells:
        """The cells at (segment, slot) as their owners would show them now."""
        rows = []
        for segment, slot in places:
            owner = self.cluster.pipeline(self.cluster.routing.owner(slot))
            checksum, items = owner.shard.cells.value(segment, slot)
            rows.append((segment, slot, checksum, items))
        return Cells.of(rows)

    def listed(self) -> list[tuple[int, int, int, str, bool]]:
        """(segment, slot, items, node, whether they came back) of all that is written off."""
        return sorted(
            (cell.segment, cell.slot, cell.items, cell.node_id, cell.came_back)
            for pipeline in self.cluster.pipelines()
            for cell in pipeline.shard.written_off.cells.values()
        )

    def late_items(self) -> int:
        self.cluster.settle()
        return self.cluster.processes[0].describe("p", self.cluster.now_ns).late_items


def running(shards: int) -> World:
    """Items in slots 3 and 4 that a worker has taken, and will say nothing of any more."""
    cluster = Cluster(shards)
    cluster.register(SPEC)
    front = cluster.front(SPEC, "front")
    front.commit(created=[*LOST, (0, 6, 66)])
    front.commit(heartbeats={"a": 20})
    assert cluster.agreed(SPEC) == (3, 3)
    return World(cluster, front, cluster.node(SPEC, "worker"), cluster.node(SPEC, "other"))


def test_a_retired_node_can_commit_no_more(shards: int) -> None:
    world = running(shards)
    assert world.retire() is None
    refused(world.worker.ended, RefusalCode.FENCED, "retired")
    refused(world.worker.attach_refused(), RefusalCode.FENCED, "was retired by an operator")


@pytest.mark.parametrize("durable", [False, True])
def test_a_retired_node_can_stage_no_more_and_is_told_why(durable: bool) -> None:
    world = running(1)
    staging = StageContributions("s", "p", "worker", ())
    world.cluster.handle(0, RetireNode("r", "p", "worker", Cells.empty(), AT_MS))
    if durable:
        world.cluster.settle()
    (answer,) = [e for e in world.cluster.handle(0, staging) if isinstance(e, Answer)]
    refused(answer.result, RefusalCode.FENCED, "was retired by an operator")


def test_what_it_left_is_waited_for(shards: int) -> None:
    """Nothing is given up unless it is named: another node may still consume it."""
    world = running(shards)
    world.retire()
    assert world.cluster.agreed(SPEC) == (3, 3)
    world.other.commit(consumed=LOST)
    assert world.cluster.agreed(SPEC) == (6, 6)
    assert world.listed() == []


def test_the_fronts_of_a_retired_node_hold_nothing(shards: int) -> None:
    world = running(shards)
    world.cluster.front(SPEC, "gone", b=0)
    world.front.commit(heartbeats={"a": 50})
    world.other.commit(consumed=[*LOST, (0, 6, 66)])
    assert world.cluster.agreed(SPEC) == (3, 3), "the second front has promised nothing"
    world.retire("gone")
    assert world.cluster.agreed(SPEC) == (50, 50)


def test_what_is_written_off_is_listed_and_min_time_goes_on(shards: int) -> None:
    world = running(shards)
    world.retire(cells=world.shown((0, 3), (0, 4)))
    assert world.cluster.agreed(SPEC) == (6, 6)
    assert world.listed() == [(0, 3, 1, "worker", False), (0, 4, 1, "worker", False)]
    for process in world.cluster.processes.values():
        assert process.describe("p", world.cluster.now_ns).written_off_items == 2


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
    assert world.cluster.pipeline(0).combiner.low(0) > 4


def test_writing_off_twice_changes_nothing(shards: int) -> None:
    world = running(shards)
    shown = world.shown((0, 3), (0, 4))
    for _ in range(2):
        assert world.retire(cells=shown) is None
        assert world.cluster.agreed(SPEC) == (6, 6)
        assert [items for _, _, items, *_ in world.listed()] == [1, 1]


def test_what_is_consumed_after_all_goes_to_the_late_ledger(shards: int) -> None:
    """Min time has passed it: by the home's word, or by a sweep where the home has not heard."""
    world = running(shards)
    world.retire(cells=world.shown((0, 3), (0, 4)))
    assert world.cluster.agreed(SPEC) == (6, 6)
    world.other.commit(consumed=LOST)
    assert world.late_items() == 2
    world.other.commit(consumed=[(0, 6, 66)])
    assert world.cluster.agreed(SPEC) == (20, 20)


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


def test_ticks_under_way_come_before_the_write_off(shards: int) -> None:
    """The node's last tick and its retiring are in one log: nobody sees the second without the first."""
    world = running(shards)
    shown = world.shown((0, 3))
    away = [s for s in range(shards) if s != world.worker.home]
    world.cluster.held = {(world.worker.home, shard) for shard in away}
    world.worker.begin(consumed=[(0, 3, 33)], created=[(1, 3, 7)])
    world.cluster.handle(world.worker.home, RetireNode("r", "p", "worker", shown, AT_MS))
    world.cluster.settle()
    assert bool(world.cluster.answers("r")) == (shards == 1), (
        "every shard must have it before the operator is told"
    )
    world.cluster.reconnect()
    assert world.cluster.answers("r") == [None]
    assert world.listed() == [], "it had been consumed"
    assert world.cluster.agreed(SPEC) == (4, 3)


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


def test_what_cannot_be_is_refused_and_changes_nothing() -> None:
    world = running(2)
    refused(world.retire("nobody"), RefusalCode.UNKNOWN_NODE, "lowmark explain")
    refused(world.retire(cells=Cells.of([(2, 3, 1, 1)])), RefusalCode.UNKNOWN_SEGMENT)
    too_many = Cells.of([(0, 3, 1, 1)] * (MAX_CELLS_PER_WRITE_OFF + 1))
    refused(world.retire(cells=too_many), RefusalCode.INVALID)
    world.worker.commit(consumed=LOST)
    elsewhere = world.cluster.ask(
        1 - world.worker.home, RetireNode, "p", "worker", Cells.empty(), AT_MS
    )
    assert refused(elsewhere, RefusalCode.NOT_HOME).home == world.worker.home


def test_who_was_retired_by_mistake_joins_again_and_finds_its_batches() -> None:
    world = running(1)
    world.worker.commit(batch=Batch("q", 7, b"f"))
    world.retire()
    again = world.cluster.node(SPEC, "worker")
    assert again.joined.last_batches == (Batch("q", 7, b"f"),)
    again.commit(consumed=LOST)
    assert world.cluster.agreed(SPEC) == (6, 6)


def test_a_retiring_that_is_repeated_does_not_retire_who_has_joined_since(shards: int) -> None:
    """A shard is away, so the first attempt closes the key and is not answered. The node is started again, and its front is granted.
    Then the second attempt comes: the front that runs must not have left for good by it."""
    world = running(shards)
    home, incarnation = world.front.home, world.front.key.incarnation
    world.cluster.handle(
        home, RetireNode("first", "p", "front", Cells.empty(), AT_MS, incarnation, 0)
    )
    world.cluster.settle()
    back = world.cluster.front(SPEC, "front")
    refusal = world.retire("front", incarnation=incarnation, generation=0)
    refused(refusal, RefusalCode.CONFLICT, f"front#{incarnation} was to be retired")
    refused(refusal, RefusalCode.CONFLICT, f"{back.key} has taken its place")
    world.other.commit(consumed=[*LOST, (0, 6, 66)])
    assert world.cluster.agreed(SPEC) == (back.grants[-1].slot,) * 2
    back.commit(created=[(0, back.grants[-1].slot, 5)])
    assert world.retire("front", incarnation=back.key.incarnation, generation=0) is None
    refused(back.ended, RefusalCode.FENCED, "retired")


@pytest.mark.parametrize("comes_back", [False, True])
def test_a_retiring_of_the_key_that_was_shown_may_be_repeated(
    shards: int, comes_back: bool
) -> None:
    """It is answered as long as the key is the last one of its id; after that it is not, not even once the next one is gone too."""
    world = running(shards)
    incarnation = world.worker.key.incarnation
    for _ in range(2):
        assert world.retire(incarnation=incarnation, generation=0) is None
    if comes_back:
        again = world.cluster.node(SPEC, "worker")
        assert world.retire(incarnation=again.key.incarnation) is None
        refused(world.retire(incarnation=incarnation), RefusalCode.CONFLICT, f"{again.key}")


def test_what_is_cleared_is_not_cleared_again_where_the_node_has_made_it_anew(shards: int) -> None:
    """The worker comes back and makes its item again, under its value, which is waited for. Then a script repeats its call."""
    world = running(shards)
    incarnation, shown = world.worker.key.incarnation, world.shown((0, 4))
    assert world.retire(cells=shown, incarnation=incarnation, generation=0) is None
    worker = world.cluster.node(SPEC, "worker")
    worker.commit(created=[(0, 4, 44)], consumed=[(0, 3, 33)])
    world.other.commit(consumed=[(0, 6, 66)])
    assert world.cluster.agreed(SPEC) == (4, 4)
    refused(world.retire(cells=shown, incarnation=incarnation), RefusalCode.CONFLICT)
    assert world.cluster.agreed(SPEC) == (4, 4)


@pytest.mark.parametrize("node_id", ["worker", "gone before"])
def test_a_write_off_of_before_a_restart_clears_nothing_of_the_generation_after(
    shards: int, node_id: str
) -> None:
    """The cells are those that an operator was shown in generation 0. In generation 1 the input is read again, and the same items stand
    in the same cells."""
    world = running(shards)
    cluster, shown = world.cluster, world.shown((0, 3), (0, 4))
    cluster.ask(cluster.routing.registrar("p"), partial(RestartPipeline, at_ms=AT_MS), "p", 0, None)
    front = cluster.front(SPEC, "front")
    front.commit(created=[*LOST, (0, 6, 66)])
    front.commit(heartbeats={"a": 20})
    cluster.node(SPEC, node_id)
    refused(
        world.retire(node_id, shown, generation=0),
        RefusalCode.CONFLICT,
        "as of generation 0, and it is in generation 1",
    )
    assert cluster.agreed(SPEC) == (3, 3)
    assert world.retire(node_id, shown, generation=1) is None
    assert cluster.agreed(SPEC) == (6, 6)


def test_a_node_that_has_only_just_asked_to_join_can_be_retired() -> None:
    cluster = Cluster(1)
    cluster.register(SPEC)
    cluster.handle(0, JoinNode("j", "p", "n", "other"))
    cluster.handle(0, RetireNode("r", "p", "n", Cells.empty(), AT_MS))
    cluster.settle()
    (joined,) = cluster.answers("j")
    assert isinstance(joined, Joined) and cluster.answers("r") == [None]


def test_the_last_gone_nodes_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tracker.core.home.home.KEPT_GONE_NODES", 2)
    assert KEPT_GONE_NODES > 2
    world = running(1)
    for name in ("one", "two", "three"):
        world.cluster.node(SPEC, name)
        world.retire(name)
    home = world.cluster.pipeline(0).home
    assert [n for n, node in home.nodes.items() if node.retired] == ["two", "three"]
    refused(world.retire("one"), RefusalCode.UNKNOWN_NODE)


def test_the_list_is_bounded_and_the_sum_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tracker.core.shard.written_off.MAX_LISTED_CELLS", 3)
    assert MAX_LISTED_CELLS > 3
    ledger = WrittenOffLedger()
    for slot in range(5):
        ledger.add(WrittenOffCell(0, slot, slot + 1, 10, "n", AT_MS))
    assert [slot for _, slot in ledger.cells] == [2, 3, 4]
    assert ledger.items == {0: 50}
    ledger.validate()
