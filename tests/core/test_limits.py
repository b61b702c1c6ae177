"""Room, and limits (promise 5, rule 4): what consumes is never refused for space, what is open already
costs nothing, and a pipeline's limits change while it runs: at every shard, for good."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from tests.core.driver import Cluster, HandNode, plain, refused
from tracker.core.admission.confirmations import MAX_WAITING
from tracker.core.home.home import CELLS_PER_STAGED
from tracker.core.log import (
    Answer,
    HomeEntry,
    JoinNode,
    PipelineChanged,
    RegisterPipeline,
    RestartPipeline,
    StageContributions,
)
from tracker.core.model import (
    Batch,
    Cells,
    Edge,
    PipelineSpec,
    RefusalCode,
    StagedContribution,
    Unit,
)
from tracker.core.model.slots import FOREVER
from tracker.core.shard.cells import CellTable, new_cells

SPEC = PipelineSpec(
    "p", ("in", "out"), (Edge("in", "out"),), fronts=("f",), horizon_slots=1_000, max_open_cells=3,
    max_open_units=2, max_nodes=2,
)  # fmt: skip


def begun(shards: int = 1, spec: PipelineSpec = SPEC) -> tuple[Cluster, HandNode]:
    """A front that has promised slot 100."""
    cluster = Cluster(shards)
    cluster.register(spec)
    return cluster, cluster.front(spec, "front", promise=100, f=0)


def apply(cluster: Cluster, spec: PipelineSpec) -> Any:
    """An operator lets the pipeline go by the limits of a spec."""
    registrar = cluster.routing.registrar(spec.name)
    return cluster.ask(registrar, RegisterPipeline, spec, True)


def limits_known(cluster: Cluster) -> set[int]:
    return {process.spec("p").max_open_cells for process in cluster.processes.values()}


def slots_of(cluster: Cluster, shard: int, number: int = 10) -> list[int]:
    return list(itertools.islice(cluster.slots_of(shard, 200), number))


# --- room -----------------------------------------------------------------------------------------


def test_a_full_table_takes_the_ticks_that_empty_it(shards: int) -> None:
    cluster, front = begun(shards)
    first, second, third, fourth = slots_of(cluster, 0, 4)
    front.commit(created=[(0, slot, slot) for slot in (first, second, third)])
    assert front.refused(created=[(0, fourth, 9)]).code is RefusalCode.FULL
    worker = cluster.node(SPEC, "worker")
    # Two children of one parent: the table grows before it empties.
    worker.commit(
        consumed=[(0, first, first)],
        created=[(1, first, 1), (1, second, 2)],
        units_created=[Unit(1, f"file:///{n}", first) for n in range(9)],
    )
    worker.commit(consumed=[(1, first, 1), (1, second, 2)])
    worker.commit(consumed=[(0, second, second), (0, third, third)])
    front.commit(heartbeats={"f": 300})
    assert cluster.agreed(SPEC) == (300, 300)


def test_creating_in_a_cell_that_is_open_already_costs_nothing() -> None:
    _, front = begun()
    front.commit(created=[(0, slot, slot) for slot in (200, 201, 202)])
    front.commit(created=[(0, 201, 77), (0, 201, 78), (0, 202, 79)])
    assert "3 open cells and 1 more" in front.refused(created=[(0, 201, 8), (0, 203, 9)]).message
    # The same slot of another segment is another cell.
    assert front.refused(created=[(1, 200, 8)]).code is RefusalCode.FULL


def test_a_shard_counts_what_it_would_own_alone() -> None:
    cluster, front = begun(2)
    mine, others = slots_of(cluster, 0), slots_of(cluster, 1)
    front.commit(created=[(0, slot, slot) for slot in mine[:3]])
    front.commit(created=[(0, slot, slot) for slot in others[:3]])
    for more in (mine[3], others[3]):
        assert "max_open_cells of 3" in front.refused(created=[(0, more, 9)]).message


def test_a_table_full_of_what_was_consumed_ahead_takes_its_creations(shards: int) -> None:
    """Readers need not wait for the ticks of a front; what they consume ahead of them opens cells."""
    cluster, front = begun(shards)
    far = (front.home + 1) % shards
    slots = slots_of(cluster, far, 6)
    reader = cluster.node(SPEC, "reader")
    reader.commit(consumed=[(0, slot, slot) for slot in slots])
    if shards > 1:
        assert front.refused(created=[(0, slots[2], slots[2])]).code is RefusalCode.FULL
    front.commit(created=[(0, slot, slot) for slot in slots[:2]])
    front.commit(created=[(0, slot, slot) for slot in slots[2:]])
    front.commit(heartbeats={"f": 300})
    assert cluster.agreed(SPEC) == (300, 300)


def test_what_lies_below_all_that_is_open_is_taken_though_nobody_has_consumed_it(
    shards: int,
) -> None:
    """Readers wait for some names, and run ahead of other ticks of the same front."""
    cluster, front = begun(shards)
    far = (front.home + 1) % shards
    slots = slots_of(cluster, far, 5)
    reader = cluster.node(SPEC, "reader")
    reader.commit(consumed=[(0, slot, slot) for slot in slots[1:]])
    front.commit(created=[(0, slots[0], 7)], units_created=[Unit(0, "file:///x", slots[0])])
    reader.commit(consumed=[(0, slots[0], 7)], units_consumed=[Unit(0, "file:///x", slots[0])])
    front.commit(created=[(0, slot, slot) for slot in slots[1:]])
    front.commit(heartbeats={"f": 300})
    assert cluster.agreed(SPEC) == (300, 300)


@pytest.mark.parametrize("segments", [(0, 0), (0, 1)])
def test_of_ticks_that_are_each_the_lowest_of_one_full_shard_the_lowest_of_all_goes_first(
    segments: tuple[int, int],
) -> None:
    """Each would be refused by the other's shard, and both tables would be full for ever."""
    spec = replace(SPEC, fronts=("f", "g"), max_open_cells=1)
    cluster = Cluster(3)
    cluster.register(spec)
    lower, upper = [cluster.node(spec, name) for name in itertools.islice(cluster.ids_at(2), 2)]
    lower.join_front("f", segments[0])
    upper.join_front("g", segments[1])
    one, other = slots_of(cluster, 0), slots_of(cluster, 1)
    first = [(segments[0], one[0], 1), (segments[0], other[-1], 2)]
    second = [(segments[1], other[8], 3), (segments[1], one[-1], 4)]
    reader = cluster.node(spec, "reader")
    reader.commit(consumed=[first[0], second[0]])
    assert upper.refused(created=second).code is RefusalCode.FULL
    lower.commit(created=first)
    reader.commit(consumed=[first[1]])
    upper.commit(created=second)
    reader.commit(consumed=[second[1]])
    lower.commit(heartbeats={"f": 1_000})
    upper.commit(heartbeats={"g": 1_000})
    assert cluster.agreed(spec) == (1_000, 1_000)


