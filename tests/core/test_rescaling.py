"""Shards come and go while ticks flow, and nothing is announced early, lost or taken back (rule 10)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

import pytest

from tests import inside
from tests.core.driver import Cluster, HandNode, Lossy, refused
from tracker.core.log import (
    Announcement,
    Effect,
    Entries,
    Event,
    FrameArrived,
    HomeEntry,
    JoinNode,
    JoinShard,
    KeyClosed,
    PeerConnected,
    Pinned,
    ReceivedEntries,
    RegisterPipeline,
    RescaleShards,
    Restart,
    RestartPipeline,
    RetireNode,
    ShardNumber,
    Told,
)
from tracker.core.log.steps import FIRST_SEQUENCER as SEQUENCER
from tracker.core.log.steps import (
    CellsMoved,
    LateEntry,
    SequencerBegun,
    SequencerMoved,
    ShardLeaving,
    ShardLeft,
)
from tracker.core.membership.membership import Membership
from tracker.core.model import (
    Batch,
    Cells,
    Edge,
    PipelineSpec,
    Refusal,
    RefusalCode,
    Refused,
    SilentFront,
    Unit,
)
from tracker.core.model.levels import NEWEST_LEVEL
from tracker.core.model.routing import RoutingTable
from tracker.core.model.slots import FOREVER
from tracker.core.process import ProcessConfig

SPEC = PipelineSpec("p", ("a", "b"), (Edge("a", "b", 0),), front_count=1, start_slot=0)
CONFIG = ProcessConfig(rescale_margin_ms=40)
"""Four slots of 10 ms."""


class Load:
    """A front and a worker, moving to where their home is."""

    def __init__(self, cluster: Cluster, spec: PipelineSpec = SPEC) -> None:
        self.cluster, self.spec = cluster, spec
        cluster.register(spec)
        self.front = cluster.node(spec, "front")
        self.worker = cluster.node(spec, "worker")
        self.slot = self.front.join_front("f").slot
        self.open: list[tuple[int, int, int]] = []
        self.values = 1000

    def follow(self, node: HandNode) -> None:
        node.home = self.cluster.routing.home(self.spec.name, node.key.node_id)
        node.attach()

    def step(self, items: int = 3) -> None:
        """The front creates items in a few slots and promises; the worker passes on the oldest."""
        created = []
        for _ in range(items):
            self.slot += 1
            self.values += 1
            created.append((0, self.slot, self.values))
        self.front.commit(created=created)
        self.front.commit(heartbeats={"f": self.slot})
        self.open += created

    def consume(self, number: int) -> None:
        for _ in range(number):
            segment, slot, value = self.open.pop(0)
            if segment == 0:
                made = [(1, slot, value + 10_000)]
                self.worker.commit(consumed=[(segment, slot, value)], created=made)
                self.open += made
            else:
                self.worker.commit(consumed=[(segment, slot, value)])

    def finish(self) -> None:
        while self.open:
            self.consume(1)
        self.front.commit(leaves=["f"])
        assert self.cluster.agreed(self.spec) == (FOREVER, FOREVER)

    def follow_all(self) -> None:
        self.follow(self.front)
        self.follow(self.worker)


def owners_of_cells(cluster: Cluster) -> dict[int, set[int]]:
    held: dict[int, set[int]] = {}
    for shard, process in cluster.processes.items():
        for state in inside.pipelines(process).values():
            if any(state.shard.cells.open_slots):
                slots = state.shard.cells.open_cells().slots.tolist()
                held.setdefault(shard, set()).update(slots)
    return held


def test_a_shard_joins_and_takes_new_slots() -> None:
    cluster = Cluster(1, config=CONFIG)
    load = Load(cluster)
    load.step()
    assert cluster.join_shard() == 1
    before = cluster.agreed(SPEC)
    table = cluster.rescale(2)
    assert table.shards == (0, 1)
    load.follow_all()
    for _ in range(4):
        load.step()
    held = owners_of_cells(cluster)
    assert held[1], "the new shard has got nothing"
    assert all(table.owner(slot, "p") == shard for shard in held for slot in held[shard])
    assert cluster.agreed(SPEC) == before
    load.consume(5)
    load.finish()


def test_a_node_that_was_moved_and_has_left_is_not_there_after_a_restart() -> None:
    """Its key is closed and not forgotten yet, and the log has how it came: nothing of it is accepted."""
    cluster = Cluster(1, config=CONFIG)
    cluster.register(SPEC)
    nodes = [cluster.node(SPEC, f"node{number}") for number in range(8)]
    cluster.join_shard()
    cluster.rescale(2)
    (moved, *_) = [n for n in nodes if cluster.routing.home("p", n.key.node_id) == 1]
    moved.home = 1
    moved.attach()
    cluster.held = {(0, 1)}
    assert not isinstance(moved.leave(), Refusal)
    process = cluster.restart(1)
    assert [key for _, _, key in process.snapshot().closed] == [moved.key]
    assert moved.attach_refused()


def test_a_shard_that_drains_keeps_its_cells_until_they_are_done() -> None:
    cluster = Cluster(2, config=CONFIG)
    load = Load(cluster)
    load.step(6)
    held = owners_of_cells(cluster)
    assert held[1]
    cluster.rescale(1)
    load.follow_all()
    assert owners_of_cells(cluster) == held
    assert not cluster.gone
    load.step(20)
    table = cluster.routing
    while any(table.owner(slot, "p") == 1 for _, slot, _ in load.open):
        assert not cluster.gone
        load.consume(1)
    cluster.settle()
    assert cluster.gone == {1}
    cluster.crash(1)
    load.finish()


def test_evacuation_hands_over_what_is_open_at_once() -> None:
    cluster = Cluster(2, config=CONFIG)
    load = Load(cluster)
    load.step(6)
    load.consume(2)
    assert owners_of_cells(cluster)[1]
    before = cluster.agreed(SPEC)
    cluster.rescale(1, evacuate=True)
    assert cluster.gone == {1}
    cluster.crash(1)
    load.follow_all()
    assert owners_of_cells(cluster)[0] == {slot for _, slot, _ in load.open}
    assert cluster.agreed(SPEC) == before
    load.finish()


def test_nodes_go_to_their_new_home_with_all_that_it_must_know() -> None:
    """Batches, staged contributions, fronts and the number of the last tick (rule 9)."""
    cluster = Cluster(1, config=CONFIG)
    load = Load(cluster)
    load.worker.commit(batch=Batch("q", 7, b"x"))
    cluster.join_shard()
    two = RoutingTable.uniform(2)
    node = cluster.node(SPEC, next(n for n in map(str, range(40)) if two.home("p", n) == 1))
    node.commit(batch=Batch("q", 3, b"three"))
    node.begin(joins={"late": 0})
    cluster.rescale(2)
    assert node.ended.home == 1
    load.follow(node)
    assert node.home == 1
    node.commit(batch=Batch("q", 3, b"three"))  # repeated: counts as an empty tick
    assert node.refused(batch=Batch("q", 3, b"other")).code is RefusalCode.ROLLED_BACK
    granted = [g for g in node.grants if g.front == "late"]
    assert granted and granted[-1].granted
    again = cluster.node(SPEC, node.key.node_id)
    assert again.key.incarnation > node.key.incarnation
    assert again.joined.last_batches == (Batch("q", 3, b"three"),)
    assert again.joined.previous_node_time == 3


def test_a_node_is_not_taken_up_before_all_that_its_old_home_logged_has_arrived() -> None:
    cluster = Cluster(3, config=CONFIG)
    load = Load(cluster)
    cluster.held.add((2, 1))  # shard 1 does not hear what shard 2 logs from here on
    cluster.handle(0, RescaleShards("r", 2))
    cluster.settle()
    two = cluster.routing
    assert not cluster.answers("r")
    name = next(filter(_moves, map(str, range(99))))
    early = cluster.ask(two.home("p", name), JoinNode, "p", name, "other")
    refused(early, RefusalCode.NOT_READY)
    cluster.held.clear()
    cluster.pass_time(1000)
    cluster.crash(2)
    assert cluster.node(SPEC, name).key.node_id == name
    load.follow_all()
    load.step()
    load.finish()


def test_nobody_is_evicted_before_all_that_its_old_home_logged_has_arrived() -> None:
    """Its key would be closed, and forgotten, at a shard that has yet to hear of its last ticks."""
    spec = replace(SPEC, silent_front=SilentFront.EVICT, evict_after_ms=500, open=True)
    cluster = Cluster(3, config=CONFIG)
    cluster.register(spec)
    front = cluster.front(spec, next(filter(_moves, map(str, range(99)))), f=0)
    cluster.held.add((2, 1))  # shard 1 does not hear what shard 2 logs from here on
    front.commit(created=[(0, 1, 1), (0, 2, 2), (0, 3, 3)], heartbeats={"f": 3})
    cluster.handle(0, RescaleShards("r", 2))
    cluster.settle()
    assert front.key.node_id in cluster.pipeline(0).home.nodes
    for _ in range(4):
        cluster.pass_time(400)
    assert not cluster.logged(KeyClosed)
    cluster.held.clear()
    cluster.pass_time(CONFIG.reconnect_ms + 1_600)
    assert cluster.logged(KeyClosed)
    cluster.settle()
    left = [pipeline.shard for pipeline in cluster.pipelines()]
    assert not any(shard.fronts for shard in left)
    assert sum(sum(shard.cells.open_slots) for shard in left) == 3


def _moves(node_id: str) -> bool:
    three, two = RoutingTable.uniform(3), RoutingTable.uniform(2)
    return three.home("p", node_id) == 2 and two.home("p", node_id) == 0


def test_two_rescales_at_once_end_in_one_table() -> None:
    cluster = Cluster(3, config=CONFIG)
    load = Load(cluster)
    cluster.handle(0, RescaleShards("one", 2))
    cluster.commit(0)
    cluster.handle(0, RescaleShards("same", 2))
    cluster.handle(0, RescaleShards("other", 1))
    cluster.settle()
    (other,) = cluster.answers("other")
    refused(other, RefusalCode.NOT_READY)
    assert cluster.answers("one") == cluster.answers("same")
    assert cluster.routing.shards == (0, 1)
    assert cluster.rescale(1).shards == (0,)
    cluster.pass_time(1000)
    for shard in cluster.gone:
        cluster.crash(shard)
    assert cluster.processes.keys() == {0}
    load.follow_all()
    load.step()
    load.finish()


def test_more_shards_than_there_are_processes_is_refused() -> None:
    cluster = Cluster(1, config=CONFIG)
    refused(cluster.ask(0, RescaleShards, 2), RefusalCode.FULL, "more have to join first")
    assert cluster.ask(0, RescaleShards, 0).code is RefusalCode.INVALID
    assert cluster.rescale(1).version == 0


def test_a_rescale_waits_for_those_that_are_joining() -> None:
    """Right after `serve --join` there are enough of them, only not quite yet."""
    cluster = Cluster(1, config=CONFIG)
    cluster.handle(0, JoinShard("newcomer", "host:1"))  # and its number is not even durable
    cluster.handle(0, RescaleShards("early", 2))
    shard = max(inside.expected_membership(cluster.processes[0]).joining)
    assert cluster.ask(0, RescaleShards, 3).code is RefusalCode.FULL
    for said in (*cluster.answers("early"), cluster.ask(0, RescaleShards, 2)):
        refused(said, RefusalCode.NOT_READY, f"shards [{shard}] are joining")
    cluster.settle()
    cluster.bootstrap(shard, SEQUENCER)
    cluster.settle()
    assert cluster.rescale(2).shards == (0, shard)


def test_only_the_sequencer_changes_the_shards() -> None:
    cluster = Cluster(2, config=CONFIG)
    for make, what in ((RescaleShards, 1), (JoinShard, "host:1")):
        refusal = cluster.ask(1, make, what)
        assert (refusal.code, refusal.home) == (RefusalCode.NOT_HOME, 0)


def test_one_that_has_begun_cannot_begin_again_from_the_same_address() -> None:
    """What it has confirmed, nobody keeps for it any more: with another peer's state it would lack that."""
    cluster = Cluster(1, config=CONFIG)
    sequencer = cluster.processes[SEQUENCER]
    first, again = (cluster.ask(SEQUENCER, JoinShard, "host:1") for _ in range(2))
    assert first == again == ShardNumber(1)
    newcomer = cluster.bootstrap(1, SEQUENCER)
    cluster.settle(until=lambda: sequencer.links[1].confirmed > 0)
    assert not newcomer.counts
    begun = cluster.ask(SEQUENCER, JoinShard, "host:1")
    assert refused(begun, RefusalCode.CONFLICT).home == 1
    cluster.settle()
    assert newcomer.counts
    refused(cluster.ask(SEQUENCER, JoinShard, "host:1"), RefusalCode.CONFLICT)


