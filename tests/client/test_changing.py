"""A pipeline changes while nodes, subscribers and people look at it."""

from __future__ import annotations

import json
import re
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import tracker
from acker.v1 import pipeline_service_pb2 as pipeline_pb
from tests.client.support import (
    TWO_SEGMENTS,
    Listener,
    consume,
    create,
    done,
    joined_front,
    promise,
    reaches,
)
from tests.waits import HANG_S, until
from tracker.cli.app import app
from tracker.client import Admin, NodeClient, Subscriber
from tracker.client.connection import Connection
from tracker.client.embedded import EmbeddedTracker
from tracker.core.model import Cells, Edge, TickContent
from tracker.core.model.slots import FOREVER
from tracker.dashboard.query import DashboardQuery
from tracker.errors import RefusedError
from tracker.view.causes import advice, cause_text
from tracker.view.model import standings_of

THIRD = 2
GROWN = replace(
    TWO_SEGMENTS,
    segments=("first", "second", "third"),
    edges=(*TWO_SEGMENTS.edges, Edge("first", "third")),
)
FILE = """
name: two
segments: [first, second, third]
edges: [first -> second, first -> third + 3]
fronts: [front]
"""


def test_nodes_and_subscribers_live_through_a_change(running: EmbeddedTracker) -> None:
    with (
        NodeClient(running.target, "two", "n") as node,
        NodeClient(running.target, "two", "reader") as reader,
        Admin(running.target) as admin,
        Subscriber(running.target, "two") as subscriber,
        Subscriber(running.target, "two", ["second"]) as narrow,
    ):
        joined_front(node)
        reader.join(HANG_S)
        done(node.commit(create(10, 7)))
        done(node.commit(promise(50)))
        assert admin.apply(GROWN, dry_run=True).spec == GROWN
        assert admin.pipeline("two").spec == TWO_SEGMENTS
        applied = admin.apply(GROWN)
        assert applied.changes == {
            "segments": (["first", "second"], ["first", "second", "third"]),
            "edges": (["first -> second"], ["first -> second", "first -> third"]),
        }
        until(lambda: reader.spec == applied.spec)  # without joining again
        assert reader.segment("third") == THIRD
        tick = consume(10, 7)
        done(reader.commit(replace(tick, created=create(12, 9, THIRD).created)))
        held = reader.hold("third", 40, content=consume(12, 9, THIRD))
        assert held.segment == "third"
        held.release()
        assert subscriber.wait_until(12, "third", HANG_S)
        done(node.commit(promise(60)))
        assert subscriber.wait_until(60, "third", HANG_S)
        assert narrow.wait_until(60, "second", HANG_S)
        without = replace(
            TWO_SEGMENTS, segments=("first", "third"), edges=(Edge("first", "third"),)
        )
        assert admin.apply(without).spec.removed == ("second",)
        until(lambda: reader.spec.removed == ("second",))
        told = next(each for each in narrow.updates() if each.removed)
        assert (told.segment, told.min_time) == ("second", 60) or told.complete
        until(lambda: admin.pipeline("two").state.segments[1].min_time == FOREVER)
        with pytest.raises(
            RefusedError, match="the segment was removed: let the node create in others"
        ):
            reader.commit(replace(consume(60, 1), created=create(60, 2, 1).created)).result(HANG_S)


def test_who_has_heard_of_a_new_segment_outlives_a_process_that_does_not_know_it_yet() -> None:
    """Two trackers stand for two processes of one: the second is behind by the change."""
    with tracker.embedded() as ahead, tracker.embedded() as behind:
        fronts = []
        for each, spec in ((ahead, GROWN), (behind, TWO_SEGMENTS)):
            each.register(spec)
            fronts.append(joined_front(each.node("two", "n", "front")))
            done(fronts[-1].commit(promise(5)))
            assert each.subscriber("two").wait_until(5, timeout_s=HANG_S)
        target = f"{ahead.target},{behind.target}"
        listener = Listener(Subscriber(target, "two"))
        listener.until(reaches(5, "third"))
        with Subscriber(target, "two") as waits:
            assert waits.wait_until(5, "third", HANG_S)
            ahead.kill_shard(0)
            assert not waits.wait_until(9, "third", 0.5)  # expires: it asks the one that is behind
            behind.admin().apply(GROWN)
            done(fronts[1].commit(promise(9)))
            assert waits.wait_until(9, "third", HANG_S)
        listener.until(reaches(9, "third"))
        listener.close()


