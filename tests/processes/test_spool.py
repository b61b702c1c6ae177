"""Eager local trackers, killed in the middle of steps: with their spool nothing is lost or counted
twice; without it, what cannot be repaired is said, and can be written off."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cluster.relay import Relay
from tests.cluster.tracker import Tracker, local_tracker, lowmark
from tests.processes.everything import PIPELINE, Everything
from tests.processes.test_local_tracker_killed import SHARDS, Steps, worker
from tests.waits import HANG_S, until
from tracker.client import Admin, NodeClient, Subscriber
from tracker.core.insight.explain import HoldKind, NodeExplanation
from tracker.core.model import Cells, Edge, Heartbeat, PipelineSpec, TickContent
from tracker.core.model.routing import RoutingTable

HOST = "host"
"""The local tracker's node id."""
IN = 0


def network(target: str, stack: ExitStack) -> Relay:
    """The network between the local tracker and its home."""
    addresses = target.split(",")
    relay = Relay(addresses[RoutingTable.uniform(len(addresses)).home(PIPELINE, HOST)])
    stack.callback(relay.close)
    return relay


def node_at(admin: Admin) -> NodeExplanation:
    """What its home knows of the local tracker."""
    (node,) = [
        node
        for part in admin.explain(PIPELINE).parts
        for node in part.nodes
        if node.key.node_id == HOST
    ]
    return node


# --- with its spool -------------------------------------------------------------------------------


class Eager:
    """Everything, read by steps of a worker through an eager local tracker."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.everything = Everything(SHARDS, directory)
        stack.callback(self.everything.discard)
        self.network = network(self.everything.target, stack)
        self.local = local_tracker(self.network.address, PIPELINE, directory)
        stack.callback(self.local.discard)
        self.steps = Steps(self.everything.files, worker("0", HOST, directory))
        stack.callback(self.steps.close)

    def start(self) -> None:
        self.everything.start(self.steps)
        self.local.start()

    def finish(self) -> None:
        self.everything.goes_on()
        self.everything.finish()
        self.everything.check()


@pytest.fixture
def eager(tmp_path: Path) -> Iterator[Eager]:
    with ExitStack() as stack:
        yield Eager(tmp_path, stack)


def test_an_eager_local_tracker_that_is_killed_again_and_again_loses_nothing(eager: Eager) -> None:
    """Each time a step is on its way: taken or not, in the spool or not, durable or not."""
    kills: list[int] = []

    def kill_now_and_then() -> None:
        if eager.steps.count % 5 == 0 and len(kills) < 6:
            time.sleep(0.004 * len(kills))  # paces: somewhere else in the life of a step each time
            eager.local.kill()
            kills.append(eager.steps.count)
            eager.local.start()

    eager.steps.while_step = kill_now_and_then
    eager.start()
    while len(kills) < 6:
        eager.everything.goes_on()
    eager.finish()


def test_a_flush_in_the_spool_is_committed_once(eager: Eager) -> None:
    """The local tracker is killed when a flush is in its spool, which the tracker has durably though nobody knows."""
    with Admin(eager.everything.target) as admin:
        moments: list[str] = []
        durable: list[int] = []

        def hold_once() -> None:
            if not moments:
                moments.append("held")
                durable.append(node_at(admin).node_time)
                eager.network.hold("down")

        def kill_in_flight() -> None:
            if moments != ["held"]:
                return
            moments.append("killed")
            until(lambda: node_at(admin).node_time > durable[0])
            eager.local.kill()
            eager.network.lose()
            eager.local.start()

        eager.start()
        eager.everything.goes_on()
        eager.steps.before_step, eager.steps.while_step = hold_once, kill_in_flight
        eager.everything.goes_on()
        assert moments == ["held", "killed"]
        eager.finish()


# --- without it -----------------------------------------------------------------------------------


class Lost:
    """A front with items at slots 10 and 11, and a worker behind an eager local tracker."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.spool = directory / "local-tracker.spool"
        self.target = stack.enter_context(Tracker(directory, SHARDS)).target
        self.network = network(self.target, stack)
        self.admin = stack.enter_context(Admin(self.target))
        self.admin.register(
            PipelineSpec(PIPELINE, ("in", "out"), (Edge("in", "out"),), fronts=("front",))
        )
        front = stack.enter_context(NodeClient(self.target, PIPELINE, "front", kind="front"))
        front.join(HANG_S)
        front.join_front("front", "in", HANG_S)
        for slot in (10, 11):
            front.commit(TickContent(created=Cells.of([(IN, slot, slot, 1)]))).result(HANG_S)
        front.commit(TickContent(heartbeats=(Heartbeat("front", 100),))).result(HANG_S)
        self.hears = stack.enter_context(Subscriber(self.target, PIPELINE))
        self.local = local_tracker(self.network.address, PIPELINE, directory)
        stack.callback(self.local.discard)
        self.worker = worker("0", HOST, directory)
        stack.callback(self.worker.discard)
        self.local.start()
        self.worker.start()
        self.worker.until_says("ready")

    def begin_step(self, slot: int) -> int:
        """Tells the worker to consume the item of a slot; returns where its answer will be."""
        place = len(self.worker.lines)
        self.worker.tell(json.dumps({"consumed": [("in", slot, slot)], "created": []}))
        return place

    def outcome(self, place: int) -> object:
        return json.loads(self.worker.until_line(place))["error"]