def test_a_newcomer_that_never_comes_is_forgotten() -> None:
    cluster = Cluster(1, config=CONFIG)
    load = Load(cluster)
    shard = cluster.begin_to_join()
    assert cluster.ask(0, RescaleShards, 2).code is RefusalCode.NOT_READY
    cluster.pass_time(CONFIG.join_timeout_ms / 2)
    assert shard in cluster.processes[0].membership.joining
    for _ in range(3):
        cluster.pass_time(CONFIG.join_timeout_ms / 2)
    assert not cluster.processes[0].membership.joining
    assert not cluster.processes[0].links
    assert cluster.ask(0, RescaleShards, 2).code is RefusalCode.FULL
    with pytest.raises(Refused):
        cluster.processes[0].bootstrap_snapshot(shard)
    assert cluster.join_shard() == shard + 1, "no number is given twice"
    load.step()
    load.finish()


def test_a_process_at_the_address_of_one_that_is_gone_is_another_shard() -> None:
    """One has begun as shard 3, and confirmed entries of home 1 that shard 2 lacks; the sequencer has heard nothing of it. It dies with its
    disk. The next one begins with what shard 2 knows: under the same number, with a new store in epoch 1 as the one before, it would be
    sent nothing of what is between."""
    cluster = Cluster(3, config=CONFIG)
    spec = PipelineSpec("p", ("work",), fronts=("a",))
    cluster.register(spec)
    front = cluster.front(spec, next(cluster.ids_at(1)))

    def number(process: str) -> Any:
        return cluster.ask(0, partial(JoinShard, process=process), "host:1")

    assert number("first") == ShardNumber(3)
    assert number("first") == ShardNumber(3), "it may ask again"
    cluster.settle()
    cluster.held = {(1, 2), (3, 0), (3, 2)}
    cluster.bootstrap(3, 2)
    front.begin(created=[(0, 0, 7)])
    front.begin(consumed=[(0, 0, 7)])
    front.begin(heartbeats={"a": 50})
    cluster.settle()
    links = cluster.processes[1].links
    assert links[3].confirmed > links[2].confirmed
    cluster.crash(3)
    for kept in (cluster.stored, cluster.snapshots, cluster.epochs, cluster.formats):
        kept.pop(3, None)
    refused(number("second"), RefusalCode.NOT_READY, "shard 3", "is given up", "ask again")
    cluster.settle()
    assert number("second") == ShardNumber(4)
    cluster.reconnect()
    cluster.settle()
    cluster.bootstrap(4, 2)
    cluster.pass_time(1_000)
    assert cluster.processes[0].membership.members == {0, 1, 2, 4}
    assert cluster.agreed(spec) == (50,)


