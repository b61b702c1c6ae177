"""The nodes of a pipeline, listed, and retired many at a time."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

import tracker
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
from tracker.client import NodeClient, NodeInfo, NodeList, NodeState, nodes
from tracker.client.embedded import EmbeddedTracker
from tracker.core.insight import explain
from tracker.core.insight.diagnosis import SILENT_AFTER_MS
from tracker.core.insight.explain import NodeExplanation
from tracker.core.model import HoldMove, NodeKey
from tracker.core.model.slots import FOREVER
from tracker.core.model.waits import WaitCause, WaitKind
from tracker.view.tables import NODES


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedTracker]:
    """A front at 20 that lives; a worker that is gone, with an item of its own that holds slot 3; one that waits; and
    a query that is gone. Nobody is silent, however long a test takes."""
    monkeypatch.setattr(nodes, "SILENT_AFTER_MS", FOREVER)
    shards_have(HANG_S, monkeypatch)
    with tracker.embedded(shards=2, block_slots=1) as embedded:
        embedded.register(TWO_SEGMENTS)
        front = joined_front(embedded.node("two", "front", "front"))
        done(front.commit(create(3, 33)))
        done(front.commit(promise(20)))
        with NodeClient(embedded.target, "two", "holder", kind="local-tracker") as node:
            node.join(HANG_S)
            node.hold("second", 3, "state", content=consume(3, 33))
        with NodeClient(embedded.target, "two", "query", kind="query") as node:
            node.join(HANG_S)
        waiting = embedded.node("two", "waiting", "query")
        waiting.join(HANG_S)
        waiting.report_waits([WaitCause(WaitKind.OTHER, text="a table that is locked")])
        gone = {"holder": "gone", "query": "gone"}
        until(lambda: states(embedded) | gone == states(embedded), "they are gone")
        until(lambda: "locked" in (rows(embedded)["waiting"]["waits"] or ""), "what it waits for")
        yield embedded


def rows(running: EmbeddedTracker) -> dict[str, dict[str, Any]]:
    listed = run_json(running, "nodes", "list", "-p", "two")
    assert listed["pipeline"] == "two"
    return {row["node_id"]: row for row in listed["nodes"]}


def states(running: EmbeddedTracker) -> dict[str, str]:
    return {node_id: row["state"] for node_id, row in rows(running).items()}


def test_each_node_is_listed_with_what_its_home_knows_of_it(running: EmbeddedTracker) -> None:
    found = rows(running)
    assert set(list(found)[:2]) == {"holder", "query"}, "who is gone is listed first"
    holder, front, waiting = found["holder"], found["front"], found["waiting"]
    assert (holder["kind"], holder["holds"], holder["slot"]) == ("local-tracker", 1, 3)
    assert (front["state"], front["slot"], front["time"]) == (
        "live", 20, "1970-01-01T00:00:00.200000+00:00",
    )  # fmt: skip
    assert front["age_ms"] > 1_700_000_000_000 and front["node_time"] == 3
    assert "a table that is locked" in waiting["waits"] and waiting["slot"] is None
    explained = running.admin().explain("two").parts
    homes = {node.key.node_id: part.shard for part in explained for node in part.nodes}
    assert {node_id: row["home"] for node_id, row in found.items()} == homes
    shown = run(running, "nodes", "list", "-p", "two").stdout
    assert "holder#" in shown and "gone" in shown and "1970-01-01" in shown


@pytest.mark.parametrize("format", ["arrow", "parquet"])
def test_programs_read_the_list_as_columns(running: EmbeddedTracker, format: str) -> None:
    import pyarrow.parquet

    printed = run(running, "nodes", "list", "-p", "two", "--format", format)
    assert printed.exit_code == 0, printed.output
    data = printed.stdout_bytes
    if format == "parquet":
        table = pyarrow.parquet.read_table(io.BytesIO(data))
    else:
        table = pyarrow.ipc.open_stream(data).read_all()
    assert table.column_names == list(NODES.types)
    found = rows(running)
    for row in table.to_pylist():
        told = found[row["node_id"]]
        assert set(told) == set(NODES.types)
        assert (row["time"] and row["time"].isoformat()) == told["time"]
        for name in ("kind", "state", "home", "slot", "holds", "waits"):
            assert row[name] == told[name]


def test_what_a_list_leaves_out_is_counted_and_said(
    running: EmbeddedTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explain, "MAX_EXPLAINED_NODES", 1)
    listed = running.admin().nodes("two")
    assert len(listed.nodes) + listed.omitted == 4 and listed.omitted >= 2
    result = run(running, "nodes", "list", "-p", "two")
    assert f"{listed.omitted} more nodes are not closed and not listed" in result.stderr
    assert run_json(running, "nodes", "list", "-p", "two")["omitted"] == listed.omitted


def test_who_is_gone_for_long_is_shown_and_asked_for_and_retired(running: EmbeddedTracker) -> None:
    words = ["nodes", "retire", "-p", "two", "--silent-for", "1ms"]
    environment = {"LOWMARK_TARGET": running.target}
    refused = CliRunner().invoke(app, words, env=environment, input="n\n")
    assert refused.exit_code == EXIT_REFUSED and "Close these 2 nodes for good?" in refused.stdout
    assert "holder#" in refused.stdout and "(slot 3) of second (state)" in refused.stdout
    assert "front#" not in refused.stdout and "waiting#" not in refused.stdout
    assert states(running)["holder"] == states(running)["query"] == "gone", "nothing has happened"
    agreed = CliRunner().invoke(app, words, env=environment, input="y\n")
    assert agreed.exit_code == 0, agreed.output
    assert "holder is retired" in agreed.stdout and "query is retired" in agreed.stdout
    found = rows(running)
    assert {node_id: row["state"] for node_id, row in found.items()} == {
        "front": "live", "waiting": "live", "holder": "retired", "query": "retired",
    }  # fmt: skip
    assert found["holder"]["holds"] == 1, "what it holds stays held"
    again = run(running, *words, "--yes")
    assert (again.exit_code, again.stdout) == (0, "no node that is listed is gone for so long\n")


def test_a_dry_run_lists_what_would_be_retired_and_does_nothing(running: EmbeddedTracker) -> None:
    retire = ("nodes", "retire", "-p", "two")
    many = run_json(running, *retire, "--silent-for", "1ms", "--release-holds", "--dry-run")
    assert many["dry_run"] and {row["node_id"] for row in many["nodes"]} == {"holder", "query"}
    released = {row["node_id"]: row["released"] for row in many["nodes"]}
    assert released["query"] == []
    assert released["holder"] == [{"name": "state", "segment": "second", "slot": 3}]
    kind = run_json(running, *retire, "--silent-for", "1ms", "--kind", "query", "--dry-run")
    assert [row["node_id"] for row in kind["nodes"]] == ["query"]
    late = run_json(running, *retire, "--silent-for", "1d", "--dry-run")
    assert late["nodes"] == []
    one = run(running, *retire, "holder", "--write-off", "second=3", "--dry-run").stdout
    assert "holder would be retired" in one and "to be written off: 1 items in 1 cells" in one
    assert states(running)["holder"] == states(running)["query"] == "gone"
    assert rows(running)["holder"]["holds"] == 1


def test_many_let_go_of_what_they_hold(running: EmbeddedTracker) -> None:
    words = ("nodes", "retire", "-p", "two", "--silent-for", "1ms", "--release-holds", "--yes")
    result = run(running, *words)
    assert result.exit_code == 0 and "(slot 3) of second (state)" in result.stdout, result.output
    assert "holder is retired" in result.stdout and rows(running)["holder"]["holds"] == 0


def test_who_is_back_since_it_was_shown_stays(
    running: EmbeddedTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    back = []

    def comes_back(question: str) -> None:
        back.append(running.node("two", "query", "query"))
        back[0].join(HANG_S)

    monkeypatch.setattr("tracker.cli.retire.ask", comes_back)
    result = run(running, "nodes", "retire", "-p", "two", "--silent-for", "1ms")
    assert result.exit_code == 0 and "query has come back, and stays" in result.stdout
    assert states(running)["query"] == "live" and states(running)["holder"] == "retired"


def test_of_who_has_joined_again_since_it_was_shown_nothing_is_let_go_of(
    running: EmbeddedTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be closed, too, and what it has in its state counted as done."""
    back: list[NodeClient] = []

    def comes_back(question: str) -> None:
        back.append(running.node("two", "holder", "local-tracker"))
        back[0].join(HANG_S)

    monkeypatch.setattr("tracker.cli.retire.ask", comes_back)
    result = run(running, "nodes", "retire", "holder", "-p", "two", "--release-holds")
    assert result.exit_code == EXIT_REFUSED and "it has joined again since" in result.stderr
    assert states(running)["holder"] == "live" and rows(running)["holder"]["holds"] == 1
    back[0].flush(HANG_S)  # raises, if it was closed


