"""A pipeline ends: what is open is dropped, everybody is told, and its name is free once nothing of it can come."""

from __future__ import annotations

from dataclasses import replace
from itertools import count, islice

import pytest

from tests import inside
from tests.core.driver import Cluster, HandNode, Lossy, names_of, refused
from tracker.core.admission import registrar
from tracker.core.log import (
    DeletePipeline,
    Entries,
    JoinNode,
    JoinShard,
    PipelineChanged,
    PipelineEnded,
    PipelinesOver,
    RegisterPipeline,
    Restart,
    RestartPipeline,
)
from tracker.core.model import Edge, PipelineSpec, RefusalCode, Refused
from tracker.core.pipeline import pipelines

SPEC = PipelineSpec("p", ("work", "next"), (Edge("work", "next"),), fronts=("a",))
AT_MS = 1_700_000_000_000
UNKNOWN = RefusalCode.UNKNOWN_PIPELINE


def running(shards: int) -> tuple[Cluster, HandNode]:
    """A front at 40, and an item at 23."""
    cluster = Cluster(shards)
    cluster.register(SPEC)
    front = cluster.front(SPEC, "front")
    front.commit(created=[(0, 23, 1)])
    front.commit(heartbeats={"a": 40})
    assert cluster.agreed(SPEC) == (23, 23)
    return cluster, front


def delete(cluster: Cluster, generation: int = 0, *, drop_open: bool = True) -> object:
    registrar = cluster.routing.registrar("p")
    return cluster.ask(registrar, DeletePipeline, "p", generation, drop_open, AT_MS)


def delete_unheard(cluster: Cluster, name: str) -> None:
    """A deletion of which one shard does not hear yet: nobody waits for the answer. Its request is `-NAME`."""
    registrar = cluster.routing.registrar(name)
    cluster.handle(registrar, DeletePipeline(f"-{name}", name, 0, True, AT_MS))
    cluster.settle()


def test_all_that_was_kept_of_it_is_gone_and_whoever_has_to_do_with_it_is_told(shards: int) -> None:
    cluster, front = running(shards)
    cluster.effects.clear()
    assert delete(cluster) == Restart(1, SPEC.start_slot, AT_MS)
    assert [e for e in cluster.effects if isinstance(e, PipelineEnded)] == [
        PipelineEnded("p")
    ] * shards
    refused(front.ended, UNKNOWN, "was deleted", "register it anew")
    refused(front.attach_refused(), UNKNOWN, "was deleted")
    for process in cluster.processes.values():
        assert not inside.pipelines(process)
        assert process.snapshot().pipelines == ()
        assert not inside.closed_keys(process)


def test_what_is_open_keeps_it_and_is_listed(shards: int) -> None:
    cluster, front = running(shards)
    refused(
        delete(cluster, drop_open=False),
        RefusalCode.CONFLICT,
        "1 open slots in 'work'",
        "front 'a'",
    )
    front.commit(consumed=[(0, 23, 1)], leaves=("a",))
    cluster.settle()
    assert isinstance(delete(cluster, drop_open=False), Restart), "it is complete"


def test_it_may_be_asked_for_again_and_not_of_another_generation(shards: int) -> None:
    cluster, _ = running(shards)
    refused(delete(cluster, 7), RefusalCode.CONFLICT, "is in generation 0, not in 7")
    for _ in range(2):
        answer = delete(cluster)
        assert isinstance(answer, Restart) and answer.generation == 1
    refused(delete(cluster, 5), UNKNOWN, "was deleted")


def test_the_name_is_free_and_nothing_of_the_one_before_counts(shards: int) -> None:
    cluster, front = running(shards)
    delete(cluster)
    cluster.settle()
    other = replace(SPEC, segments=("one",), edges=(), start_slot=5)
    cluster.register(other)
    for process in cluster.processes.values():
        assert inside.pipeline(process, "p").generation == 2
    assert cluster.agreed(other) == (5,)
    refused(front.attach_refused(), RefusalCode.FENCED, "p")
    again = cluster.node(other, "front")
    assert (again.joined.generation, again.joined.last_batches) == (2, ())
    assert again.join_front("a", 0).slot == 5
    again.commit(created=[(0, 6, 9)])
    again.commit(heartbeats={"a": 8})
    assert cluster.agreed(other) == (6,)