def test_a_sequencer_that_has_forgotten_who_asked_gives_another_number() -> None:
    cluster = Cluster(1, config=CONFIG)
    asks = partial(JoinShard, process="first")
    assert cluster.ask(0, asks, "host:1") == ShardNumber(1)
    cluster.settle()
    cluster.restart_all()
    refused(cluster.ask(0, asks, "host:1"), RefusalCode.NOT_READY, "is given up")
    cluster.settle()
    assert cluster.ask(0, asks, "host:1") == ShardNumber(2)
    assert cluster.ask(0, JoinShard, "host:1") == ShardNumber(2), (
        "an older release does not say which"
    )


def test_a_peer_hands_nothing_out_before_every_home_keeps_what_follows() -> None:
    cluster = Cluster(3, config=CONFIG)
    Load(cluster)
    cluster.held.add((0, 2))  # shard 2 does not hear that there will be another one
    shard = 3
    cluster.handle(0, JoinShard("joins", "host:1"))
    cluster.settle()
    with pytest.raises(Refused, match="every shard"):
        cluster.processes[1].bootstrap_snapshot(shard)
    cluster.held.clear()
    cluster.pass_time(1000)
    assert cluster.answers("joins") == [ShardNumber(shard)]
    cluster.bootstrap(shard, 1)
    cluster.settle()
    assert shard in cluster.processes[2].membership.members