def test_a_full_table_of_names_takes_a_name_that_is_there_and_what_consumes() -> None:
    cluster, front = begun()
    front.commit(created=[(0, 200, 1)], units_created=[Unit(0, "a", 200), Unit(0, "b", 200)])
    front.commit(created=[(0, 200, 1)], units_created=[Unit(0, "b", 200)])
    front.commit(units_created=[Unit(1, "c", 200), Unit(1, "d", 200)])
    refusal = front.refused(units_created=[Unit(0, "c", 201)])
    assert refusal.code is RefusalCode.FULL
    for named in ("'p'", "'in'", "2 units are open and 1 more", "max_open_units of 2"):
        assert named in refusal.message
    worker = cluster.node(SPEC, "worker")
    worker.commit(units_consumed=[Unit(0, "a", 200)], units_created=[Unit(1, "e", 200)])


@pytest.mark.parametrize("segments", [(0, 0), (0, 1)])
def test_a_table_full_of_names_that_were_consumed_ahead_takes_those_of_the_lowest_slots(
    segments: tuple[int, int],
) -> None:
    """Such a name stays until min time has passed it, which another front holds: what that one has still to say, maybe of
    several segments, each full, is taken."""
    spec = replace(SPEC, fronts=("f", "g"), max_open_cells=100, max_nodes=3)
    cluster = Cluster(1)
    cluster.register(spec)
    late = cluster.front(spec, "late", promise=100, f=0)
    early = cluster.front(spec, "early", promise=100, g=0)
    reader = cluster.node(spec, "reader")
    items = [(0, 200, 1), (1, 200, 2)]
    units = [Unit(n, name, 200) for n, name in ((0, "a"), (0, "b"), (1, "c"), (1, "d"))]
    reader.commit(consumed=items, units_consumed=units)
    early.commit(created=items, units_created=units)
    early.commit(heartbeats={"g": 300})
    below = [Unit(segment, f"e{n}", 150 + 100 * n) for n, segment in enumerate(segments)]
    assert early.refused(units_created=[Unit(0, "x", 301)]).code is RefusalCode.FULL
    made = [(unit.segment, unit.slot, 7) for unit in below]
    late.commit(created=made, units_created=below)
    reader.commit(consumed=made, units_consumed=below)
    late.commit(heartbeats={"f": 300})
    assert cluster.agreed(spec) == (300, 300)
    early.commit(units_created=[Unit(0, "x", 301)])


