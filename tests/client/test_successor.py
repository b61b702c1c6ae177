"""What cannot change while a pipeline runs changes by another one that succeeds it, where it is complete."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from acker.v1.progress_service_pb2 import GetHistoryResponse, ReachedSlot
from tests.client.support import TWO_SEGMENTS, consume, create, done, joined_front, promise
from tests.waits import HANG_S, until
from tracker.cli.app import app
from tracker.client import Admin, NodeClient
from tracker.client.embedded import EmbeddedTracker
from tracker.client.successor import _last_announced, converted
from tracker.core.model import PipelineSpec, TimeKind
from tracker.core.model.slots import FOREVER
from tracker.errors import RefusedError

COARSER = replace(TWO_SEGMENTS, name="coarser", slack_ns=10 * TWO_SEGMENTS.slack_ns)
MINUTE = 60 * 10**9 // TWO_SEGMENTS.slack_ns


@pytest.fixture
def node(running: EmbeddedTracker) -> Iterator[NodeClient]:
    """Whose front has promised ten minutes, and whose only item is open."""
    with NodeClient(running.target, "two", "n") as node:
        joined_front(node)
        done(node.commit(create(7, 1)))
        done(node.commit(promise(10 * MINUTE)))
        yield node


def finish(node: NodeClient) -> None:
    done(node.commit(consume(7, 1)))
    done(node.leave_front("front"))


def test_a_pipeline_begins_where_the_one_is_complete_that_it_succeeds(
    running: EmbeddedTracker, node: NodeClient
) -> None:
    with Admin(running.target) as admin:
        with pytest.raises(RefusedError, match="its slack_ns is for good"):
            admin.apply(replace(COARSER, name="two"))
        with pytest.raises(
            RefusedError, match=r"'two' is not complete.*: 1 open slots in 'first', front 'front'"
        ):
            admin.apply(COARSER, succeeds="two", dry_run=True)
        done(node.commit(consume(7, 1)))
        until(lambda: admin.pipeline("two").state.min_time == 10 * MINUTE)
        done(node.leave_front("front"))
        until(lambda: admin.pipeline("two").state.complete)
        assert admin.apply(COARSER, succeeds="two", dry_run=True).spec.start_slot == MINUTE
        applied = admin.apply(COARSER, succeeds="two")
        assert applied.created and applied.spec == replace(COARSER, start_slot=MINUTE)
        assert admin.pipeline("coarser").state.min_time == MINUTE
        again = admin.apply(replace(COARSER, max_nodes=77), succeeds="two")
        assert not again.created and again.changes == {"max_nodes": (10_000, 77)}


def test_a_successor_is_registered_as_soon_as_the_other_one_is_complete(
    running: EmbeddedTracker, node: NodeClient
) -> None:
    found: list[int] = []

    def apply() -> None:
        with Admin(running.target, HANG_S) as admin:
            found.append(admin.apply(COARSER, succeeds="two").spec.start_slot)

    waiting = threading.Thread(target=apply)
    waiting.start()
    finish(node)
    waiting.join(HANG_S)
    # Of what came shortly before the end nothing was announced: then the last minute is remembered.
    assert found and found[0] <= MINUTE


def test_one_that_is_open_is_succeeded_where_it_stands_with_nothing_in_it(
    running: EmbeddedTracker,
) -> None:
    running.register(replace(TWO_SEGMENTS, name="open", open=True, fronts=()))
    with NodeClient(running.target, "open", "n") as node, Admin(running.target) as admin:
        joined_front(node)
        done(node.commit(promise(1_234)))
        until(lambda: admin.pipeline("open").state.min_time == 1_234)
        done(node.leave_front("front"))
        assert admin.apply(COARSER, succeeds="open").spec.start_slot == 123


def test_what_cannot_be_succeeded_is_refused(running: EmbeddedTracker) -> None:
    with Admin(running.target) as admin:
        with pytest.raises(RefusedError, match="cannot succeed itself"):
            admin.apply(TWO_SEGMENTS, succeeds="two")
        with pytest.raises(RefusedError, match="unknown"):
            admin.apply(COARSER, succeeds="nobody")
        numbered = replace(COARSER, time=TimeKind.NUMBER)
        with pytest.raises(
            RefusedError, match=r"counts number, and 'two' arrival.* give its start"
        ):
            admin.apply(numbered, succeeds="two")
        with pytest.raises(RefusedError, match="its fronts have not joined"):
            admin.apply(replace(numbered, start_slot=5), succeeds="two", dry_run=True)


@pytest.mark.parametrize(
    ("of", "slot", "to", "found"),
    [
        (TWO_SEGMENTS, 1_234, COARSER, 123),
        (COARSER, 123, TWO_SEGMENTS, 1_230),
        (TWO_SEGMENTS, 1_234, replace(TWO_SEGMENTS, rounds=4, slack_ns=25 * 10**6), 492),
        (replace(TWO_SEGMENTS, rounds=4, slack_ns=25 * 10**6), 495, TWO_SEGMENTS, 1_230),
        (TWO_SEGMENTS, -5, COARSER, -1),
    ],
)
def test_slots_are_converted_to_whole_times_that_lie_no_later(
    of: PipelineSpec, slot: int, to: PipelineSpec, found: int
) -> None:
    assert converted(slot, of, to) == found


def test_the_command_reports_what_is_open_and_where_the_successor_begins(
    running: EmbeddedTracker, node: NodeClient, tmp_path: Path
) -> None:
    file = tmp_path / "coarser.yaml"
    file.write_text("name: coarser\nsegments: [first]\nfronts: [front]\nslack: 100ms\n")

    def apply(*more: str) -> str:
        words = ["pipelines", "apply", "-f", str(file), "--succeeds", "two", *more]
        environment = {"LOWMARK_TARGET": running.target, "COLUMNS": "200"}
        result = CliRunner().invoke(app, words, env=environment)
        return result.stdout + result.stderr

    assert "'two' is not complete, so nothing can succeed it yet" in apply("--dry-run")
    finish(node)
    said = apply()
    with Admin(running.target) as admin:
        start = admin.pipeline("coarser").spec.start_slot
    assert said.startswith("pipeline coarser: registered to succeed two, from ")
    assert said.endswith(f" on; write `start: slot:{start}` into its file\n")
    assert apply() == "pipeline coarser: unchanged\n"


def test_what_one_process_has_not_announced_yet_is_asked_of_the_others() -> None:
    """Of two processes one has not heard yet that the pipeline is complete, as the other one has announced."""

    def ask_shards(make: object, request: Any) -> list[tuple[int, Any]]:
        assert not request.slots, "all that is remembered"
        behind, ahead = (
            [ReachedSlot(slot=slot, reached=True, min_time=slot) for slot in announced]
            for announced in ((40,), (40, 90, FOREVER))
        )
        return [(n, GetHistoryResponse(reached=each)) for n, each in enumerate((behind, ahead))]

    admin: Any = SimpleNamespace(ask_shards=ask_shards)
    assert _last_announced(admin, TWO_SEGMENTS) == 90