def test_a_peer_hands_out_no_pin_that_it_may_forget() -> None:
    """It would pin the front anew, lower, and that is granted; the newcomer would take the pin of before for a promise."""
    spec = PipelineSpec("p", ("a",), front_count=1)
    cluster = Cluster(1, config=CONFIG)
    cluster.register(spec)
    other = cluster.front(spec, "other", promise=5)
    shard = cluster.begin_to_join()
    cluster.settle()
    joins = cluster.node(spec, "joins", "front")
    other.begin(heartbeats={"a": 10})
    joins.begin(joins={"a": 0})
    cluster.commit(0, 1)
    cluster.pass_time_without_commits()  # 10 is announced, behind the joining
    entries = [n for n, each in enumerate(cluster.pending[0]) if isinstance(each[1], HomeEntry)]
    cluster.commit(0, entries[-1] + 1)
    cluster.pass_time_without_commits()  # the front is pinned by that
    assert any(isinstance(each[1], Pinned) for each in cluster.pending[0])
    with pytest.raises(Refused, match="last pins are not durable") as refusal:
        cluster.processes[0].bootstrap_snapshot(shard)
    assert refusal.value.refusal.code is RefusalCode.NOT_READY
    cluster.restart(0)
    cluster.settle()
    cluster.bootstrap(shard, 0)
    cluster.settle()
    joins.attach()
    cluster.settle()
    granted = joins.grants[-1].slot
    pins = [
        front.pin
        for front in cluster.pipeline(shard).shard.fronts.values()
        if front.node_id == "joins"
    ]
    assert pins == [granted] == [5]


def about_to_leave() -> Lossy:
    """Shard 2 of three owns nothing any more, and that it is to leave is logged and not durable."""
    cluster = Lossy(3, config=CONFIG)
    cluster.register(SPEC)
    cluster.handle(0, RescaleShards("fewer", 2, True))
    cluster.settle(lambda: logged(cluster.pending[0], ShardLeaving))
    assert cluster.routing.owning == (0, 1)
    return cluster


def logged(records: list[tuple[int, Any]], kind: type) -> bool:
    return any(isinstance(each, HomeEntry) and isinstance(each.entry, kind) for _, each in records)


