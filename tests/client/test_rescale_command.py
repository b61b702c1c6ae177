"""`lowmark shards`, against a tracker of two shards in this process."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner, Result

import tracker
from tests.client.support import TWO_SEGMENTS, consume, create, done, joined_front, promise
from tests.waits import HANG_S, until
from tracker.cli.app import app
from tracker.cli.common import EXIT_REFUSED, EXIT_UNAVAILABLE
from tracker.client import NodeClient, Subscriber, rescaling
from tracker.client.embedded import EmbeddedTracker
from tracker.client.rescaling import Rescaling, RoutingInfo, Wish
from tracker.core.insight.describe import RoutingDescription
from tracker.core.model import Refusal, RefusalCode
from tracker.errors import RefusedError

BLOCK_SLOTS = 1
OPEN_SLOT = 21
"""Of the second shard, as every odd slot."""


@pytest.fixture
def running() -> Iterator[EmbeddedTracker]:
    with tracker.embedded(shards=2, block_slots=BLOCK_SLOTS) as embedded:
        yield embedded


def run(running: EmbeddedTracker, *words: str) -> Result:
    environment = {"LOWMARK_TARGET": running.addresses[0], "COLUMNS": "200"}
    return CliRunner().invoke(app, list(words), env=environment)


def test_shards_are_shown_with_what_each_is_for(running: EmbeddedTracker) -> None:
    said = run(running, "shards").stdout
    assert "owns slots" in said and "version 0 of the table" in said
    shown = json.loads(run(running, "shards", "--json").stdout)
    assert (shown["version"], shown["changing"], shown["asked"]) == (0, False, [])
    assert [(s["shard"], s["role"], s["address"]) for s in shown["shards"]] == [
        (0, "owner", running.addresses[0]), (1, "owner", running.addresses[1]),
    ]  # fmt: skip


def test_shard_0_goes_as_any_other_and_everybody_goes_on_without_it() -> None:
    """Nodes, subscribers, those who join later, and the one that is left when it is started again."""
    with (
        tracker.embedded(shards=2, block_slots=BLOCK_SLOTS) as running,
        NodeClient(running.target, "two", "n") as node,
        Subscriber(running.target, "two") as subscriber,
    ):
        running.register(TWO_SEGMENTS)
        joined_front(node)
        done(node.commit(create(10, 7)))
        done(node.commit(promise(50)))
        assert subscriber.wait_until(10, "first", HANG_S)
        done_by = CliRunner().invoke(
            app,
            ["shards", "1", "--without", "0", "--evacuate"],
            env={"LOWMARK_TARGET": running.target},
        )
        assert "1 shard: 1 (version 1 of the table)" in done_by.stdout
        until(lambda: list(running.servers) == [1])
        done(node.commit(consume(10, 7)))
        assert subscriber.wait_until(50, "first", HANG_S)
        running.stop_shard(1)
        running.start_shard(1)
        done(node.commit(promise(60)))
        running.rescale(2)
        done(node.commit(promise(70)))
        assert subscriber.wait_until(70, "first", HANG_S)
        assert sorted(running.servers) == [1, 2]


def test_asking_for_what_is_there_changes_nothing(running: EmbeddedTracker) -> None:
    done = run(running, "shards", "2")
    assert (done.exit_code, done.stdout) == (0, "2 shards: 0, 1 (version 0 of the table)\n")


def test_more_shards_than_processes_are_refused_with_what_to_do(running: EmbeddedTracker) -> None:
    refused = run(running, "shards", "3", "--timeout", "0s")
    assert refused.exit_code == EXIT_REFUSED
    assert "3 shards are asked for, and 2 processes are there" in refused.stderr
    assert f"lowmark serve --join {running.addresses[0]}" in refused.stderr
    assert run(running, "shards", "0").exit_code == 2


class Growing:
    """A tracker to which a second process comes when it has been asked a few times."""

    def __init__(self, comes_after: int) -> None:
        self.asked, self.comes_after = 0, comes_after

    def ask_to_rescale(self, wish: Wish, wait_ms: int) -> bool:
        self.asked += 1
        if self.asked <= self.comes_after:
            message = f"{wish.shards} shards are asked for, and 1 processes are there to have one"
            raise RefusedError(Refusal(RefusalCode.FULL, message))
        return True

    def routing(self) -> RoutingInfo:
        return RoutingInfo(RoutingDescription(1, (), changing=False), ())


def test_a_process_that_was_started_a_moment_ago_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has not even asked for its number yet: `lowmark shards 1` right after `lowmark serve --join`."""
    monkeypatch.setattr(rescaling, "LOOK_INTERVAL_S", 0.0)
    growing, said = Growing(comes_after=3), list[str]()
    assert Rescaling(growing, Wish(2), said.append).wait(HANG_S).table.version == 1
    assert growing.asked == 4 and "1 processes are there" in said[0]
    monkeypatch.setattr(rescaling, "JOIN_GRACE_S", 0.0)
    with pytest.raises(RefusedError, match="1 processes are there"):
        Rescaling(Growing(comes_after=3), Wish(2)).wait(HANG_S)


def test_it_says_what_it_waits_for_and_evacuates_what_drains(running: EmbeddedTracker) -> None:
    running.register(TWO_SEGMENTS)
    node = joined_front(running.node("two", "n"))
    done(node.commit(create(OPEN_SLOT, 7)))
    done(node.commit(promise(OPEN_SLOT + 1)))
    waits = run(running, "shards", "1", "--timeout", "1s")
    assert waits.exit_code == EXIT_UNAVAILABLE
    assert "shard 1 drains: 1 slots are open there" in waits.stderr
    assert "goes on by itself" in waits.stderr
    shown = json.loads(run(running, "shards", "--json").stdout)
    assert [(s["role"], s["open_slots"]) for s in shown["shards"]] == [
        ("owner", 0),
        ("draining", 1),
    ]
    gone = run(running, "shards", "1", "--evacuate", "--json")
    assert gone.exit_code == 0, gone.output
    assert [s["shard"] for s in json.loads(gone.stdout)["shards"]] == [0]
    # What was open has moved, and is done where it is now.
    with running.subscriber("two") as subscriber:
        assert not subscriber.wait_until(OPEN_SLOT + 1, timeout_s=0.2)  # expires: it is open
        done(node.commit(consume(OPEN_SLOT, 7)))
        assert subscriber.wait_until(OPEN_SLOT + 1, timeout_s=HANG_S)