def retire(target: str, *words: str) -> list[str]:
    """`lowmark nodes retire`, as an operator's script runs it; returns what it says."""
    said = lowmark("nodes", "retire", HOST, "-p", PIPELINE, "-t", target, "--yes", *words)
    assert said.returncode == 0, said.stderr
    return said.stdout.splitlines()


def emptied(lost: Lost) -> None:
    """A process that was killed before it had written anything leaves this, too."""
    lost.spool.write_bytes(b"")


def made_anew_by_another_that_was_killed(lost: Lost) -> None:
    lost.spool.unlink()
    lost.local.start()
    until(lost.spool.exists)
    lost.local.kill()


@pytest.mark.parametrize("lose", [emptied, made_anew_by_another_that_was_killed])
def test_what_was_lost_with_a_spool_is_named_and_written_off(
    tmp_path: Path, lose: Callable[[Lost], None]
) -> None:
    with ExitStack() as stack:
        lost = Lost(tmp_path, stack)
        assert lost.outcome(lost.begin_step(10)) is None
        assert lost.hears.wait_until(11, timeout_s=HANG_S)

        lost.network.hold("up")
        step = lost.begin_step(11)
        lost.network.until_held(b"flushes")
        lost.local.kill()
        lose(lost)
        lost.network.lose()
        lost.local.start()
        outcome = lost.outcome(step)
        assert isinstance(outcome, list) and outcome[0] == "hand_over.unknown_outcome"
        lost.local.kill()

        until(lambda: not node_at(lost.admin).connected)
        explained = lost.admin.explain(PIPELINE)
        (hold,) = explained.parts[0].segments[IN].holds
        assert (hold.kind, hold.segment, hold.slot) == (HoldKind.OPEN, IN, 11)
        node = node_at(lost.admin)
        assert (node.kind, node.consumes) == ("local-tracker", (IN,))

        said = retire(lost.target, "--write-off", "in=11")
        assert "to be written off in in: 1 items; open at 1970-01-01 00:00:00.110 (slot 11)" in said
        assert said[-2:] == [f"{HOST} is retired", "written off: 1 items in 1 cells"]
        assert lost.hears.wait_until(100, timeout_s=HANG_S)

        lost.local.start()  # it was not gone for good after all
        assert lost.outcome(lost.begin_step(11)) is None
        until(lambda: lost.admin.pipeline(PIPELINE).state.late_items == 1)
        assert lost.hears.min_time() == 100