def test_the_name_is_kept_while_a_shard_may_still_log_of_it() -> None:
    cluster, _ = running(3)
    registrar = cluster.routing.registrar("p")
    away = (registrar + 1) % 3
    cluster.held |= {(away, other) for other in range(3) if other != away}
    delete_unheard(cluster, "p")
    assert not cluster.answers("-p")
    refused(cluster.register(SPEC), RefusalCode.NOT_READY, "not every shard has let go of it")
    cluster.held.clear()
    cluster.settle()
    cluster.register(SPEC)


def with_a_newcomer_that_hears_nothing() -> tuple[Cluster, int]:
    """It joins, and has begun with what another one knew: that there is a pipeline."""
    cluster = Cluster(2)
    cluster.register(SPEC)
    newcomer = cluster.begin_to_join()
    cluster.settle()
    cluster.held |= {link for shard in range(2) for link in ((shard, newcomer), (newcomer, shard))}
    cluster.bootstrap(newcomer, 0)
    return cluster, newcomer


def test_the_name_is_kept_while_a_shard_joins_that_has_not_heard_of_the_end() -> None:
    """To it, what is of the next one would be of this one."""
    cluster, newcomer = with_a_newcomer_that_hears_nothing()
    delete_unheard(cluster, "p")
    assert [*inside.pipelines(cluster.processes[newcomer])] == ["p"]
    refused(cluster.register(SPEC), RefusalCode.NOT_READY, "not every shard has let go of it")
    cluster.held.clear()
    cluster.settle()
    cluster.register(SPEC)
    assert inside.pipeline(cluster.processes[newcomer], "p").generation == 2


def test_an_end_that_a_newcomer_has_not_heard_of_is_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pipelines, "MAX_ENDED", 1)
    monkeypatch.setattr(registrar, "MAX_ENDED", 2)
    cluster, _ = with_a_newcomer_that_hears_nothing()
    cluster.handle(cluster.routing.registrar("q"), RegisterPipeline("+q", replace(SPEC, name="q")))
    cluster.settle()
    delete_unheard(cluster, "p")
    delete_unheard(cluster, "q")
    refused(cluster.register(SPEC), RefusalCode.NOT_READY, "not every shard has let go of it")


def test_a_change_of_the_one_before_makes_nobody_know_the_next_of_its_name() -> None:
    """One log has the change, the end, and a key of the next one; the next one is registered in another, which is late."""
    cluster, _ = running(3)
    registrar = cluster.routing.registrar("p")
    home, late = (registrar + 1) % 3, (registrar + 2) % 3
    cluster.held = {(home, late)}
    grown = replace(SPEC, segments=("work", "next", "last"))
    cluster.handle(registrar, RegisterPipeline("grow", grown, True))
    cluster.settle()
    delete(cluster)
    cluster.settle()
    cluster.held |= {(registrar, late)}
    cluster.handle(registrar, RegisterPipeline("next", SPEC))
    cluster.settle()
    cluster.handle(home, JoinNode("joins", "p", next(cluster.ids_at(home)), "other"))
    cluster.settle()
    assert any(entry.activated for entry in cluster.logged(PipelineChanged))
    cluster.links[home, late].clear()  # it is sent again in one frame
    cluster.held = {(registrar, late)}
    cluster.pass_time(cluster.config.retransmit_ms + 1)
    cluster.reconnect()
    cluster.pass_time(1_000)
    keys = [{*pipeline.shard.keys} for pipeline in cluster.pipelines()]
    assert keys[0] and keys == [keys[0]] * 3


def test_a_change_of_the_next_one_counts_where_that_is_heard_of_later() -> None:
    """A shard that joins has heard of the end of the one before; that a home goes by a change of the next one comes before that is
    registered there."""
    cluster = Cluster(2)
    cluster.register(SPEC)
    delete(cluster)
    cluster.settle()
    registrar = cluster.routing.registrar("p")
    home = 1 - registrar
    newcomer = cluster.begin_to_join()
    cluster.settle()
    cluster.snapshots[newcomer] = cluster.processes[home].bootstrap_snapshot(newcomer)
    cluster.register(SPEC)
    changed = replace(
        SPEC, segments=(*SPEC.segments, "new"), edges=(*SPEC.edges, Edge("work", "new"))
    )
    cluster.handle(registrar, RegisterPipeline("change", changed, True))
    cluster.settle()
    cluster.held.add((registrar, newcomer))
    cluster.start(newcomer)
    cluster.settle()
    cluster.reconnect()
    cluster.pass_time(10_000)
    changes = [pipeline.graph_change for pipeline in cluster.pipelines()]
    assert len(changes) == 3 and not any(change.is_under_way for change in changes)


