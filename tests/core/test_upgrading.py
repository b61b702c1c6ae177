"""What a newer release records and sends is not used before every process speaks it and somebody has said so (rule 10)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.driver import Cluster
from tests.core.test_rescaling import SPEC
from tracker.core.log import (
    Entries,
    FinishUpgrade,
    Frame,
    FrameArrived,
    JoinShard,
    PeerConnected,
    ReceivedEntries,
    Send,
    ShardNumber,
    TickRun,
    level_of,
    steps,
)
from tracker.core.log.records import level_raised_by
from tracker.core.log.steps import FeatureLevelRaised
from tracker.core.membership.membership import Membership
from tracker.core.model import Refusal, RefusalCode, Refused
from tracker.core.model.levels import NEWEST_LEVEL, OLDEST_LEVEL, RUNS
from tracker.core.model.routing import RoutingTable

BEFORE = RUNS - 1


def older(shards: int) -> Cluster:
    """A tracker that the release before has begun, with a pipeline."""
    cluster = Cluster(shards, speaks=BEFORE)
    cluster.register(SPEC)
    return cluster


def finish(cluster: Cluster, shard: int = 0, level: int = NEWEST_LEVEL) -> Any:
    """The answer of a shard, when all has happened that follows."""
    answer = cluster.ask(shard, FinishUpgrade, level)
    cluster.settle()
    return answer


def levels(cluster: Cluster) -> list[int]:
    return [process.membership.level for process in cluster.processes.values()]


def commit_many(cluster: Cluster) -> set[type]:
    """Ticks that are durable together; returns what shard 1 was told by."""
    node = cluster.node(SPEC, next(cluster.ids_at(0)), "n")
    seen = len(cluster.effects)
    for number in range(4):
        node.begin(created=[(0, number + 10, number + 1)])
    cluster.settle()
    sent = [e.frame.body for e in cluster.effects[seen:] if isinstance(e, Send) and e.shard == 1]
    return {type(each) for body in sent if isinstance(body, Entries) for each in body.entries}


def test_a_tracker_begins_at_the_level_of_the_release_that_begins_it() -> None:
    assert levels(Cluster(2)) == [NEWEST_LEVEL] * 2
    assert levels(Cluster(2, speaks=BEFORE)) == [BEFORE] * 2


def test_nothing_new_is_sent_or_recorded_before_the_upgrade_is_finished() -> None:
    cluster = older(2)
    for shard in range(2):
        cluster.upgrade(shard)
        cluster.settle()
        assert TickRun not in commit_many(cluster)
    cluster.upgrade(1, BEFORE)  # and back
    cluster.settle()
    assert TickRun not in commit_many(cluster)
    assert set(cluster.formats.values()) == {BEFORE}
    cluster.upgrade(1)
    cluster.settle()
    assert finish(cluster) is None
    assert levels(cluster) == [NEWEST_LEVEL] * 2 == [*cluster.formats.values()]
    assert TickRun in commit_many(cluster)


def test_who_has_said_of_which_release_it_is_before_the_connection_to_it_is_there_says_it_again() -> (
    None
):
    """Its reports never pause, and nothing is logged that it would confirm."""
    cluster = older(2)
    for shard in (0, 1):
        cluster.upgrade(shard)
    cluster.settle()
    node = cluster.node(SPEC, next(cluster.ids_at(1)), "n")
    cluster.pass_time(1)
    logged = cluster.processes[0].links[1].confirmed
    cluster.handle(0, PeerConnected(1))
    for number in range(8):
        node.commit(created=[(0, number + 10, number + 1)])
        cluster.pass_time(cluster.config.retransmit_ms / 4)
    assert cluster.processes[0].links[1].confirmed == logged
    assert not isinstance(finish(cluster), Refusal)


def test_finishing_waits_for_who_is_older_and_who_is_away_and_names_them() -> None:
    cluster = older(3)
    for shard in (0, 1):
        cluster.upgrade(shard)
    cluster.settle()
    refusal = finish(cluster)
    assert refusal.code is RefusalCode.NOT_READY
    assert f"shard 2 speaks levels up to {BEFORE};" in refusal.message
    cluster.upgrade(2)
    refusal = cluster.ask(0, FinishUpgrade, NEWEST_LEVEL)
    assert "shard 2 is away;" in refusal.message, "it has not said anything since"
    cluster.settle()
    assert levels(cluster) == [BEFORE] * 3
    assert finish(cluster) is None


def test_the_sequencer_decides_and_itself_has_to_speak_it() -> None:
    cluster = older(2)
    cluster.upgrade(1)
    cluster.settle()
    elsewhere, here = finish(cluster, 1), finish(cluster, 0)
    assert (elsewhere.code, elsewhere.home) == (RefusalCode.NOT_HOME, 0)
    assert f"shard 0 speaks levels up to {BEFORE}" in here.message


def test_asked_twice_it_is_logged_once_and_there_is_no_way_back() -> None:
    cluster = older(2)
    for shard in range(2):
        cluster.upgrade(shard)
    cluster.settle()
    cluster.handle(0, FinishUpgrade("one", NEWEST_LEVEL))
    cluster.handle(0, FinishUpgrade("other", NEWEST_LEVEL))
    cluster.settle()
    assert cluster.answers("one") == [None]
    assert cluster.answers("other")[0].code is RefusalCode.NOT_READY, "ask again"
    assert finish(cluster) is None
    assert cluster.logged(FeatureLevelRaised) == [FeatureLevelRaised(NEWEST_LEVEL)]
    assert finish(cluster, level=BEFORE) is None, "as a late repetition of an earlier one"
    assert levels(cluster) == [NEWEST_LEVEL] * 2


@pytest.mark.parametrize("commits", range(1, 4))
def test_the_sequencer_dies_at_any_commit_and_it_is_finished_all_the_same(commits: int) -> None:
    cluster = older(2)
    for shard in range(2):
        cluster.upgrade(shard)
    cluster.settle()
    cluster.crash_at(0, commits)
    cluster.handle(0, FinishUpgrade("request", NEWEST_LEVEL))
    cluster.settle()
    assert finish(cluster) is None
    cluster.restart_all(from_snapshots=True)
    assert levels(cluster) == [NEWEST_LEVEL] * 2


def test_it_is_finished_by_whoever_is_the_sequencer() -> None:
    cluster = older(2)
    for shard in range(2):
        cluster.upgrade(shard)
    cluster.settle()
    cluster.rescale(1, evacuate=True, without=(0,))
    assert cluster.sequencer == 1
    assert finish(cluster, 1) is None
    assert cluster.processes[1].membership.level == NEWEST_LEVEL


def test_a_shard_that_joins_is_waited_for_and_an_older_one_let_in_until_then_alone() -> None:
    cluster = older(1)
    cluster.upgrade(0)
    answer = cluster.ask(0, JoinShard, "older:1", BEFORE)
    assert isinstance(answer, ShardNumber)
    cluster.settle()
    assert f"shard {answer.shard} is away" in finish(cluster).message
    cluster.speaks[answer.shard] = BEFORE
    cluster.bootstrap(answer.shard, 0)
    cluster.settle()
    assert f"shard {answer.shard} speaks levels up to {BEFORE}" in finish(cluster).message
    cluster.upgrade(answer.shard)
    cluster.settle()
    assert finish(cluster) is None
    refusal = cluster.ask(0, JoinShard, "late:1", BEFORE)
    assert isinstance(refusal, Refusal) and refusal.code is RefusalCode.INVALID
    assert "start that process with the release of the others" in refusal.message
    cluster.speaks[answer.shard + 1] = NEWEST_LEVEL
    newest = cluster.join_shard()
    assert cluster.processes[newest].membership.level == NEWEST_LEVEL


def test_who_was_taken_back_too_late_refuses_what_it_cannot_read() -> None:
    cluster = older(2)
    for shard in range(2):
        cluster.upgrade(shard)
    cluster.settle()
    cluster.handle(0, FinishUpgrade("request", NEWEST_LEVEL))
    cluster.commit(0)
    cluster.upgrade(1, BEFORE)  # before it has heard of it
    with pytest.raises(Refused, match="start the process of the newer release in its place"):
        cluster.settle()
    assert cluster.formats[1] == BEFORE
    cluster.links.clear()
    cluster.upgrade(1)
    cluster.settle()
    assert finish(cluster) is None
    assert levels(cluster) == [NEWEST_LEVEL] * 2


def test_what_comes_before_its_level_is_waited_for() -> None:
    """A home that is ahead may send what is new before the sequencer's word has come."""
    cluster = older(2)
    cluster.upgrade(0)
    cluster.settle()
    due = cluster.processes[0].links[1].accepted + 1
    run = TickRun(1, ())
    seen = len(cluster.effects)
    early = Frame(1, cluster.processes[1].epoch, Entries(due, (run,)))
    cluster.handle(0, FrameArrived(early))
    assert not [e for e in cluster.effects[seen:] if isinstance(e, ReceivedEntries)]
    assert cluster.processes[0].links[1].accepted == due - 1


def test_a_level_that_is_older_than_the_one_in_force_is_refused_of_a_peer() -> None:
    known = Membership.first(RoutingTable.uniform(2), NEWEST_LEVEL)
    known.apply(FeatureLevelRaised(OLDEST_LEVEL), 0, 1)
    assert known.level == NEWEST_LEVEL
    cluster = Cluster(2)
    frame = Frame(0, 1, Entries(1, (FeatureLevelRaised(BEFORE),)))
    with pytest.raises(Refused, match="record by feature level"):
        cluster.processes[1].check_frame(frame)


def test_which_level_a_record_raises() -> None:
    raised = FeatureLevelRaised(NEWEST_LEVEL)
    assert level_raised_by(ReceivedEntries(0, 1, (steps.SequencerBegun(1), raised))) == NEWEST_LEVEL
    assert level_raised_by(ReceivedEntries(0, 1, (steps.SequencerBegun(1),))) == 0
    assert (level_of(raised), level_of(TickRun(1, ()))) == (OLDEST_LEVEL, RUNS)