def test_a_change_whose_attempts_come_late_removes_nothing_that_has_come_since(
    running: EmbeddedTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first attempt was answered late, and the second one comes when another operator has added a segment."""
    call, sent = Connection.call, list[object]()
    with Admin(running.target) as admin, Admin(running.target) as other:

        def twice(self: Any, method: Any, request: Any, *more: Any, **how: Any) -> Any:
            answer = call(self, method, request, *more, **how)
            if sent or not isinstance(request, pipeline_pb.RegisterPipelineRequest):
                return answer
            sent.append(request)
            other.apply(GROWN)
            return call(self, method, request, *more, **how)

        monkeypatch.setattr(Connection, "call", twice)
        with pytest.raises(RefusedError, match=r"has changed since this was decided on: .*third"):
            admin.apply(replace(TWO_SEGMENTS, max_nodes=20))
        assert admin.pipeline("two").spec == GROWN


def test_a_new_source_is_said_to_wait_for_its_front(running: EmbeddedTracker) -> None:
    with Admin(running.target) as admin:
        sourced = replace(TWO_SEGMENTS, segments=(*TWO_SEGMENTS.segments, "third"))
        with NodeClient(running.target, "two", "n") as node:
            joined_front(node)
            done(node.commit(promise(50)))
            admin.apply(sourced)

            def said() -> list[str]:
                told = standings_of(admin.explain("two"))
                return [
                    f"{cause_text(cause, sourced)}; {advice(cause, sourced)}"
                    for each in told
                    if each.segment.segment == "third"
                    for cause in each.causes
                ]

            until(lambda: bool(said()))
            (text,) = said()
            assert text.startswith("segment third was added, and its first front has not joined")
            assert text.endswith(
                "start the front that feeds it, or take the segment out of the pipeline"
            )


def test_what_is_open_in_a_segment_that_is_removed_may_be_dropped(
    running: EmbeddedTracker,
) -> None:
    without = replace(TWO_SEGMENTS, segments=("first",), edges=())
    with NodeClient(running.target, "two", "n") as node, Admin(running.target) as admin:
        joined_front(node)
        open_items = Cells.of([(1, 20 + n, 77 + n, 3) for n in range(4)])
        done(node.commit(TickContent(created=open_items, heartbeats=promise(50).heartbeats)))
        shown = admin.apply(without, dry_run=True, drop_open=True)
        applied = admin.apply(without, drop_open=True)
        assert [cell.items for cell in applied.dropped] == [3] * 4
        assert applied.dropped == shown.dropped
        until(lambda: admin.pipeline("two").state.segments[1].min_time == FOREVER)
        assert admin.apply(without, drop_open=True).dropped == ()


def test_the_command_shows_what_would_change_and_changes_it(
    running: EmbeddedTracker, tmp_path: Path
) -> None:
    file = tmp_path / "two.yaml"
    file.write_text(FILE)

    def apply(*more: str) -> str:
        words = ["pipelines", "apply", "-f", str(file), *more]
        environment = {"LOWMARK_TARGET": running.target, "COLUMNS": "200"}
        result = CliRunner().invoke(app, words, env=environment)
        return result.stdout + result.stderr

    change = "changed segments (+ third), edges (+ first -> third + 3)"
    assert apply("--dry-run") == f"pipeline two: would be {change}\n"
    assert apply() == f"pipeline two: {change}\n"
    assert apply() == "pipeline two: unchanged\n"
    file.write_text(FILE.replace(", first -> third + 3", "").replace(", third", ""))
    said = json.loads(apply("--json"))
    assert said["changes"]["removed"] == [[], ["third"]] and not said["created"]
    file.write_text(FILE)
    assert "a name is not given twice" in apply()


def test_a_file_that_starts_now_is_the_pipeline_that_has_begun(
    running: EmbeddedTracker, tmp_path: Path
) -> None:
    file = tmp_path / "late.yaml"
    text = "name: late\nsegments: [a]\nfronts: 1\nstart: now\n"

    def apply(text: str) -> tuple[dict[str, object], int]:
        file.write_text(text)
        words = ["pipelines", "apply", "-f", str(file), "--json", "--target", running.target]
        said = json.loads(CliRunner().invoke(app, words).stdout)
        return said["changes"], said["start_slot"]

    changes, began = apply(text)
    assert changes == {} and began > 0
    assert apply(text) == ({}, began)
    assert apply(text + "max_nodes: 20\n") == ({"max_nodes": [10_000, 20]}, began)


def test_a_segment_that_is_removed_is_shown_until_it_is_drained(running: EmbeddedTracker) -> None:
    def said(*words: str) -> str:
        environment = {"LOWMARK_TARGET": running.target, "COLUMNS": "250"}
        result = CliRunner().invoke(app, [*words, "--pipeline", "two"], env=environment)
        assert not result.exit_code, result.output
        return result.stdout

    with (
        NodeClient(running.target, "two", "n") as node,
        NodeClient(running.target, "two", "reader") as reader,
        Admin(running.target) as admin,
    ):
        joined_front(node)
        reader.join(HANG_S)
        done(node.commit(create(10, 7)))
        tick = consume(10, 7)
        done(reader.commit(replace(tick, created=create(12, 9, 1).created)))
        done(node.commit(promise(50)))
        admin.apply(replace(TWO_SEGMENTS, segments=("first",), edges=()))
        until(lambda: admin.pipeline("two").state.segments[0].min_time == 50)
        assert "second: removed, and drains; min time" in said("explain")
        assert "removed, and drains; nobody has ever consumed from segment second" in said("status")
        assert (
            "segment second was removed, and is complete when what is in it and before it is "
            "processed: 1 items are open there in 1 slots"
        ) in said("watch", "--once")
        (cause,) = json.loads(said("explain", "--json"))["segments"][1]["causes"]
        assert cause["advice"].startswith(
            "the segment was removed: let a query consume what is in it"
        )
        done(reader.commit(consume(12, 9, 1)))
        until(lambda: admin.pipeline("two").state.segments[1].min_time == FOREVER)
        assert "second: removed, and complete" in said("explain")
        for words in (("status",), ("watch", "--once")):
            assert "first" in said(*words) and "second" not in said(*words)


def test_a_change_under_way_is_shown_with_what_it_waits_for(running: EmbeddedTracker) -> None:
    text = re.compile(
        r"a change of its segments and edges is under way: shards? 0.* not known to judge by it"
    )

    def change() -> None:
        with Admin(running.target, HANG_S) as admin:
            admin.apply(GROWN)

    running.kill_shard(0)  # the pipeline is registered at the other one
    changing = threading.Thread(target=change)
    with Admin(running.target) as admin:
        changing.start()
        until(lambda: admin.pipeline("two").state.is_changing)
        assert admin.pipeline("two").state.change_awaits == (0,)
        for words in (["status"], ["explain"], ["watch", "--once"]):
            environment = {"LOWMARK_TARGET": running.target, "COLUMNS": "300"}
            shown = CliRunner().invoke(app, [*words, "--pipeline", "two"], env=environment)
            assert text.search(shown.stdout)
        (said,) = DashboardQuery(lambda: Admin(running.target)).look("two").changes
        assert text.fullmatch(said)
        running.start_shard(0)
        changing.join(HANG_S)
        until(lambda: not admin.pipeline("two").state.is_changing)
        assert admin.pipeline("two").state.change_awaits == ()
