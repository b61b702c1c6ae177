"""What a recovery forgets, or makes up, is found, whichever field it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests import inside
from tests.core.driver import Cluster
from tests.simulation.checkers import Failure
from tests.simulation.recovered import Died, check_recovered
from tracker.core.home.home import FrontClaim
from tracker.core.model import Batch, PipelineSpec
from tracker.core.pipeline.pipeline import Pipeline

SPEC = PipelineSpec("p", ("work", "next"), fronts=("a",), open=True)


def died_and_recovered(*, loses: bool = False) -> tuple[Died, inside.JustRecovered]:
    """A process in the middle of its work, and one that comes back from its store. `loses`: a tick by
    which its front leaves was accepted, and was not durable when it died."""
    cluster = Cluster(1)
    cluster.register(SPEC)
    node = cluster.node(SPEC, "node")
    node.join_front("a")
    for number in (1, 2):
        node.commit(created=[(0, 5, number)], batch=Batch(f"query {number}", 1, b"f"))
    node.commit(heartbeats={"a": 50})
    if loses:
        node.begin(leaves=["a"])
    recovered = inside.JustRecovered(0, cluster.routing, 2, cluster.config)
    recovered.recover(None, cluster.stored[0], cluster.now_ns)
    return Died(cluster.processes[0], len(cluster.stored[0])), recovered


def test_what_recovered_is_what_was_durable() -> None:
    died, recovered = died_and_recovered()
    assert check_recovered(died, recovered, 0), "all of it was compared"


def test_what_was_accepted_and_not_durable_may_be_forgotten() -> None:
    died, recovered = died_and_recovered(loses=True)
    assert not inside.pipeline(died.process).home.nodes["node"].fronts
    assert not check_recovered(died, recovered, 0)


def _node(pipeline: Pipeline) -> dict[str, FrontClaim]:
    return pipeline.home.nodes["node"].fronts


@pytest.mark.parametrize(
    "forget",
    [
        lambda p: p.home.nodes["node"].grants.clear(),
        lambda p: _node(p).clear(),
        lambda p: setattr(_node(p)["a"], "promise", 51),
        lambda p: p.home.nodes["node"].batches.move_to_end("query 1"),
        lambda p: p.home.nodes["node"].batches["query 1"].clear(),
        lambda p: p.home.newest.clear(),
        lambda p: setattr(p.home.nodes["node"], "retired", True),
        lambda p: p.shard.fronts.clear(),
        lambda p: setattr(p.shard, "begun", False),
        lambda p: p.shard.cells.apply(p.shard.cells.open_cells(), -1),
        lambda p: p.sweeping.update({0: 7}),
        lambda p: p.departed_floors.__setitem__(0, 7),
        lambda p: p.home.waiting.update({("node", "a"): None}),
        lambda p: p.shard.unpinned.update({("node", "a"): None}),
        lambda p: setattr(p.shard.keys[p.home.nodes["node"].key], "closed", True),
    ],
)
def test_whatever_else_differs_is_found(forget: Callable[[Pipeline], None]) -> None:
    died, recovered = died_and_recovered()
    forget(inside.pipeline(recovered))
    with pytest.raises(Failure, match=r"forgotten or invented something when it came back"):
        check_recovered(died, recovered, 0)


@pytest.mark.parametrize("component", [lambda p: p, lambda p: p.shard, lambda p: p.home])
def test_a_field_of_which_nothing_is_declared_is_found(
    component: Callable[[Pipeline], Any],
) -> None:
    died, recovered = died_and_recovered()
    component(inside.pipeline(recovered)).something_new = 1
    with pytest.raises(Failure, match="something_new is not declared"):
        check_recovered(died, recovered, 0)
