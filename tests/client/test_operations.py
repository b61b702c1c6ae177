"""What operators do: see why min time stands, retire a node, write off what it took with it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from google.protobuf.json_format import ParseDict
from typer.testing import CliRunner

import tracker
from acker.v1 import types_pb2 as pb
from tests.client.support import (
    SHORTLY_S,
    TWO_SEGMENTS,
    consume,
    create,
    done,
    joined_front,
    promise,
    shards_have,
)
from tests.client.test_command_line import WRONG_USAGE, run, run_json
from tests.waits import HANG_S, until
from tracker.cli.app import app
from tracker.cli.common import EXIT_REFUSED
from tracker.client import Admin, FencedError, NodeClient, NodeList, RefusedError, Subscriber
from tracker.client.embedded import EmbeddedTracker
from tracker.core.cut.history import FINE_STEP_NS
from tracker.core.model import PipelineSpec, RefusalCode, TickContent
from tracker.wire.pipelines import spec_from_pb


@pytest.fixture
def running() -> Iterator[EmbeddedTracker]:
    with tracker.embedded(shards=2, block_slots=1) as embedded:
        embedded.register(TWO_SEGMENTS)
        yield embedded


@pytest.fixture
def front(running: EmbeddedTracker) -> Iterator[NodeClient]:
    """Items at slots 3, 4 and 7, with the front at 20."""
    with NodeClient(running.target, "two", "front", kind="front") as node:
        joined_front(node)
        for slot in (3, 4, 7):
            done(node.commit(create(slot, slot * 11)))
        done(node.commit(promise(20)))
        yield node


@pytest.fixture
def lost(running: EmbeddedTracker, front: NodeClient) -> NodeClient:
    """A worker that has done one item of the front's, and dies."""
    done(front.commit(create(20, 1)))
    node = NodeClient(running.target, "two", "lost", kind="local-tracker")
    node.join(HANG_S)
    done(node.commit(consume(20, 1)))
    node.close()
    return node


def at(slot: int) -> str:
    """When a slot of the first second of 1970 begins, for people."""
    return f"1970-01-01 00:00:00.{slot * 10:03d}"


def reached(running: EmbeddedTracker, slot: int) -> bool:
    with Subscriber(running.target, "two") as subscriber:
        return subscriber.wait_until(slot, timeout_s=HANG_S) and subscriber.min_time() == slot


def test_why_min_time_stands_is_said(running: EmbeddedTracker, lost: NodeClient) -> None:
    assert reached(running, 3)
    shown = run_json(running, "explain", "-p", "two")
    first = shown["segments"][0]
    assert (first["segment"], first["min_time"]) == ("first", 3)
    (hold,) = first["held_by"]
    assert (hold["kind"], hold["segment"], hold["slot"]) == ("open", "first", 3)
    cells = [(cell["segment"], cell["slot"], cell["items"]) for cell in shown["open_cells"]]
    assert cells == [("first", 3, 1), ("first", 4, 1), ("first", 7, 1)]
    nodes = {node["node_id"]: node for node in shown["nodes"]}
    assert not nodes["lost"]["connected"] and nodes["lost"]["kind"] == "local-tracker"
    assert nodes["lost"]["consumes"] == ["first"]
    assert nodes["front"]["connected"] and nodes["front"]["fronts"] == ["front"]
    assert shown["nodes"][0]["node_id"] == "lost", "who is not there is said first"
    text = run(running, "explain", "-p", "two").stdout
    assert f"open items of segment first at {at(3)} (slot 3), in shard {hold['shard']}" in text
    assert f"first: 3 items at {at(3)}..{at(4)} (slot 3..4), {at(7)} (slot 7)" in text
    assert "lost#" in text and "not connected" in text and "consumes from first" in text
    some = run_json(running, "explain", "-p", "two", "-s", "first", "--slots", "4..7")
    assert [cell["slot"] for cell in some["open_cells"]] == [4, 7]
    at_times = "1970-01-01T00:00:00.040..1970-01-01T00:00:00.070"
    same = run_json(running, "explain", "-p", "two", "-s", "first", "--slots", at_times)
    assert same["open_cells"] == some["open_cells"]
    with Admin(running.target) as admin:
        first_moment, end = (datetime(1970, 1, 1, 0, 0, 0, us, UTC) for us in (49_999, 70_001))
        parts = admin.explain("two", "first", from_slot=first_moment, to_slot=end).parts
    assert sorted(cell.slot for part in parts for cell in part.cells) == [4, 7]