def test_none_joins_before_those_that_leave_have_gone() -> None:
    """To the newcomer the last word of one that leaves might be of a generation in which nobody is any more: it would say that
    the pipeline is where a front is granted less meanwhile."""
    cluster = about_to_leave()
    others = {shard: cluster.processes.pop(shard) for shard in (1, 2)}
    process = cluster.restart(0)
    cluster.handle(0, JoinShard("joins", "host:1"))  # the first that it is asked
    assert refused(cluster.answers("joins")[0], RefusalCode.NOT_READY)
    assert 2 in process.membership.members
    cluster.processes |= others
    for other in others:
        cluster.handle(0, PeerConnected(other))
        cluster.handle(other, PeerConnected(0))
    cluster.settle()
    assert 2 not in process.membership.members
    assert cluster.join_shard(1) in process.membership.members


def test_none_begins_with_what_a_shard_knows_that_has_not_heard_the_last_of_one_that_has_left() -> (
    None
):
    cluster = about_to_leave()
    cluster.lost = {(2, 1, Entries)}
    cluster.settle()
    assert [2 in cluster.processes[shard].membership.members for shard in (0, 1)] == [False, True]
    shard = cluster.begin_to_join()
    cluster.settle()
    with pytest.raises(Refused, match="every shard") as refusal:
        cluster.processes[1].bootstrap_snapshot(shard)
    assert refusal.value.refusal.code is RefusalCode.NOT_READY
    cluster.lost = set()
    cluster.reconnect()
    cluster.settle()
    cluster.bootstrap(shard, 1)
    cluster.settle()
    assert shard in cluster.processes[0].membership.members


def test_a_newcomer_holds_a_front_no_higher_than_it_was_granted_without_it() -> None:
    """It hears at once of the front that has joined meanwhile and of an edge that leads from there to where more is announced.
    When all others have left, what it holds the front at is what the front counts for."""
    spec = PipelineSpec("p", ("a", "b"), (), fronts=("f", "g"), start_slot=0)
    cluster = Cluster(1, config=CONFIG)
    cluster.register(spec)
    front = cluster.front(spec, "front", promise=100, f=0)
    cluster.front(spec, "other", promise=300, g=1)
    shard = cluster.begin_to_join()
    cluster.settle()
    cluster.snapshots[shard] = cluster.processes[0].bootstrap_snapshot(shard)
    joins = cluster.node(spec, "joins", "front")
    granted = joins.join_front("h", 0).slot
    assert granted == 100
    joined = replace(spec, edges=(Edge("a", "b"),))
    assert cluster.ask(0, RegisterPipeline, joined, True) == joined
    cluster.start(shard)
    cluster.settle()
    cluster.rescale(1, without=(0,), evacuate=True)
    assert cluster.gone == {0}
    cluster.crash(0)
    for node in (front, joins):
        node.home = shard
        node.attach()
    front.commit(heartbeats={"f": 1_000})
    assert cluster.processes[shard].min_times("p")[0] == granted
    joins.commit(created=[(0, granted, 7)])


class LeaverAhead(Cluster):
    """Whoever leaves has announced up to 80 before the others."""

    last_words = (80, 80)

    def handle(self, shard: int, event: Event) -> list[Effect]:
        if isinstance(event, FrameArrived) and isinstance(event.frame.body, Entries):
            body = event.frame.body
            entries = tuple(map(self._ahead, body.entries))
            event = FrameArrived(replace(event.frame, body=replace(body, entries=entries)))
        return super().handle(shard, event)

    def _ahead(self, entry: Told) -> Told:
        if not isinstance(entry, ShardLeft):
            return entry
        said = tuple(replace(words, announced=self.last_words) for words in entry.pipelines)
        return replace(entry, pipelines=said)


def test_what_a_shard_had_announced_before_it_left_binds_those_that_were_behind() -> None:
    """They go on from there, and grant no front less."""
    cluster = LeaverAhead(2, config=CONFIG)
    load = Load(cluster)
    load.step()
    cluster.rescale(1, evacuate=True)
    assert cluster.gone == {1}
    cluster.crash(1)
    load.follow_all()
    assert cluster.processes[SEQUENCER].min_times("p") == (80, 80)
    assert cluster.node(SPEC, "other").join_front("g").slot >= 80


def test_so_does_what_it_had_announced_of_the_pipeline_where_a_segment_was_complete() -> None:
    """No later generation begins below that."""
    cluster = LeaverAhead(2, config=CONFIG)
    cluster.last_words = (FOREVER, 80)
    load = Load(cluster)
    load.step()
    cluster.rescale(1, evacuate=True)
    assert cluster.gone == {1}
    cluster.crash(1)
    assert cluster.processes[SEQUENCER].min_times("p") == (80, 80)
    assert cluster.processes[SEQUENCER].pipeline_min_time("p") == 80
    restarted = cluster.ask(SEQUENCER, RestartPipeline, "p", 0, None, 0)
    assert isinstance(restarted, Restart) and restarted.from_slot == 80