@pytest.mark.parametrize("with_snapshot", [True, False])
def test_it_stays_deleted_over_a_restart_of_every_process(shards: int, with_snapshot: bool) -> None:
    cluster, _ = running(shards)
    delete(cluster)
    cluster.settle()
    if with_snapshot:
        for shard in range(shards):
            cluster.take_snapshot(shard)
    cluster.restart_all(from_snapshots=with_snapshot)
    cluster.settle()
    refused(delete(cluster, 3), UNKNOWN, "was deleted")
    cluster.register(replace(SPEC, start_slot=50))
    assert {inside.pipeline(p, "p").generation for p in cluster.processes.values()} == {2}


def test_a_deletion_of_an_older_generation_is_not_answered_by_one_of_the_newest() -> None:
    cluster = Cluster(1)
    cluster.register(SPEC)
    cluster.ask(0, RestartPipeline, "p", 0, None, 0)
    cluster.handle(0, DeletePipeline("newest", "p", 1, True, 0))
    cluster.handle(0, DeletePipeline("older", "p", 0, False, 0))
    (refusal,) = cluster.answers("older")
    assert refusal.code is RefusalCode.CONFLICT and "in generation 1" in refusal.message
    cluster.settle()
    assert cluster.answers("newest") == [Restart(2, SPEC.start_slot, 0)]


def comes_free(cluster: Cluster, forgets: int, keeps: int, peer: int) -> None:
    """All hear of all again, and one has forgotten that the pipeline was deleted; when a shard has joined by what `peer` knows, the
    name is free."""
    cluster.reconnect()
    cluster.settle()
    known = [inside.pipelines(cluster.processes[shard]).ended for shard in (forgets, keeps)]
    assert ["p" in each for each in known] == [False, True]
    cluster.join_shard(peer)
    cluster.pass_time(1_000)
    assert isinstance(cluster.register(SPEC), PipelineSpec)


def test_a_name_that_one_shard_has_forgotten_is_free_when_another_one_joins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The newcomer begins with a deletion that is over everywhere, and says that it is over there, too: to a shard that has forgotten
    it, it is one that nobody else has let go of."""
    monkeypatch.setattr(pipelines, "MAX_ENDED", 1)
    monkeypatch.setattr(registrar, "MAX_ENDED", 4)
    cluster = Cluster(2)
    forgets = cluster.routing.registrar("p")
    keeps = 1 - forgets
    other = next(name for name in map(str, range(99)) if cluster.routing.registrar(name) == keeps)
    for name in ("p", other):
        cluster.ask(cluster.routing.registrar(name), RegisterPipeline, replace(SPEC, name=name))
    cluster.handle(forgets, DeletePipeline("-p", "p", 0, True, AT_MS))
    cluster.commit(forgets)
    cluster.deliver(forgets, keeps)
    cluster.held = {(forgets, keeps)}
    cluster.settle()
    delete_unheard(cluster, other)
    comes_free(cluster, forgets, keeps, peer=keeps)


def test_a_shard_says_that_one_is_over_when_it_has_heard_of_its_end_itself() -> None:
    """One that has heard so from another shard alone may still hear that it begins, and take nodes: what it logs of them would
    stand behind its word that nothing more comes, and be taken for something of the next one."""
    cluster = Cluster(3)
    registrar = cluster.routing.registrar("p")
    late = (registrar + 1) % 3
    cluster.held = {(registrar, late)}
    cluster.handle(registrar, RegisterPipeline("begin", SPEC))
    cluster.settle()
    delete_unheard(cluster, "p")
    other = replace(SPEC, segments=("one",), edges=())
    cluster.handle(registrar, RegisterPipeline("next", other))
    cluster.settle()
    while not inside.pipelines(cluster.processes[late]):
        cluster.deliver(registrar, late, 1)
        cluster.settle()
    node = cluster.node(SPEC, next(cluster.ids_at(late)))
    node.commit(consumed=[(1, 5, 7)])
    cluster.reconnect()
    cluster.settle()
    assert isinstance(cluster.register(other), PipelineSpec)
    assert cluster.agreed(other) == (0,)


def test_and_when_the_newcomer_begins_with_what_that_shard_knows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has never heard of the deletion, so that it cannot say that it is over."""
    monkeypatch.setattr(pipelines, "MAX_ENDED", 1)
    monkeypatch.setattr(registrar, "MAX_ENDED", 4)
    cluster = Cluster(2)
    keeps = cluster.routing.registrar("p")
    forgets = 1 - keeps
    other = next(name for name in map(str, range(99)) if cluster.routing.registrar(name) == keeps)
    for name in ("p", other):
        cluster.ask(keeps, RegisterPipeline, replace(SPEC, name=name))
    cluster.handle(keeps, DeletePipeline("-p", "p", 0, True, AT_MS))
    cluster.held = {(forgets, keeps)}
    cluster.settle()
    cluster.handle(keeps, DeletePipeline("-other", other, 0, True, AT_MS))
    cluster.settle()
    comes_free(cluster, forgets, keeps, peer=forgets)