def test_a_retired_node_is_waited_for(running: EmbeddedTracker, lost: NodeClient) -> None:
    result = run(running, "nodes", "retire", "lost", "-p", "two", "--yes")
    assert result.exit_code == 0 and "lost is retired" in result.stdout
    assert run_json(running, "explain", "-p", "two")["nodes"][0]["gone"] == "retired"
    with NodeClient(running.target, "two", "other") as other:
        other.join(HANG_S)
        for slot in (3, 4, 7):
            done(other.commit(consume(slot, slot * 11)))
    assert reached(running, 20)


def test_what_a_retired_node_holds_stays_held_or_is_let_go_of(
    running: EmbeddedTracker, lost: NodeClient
) -> None:
    with NodeClient(running.target, "two", "lost") as again:
        again.join(HANG_S)
        done(again.commit(consume(4, 44)))
        again.hold("second", 3, "state", content=consume(3, 33))
    assert run(running, "nodes", "retire", "lost", "-p", "two", "--yes").exit_code == 0
    explained = run_json(running, "explain", "-p", "two")
    (node,) = [each for each in explained["nodes"] if each["node_id"] == "lost"]
    assert node["holds"] == [{"name": "state", "segment": "second", "slot": 3}]
    assert (node["gone"], node["hold_count"]) == ("retired", 1)
    text = run(running, "explain", "-p", "two").stdout
    assert "holds segment second at" in text and "and is gone: nobody lets go of it" in text
    assert "nodes retire lost --pipeline two --release-holds" in text
    words = ["nodes", "retire", "lost", "-p", "two", "--release-holds"]
    result = run(running, *words, "--yes")
    assert (
        result.exit_code == 0 and f"let go of: {at(3)} (slot 3) of second (state)" in result.stdout
    )
    assert running.subscriber("two").wait_until(7, "second", HANG_S)


def test_a_node_that_was_not_gone_hears_that_it_is_retired(
    running: EmbeddedTracker, front: NodeClient
) -> None:
    assert run(running, "nodes", "retire", "front", "-p", "two", "--yes").exit_code == 0
    with pytest.raises(FencedError, match="retired"):
        done(front.commit(promise(30)))


def test_what_is_lost_is_shown_and_asked_for_and_listed(
    running: EmbeddedTracker, lost: NodeClient
) -> None:
    words = ["nodes", "retire", "lost", "-p", "two", "--write-off", "first=3..5"]
    environment = {"LOWMARK_TARGET": running.target}
    refused = CliRunner().invoke(app, words, env=environment, input="n\n")
    assert refused.exit_code == EXIT_REFUSED
    lost_at = f"{at(3)}..{at(4)} (slot 3..4)"
    assert f"to be written off in first: 2 items; open at {lost_at}" in refused.stdout
    assert "give up 2 cells" in refused.stdout
    assert reached(running, 3), "nothing has happened"
    agreed = CliRunner().invoke(app, words, env=environment, input="y\n")
    assert agreed.exit_code == 0 and "written off: 2 items in 2 cells" in agreed.stdout
    assert reached(running, 7)
    shown = run_json(running, "explain", "-p", "two")
    listed = [(c["segment"], c["slot"], c["items"], c["node_id"]) for c in shown["written_off"]]
    assert sorted(listed) == [("first", 3, 1, "lost"), ("first", 4, 1, "lost")]
    assert "because lost is gone" in run(running, "explain", "-p", "two").stdout
    state = run_json(running, "watch", "--once", "-p", "two")["state"]
    assert (state["written_off_items"], state["late_items"]) == (2, 0)
    assert "2 items written off" in run(running, "watch", "--once", "-p", "two").stdout