def test_an_empty_table_takes_a_tick_of_any_size() -> None:
    """It could never be taken otherwise, and hold min time for good."""
    _, front = begun()
    many = [(0, 200 + n, 9) for n in range(8)]
    front.commit(created=many, units_created=[Unit(0, f"file:///{n}", 200) for n in range(8)])
    assert front.refused(created=[(0, 300, 9)]).code is RefusalCode.FULL
    front.commit(consumed=many, units_consumed=[Unit(0, f"file:///{n}", 200) for n in range(8)])
    front.commit(created=many)


@pytest.mark.parametrize(
    ("limit", "whose"),
    [("MAX_FRONTS_OF_NODE", "node front#"), ("MAX_FRONTS_OF_PIPELINE", "all nodes together")],
)
def test_there_are_so_many_fronts_at_one_time(
    monkeypatch: pytest.MonkeyPatch, shards: int, limit: str, whose: str
) -> None:
    monkeypatch.setattr(f"tracker.core.admission.ticks.{limit}", 3)
    _, front = begun(shards)
    refused(
        front.refused(joins={"g": 0, "h": 0, "i": 0}),
        RefusalCode.FULL, f"1 fronts are those of {whose}", "and 3 more", "the limit of 3",
    )  # fmt: skip
    front.commit(joins={"f": 0, "g": 0, "h": 0})
    front.commit(joins={"f": 0, "h": 0})
    front.commit(leaves=["g"])
    front.commit(joins={"i": 0})


def test_how_many_cells_would_be_opened_is_counted_by_segment_and_slot() -> None:
    table = CellTable(2)
    table.apply(Cells.of([(0, 5, 1, 1), (0, 70, 1, 1), (1, 5, 1, 1)]), 1)
    asked = Cells.of([(s, slot, 9, 1) for s in (0, 1) for slot in (5, 5, 6, 70, 999)])
    assert (new_cells(asked, table), new_cells(asked, None)) == (5, 8)
    assert new_cells(Cells.empty(), table) == 0


# --- limits that change ---------------------------------------------------------------------------


def test_a_limit_is_raised_while_the_pipeline_runs(shards: int) -> None:
    cluster, front = begun(shards)
    slots = slots_of(cluster, 0)
    front.commit(created=[(0, slot, slot) for slot in slots[:3]])
    front.refused(created=[(0, slots[3], 9)])
    more = replace(SPEC, max_open_cells=4, max_nodes=9)
    assert apply(cluster, more) == more
    assert [p.pipelines() for p in cluster.processes.values()] == [[more]] * shards
    front.commit(created=[(0, slots[3], 9)])
    assert "max_open_cells of 4" in front.refused(created=[(0, slots[4], 9)]).message
    for name in itertools.islice(cluster.ids_at(front.home), 4):
        assert cluster.node(more, name).joined.spec == more


def test_every_limit_can_be_changed_and_what_is_for_good_cannot() -> None:
    cluster, _ = begun(2)
    other = replace(
        SPEC, horizon_slots=5, max_open_cells=6, max_open_units=7, max_nodes=8, max_staged=9
    )
    assert apply(cluster, other) == other
    refusal = apply(cluster, replace(other, slack_ns=20, max_nodes=50))
    assert refusal.code is RefusalCode.CONFLICT, refusal
    assert apply(cluster, replace(SPEC, max_nodes=FOREVER)).code is RefusalCode.INVALID
    assert cluster.processes[0].spec("p") == other