def one_announces_behind_the_words_of_one_that_left(heartbeat: int) -> Cluster:
    """Shard 0 has logged that shard 1 has left, having announced up to 80, and behind that an announcement of
    its own, up to `heartbeat`; neither is durable."""
    cluster = LeaverAhead(2, config=replace(CONFIG, report_burst=1))
    cluster.register(SPEC)
    front = cluster.node(SPEC, next(cluster.ids_at(SEQUENCER)))
    front.join_front("f")
    cluster.handle(SEQUENCER, RescaleShards(object(), 1, True))
    cluster.settle(lambda: is_not_durable(cluster, 1, ShardLeaving))
    front.attach()
    front.begin(heartbeats={"f": heartbeat})
    cluster.commit(0)
    cluster.deliver(0, 1)
    cluster.commit(1)
    cluster.pass_time_without_commits()  # shard 1 reports that it has the tick
    cluster.deliver(1, 0)
    cluster.commit(1)
    cluster.deliver(1, 0)
    assert is_not_durable(cluster, 0, ShardLeft)
    cluster.pass_time_without_commits()  # shard 0 announces by that report
    left, announced = [record for _, record in cluster.pending[0]]
    assert isinstance(left, ReceivedEntries) and isinstance(announced, Announcement)
    assert dict(announced.min_times) == {0: heartbeat, 1: heartbeat}
    return cluster


def is_not_durable(cluster: Cluster, shard: int, kind: type) -> bool:
    """A shard has taken an entry of a kind from another one, and has not made it durable."""
    taken = [record for _, record in cluster.pending[shard] if isinstance(record, ReceivedEntries)]
    return any(isinstance(entry, kind) for record in taken for entry in record.entries)


@pytest.mark.parametrize("heartbeat", [40, 80, 90])
def test_the_words_of_one_that_left_bind_whatever_is_announced_behind_them(heartbeat: int) -> None:
    """A crash may keep them and lose the announcement: so they count for what they are, in the process that
    lives as in the one that recovers."""
    cluster = one_announces_behind_the_words_of_one_that_left(heartbeat)
    cluster.commit(0, records=1)
    assert cluster.processes[0].min_times("p") == (80, 80)
    assert cluster.pipeline(0).durable == [80, 80]
    cluster.crash(1)
    cluster.restart(0)
    assert cluster.pipeline(0).durable == [80, 80]


@pytest.mark.parametrize(("heartbeat", "reported"), [(40, 80), (90, 90)])
def test_nor_does_what_is_announced_behind_them_take_back_what_is_reported(
    heartbeat: int, reported: int
) -> None:
    cluster = one_announces_behind_the_words_of_one_that_left(heartbeat)
    cluster.commit(0, records=1)
    cluster.commit(0, records=1)
    assert cluster.processes[0].min_times("p") == (reported, reported)
    assert cluster.pipeline(0).unreported == {0: reported, 1: reported}


def test_a_shard_is_told_to_go_before_the_last_words_of_the_one_before_arrive() -> None:
    """They stand in different logs, so one may overtake the other; it goes all the same."""
    known = Membership.first(RoutingTable.uniform(3), NEWEST_LEVEL)
    known.apply(ShardLeaving(2), SEQUENCER, 1)
    known.apply(ShardLeaving(1), SEQUENCER, 2)
    known.apply(ShardLeft((), (), 0), 2, 1)
    assert known.leaving == 1
    known.apply(ShardLeft((), (), 0), 1, 1)
    assert known.leaving is None


def test_two_shards_leave_and_one_never_hears_the_last_words_of_the_other() -> None:
    """Nobody who stays lacks them, so both may go."""
    cluster = Cluster(3, config=CONFIG)
    load = Load(cluster)
    load.step()
    cluster.handle(SEQUENCER, RescaleShards("request", 1, True))
    cluster.settle(until=lambda: cluster.processes[SEQUENCER].membership.leaving == 2)
    cluster.held.add((2, 1))
    cluster.pass_time(1000)
    assert 1 in cluster.gone
    cluster.crash(1)
    cluster.pass_time(1000)
    assert cluster.gone == {1, 2}


def test_a_unit_that_is_consumed_by_the_older_table_and_created_by_the_newer_is_not_left_open() -> (
    None
):
    """The shard that was to keep its name hears of the consumption alone, and the one that is, of the rest."""
    cluster = Cluster(2, config=CONFIG)
    load = Load(cluster)
    segment = next(s for s in (0, 1) if cluster.routing.names_keeper("p", s) == 1)
    creator, reader = (cluster.node(SPEC, next(cluster.ids_at(home))) for home in (0, 1))
    cluster.handle(SEQUENCER, RescaleShards("request", 1))
    cluster.settle(until=lambda: 1 in cluster.processes[SEQUENCER].membership.highest)
    cluster.held.add((0, 1))  # shard 1 does not hear of the table
    cluster.settle(until=lambda: 0 in cluster.processes[SEQUENCER].membership.adopted_at)
    unit = Unit(segment, "file", 9)
    creator.begin(created=[(segment, 9, 5)], units_created=[unit])
    reader.begin(consumed=[(segment, 9, 5)], units_consumed=[unit])
    cluster.settle()
    assert cluster.processes[0].resolve_units("p", segment, ["file"]) == [9]
    cluster.held.clear()
    cluster.pass_time(1000)
    assert cluster.routing.shards == (0,)
    assert cluster.processes[0].resolve_units("p", segment, ["file"]) == [None]
    names = [names for pipeline in cluster.pipelines() for names in pipeline.shard.units.values()]
    assert not any(each.early for each in names)
    assert cluster.gone == {1}
    cluster.crash(1)
    load.follow_all()
    load.finish()


