"""A shard whose store is gone is declared lost, by the command: the others go on, and it is refused when it comes back."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.client.support import heard_everywhere
from tests.cluster.tracker import Server, Tracker, lowmark, numbers
from tests.waits import HANG_S, until
from tracker.client import Admin, NodeClient, Subscriber
from tracker.core.insight.describe import ShardRole
from tracker.core.model import Cells, Heartbeat, PipelineSpec, TickContent

PIPELINE = "lossy"
SPEC = PipelineSpec(PIPELINE, ("in",), (), front_count=1, start_slot=0)
OPEN = 200
"""Slots with an item each: some at every shard, which take blocks of 64 slots in turn."""


class Losing:
    """Three shards, one of which is to be lost; a front has labelled, and nothing of it is consumed yet."""

    def __init__(self, directory: Path, lost: int, stack: ExitStack) -> None:
        self.tracker = stack.enter_context(Tracker(directory, 3))
        self.lost, self.store, self.stack = lost, directory / "store", stack
        self.left = [server.address for n, server in enumerate(self.tracker.shards) if n != lost]
        self.tracker.register(SPEC)
        self.front = self.node("front", self.tracker.target)
        self.front.join_front("f", "in", HANG_S)
        cells = Cells.of([(0, slot, slot + 1, 1) for slot in range(OPEN)])
        self.front.commit(TickContent(created=cells))
        self.front.commit(TickContent(heartbeats=(Heartbeat("f", OPEN),)))
        self.front.flush(HANG_S)

    @property
    def process(self) -> Server:
        return self.tracker.shards[self.lost]

    def node(self, name: str, target: str) -> NodeClient:
        node = self.stack.enter_context(NodeClient(target, PIPELINE, name))
        node.join(HANG_S)
        return node

    def consume(self, slots: range) -> None:
        worker = self.node("worker", self.tracker.target)
        worker.commit(TickContent(consumed=Cells.of([(0, slot, slot + 1, 1) for slot in slots])))
        worker.flush(HANG_S)

    def files(self) -> list[Path]:
        return [
            path for path in self.store.iterdir() if path.name.startswith(f"shard-{self.lost}.")
        ]

    def lose(self) -> Path:
        """Its process and its store are gone; returns where a copy of that is, which nobody else knows of."""
        self.process.kill()
        kept = self.store.parent / "kept"
        kept.mkdir()
        for path in self.files():
            shutil.move(path, kept / path.name)
        return kept

    def declare(self, *more: str) -> dict[str, Any]:
        """The operator's command; shards that are left answer as soon as they know that its process is gone."""
        said = ""

        def declared() -> dict[str, Any] | None:
            nonlocal said
            target = ",".join(self.left)
            done = lowmark(
                "-t", target, "--json", "shards", "--declare-lost", str(self.lost), "--yes", *more
            )
            said = done.stdout + done.stderr
            if done.returncode:
                return None
            answer: dict[str, Any] = json.loads(done.stdout)
            return answer

        found = until(declared, lambda: said + self.tracker.errors(), HANG_S)
        assert found is not None
        return found

    def goes_on(self, beyond: int) -> tuple[NodeClient, int]:
        """Min time follows a new front and a new worker, at each of the shards that are left; returns the front, and what it
        has promised."""
        target = ",".join(self.left)
        front, worker = self.node("new front", target), self.node("new worker", target)
        slot = front.join_front("g", "in", HANG_S).slot
        assert slot >= beyond
        cells = Cells.of([(0, each, each, 1) for each in range(slot, slot + OPEN)])
        front.commit(TickContent(created=cells))
        front.commit(TickContent(heartbeats=(Heartbeat("g", slot + OPEN),)))
        front.flush(HANG_S)
        worker.commit(TickContent(consumed=cells))
        worker.flush(HANG_S)
        self.all_hear(slot + OPEN)
        return front, slot + OPEN

    def all_hear(self, slot: int) -> None:
        heard_everywhere(self.left, PIPELINE, slot)


@pytest.fixture
def losing(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Losing]:
    with ExitStack() as stack:
        yield Losing(tmp_path, getattr(request, "param", 2), stack)


@pytest.mark.parametrize("losing", [0, 2], ids=["the sequencer", "another one"], indirect=True)
def test_the_others_go_on_and_the_lost_one_is_refused_when_it_comes_back(losing: Losing) -> None:
    losing.consume(range(OPEN // 2))
    with Subscriber(losing.tracker.target, PIPELINE) as subscriber:
        subscriber.wait_until(OPEN // 2, timeout_s=HANG_S)
        kept = losing.lose()
        report = losing.declare("--write-off")
        assert report["lost"] == [losing.lost]
        (pipeline,) = report["pipelines"]
        assert not pipeline["stands"] and pipeline["from_slot"] >= OPEN // 2
        assert sum(each["cells"] for each in pipeline["open"]) > 0
        front, promised = losing.goes_on(OPEN // 2)
        assert subscriber.wait_until(promised, timeout_s=HANG_S)
    with Admin(losing.left[0]) as admin:
        kept_there = numbers(admin.routing(), ShardRole.OWNER)
    assert kept_there == [shard for shard in range(3) if shard != losing.lost]

    # Its store is found again after all; then without one.
    for path in kept.iterdir():
        shutil.move(path, losing.store / path.name)
    losing.process.start()
    assert losing.process.end() == 1
    assert f"shard {losing.lost} was declared lost by an operator at 2" in losing.process.errors()
    for path in losing.files():
        path.unlink()
    losing.process.start()
    assert losing.process.end() == 1
    front.commit(TickContent(heartbeats=(Heartbeat("g", promised + 1),)))
    losing.all_hear(promised + 1)


def test_a_new_shard_takes_the_place_of_the_lost_one(losing: Losing) -> None:
    losing.lose()
    losing.declare("--write-off")
    newcomer = losing.tracker.server(
        losing.tracker.network.place("newcomer"), "--join", ",".join(losing.left), "--store",
        f"sqlite:{losing.store.parent / 'another'}",
    )  # fmt: skip
    losing.stack.callback(newcomer.discard)
    newcomer.start()
    with Admin(losing.left[0]) as admin:
        assert len(admin.rescale(3, timeout_s=HANG_S).of(ShardRole.OWNER)) == 3
    losing.left.append(newcomer.address)
    losing.goes_on(0)


def test_held_pipelines_stand_until_they_are_restarted(losing: Losing) -> None:
    losing.lose()
    (pipeline,) = losing.declare()["pipelines"]
    assert pipeline["stands"]
    target = ",".join(losing.left)
    with Admin(target) as admin:
        assert admin.pipeline(PIPELINE).state.held_for == (losing.lost,)
        generation, slot = admin.restart(PIPELINE, pipeline["generation"])
    assert generation > pipeline["generation"] and slot == pipeline["from_slot"]
    losing.goes_on(slot)


def test_a_shard_that_is_there_is_not_declared_lost(losing: Losing) -> None:
    done = lowmark(
        "-t", ",".join(losing.left), "shards", "--declare-lost", str(losing.lost), "--yes"
    )
    assert done.returncode != 0 and "is connected" in done.stderr