def test_a_file_that_starts_now_is_told_which_start_to_write_down() -> None:
    """Applied again it says another moment, and with it the limits would be refused for no good reason."""
    cluster, _ = begun(2)
    raised = replace(SPEC, max_open_cells=50)
    refusal = apply(cluster, replace(raised, start_slot=SPEC.start_slot + 70))
    assert refusal.code is RefusalCode.CONFLICT
    assert f"`start: slot:{SPEC.start_slot}`" in refusal.message
    assert apply(cluster, raised) == raised
    differs = apply(cluster, replace(raised, start_slot=SPEC.start_slot + 70, slack_ns=20))
    assert "`start:" not in differs.message


def test_registering_a_pipeline_again_does_not_change_its_limits() -> None:
    """A job that registers its pipeline at its start is started again after an operator helped it."""
    cluster, _ = begun(2)
    raised = replace(SPEC, max_open_cells=50)
    apply(cluster, raised)
    assert cluster.register(SPEC) == raised, "as it was registered at first"
    assert cluster.register(raised) == raised
    refusal = cluster.register(replace(SPEC, max_open_cells=7))
    assert refusal.code is RefusalCode.CONFLICT
    assert "max_open_cells: registered 50, asked 7" in refusal.message
    assert "lowmark pipelines apply" in refusal.message
    assert limits_known(cluster) == {50}


def test_limits_are_lowered_too_and_what_is_over_them_drains() -> None:
    cluster, front = begun()
    front.commit(created=[(0, slot, slot) for slot in (200, 201, 202)])
    lower = replace(SPEC, max_open_cells=1, max_nodes=1)
    assert apply(cluster, lower) == lower
    worker_is_full = cluster.ask(0, JoinNode, "p", "worker", "other")
    assert worker_is_full.code is RefusalCode.FULL
    front.commit(consumed=[(0, slot, slot) for slot in (200, 201, 202)], created=[(0, 300, 5)])
    assert front.refused(created=[(0, 301, 9)]).code is RefusalCode.FULL


def test_the_same_limits_again_change_nothing() -> None:
    cluster, _ = begun(2)
    raised = replace(SPEC, max_open_cells=50)
    apply(cluster, raised)
    cluster.settle()
    before = [plain(p.snapshot()) for p in cluster.processes.values()]
    assert apply(cluster, raised) == raised
    assert [plain(p.snapshot()) for p in cluster.processes.values()] == before


def test_of_two_changes_the_last_counts_also_where_the_first_is_not_durable_yet() -> None:
    cluster, _ = begun(2)
    registrar = cluster.routing.registrar("p")
    asked = [replace(SPEC, max_open_cells=limit) for limit in (50, 60, 50, 50)]
    for number, spec in enumerate(asked):
        cluster.handle(registrar, RegisterPipeline(f"r{number}", spec, True))
    entries = [r.entry for _, r in cluster.pending[registrar] if isinstance(r, HomeEntry)]
    logged = [entry for entry in entries if isinstance(entry, PipelineChanged)]
    assert [(e.number, e.spec.max_open_cells) for e in logged] == [(1, 50), (2, 60), (3, 50)]
    cluster.settle()
    answers = [cluster.answers(f"r{number}") for number in range(4)]
    assert answers == [[asked[-1]]] * 4
    assert limits_known(cluster) == {50}


def test_the_answer_waits_until_every_shard_has_it_also_after_a_restart() -> None:
    cluster, _ = begun(2)
    raised = replace(SPEC, max_open_cells=50)
    registrar = cluster.routing.registrar("p")
    cluster.held.add((registrar, 1 - registrar))
    cluster.handle(registrar, RegisterPipeline("first", raised, True))
    cluster.commit(registrar)
    cluster.restart(registrar)
    cluster.handle(registrar, RegisterPipeline("again", raised, True))
    cluster.settle()
    assert not cluster.answers("again")
    cluster.reconnect()
    assert cluster.answers("again") and limits_known(cluster) == {50}


@pytest.mark.parametrize("durable", [False, True])
def test_a_registrar_that_dies_has_changed_them_if_it_was_durable(durable: bool) -> None:
    cluster, _ = begun(1)
    cluster.handle(0, RegisterPipeline("r", replace(SPEC, max_open_cells=50), True))
    if durable:
        cluster.store(0)
    cluster.restart(0)
    cluster.settle()
    assert limits_known(cluster) == {50 if durable else 3}