def test_a_newcomer_that_nobody_waits_for_says_nothing_of_one_that_it_begins_with(
    shards: int,
) -> None:
    """It had no number when the pipeline was deleted; by the time its word is heard there may be another one."""
    cluster, _ = running(shards)
    delete(cluster)
    cluster.settle()
    cluster.join_shard()
    said = [entry.pipelines for entry in cluster.logged(PipelinesOver)]
    assert said == [(("p", 1),)] * shards
    assert isinstance(cluster.register(SPEC), PipelineSpec)


@pytest.mark.parametrize("is_registrar", [True, False])
def test_a_name_is_free_where_a_shard_hears_the_last_word_when_a_newcomer_is_to_come(
    is_registrar: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever hands out what the newcomer begins with had heard that word before, and has forgotten the deletion."""
    monkeypatch.setattr(pipelines, "MAX_ENDED", 1)
    monkeypatch.setattr(registrar, "MAX_ENDED", 4)
    cluster = Cluster(3)
    peer, late, last = 0, 1, 2
    names = [*map(str, range(99))]
    name = next(
        n for n in names if cluster.routing.registrar(n) == (late if is_registrar else peer)
    )
    other = next(n for n in names if n != name and cluster.routing.registrar(n) == peer)
    for each in (name, other):
        cluster.ask(cluster.routing.registrar(each), RegisterPipeline, replace(SPEC, name=each))
    cluster.held = {(last, late)}
    delete_unheard(cluster, name)
    delete_unheard(cluster, other)
    assert name not in inside.pipelines(cluster.processes[peer]).ended
    cluster.handle(0, JoinShard("join", "host:1"))
    cluster.settle()
    cluster.bootstrap(3, peer)
    cluster.settle()
    cluster.reconnect()
    cluster.settle()
    assert isinstance(cluster.register(replace(SPEC, name=name)), PipelineSpec)
    cluster.agreed(replace(SPEC, name=name))


def test_nobody_hands_out_what_a_newcomer_begins_with_who_has_not_heard_of_a_deletion_before_it() -> (
    None
):
    """The newcomer is not waited for, since the registrar had not heard that it is to come."""
    cluster = Lossy(3)
    registrar = cluster.routing.registrar("p")
    late = 3 - registrar if registrar else 1
    cluster.register(SPEC)
    cluster.settle()
    cluster.lost = {(registrar, late, Entries)}
    delete_unheard(cluster, "p")
    cluster.handle(0, JoinShard("join", "host:1"))
    cluster.settle()
    with pytest.raises(Refused, match="lacks some of what others had logged"):
        cluster.bootstrap(3, late)
    cluster.lost = set()
    cluster.pass_time(1_000)
    cluster.bootstrap(3, late)
    cluster.settle()
    assert "p" not in inside.pipelines(cluster.processes[3])
    assert isinstance(cluster.register(SPEC), PipelineSpec)


@pytest.mark.parametrize("changed_again", [False, True])
def test_what_a_newcomer_logged_of_a_deleted_pipeline_is_nothing_of_the_next_of_its_name(
    changed_again: bool,
) -> None:
    """The sequencer says that the pipeline is over before it says that the shard counts. That one has not heard of the end, and logs that
    it goes by a change. Another shard hears of the next pipeline of the name before it hears that the newcomer counts."""
    cluster = Cluster(3)
    registrar, late = 1, 2
    name = next(n for n in map("q{}".format, count()) if cluster.routing.registrar(n) == registrar)
    spec = replace(SPEC, name=name)
    grown = replace(
        spec, segments=(*spec.segments, "new"), edges=(*spec.edges, Edge("work", "new"))
    )
    cluster.register(spec)
    assert cluster.ask(registrar, RegisterPipeline, grown, True) == grown
    cluster.settle()
    new = cluster.begin_to_join()
    cluster.settle()
    cluster.held = {(new, 0)}
    cluster.bootstrap(new, registrar)
    cluster.settle()
    cluster.held |= {(registrar, new)}
    delete_unheard(cluster, name)
    for held in ({(registrar, new), (0, late)}, {(0, late)}):
        cluster.held = held
        cluster.settle()
    assert len(cluster.logged(PipelinesOver)) == 4
    assert new in cluster.processes[late].membership.joining
    cluster.handle(registrar, RegisterPipeline("anew", spec))
    cluster.settle()
    cluster.reconnect()
    cluster.pass_time(3_000)
    assert cluster.answers("anew") == [spec]
    if changed_again:
        cluster.held = {(new, registrar), (registrar, new)}
        cluster.handle(registrar, RegisterPipeline("again", grown, True))
        cluster.settle()
        cluster.pass_time(1_100)
        activated = cluster.pipeline(late, name).graph_change.activated
        assert new not in activated, "it has not heard of that change"
        cluster.reconnect()
    applied = [inside.applied(process) for process in cluster.processes.values()]
    assert applied == [applied[0]] * len(applied)


def test_a_registrar_that_has_not_heard_the_others_deletes_nothing_that_may_be_open() -> None:
    """It has just come back. What is open is another shard's, and the operator has not said that it may go."""
    cluster = Cluster(3)
    cluster.register(SPEC)
    registrar = cluster.routing.registrar("p")
    other = next(shard for shard in range(3) if shard != registrar)
    front = cluster.front(SPEC, next(cluster.ids_at(other)), promise=100, a=0)
    front.commit(created=[(0, next(cluster.slots_of(other, 100)), 7)], leaves=("a",))
    cluster.restart(registrar)
    cluster.handle(registrar, DeletePipeline("delete", "p", 0, False, AT_MS))
    cluster.settle()
    refused(cluster.answers("delete")[0], RefusalCode.NOT_READY, "have not reported")
    refused(delete(cluster, drop_open=False), RefusalCode.CONFLICT, "1 open slots in 'work'")


def test_that_one_is_over_elsewhere_is_not_forgotten_before_its_end_is_heard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has ended by no later generation than one that is forgotten, which was another one."""
    monkeypatch.setattr(pipelines, "MAX_ENDED", 2)
    monkeypatch.setattr(registrar, "MAX_ENDED", 2)
    cluster = Cluster(3)
    deletes, other, late = 2, 0, 1
    spec = replace(SPEC, name=next(names_of(cluster, deletes)))
    cluster.register(spec)
    others = [replace(SPEC, name=name) for name in islice(names_of(cluster, other), 8)]
    for each in others:
        cluster.register(each)
    for each in others[:4]:
        cluster.ask(other, DeletePipeline, each.name, 0, True, 0)
        cluster.settle()
    cluster.held = {(deletes, late)}
    cluster.handle(deletes, DeletePipeline("over", spec.name, 0, True, 0))
    cluster.settle()
    for each in others[4:]:
        cluster.handle(other, DeletePipeline(f"-{each.name}", each.name, 0, True, 0))
        cluster.settle()
    cluster.reconnect()
    cluster.pass_time(1_000)
    assert isinstance(cluster.register(spec), PipelineSpec)
    cluster.pass_time(1_000)
    assert all(spec.name in inside.pipelines(each) for each in cluster.processes.values())