def test_nobody_is_retired_by_age_while_a_shard_is_away(
    running: EmbeddedTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = 1 - rows(running)["holder"]["home"]
    running.kill_shard(away)
    shards_have(SHORTLY_S, monkeypatch)
    unlisted = f"shard {away} does not answer, and its nodes are not listed"
    until(lambda: unlisted in run(running, "nodes", "list", "-p", "two").stderr)
    retire = ("nodes", "retire", "-p", "two", "--silent-for", "1ms", "--yes")

    def is_refused() -> bool:
        refused = run(running, *retire)
        assert refused.exit_code == EXIT_REFUSED
        return f"shard {away} does not answer" in refused.stderr

    until(is_refused)
    until(lambda: states(running).get("holder") == "gone")


@pytest.mark.parametrize(
    "words",
    [[], ["a", "--silent-for", "1h"], ["a", "--kind", "front"], ["--silent-for", "soon"], ["--kind", "front"],
     ["--silent-for", "1h", "--write-off", "first=3"], ["--silent-for", "1h", "--json"]],
    ids=" ".join,
)  # fmt: skip
def test_whom_to_retire_is_said_in_one_way(words: list[str]) -> None:
    result = CliRunner().invoke(app, ["nodes", "retire", "-p", "two", *words])
    assert result.exit_code == WRONG_USAGE, result.output


def node(name: str, silent_ms: int, kind: str = "query", **more: Any) -> NodeInfo:
    connected = more.pop("connected", False)
    gone = more.pop("gone", "")
    key = NodeKey(name, 1)
    known = NodeExplanation(key, kind, 1, connected, silent_ms, gone, (), (), (), **more)
    return NodeInfo(0, known, None)


def test_a_state_follows_from_the_stream_the_silence_and_who_closed_it() -> None:
    assert node("a", 0).state is NodeState.GONE
    assert node("a", SILENT_AFTER_MS - 1, connected=True).state is NodeState.LIVE
    assert node("a", SILENT_AFTER_MS, connected=True).state is NodeState.SILENT
    assert node("a", 0, gone="evicted").state is NodeState.EVICTED
    assert node("a", 0, gone="retired").state is NodeState.RETIRED


def test_the_time_of_a_node_is_the_least_that_it_promises_and_holds() -> None:
    known = node("a", 0, holds=(HoldMove("x", 0, 7), HoldMove("y", 0, 9))).known
    assert NodeInfo(0, known, 5).slot == 5
    assert NodeInfo(0, known, None).slot == NodeInfo(0, known, 8).slot == 7
    assert node("a", 0).slot is None


def test_only_who_has_no_stream_is_gone() -> None:
    nodes = (
        node("gone", 1_000),
        node("evicted", 2_000, "front", gone="evicted"),
        node("just gone", 999),
        node("stuck", 9_000, connected=True),
        node("retired", 9_000, gone="retired"),
    )
    found = NodeList(TWO_SEGMENTS, nodes, 0, {})
    assert [each.node_id for each in found.gone(1_000)] == ["gone", "evicted"]
    assert [each.node_id for each in found.gone(0, "query")] == ["gone", "just gone"]