def test_changed_limits_outlive_a_restart_and_are_known_to_newcomers(snapshot: bool) -> None:
    cluster, front = begun(2)
    apply(cluster, replace(SPEC, max_open_cells=50))
    raised = replace(SPEC, max_open_cells=60)
    apply(cluster, raised)
    cluster.restart_all(from_snapshots=snapshot)
    newcomer = cluster.join_shard()
    assert newcomer == 2 and limits_known(cluster) == {60}
    cluster.rescale(3)
    cluster.settle()
    assert cluster.register(SPEC) == raised
    lower = replace(SPEC, max_open_cells=40)
    assert apply(cluster, lower) == lower, "whoever decides on the name now counts on"
    assert limits_known(cluster) == {40}
    assert {pipeline.changes for pipeline in cluster.pipelines()} == {3}
    assert front.joined.spec == SPEC


def test_a_new_generation_goes_by_the_changed_limits() -> None:
    cluster, _ = begun(1)
    apply(cluster, replace(SPEC, max_open_cells=50))
    cluster.ask(0, RestartPipeline, "p", 0, 200, 0)
    front = cluster.node(SPEC, "front", "front")
    front.join_front("f")
    front.commit(created=[(0, 200 + n, 9) for n in range(50)])
    assert "limit max_open_cells of 50" in front.refused(created=[(0, 290, 9)]).message


# --- what is staged -------------------------------------------------------------------------------


def test_what_is_staged_is_bounded_by_its_cells_too() -> None:
    """A contribution may have a quarter of a million of them, and a pipeline a hundred thousand contributions."""
    spec = replace(SPEC, horizon_slots=1_000_000, max_staged=4)
    cluster = Cluster(1)
    cluster.register(spec)
    query = cluster.node(spec, "query")
    most = 4 * CELLS_PER_STAGED

    def stage(task: int, cells: int) -> Any:
        some = Cells.of([(0, slot, 1, 1) for slot in range(cells)])
        one = StagedContribution("q", "r", 1, 0, "map", 0, task, 0, Cells.empty(), some)
        return cluster.ask(query.home, StageContributions, "p", "query", (one,))

    assert stage(0, most - 10) is None
    refusal = stage(1, 11)
    assert refusal.code is RefusalCode.FULL and f"{most} cells" in refusal.message
    assert stage(2, 10) is None
    cluster.restart_all(from_snapshots=True)
    assert stage(3, 1).code is RefusalCode.FULL
    query = cluster.node(spec, "query")
    query.commit(batch=Batch("q", 1, b""))
    assert stage(3, 1) is None, "the batch has let go of the others"


def test_what_is_staged_and_not_durable_yet_counts_as_what_is() -> None:
    """An operator that hands over twice in one attempt, with other contents, is told so however soon the second one comes;
    and no more is staged at once than may be."""
    spec = replace(SPEC, max_staged=2)
    cluster = Cluster(1)
    cluster.register(spec)
    query = cluster.node(spec, "query")

    def stage(task: int, slot: int) -> list[Any]:
        """Nothing becomes durable meanwhile."""
        request, some = f"{task}, {slot}", Cells.of([(0, slot, 1, 1)])
        one = StagedContribution("q", "r", 1, 0, "map", 0, task, 0, Cells.empty(), some)
        cluster.handle(query.home, StageContributions(request, "p", "query", (one,)))
        return cluster.answers(request)

    assert stage(0, 5) == []
    (refusal,) = stage(0, 6)
    refused(refusal, RefusalCode.CONFLICT, "operator 'map' handed over twice, with other contents")
    assert stage(1, 5) == []
    (refusal,) = stage(2, 5)
    refused(refusal, RefusalCode.FULL, "2 contributions with 2 cells are staged", "max_staged of 2")
    cluster.settle()
    assert cluster.pipeline(0).home.staged_count == 2


def test_of_more_requests_than_may_wait_for_a_shard_that_is_away_the_oldest_are_forgotten() -> None:
    """Their clients ask again, as behind a crash."""
    cluster = Cluster(2)
    registrar = cluster.routing.registrar("p")
    cluster.held = {(registrar, 1 - registrar)}
    for number in range(MAX_WAITING + 3):
        cluster.handle(registrar, RegisterPipeline(number, SPEC))
    cluster.commit(registrar)
    cluster.reconnect()
    cluster.settle()
    answered = [effect.request for effect in cluster.effects if isinstance(effect, Answer)]
    assert answered == [*range(3, MAX_WAITING + 3)]