def test_a_script_gets_what_was_written_off_as_json(
    running: EmbeddedTracker, lost: NodeClient
) -> None:
    words = ["nodes", "retire", "lost", "-p", "two", "--write-off", "first=3"]
    words += ["--write-off", "first=7..9", "--yes", "--json"]
    result = run(running, *words)
    assert result.exit_code == 0, result.output
    told: dict[str, Any] = json.loads(result.stdout)
    assert [(c["segment"], c["slot"]) for c in told["written_off"]] == [("first", 3), ("first", 7)]
    assert told["stayed"] == []
    again = json.loads(run(running, *words).stdout)
    assert again["written_off"] == [], "there is nothing more"


def test_what_no_shard_has_said_is_gone_is_not_said_to_be_written_off(
    running: EmbeddedTracker, lost: NodeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shard goes away just when it has answered: a cell that holds other items by now may have stayed there."""
    explain = Admin.explain

    def goes_away(admin: Admin, *given: Any, **named: Any) -> None:
        monkeypatch.setattr(
            Admin,
            "explain",
            lambda *given, **named: replace(
                explain(*given, **named), parts=(), silent_shards={1: "away"}
            ),
        )

    monkeypatch.setattr(Admin, "retire", goes_away)
    words = ["nodes", "retire", "lost", "-p", "two", "--write-off", "first=3", "--yes", "--json"]
    said = run(running, *words)
    assert said.exit_code == EXIT_REFUSED and "does not answer" in said.stderr
    told = json.loads(said.stdout)
    assert (told["written_off"], len(told["stayed"])) == ([], 1)


def test_wrong_words_are_refused_before_anything_happens(
    running: EmbeddedTracker, lost: NodeClient
) -> None:
    retire = ["nodes", "retire", "lost", "-p", "two", "--yes"]
    for words in (
        [*retire, "--write-off"],
        [*retire, "--write-off", "3..4"],
        [*retire, "--write-off", "first=4..3"],
        ["nodes", "retire", "lost", "-p", "two", "--json"],
        ["explain", "-p", "two", "--slots", "x"],
    ):
        assert run(running, *words).exit_code == WRONG_USAGE, words
    nobody = run(running, "nodes", "retire", "nobody", "-p", "two", "--yes")
    assert nobody.exit_code == EXIT_REFUSED and "has no node 'nobody'" in nobody.stderr
    nowhere = run(running, *retire, "--write-off", "third=3")
    assert nowhere.exit_code == EXIT_REFUSED and "has no segment 'third'" in nowhere.stderr
    assert run_json(running, "explain", "-p", "two")["nodes"][0]["gone"] == ""


def test_a_shard_that_is_away_is_said_and_nothing_is_written_off_unseen(
    running: EmbeddedTracker, lost: NodeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    shards_have(HANG_S, monkeypatch)
    home = next(
        part.shard
        for part in running.admin().explain("two").parts
        if any(node.key.node_id == "lost" for node in part.nodes)
    )
    running.kill_shard(1 - home)
    shards_have(SHORTLY_S, monkeypatch)

    def is_explained_without_it() -> bool:
        explained = running.admin().explain("two")
        parts = [part.shard for part in explained.parts]
        return parts == [home] and list(explained.silent_shards) == [1 - home]

    until(is_explained_without_it)
    unheard = f"shard {1 - home} does not answer"
    until(lambda: unheard in run(running, "explain", "-p", "two").stdout)
    words = ["--write-off", "first=3..5", "--yes"]
    refused = run(running, "nodes", "retire", "lost", "-p", "two", *words)
    assert refused.exit_code == EXIT_REFUSED and "does not answer" in refused.stderr
    running.start_shard(1 - home)
    with pytest.raises(RefusedError) as unknown:
        running.admin().retire("two", "nobody")
    assert unknown.value.refusal.code is RefusalCode.UNKNOWN_NODE


def test_whom_a_call_was_shown_is_retired_and_nobody_who_has_joined_since(
    running: EmbeddedTracker, lost: NodeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`Admin.retire` looks first whom there is, and then asks, however often: the node comes back before it is heard."""
    back = running.node("two", "lost", "local-tracker")
    with running.admin() as admin:
        found, looks = admin.nodes("two"), admin.nodes

        def comes_back(pipeline: str) -> NodeList:
            seen = looks(pipeline)
            back.join(HANG_S)
            return seen

        monkeypatch.setattr(admin, "nodes", comes_back)
        with pytest.raises(RefusedError, match="lost#2 has taken its place") as again:
            admin.retire("two", "lost")
        assert again.value.refusal.code is RefusalCode.CONFLICT
        monkeypatch.undo()
        shown = found.newest_key("lost")
        with pytest.raises(RefusedError, match="lost#1 was to be retired"):
            admin.retire("two", "lost", shown=shown, generation=found.generation)
        done(back.commit(TickContent()))
        with pytest.raises(RefusedError, match="as of generation 7"):
            admin.retire("two", "lost", generation=7)
        admin.retire("two", "lost")


def test_who_comes_back_while_the_operator_is_asked_is_not_retired(
    running: EmbeddedTracker, lost: NodeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    back = running.node("two", "lost", "local-tracker")
    monkeypatch.setattr("tracker.cli.retire.ask", lambda _: back.join(HANG_S))
    refused = run(running, "nodes", "retire", "lost", "-p", "two")
    assert refused.exit_code == EXIT_REFUSED and "has taken its place" in refused.stderr
    assert run_json(running, "explain", "-p", "two")["nodes"][0]["gone"] == ""


def test_a_pipeline_is_restarted_where_min_time_is(
    running: EmbeddedTracker, front: NodeClient
) -> None:
    assert reached(running, 3)
    words = ["pipelines", "restart", "-p", "two"]
    environment = {"LOWMARK_TARGET": running.target}
    refused = CliRunner().invoke(app, words, env=environment, input="n\n")
    assert refused.exit_code == EXIT_REFUSED
    assert "first: 3 items open in 3 slots" in refused.stdout
    done(front.commit(promise(21)))  # nothing has happened
    agreed = CliRunner().invoke(app, words, env=environment, input="y\n")
    assert agreed.exit_code == 0, agreed.output
    assert f"two is in generation 1, from {at(3)} (slot 3) on" in agreed.stdout
    with pytest.raises(FencedError, match="generation 1 begins at slot 3"):
        done(front.commit(promise(22)))

    shown = run_json(running, "explain", "-p", "two")
    assert {each["from_slot"] for each in shown["restarts"]} == {3}
    dropped = [lost for each in shown["restarts"] for lost in each["dropped"]]
    assert {lost["segment"] for lost in dropped} == {"first"}
    assert sum(lost["items"] for lost in dropped) == 3
    assert "restarted: generation 1" in run(running, "explain", "-p", "two").stdout

    with NodeClient(running.target, "two", "front", kind="front") as again:
        joined = again.join(HANG_S)
        assert (joined.generation, joined.replay_from) == (1, 3)
        assert again.join_front("front", "first", HANG_S).slot == 3
        done(again.commit(promise(30)))
        assert reached(running, 30)


def test_a_restart_that_cannot_be_is_refused(running: EmbeddedTracker, front: NodeClient) -> None:
    assert reached(running, 3)
    early = run(running, "pipelines", "restart", "-p", "two", "--from", "2", "--yes")
    assert early.exit_code == EXIT_REFUSED and "min time 3 is announced" in early.stderr
    assert run(running, "pipelines", "restart", "-p", "two", "--json").exit_code == WRONG_USAGE
    done(front.commit(promise(21)))
    later = run_json(running, "pipelines", "restart", "-p", "two", "--from", "slot:5", "--yes")
    assert later == {"pipeline": "two", "generation": 1, "from_slot": 5}


def test_a_pipeline_is_deleted_and_its_name_given_again(
    running: EmbeddedTracker, front: NodeClient
) -> None:
    assert reached(running, 3)
    kept = run(running, "pipelines", "delete", "-p", "two", "--yes")
    assert kept.exit_code == EXIT_REFUSED and "open slots in 'first'" in kept.stderr
    assert "--drop-open" in kept.stderr
    with Subscriber(running.target, "two") as subscriber:
        updates = subscriber.updates()
        next(updates)
        gone = run(running, "pipelines", "delete", "-p", "two", "--drop-open", "--yes")
        assert gone.exit_code == 0, gone.output
        with pytest.raises(RefusedError, match="'two' was deleted"):
            for _ in updates:
                pass
    with pytest.raises(RefusedError, match="'two' was deleted"):
        done(front.commit(promise(22)))
    assert [info.spec.name for info in running.admin().pipelines()] == []
    with pytest.raises(RefusedError, match="'two' was deleted"):
        running.admin().pipeline("two")
    until(lambda: registers(running, replace(TWO_SEGMENTS, start_slot=40)), "the name is free")
    assert reached(running, 40)


MINUTE = FINE_STEP_NS // TWO_SEGMENTS.slack_ns
"""In slots: what is announced there is remembered."""


def test_what_was_known_of_a_pipeline_that_is_deleted_is_kept_in_a_file(
    running: EmbeddedTracker, front: NodeClient, tmp_path: Path
) -> None:
    done(front.commit(create(MINUTE, 5)))
    done(front.commit(promise(2 * MINUTE)))
    with NodeClient(running.target, "two", "worker", kind="local-tracker") as worker:
        worker.join(HANG_S)
        for slot in (3, 4, 7):
            done(worker.commit(consume(slot, slot * 11)))
        assert reached(running, MINUTE)
        done(worker.commit(consume(2, 5)))  # late
        file = tmp_path / "two.parquet"
        words = "pipelines", "delete", "-p", "two", "--archive", str(file), "--yes"
        assert run(running, *words).exit_code == EXIT_REFUSED
        assert not file.exists(), "it is still there, so that nothing is to be kept"
        deleted = run(running, *words, "--drop-open")
    assert deleted.exit_code == 0, deleted.output
    table = pq.read_table(file)
    spec = ParseDict(json.loads(table.schema.metadata[b"lowmark.pipeline"]), pb.PipelineSpec())
    assert spec_from_pb(spec) == TWO_SEGMENTS
    rows = table.to_pylist()
    by_kind = Counter(row["what"] for row in rows)
    assert by_kind["segment"] == 2 and by_kind["node"] == 2 and "left_out" not in by_kind
    first = next(row for row in rows if (row["what"], row["segment"]) == ("segment", "first"))
    assert (first["slot"], first["items"]) == (MINUTE, 1)
    assert [row["items"] for row in rows if row["what"] == "pipeline"] == [1]
    assert [row["slot"] for row in rows if row["what"] == "open"] == [MINUTE]
    announced = [row for row in rows if (row["what"], row["segment"]) == ("announced", "first")]
    assert [row["slot"] for row in announced] == [MINUTE] and announced[0]["at"] is not None


def test_an_archive_does_not_take_the_place_of_a_file(
    running: EmbeddedTracker, front: NodeClient, tmp_path: Path
) -> None:
    file = tmp_path / "two.parquet"
    file.write_text("something else")
    words = "pipelines", "delete", "-p", "two", "--drop-open", "--archive", str(file), "--yes"
    refused = run(running, *words)
    assert refused.exit_code != 0 and "is there; name a new file" in refused.stderr
    assert file.read_text() == "something else"
    assert [info.spec.name for info in running.admin().pipelines()] == ["two"]


def test_an_archive_of_what_is_deleted_outlives_the_attempt_whose_answer_is_lost(
    running: EmbeddedTracker, front: NodeClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next attempt finds another pipeline of its name, and is refused: what the file has is nowhere else."""
    delete, file = Admin.delete, tmp_path / "two.parquet"

    def again(self: Admin, pipeline: str, generation: int, *, drop_open: bool = False) -> None:
        delete(self, pipeline, generation, drop_open=drop_open)
        until(lambda: registers(running, TWO_SEGMENTS))
        delete(self, pipeline, generation, drop_open=drop_open)

    monkeypatch.setattr(Admin, "delete", again)
    words = "pipelines", "delete", "-p", "two", "--drop-open", "--archive", str(file), "--yes"
    assert run(running, *words).exit_code == EXIT_REFUSED
    assert pq.read_table(file).num_rows
    assert [info.spec.name for info in running.admin().pipelines()] == ["two"]


def registers(running: EmbeddedTracker, spec: PipelineSpec) -> bool:
    """Whether a pipeline is registered; not while a shard has not let go of one that was deleted."""
    try:
        running.admin().register(spec)
    except RefusedError as error:
        assert error.refusal.code is RefusalCode.NOT_READY, error
        return False
    return True