def test_a_generation_that_begins_while_shards_change_remembers_what_is_consumed_before_it_comes() -> (
    None
):
    cluster = Cluster(2, config=CONFIG)
    cluster.register(SPEC)
    cluster.handle(SEQUENCER, RescaleShards("request", 1))
    cluster.settle(until=lambda: 1 in cluster.processes[SEQUENCER].membership.highest)
    cluster.handle(cluster.routing.registrar("p"), RestartPipeline("again", "p", 0, None, 0))
    cluster.settle(until=lambda: {p.generation for p in cluster.pipelines()} == {1})
    assert all(
        cluster.pipeline(shard).shard.takes_names == process.membership.hands_over
        for shard, process in cluster.processes.items()
    )
    assert cluster.processes[SEQUENCER].membership.hands_over
    cluster.settle()
    assert not cluster.pipeline(SEQUENCER).shard.takes_names


# --- the sequencer's role moves -------------------------------------------------------------------


def test_the_sequencer_leaves_and_another_one_decides_from_then_on() -> None:
    cluster = Cluster(2, config=CONFIG)
    load = Load(cluster)
    load.step(4)
    cluster.join_shard()
    cluster.rescale(2, without=(0,), evacuate=True)
    assert cluster.gone == {0} and [*cluster.routing.owning] == [1, 2]
    cluster.crash(0)
    assert {process.membership.sequencer for process in cluster.processes.values()} == {1}
    refusal = refused(cluster.ask(2, JoinShard, "host:9"), RefusalCode.NOT_HOME, "shard 1")
    assert refusal.home == 1
    load.follow_all()
    load.step(4)
    assert cluster.join_shard(peer=2) == 3
    cluster.rescale(1, without=(1,), evacuate=True)
    assert cluster.gone == {0, 1} and [*cluster.routing.owning] == [2]
    cluster.crash(1)
    load.follow_all()
    load.step()
    load.finish()


@pytest.mark.parametrize("spare", [False, True], ids=["an owner", "a spare"])
def test_what_a_shard_has_listed_goes_to_the_sequencer_alone_also_to_one_that_owns_nothing(
    spare: bool,
) -> None:
    cluster = Cluster(3, config=CONFIG)
    load = Load(cluster)
    load.step()
    if spare:
        cluster.rescale(1, without=(0, 1), evacuate=True)
        for _ in range(2):
            cluster.join_shard(peer=2)
        cluster.rescale(2, without=(2,), evacuate=True)
    else:
        cluster.rescale(2, without=(0,), evacuate=True)
    leaver = max(cluster.routing.owning)
    cluster.pipeline(leaver).shard.late[0] = LateEntry(0, 5, 1, 10)
    cluster.join_shard(peer=cluster.sequencer)
    cluster.rescale(1, without=(leaver,), evacuate=True)
    assert leaver in cluster.gone
    there = set(cluster.processes) - cluster.gone
    late = {shard: cluster.pipeline(shard).shard.late for shard in there}
    assert late.pop(cluster.sequencer) == {0: LateEntry(0, 5, 1, 10)}
    assert late and not any(late.values())


def test_the_new_sequencers_steps_wait_until_the_last_one_of_the_old_has_come() -> None:
    cluster = Cluster(3, config=CONFIG)
    load = Load(cluster)
    load.step()
    cluster.held.add((0, 2))
    cluster.handle(0, RescaleShards("r", 2, True, (0,)))
    cluster.settle()
    assert cluster.processes[1].membership.sequencer == 0, "the others wait for shard 2"
    cluster.held.clear()
    cluster.settle(until=lambda: bool(cluster.logged(SequencerMoved)))
    cluster.held.add((0, 2))
    cluster.settle()
    (moved,) = cluster.logged(SequencerMoved)
    assert moved == SequencerMoved(1, 1) and cluster.logged(SequencerBegun)
    assert cluster.processes[2].membership.sequencer == 0 and not cluster.gone
    cluster.reconnect()
    cluster.settle()
    assert cluster.gone == {0} and cluster.processes[2].membership.sequencer == 1


def test_a_shard_that_leaves_may_end_by_the_word_of_any_that_stays() -> None:
    """The one that was sequencer when it left may have gone itself."""
    cluster = Cluster(4, config=CONFIG)
    load = Load(cluster)
    load.step()
    cluster.handle(0, RescaleShards("r", 2, True, (0, 3)))
    cluster.settle(until=lambda: 3 in cluster.processes[0].membership.former)
    cluster.held.update((shard, 3) for shard in range(3))
    cluster.pass_time(1000)
    cluster.crash(0)
    assert cluster.gone == {0}
    cluster.held.clear()
    cluster.restart(3)
    cluster.pass_time(1000)
    assert cluster.gone == {0, 3}


