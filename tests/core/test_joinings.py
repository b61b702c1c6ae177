"""A front is known by its joining, and what it was granted outlives its home's process (rules 2, 8, 9)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.core.driver import Cluster, HandNode
from tracker.core.home.home import KEPT_SCOPES, MAX_SCOPES
from tracker.core.log import Pinned, PipelineReport, SegmentLow
from tracker.core.model import Batch, FrontPin, PipelineSpec, RefusalCode
from tracker.core.model.slots import LOWEST_SLOT
from tracker.core.moving.parts import put_together
from tracker.core.pipeline.snapshot import PipelineSnapshot, snapshot_pipeline

SPEC = PipelineSpec("p", ("a", "b"), fronts=("x", "y"), open=True)
"""Two segments that have nothing to do with each other."""


class Apart:
    """Two shards. The home hears nothing of what the other one says, which has announced 70 for segment
    b: by all that the home knows, it is at 60."""

    def __init__(self) -> None:
        self.cluster = cluster = Cluster(2)
        cluster.register(SPEC)
        self.first = cluster.front(SPEC, "first", promise=60, x=0, y=1)
        self.home, self.other = self.first.home, 1 - self.first.home
        assert cluster.agreed(SPEC) == (60, 60)
        self.late = cluster.node(SPEC, next(cluster.ids_at(self.home)))
        cluster.settle()

    def part(self) -> None:
        self.cluster.held = {(self.other, self.home)}
        self.first.begin(heartbeats={"y": 70})
        self.cluster.settle()
        said = self.cluster.min_times(SPEC)
        assert (said[self.home], said[self.other]) == ((60, 60), (60, 70))

    def restart_home(self, snapshot: bool = False) -> None:
        """It dies and comes back; what the other one says reaches it as little as before."""
        if snapshot:
            self.cluster.take_snapshot(self.home)
        self.cluster.restart(self.home)
        self.late.attach()


# --- two joinings of one name ---------------------------------------------------------------------


def test_a_pin_of_one_joining_is_nothing_to_the_next_one_of_the_name() -> None:
    """The front joins segment a, leaves without a grant, and joins b. The other shard pins the first one
    when the leave and the second joining are in its log, and not applied."""
    apart = Apart()
    apart.part()
    cluster, late = apart.cluster, apart.late
    cluster.part(apart.other, apart.home)
    for what in ({"joins": {"f": 0}}, {"leaves": ["f"]}, {"joins": {"f": 1}}):
        late.begin(**what)
        cluster.commit(apart.home)
    cluster.deliver(apart.home, apart.other)
    cluster.commit(apart.other, 1)
    cluster.pass_time_without_commits()
    waiting = [record for _, record in cluster.pending[apart.other]]
    assert any(isinstance(record, Pinned) for record in waiting), "the first joining is not pinned"
    apart.cluster.reconnect()
    (grant,) = late.grants
    assert (grant.segment, grant.slot) == (1, 70)
    part = snapshot_pipeline(cluster.pipeline(apart.other, "p"), {})
    assert _pin_of(part, "f") == 70, "what it has announced itself"


def test_one_that_moves_and_waits_for_its_grant_is_held_where_the_furthest_shard_holds_it() -> None:
    """Its grant is the largest of its pins (rule 8), in the group that it goes to as here."""
    apart = Apart()
    apart.part()
    cluster, late = apart.cluster, apart.late
    late.begin(joins={"f": 1})
    cluster.settle()
    parts = {shard: snapshot_pipeline(cluster.pipeline(shard, "p"), {}) for shard in (0, 1)}
    pins = {shard: _pin_of(parts[shard], "f") for shard in parts}
    assert (pins[apart.home], pins[apart.other]) == (60, 70)
    assert _pin_of(put_together(parts), "f") == 70


def _pin_of(part: PipelineSnapshot, front: str) -> int | None:
    (state,) = [state for state in part.fronts if state.front == front]
    return state.pin


def test_one_that_has_left_holds_at_its_pin_who_has_not_heard_where_its_items_are() -> None:
    """One shard has heard all of the front, and of another one, which has an item of it, nothing since before it joined. That item
    lies below what the front has promised, and not below its pin (rule 6)."""
    spec = PipelineSpec("p", ("a",), fronts=("x",), open=True)
    cluster = Cluster(3)
    cluster.register(spec)
    home, owner, deaf = range(3)
    other = cluster.front(spec, next(cluster.ids_at(owner)), promise=60, x=0)
    leaver = cluster.node(spec, next(cluster.ids_at(home)), "front")
    assert cluster.agreed(spec) == (60,)
    cluster.held = {(owner, home)}
    other.commit(heartbeats={"x": 500})  # the deaf one hears that, and may not announce it yet
    cluster.held = {(owner, deaf)}
    leaver.begin(joins={"f": 0})
    cluster.settle()
    assert leaver.grants[-1].slot == 60
    item = next(cluster.slots_of(owner, 70))
    leaver.commit(created=[(0, item, 7)])
    leaver.commit(heartbeats={"f": 600})
    leaver.commit(leaves=["f"])
    assert cluster.min_times(spec)[deaf] == (60,)
    cluster.reconnect()
    assert cluster.agreed(spec) == (item,)


def test_a_pin_that_an_older_version_has_stored_is_of_the_front_as_it_is() -> None:
    """It names no joining; a store of that version goes on where it was."""
    apart = Apart()
    stored = apart.cluster.stored[apart.home]
    for place, (position, record) in enumerate(stored):
        if isinstance(record, Pinned):
            pins = tuple(FrontPin(pin.node_id, pin.front, pin.slot) for pin in record.pins)
            stored[place] = position, replace(record, pins=pins)
    apart.cluster.restart(apart.home)
    fronts = apart.cluster.pipeline(apart.home).shard.fronts
    assert {state.pin for state in fronts.values()} == {0}
    apart.first.attach()
    apart.first.commit(heartbeats={"x": 80, "y": 80})
    assert apart.cluster.agreed(SPEC) == (80, 80)


def test_a_front_that_an_older_process_says_has_left_is_forgotten_whatever_its_joining() -> None:
    """Its reports name no joinings of those that left."""
    apart = Apart()
    combiner = apart.cluster.pipeline(apart.home).combiner
    assert len(combiner.views[apart.other].fronts) == 2
    combiner.take(
        apart.other,
        PipelineReport("p", lows=(SegmentLow(0, 5, 0, 0),), left=(("first", "x", 0, 0),)),
        whole=False,
    )
    assert [front[1] for front in combiner.views[apart.other].fronts] == ["y"]


# --- grants are durable ---------------------------------------------------------------------------


def test_a_grant_is_not_said_before_it_is_durable() -> None:
    apart = Apart()
    late, cluster = apart.late, apart.cluster
    late.begin(joins={"f": 1})

    def is_everywhere() -> bool:
        settled = cluster.pipeline(apart.home).combiner.settled_fronts
        return any(front[1] == "f" for front in settled)

    cluster.settle(is_everywhere)
    assert not late.grants
    cluster.restart(apart.home)
    cluster.held = {(apart.other, apart.home)}
    late.attach()
    assert not late.grants
    assert late.refused(created=[(1, 65, 9)]).code is RefusalCode.NOT_READY
    apart.cluster.reconnect()
    assert [grant.slot for grant in late.grants] == [60]


def test_a_store_without_grants_goes_on_and_its_fronts_are_granted_again() -> None:
    """As an older version has written it."""
    apart = Apart()
    granted = apart.late.join_front("f", 1).slot
    for shard in (apart.home, apart.other):
        records = [record for _, record in apart.cluster.stored[shard]]
        kept = [record for record in records if type(record).__name__ != "FrontsGranted"]
        apart.cluster.stored[shard] = [(place + 1, record) for place, record in enumerate(kept)]
        apart.cluster.restart(shard)
    apart.cluster.settle()
    apart.late.attach()
    assert apart.late.grants[-1].slot == granted
    apart.late.commit(created=[(1, granted, 9)])


# --- scopes of batches ----------------------------------------------------------------------------


def worker(shards: int = 1) -> tuple[Cluster, HandNode]:
    cluster = Cluster(shards)
    cluster.register(SPEC)
    return cluster, cluster.node(SPEC, "worker")


def test_the_newest_batch_of_each_of_many_scopes_is_known_for_good() -> None:
    """The batch of the first scope is committed once more after many others, and after joining again."""
    cluster, node = worker()
    scopes = [f"query {number}" for number in range(3 * KEPT_SCOPES)]
    for number, scope in enumerate(scopes):
        node.commit(created=[(0, 5, 1 << number)], batch=Batch(scope, 7, b"f"))
    for restarted in (False, True):
        if restarted:
            cluster.take_snapshot(0)
            cluster.restart(0)
        again = cluster.node(SPEC, "worker")
        assert {batch.scope: batch.id for batch in again.joined.last_batches} == dict.fromkeys(
            scopes, 7
        )
        for number, scope in enumerate(scopes):
            again.commit(created=[(0, 5, 1 << number)], batch=Batch(scope, 7, b"f"))
        refusal = again.refused(created=[(0, 5, 1)], batch=Batch(scopes[0], 7, b"other"))
        assert refusal.code is RefusalCode.ROLLED_BACK
        assert again.refused(batch=Batch(scopes[0], 6, b"f")).code is RefusalCode.ROLLED_BACK
    cells = cluster.pipeline(0).shard.cells
    assert cells.value(0, 5)[0] == (1 << len(scopes)) - 1, "none counts twice"


def test_of_the_scopes_used_last_more_than_the_newest_batch_is_known() -> None:
    _, node = worker()
    for number in range(KEPT_SCOPES + 1):
        for batch in (1, 2):
            node.commit(batch=Batch(f"query {number}", batch, b"f"))
    for number in range(1, KEPT_SCOPES + 1):
        node.commit(created=[(0, LOWEST_SLOT, 1)], batch=Batch(f"query {number}", 1, b"f"))
    assert node.refused(batch=Batch("query 0", 1, b"f")).code is RefusalCode.ROLLED_BACK


def test_one_scope_too_many_is_refused_not_paid_for_with_another_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert MAX_SCOPES > 4
    monkeypatch.setattr("tracker.core.home.home.MAX_SCOPES", 4)
    _, node = worker()
    for number in range(3):
        node.commit(batch=Batch(f"query {number}", 1, b"f"))
    node.begin(batch=Batch("query 3", 1, b"f"))  # what is accepted and not durable counts
    refusal = node.refused(batch=Batch("query 4", 1, b"f"))
    assert refusal.code is RefusalCode.INVALID
    assert all(part in refusal.message for part in ("'p'", "worker", "'query 4'", "limit is 4"))
    node.commit(batch=Batch("query 0", 2, b"f"))
    node.commit(batch=Batch("query 3", 1, b"f"))
