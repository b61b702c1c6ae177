"""What is known to go wrong, and is not mended yet: each test shows a fault of the core, and fails until that is mended.

A placement that the directory has told may be given a second time where two shards are lost within moments of each other, or all that are left
have joined just then; and a name stays kept where it is claimed in the moment in which its pipeline is about to come.
"""

from __future__ import annotations

from itertools import count

import pytest

from tests.core.driver import Cluster
from tests.core.test_losing import declare
from tests.core.test_losing import lose as lose_store
from tests.core.test_moving import running
from tracker.core.log import (
    DeclareLost,
    PlacePipeline,
)
from tracker.core.log.losses import ShardLost
from tracker.core.model import Refused
from tracker.core.model.routing import RoutingRule, RoutingTable
from tracker.core.model.slots import LOWEST_SLOT
from tracker.core.moving.driver import Ask, Where

FAULT = pytest.mark.xfail(raises=AssertionError, strict=True, reason="known, and not mended yet")


@FAULT
@pytest.mark.parametrize(("shards", "asked"), [(3, 0), (4, 0), (4, 1)])
def test_what_the_directory_says_after_a_loss_is_known_when_the_one_that_says_it_is_lost_too(
    shards: int, asked: int
) -> None:
    """One shard alone had heard where a pipeline has gone when the one was lost that had decided that. All go on with it, and groups
    are told, before the others have heard how."""
    cluster, last = Cluster(shards), shards - 1
    left = [*range(last)]
    after = RoutingTable([RoutingRule(LOWEST_SLOT, 1, tuple(left))], version=1)
    names = map("q{}".format, count())
    before = cluster.routing.registrar
    name = next(n for n in names if (before(n), after.registrar(n)) == (last, asked))
    first = cluster.ask(last, PlacePipeline, name, 1, None)
    cluster.held = {(last, other) for other in left if other}
    cluster.handle(last, PlacePipeline("moves", name, 2, first.version))
    cluster.settle()
    assert not cluster.answers("moves")
    lose_store(cluster, last)
    cluster.held = set()
    cluster.handle(0, DeclareLost("lost", (last,), True, 1_000))
    cluster.settle(lambda: bool(cluster.logged(ShardLost)))
    cluster.held = {(0, other) for other in left if other > asked}
    cluster.settle()
    assert cluster.processes[asked].membership.loss is None
    try:
        told = cluster.processes[asked].placement(name)
    except Refused:
        told = None  # it was asked to wait
    gone = [*range(asked + 1)]
    lose_store(cluster, *gone)
    cluster.held.clear()
    declare(cluster, *gone)
    again = cluster.ask(cluster.routing.registrar(name), PlacePipeline, name, 3, first.version)
    assert told in (None, again), "the version is given twice"


@FAULT
def test_what_the_directory_has_told_a_newcomer_knows_that_is_left_alone() -> None:
    cluster = Cluster(2)
    sequencer, registrar = 0, 1
    name = next(n for n in map("q{}".format, count()) if cluster.routing.registrar(n) == registrar)
    new = cluster.begin_to_join()
    cluster.settle()
    cluster.held = {(registrar, new), (new, sequencer)}
    cluster.bootstrap(new, sequencer)
    cluster.settle()
    cluster.handle(registrar, PlacePipeline("claim", name, 1))
    cluster.settle()
    told = next(iter(cluster.answers("claim")), None)
    cluster.held = {(registrar, new)}
    cluster.settle()
    cluster.pass_time(1_000)
    assert cluster.processes[new].membership.members == {0, 1, new}
    lose_store(cluster, registrar, sequencer)
    cluster.held.clear()
    declare(cluster, registrar, sequencer)
    again = cluster.ask(new, PlacePipeline, name, 2, None)
    assert told in (None, again), "the version is given twice"


@FAULT
def test_a_claim_while_one_is_about_to_come_keeps_no_name_of_a_pipeline_that_is_deleted() -> None:
    """The directory has turned, and group 1 has not begun the pipeline. A program registers it once more, as it does at each start:
    the service of its registrar asks where the name belongs, and claims it (`GroupServicer._place`)."""
    made, _, _ = running(1, 1)
    made.begin_move("p", 0, 1)
    steps = made.steps(made.drive("p", 0))
    turned = (isinstance(q, Ask) and isinstance(q.what, PlacePipeline) for q, _ in steps)
    assert any(turned)
    known = next(steps)[1]  # the driver hears where it is
    assert known.group == 1 and not made.groups[1].processes[0].placed("p")
    made.place("p", 1, seen=known.version)
    for _ in steps:
        pass
    made.go_on("p", 1)
    assert made.has("p") == [1]
    made.delete("p", 1)
    assert made.ask(Ask(0, Where("p"))) is None, "the name is kept"