@pytest.mark.parametrize("victim", [0, 1, 2])
def test_a_crash_at_any_step_by_which_the_role_moves_ends_in_one_sequencer(victim: int) -> None:
    crashed = 0
    while True:
        cluster = Cluster(3, config=CONFIG)
        load = Load(cluster)
        load.step(4)
        cluster.crash_at(victim, crashed + 1)
        cluster.handle(0, RescaleShards("first", 2, True, (0,)))
        cluster.pass_time(1000)
        for _ in range(20):
            answer = cluster.ask(cluster.sequencer, RescaleShards, 2, True, (0,))
            if answer == cluster.routing and cluster.gone:
                break
            cluster.pass_time(1000)
        died = cluster.has_crashed
        cluster.crash_at(victim, 0)
        assert cluster.gone == {0} and cluster.routing.shards == (1, 2)
        cluster.crash(0)
        assert {process.membership.begun for process in cluster.processes.values()} == {1}
        load.follow_all()
        load.step()
        load.finish()
        if not died:
            break
        crashed += 1
    assert crashed >= 4


@pytest.mark.parametrize("victim", [0, 1, 2])
def test_a_crash_at_any_step_ends_in_one_table(victim: int) -> None:
    """Of the sequencer, of a peer that leaves, of a newcomer: at each record that it makes durable."""
    crashed = 0
    while True:
        cluster = Cluster(2, config=CONFIG)
        load = Load(cluster)
        load.step(4)
        cluster.join_shard(peer=1)
        cluster.crash_at(victim, crashed + 1)
        cluster.handle(0, RescaleShards("first", 1, True))
        cluster.pass_time(1000)
        for _ in range(20):
            if cluster.ask(0, RescaleShards, 1, True) == cluster.routing:
                break
            cluster.pass_time(1000)
        cluster.pass_time(1000)
        died = cluster.has_crashed
        cluster.crash_at(victim, 0)
        assert cluster.routing.shards == (0,)
        assert cluster.gone == {1}
        cluster.crash(1)
        load.follow_all()
        load.step()
        load.finish()
        if not died:
            break
        crashed += 1
    assert crashed >= (2 if victim == 2 else 4)


def test_what_was_written_off_stays_listed_where_a_generation_begins_as_it_is_handed_over() -> None:
    """Whoever takes it has begun the next generation by then."""
    cluster = Cluster(3)
    registrar = 0
    names = map("p{}".format, count())
    name = next(each for each in names if cluster.routing.registrar(each) == registrar)
    spec = PipelineSpec(name, ("in",), front_count=1, start_slot=0)
    cluster.register(spec)
    slot = next(s for s in count() if cluster.routing.owner(s, name) == 2)
    front = cluster.front(spec, next(cluster.ids_at(0, name)))
    front.commit(created=[(0, slot, 7)])
    gone = cluster.node(spec, next(cluster.ids_at(1, name)))
    shown = Cells.of([(0, slot, 7, 1)])
    cluster.ask_home(gone.key.node_id, partial(RetireNode, at_ms=1), shown, pipeline=name)
    cluster.handle(cluster.sequencer, RescaleShards("fewer", 2, True, ()))
    cluster.settle(lambda: bool(cluster.logged(CellsMoved)))
    cluster.held = {(2, 0), (2, 1), (registrar, 2)}
    cluster.move_at_once()
    cluster.handle(registrar, RestartPipeline("restart", name, 0, None, 0))
    cluster.move_at_once()
    assert [cluster.pipeline(shard, name).generation for shard in range(3)] == [1, 1, 0]
    cluster.reconnect()
    cluster.pass_time(3_000)
    assert cluster.answers("restart") and cluster.answers("fewer") and cluster.gone == {2}
    left = [cluster.pipeline(shard, name).shard.written_off for shard in (0, 1)]
    assert sum(ledger.items.get(0, 0) for ledger in left) == 1
    assert sum(len(ledger.cells) for ledger in left) == 1


def test_one_that_left_hears_so_from_one_that_is_alone_and_has_come_back_from_a_snapshot() -> None:
    """No pipeline is there, of which that one would have anything to say to itself."""
    cluster = Cluster(2, config=ProcessConfig(rescale_margin_ms=40))
    cluster.handle(0, RescaleShards("leaves", 1, True))
    cluster.settle(lambda: 1 in cluster.processes[0].membership.former)
    assert not cluster.gone
    cluster.held = {(0, 1)}
    cluster.settle()
    cluster.take_snapshot(0)
    cluster.restart(0)
    cluster.reconnect()
    assert cluster.gone == {1}
