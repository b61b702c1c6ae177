"""What goes to another shard is bounded by bytes, entry by entry and frame by frame (rule 4)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeVar

import pytest

from tests.core.driver import Cluster, content
from tracker.core.home.home import MAX_CELLS_PER_TICK, MAX_NAME_BYTES_PER_TICK
from tracker.core.log import Entries, RescaleShards, Send, StageContributions, Told
from tracker.core.log.sizes import entry_bytes, pieces
from tracker.core.log.steps import CellsMoved, DepartureSummarized, LateEntry, NodesMoved, ShardLeft
from tracker.core.model import Cells, PipelineSpec, Refusal, RefusalCode, StagedContribution, Unit
from tracker.core.process import ProcessConfig

MOVE, FRAME = 4_000, 20_000
CONFIG = ProcessConfig(max_bytes_per_move=MOVE, max_bytes_per_frame=FRAME, rescale_margin_ms=40)
SPEC = PipelineSpec("p", ("a", "b"), open=True)
RESCALE = RescaleShards("request", 1, evacuate=True)
HEAD = 1_000
"""What an entry takes beside the things that it hands over."""


Kind = TypeVar("Kind")


class OneByOne(Cluster):
    """Each record is a write of its own, so that a process may die between any two."""

    def commit(self, shard: int, records: int | None = None) -> None:
        super().commit(shard, 1)


def frames(cluster: Cluster) -> Iterator[tuple[Told, ...]]:
    for effect in cluster.effects:
        if isinstance(effect, Send) and isinstance(effect.frame.body, Entries):
            yield effect.frame.body.entries


def check_sizes(cluster: Cluster) -> None:
    for entries in frames(cluster):
        assert len(entries) == 1 or sum(map(entry_bytes, entries)) <= FRAME


def contribution(task: int, cells: int) -> StagedContribution:
    slots = Cells.of((0, slot, slot + 1, 1) for slot in range(cells))
    return StagedContribution("q", "r", 1, 0, "op", 0, task, 0, slots, Cells.empty())


def moving_node(cluster: Cluster) -> str:
    """A node that is at home at shard 1 while there are two shards, and then goes to shard 0."""
    return next(cluster.ids_at(1))


def test_pieces_are_as_large_as_may_be_and_never_empty() -> None:
    assert list(pieces([3, 4, 5, 20, 1, 1], int, 9)) == [(3, 4), (5,), (20,), (1, 1)]
    assert not list(pieces([], int, 9))


def begin_with_staged(tasks: int, cells: int) -> tuple[Cluster, str]:
    cluster = OneByOne(2, config=CONFIG)
    cluster.register(SPEC)
    node = cluster.node(SPEC, moving_node(cluster), "spark-query")
    for task in range(tasks):
        staged = (contribution(task, cells),)
        assert cluster.ask(1, StageContributions, "p", node.key.node_id, staged) is None
    return cluster, node.key.node_id


def test_what_is_staged_goes_to_a_new_home_in_entries_of_bounded_size() -> None:
    cluster, node_id = begin_with_staged(tasks=20, cells=50)
    cluster.rescale(1)
    moved = cluster.logged(NodesMoved)
    assert len(moved) > 5
    assert all(entry_bytes(entry) <= MOVE + HEAD for entry in moved)
    check_sizes(cluster)
    staged = cluster.pipeline(0).home.staged[node_id].values()
    assert {c.partition for c in staged} == {*range(20)}


def test_a_home_that_dies_amid_what_it_hands_over_loses_nothing_of_it() -> None:
    for commits in range(1, 40):
        cluster, node_id = begin_with_staged(tasks=6, cells=100)
        cluster.crash_at(1, commits)
        cluster.handle(0, RESCALE)
        cluster.pass_time(1000)
        for _ in range(5):
            cluster.pass_time(1000)
        died = cluster.has_crashed
        cluster.crash_at(1, 0)
        home = cluster.pipeline(0).home
        assert {c.partition for c in home.staged[node_id].values()} == {*range(6)}
        assert node_id in home.nodes and home.staged_count == 6
        if not died:
            return
    raise AssertionError("it dies for ever")


def test_names_of_units_are_handed_over_in_entries_of_bounded_size() -> None:
    cluster = Cluster(2, config=CONFIG)
    cluster.register(SPEC)
    node = cluster.node(SPEC, "n")
    segment = next(s for s in (0, 1) if cluster.routing.names_keeper("p", s) == 1)
    names = [f"file-{number}-{'x' * 200}" for number in range(100)]
    for name in names:
        node.commit(created=[(segment, 5, 1)], units_created=[Unit(segment, name, 5)])
    cluster.rescale(1, evacuate=True)
    moved = cluster.logged(CellsMoved)
    assert len(moved) > 5
    assert all(entry_bytes(entry) <= MOVE + HEAD for entry in moved)
    check_sizes(cluster)
    assert cluster.processes[0].resolve_units("p", segment, names) == [5] * 100


@pytest.mark.parametrize("commits", range(12))
def test_the_last_words_of_a_shard_with_many_pipelines_come_in_pieces(commits: int) -> None:
    """Its ledgers count once, also where it dies between two of them."""
    cluster = OneByOne(2, config=replace(CONFIG, max_bytes_per_move=500))
    names = [f"pipeline-{number}" for number in range(30)]
    for name in names:
        cluster.register(replace(SPEC, name=name))
    cluster.settle()
    for name in names:
        leaving = cluster.pipeline(1, name)
        leaving.durable = leaving.announced = leaving.published = [7, 7]
        leaving.shard.late[1] = LateEntry(1, items=3, cells=2, last_slot=5)
    cluster.take_snapshot(1)
    cluster.handle(0, RESCALE)
    cluster.settle(until=lambda: bool(cluster.logged(DepartureSummarized)))
    cluster.crash_at(1, commits)
    for _ in range(6):
        cluster.pass_time(1000)
    assert cluster.gone == {1}
    said: list[DepartureSummarized | ShardLeft] = [
        *cluster.logged(DepartureSummarized),
        *cluster.logged(ShardLeft),
    ]
    assert len(said) > 4 and all(entry_bytes(entry) <= 500 + HEAD for entry in said)
    for name in names:
        stays = cluster.pipeline(0, name)
        assert stays.published == stays.departed_floors == [7, 7]
        late = stays.shard.late[1]
        assert (late.items, late.cells, late.last_slot) == (3, 2, 5)


def test_names_that_no_message_could_take_are_refused() -> None:
    cluster = Cluster(1)
    cluster.register(SPEC)
    node = cluster.node(SPEC, "n")
    units = [Unit(0, f"{number:06}" + "é" * 1_000, 5) for number in range(12_700)]
    refused = node.refused(units_created=units)
    assert refused.code is RefusalCode.INVALID
    assert f"the limit of {MAX_NAME_BYTES_PER_TICK}" in refused.message
    assert "12700 names" in refused.message
    node.send(1, content(units_created=units[:100]))


def test_a_contribution_that_no_entry_could_take_is_refused() -> None:
    cluster = Cluster(1)
    cluster.register(SPEC)
    cluster.node(SPEC, "n")
    for bad, named in (
        (contribution(0, MAX_CELLS_PER_TICK + 1), f"{MAX_CELLS_PER_TICK + 1} cells"),
        (replace(contribution(0, 1), operator="x" * 1_025), "1025 characters"),
    ):
        refused = cluster.ask(0, StageContributions, "p", "n", (bad,))
        assert isinstance(refused, Refusal) and refused.code is RefusalCode.INVALID
        assert named in refused.message
