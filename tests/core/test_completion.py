"""A pipeline's completion and its restarts stand in one log: one of them comes first (rule 8)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.core.driver import MS, Cluster, Lossy, refused
from tracker.core.log import (
    Announcement,
    Append,
    Entries,
    Frame,
    HomeEntry,
    PipelineCompleted,
    PipelineRegistered,
    RegisterPipeline,
    Restart,
    RestartPipeline,
    ShardReport,
    Wake,
)
from tracker.core.log.steps import ShardLeft
from tracker.core.model import Edge, PipelineSpec, RefusalCode
from tracker.core.model.slots import FOREVER
from tracker.core.process import ProcessConfig

SPEC = PipelineSpec("p", ("a", "b"), (Edge("a", "b", 1),), front_count=1)


def nearly_complete(cluster: Cluster) -> None:
    """The only front has left, and nobody but its home has heard of it."""
    cluster.register(SPEC)
    front = cluster.front(SPEC, "front", F=0)
    front.commit(created=[(0, 3, 1), (0, 4, 2)], heartbeats={"F": 9})
    front.commit(consumed=[(0, 3, 1), (0, 4, 2)])
    assert cluster.agreed(SPEC) == (9, 10)
    front.begin(leaves=["F"])


def test_that_a_pipeline_is_complete_is_said_by_its_registrar_once(shards: int) -> None:
    cluster = Cluster(shards)
    nearly_complete(cluster)
    assert cluster.agreed(SPEC) == (FOREVER, FOREVER)
    (completed,) = cluster.logged(PipelineCompleted)
    assert (completed.pipeline, completed.generation) == ("p", 0)
    for effect in cluster.effects:
        if isinstance(effect, Append) and isinstance(effect.record, Announcement):
            assert FOREVER not in dict(effect.record.min_times).values()
    for shard in range(shards):
        assert cluster.restart(shard).min_times("p") == (FOREVER, FOREVER)


def test_what_is_complete_by_an_older_log_is_said_by_the_others_too() -> None:
    """There the registrar has announced it like anything else, and no entry says so."""
    cluster = Cluster(2)
    nearly_complete(cluster)
    registrar = cluster.routing.registrar("p")
    cluster.settle(until=lambda: bool(cluster.logged(PipelineCompleted)))
    cluster.held = {(registrar, 1 - registrar)}
    cluster.settle(until=lambda: cluster.processes[registrar].min_times("p") == (FOREVER, FOREVER))
    for link in cluster.links.values():
        link.clear()
    assert cluster.processes[1 - registrar].min_times("p") != (FOREVER, FOREVER)
    records = cluster.stored[registrar]
    (place,) = [
        place
        for place, (_, record) in enumerate(records)
        if isinstance(record, HomeEntry) and isinstance(record.entry, PipelineCompleted)
    ]
    announced = Announcement("p", ((0, FOREVER), (1, FOREVER)))
    records[place:] = [(records[place][0], announced)]
    cluster.held.clear()
    cluster.restart(registrar)
    for _ in range(3):
        cluster.pass_time(1000)
    assert cluster.agreed(SPEC) == (FOREVER, FOREVER)


def test_a_new_registrar_says_it_where_the_one_before_did_not() -> None:
    """The shards change before the registrar has heard all that it must."""
    cluster = Cluster(3)
    spec = replace(SPEC, name=next(n for n in "pqrstuvw" if cluster.routing.registrar(n) == 2))
    cluster.register(spec)
    front = cluster.front(spec, "front", F=0)
    cluster.rescale(1, evacuate=True)
    for shard in (1, 2):
        cluster.crash(shard)
    front.home = 0
    front.attach()
    front.commit(leaves=["F"])
    assert cluster.agreed(spec) == (FOREVER, FOREVER)


def test_that_it_is_complete_is_taken_from_its_registrar_alone() -> None:
    cluster = Cluster(2)
    cluster.register(SPEC)
    cluster.settle()
    registrar = cluster.routing.registrar("p")
    receiver, liar = cluster.processes[registrar], 1 - registrar
    due = receiver.links[liar].accepted + 1
    said = Entries(due, (PipelineCompleted("p", 0, 0),))
    with pytest.raises(Exception, match=f"its registrar is shard {registrar}"):
        receiver.check_frame(Frame(liar, cluster.epochs[liar], said))


# --- last words ------------------------------------------------------------------------------------


def has_said_its_last(cluster: Cluster, shard: int, to: int) -> bool:
    """Its last words are on their way."""
    bodies = [frame.body for frame in cluster.links[shard, to]]
    entries = [entry for body in bodies if isinstance(body, Entries) for entry in body.entries]
    return any(isinstance(entry, ShardLeft) for entry in entries)


def one_that_leaves_says_a_and_one_that_stays_says_c() -> tuple[Lossy, PipelineSpec]:
    """Shard 3 has said that `a` is complete, and leaves; shard 2 has said so of `c`, and does not know
    of `a`; shard 0, the registrar, knows of neither. Each lacks some reports of the others."""
    cluster = Lossy(4, config=ProcessConfig(rescale_margin_ms=40))
    routing = cluster.routing
    name = next(
        name
        for name in map(str, range(1_000))
        if (routing.registrar(name), routing.home(name, "A"), routing.home(name, "worker"))
        == (0, 0, 1)
    )
    spec = PipelineSpec(name, ("a", "c"), front_count=2)
    cluster.register(spec)
    front, gone = cluster.front(spec, "A", A=0), cluster.front(spec, "C", C=1)
    worker = cluster.node(spec, "worker")
    gone.commit(created=[(1, 3, 7)], heartbeats={"C": 9})
    front.commit(heartbeats={"A": 9})
    gone.commit(leaves=["C"])
    cluster.rescale(3)  # shard 3 drains: it has the one item
    for node in (front, worker):
        assert cluster.routing.home(name, node.key.node_id) == node.home
        node.attach()
    cluster.lost = {(1, 3, Entries), (1, 0, Entries), (1, 0, ShardReport)}
    cluster.held = {(0, 1)}
    worker.commit(consumed=[(1, 3, 7)])
    cluster.lost |= {(1, 2, ShardReport), (2, 0, ShardReport)}
    front.begin(leaves=["A"])
    cluster.settle()
    cluster.held = set()
    cluster.pass_time(1_000)
    cluster.lost -= {(1, 3, Entries), (1, 0, Entries)}
    cluster.lost |= {(0, 3, ShardReport)}
    cluster.held = {(3, 0)}
    cluster.pass_time(1_000)
    said = {shard: process.min_times(name) for shard, process in cluster.processes.items()}
    assert said[3] == (FOREVER, 3) and said[2] == (9, FOREVER) and said[0] == (9, 3)
    return cluster, spec


def test_last_words_and_what_is_known_here_make_no_pipeline_complete() -> None:
    """Its registrar has not said so, and begins it anew."""
    cluster, spec = one_that_leaves_says_a_and_one_that_stays_says_c()
    name = spec.name
    cluster.held = set()
    while not has_said_its_last(cluster, 3, 0):
        for shard, waiting in cluster.pending.items():
            if waiting:
                cluster.commit(shard)
        for link in cluster.deliverable():
            if not has_said_its_last(cluster, *link) or link == (3, 2):
                cluster.deliver(*link)
        cluster.now_ns += 10 * MS
        for shard in list(cluster.processes):
            cluster.handle(shard, Wake())
    cluster.held = {(3, 0)}
    cluster.pass_time(100)
    assert cluster.processes[2].membership.former.keys() == {3}
    assert cluster.processes[2].pipeline_min_time(name) == 9
    cluster.handle(0, RestartPipeline("restart", name, 0, None, 0))
    cluster.lost, cluster.held = set(), set()
    cluster.pass_time(2_000)
    (answer,) = cluster.answers("restart")
    assert isinstance(answer, Restart)
    assert all(pipeline.floor < FOREVER for pipeline in cluster.pipelines(name))


def test_behind_last_words_the_registrar_says_it() -> None:
    cluster, spec = one_that_leaves_says_a_and_one_that_stays_says_c()
    cluster.lost, cluster.held = set(), set()
    cluster.pass_time(2_000)
    assert cluster.gone == {3}
    assert len(cluster.logged(PipelineCompleted)) == 1
    cluster.crash(3)
    assert cluster.agreed(spec) == (FOREVER, FOREVER)


# --- delays ---------------------------------------------------------------------------------------

WIDE = PipelineSpec("p", ("a", "b"), (Edge("a", "b", 100),), front_count=1, horizon_slots=100)


def test_a_delay_that_is_not_below_the_horizon_is_refused() -> None:
    """No child of an item at min time could ever be created."""
    cluster = Cluster(1)
    why = ("'a' -> 'b' has a delay of 100 slots", "below horizon_slots 100")
    refused(cluster.register(WIDE), RefusalCode.INVALID, *why)
    fits = replace(WIDE, horizon_slots=101)
    assert cluster.register(fits) == fits
    refused(cluster.ask(0, RegisterPipeline, WIDE, True), RefusalCode.INVALID, *why)


def test_one_that_was_registered_so_goes_on() -> None:
    cluster = Cluster(2)
    registrar = cluster.routing.registrar("p")
    cluster.stored[registrar] = [(1, HomeEntry(1, PipelineRegistered(WIDE)))]
    cluster.restart(registrar)
    cluster.settle()
    assert all(process.spec("p") == WIDE for process in cluster.processes.values())
    assert cluster.register(WIDE) == WIDE
