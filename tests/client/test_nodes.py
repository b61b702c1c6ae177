"""The nodes of a pipeline, listed, and retired many at a time."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pytest

import tracker
from tests.client.support import TWO_SEGMENTS, consume, create, done, joined_front, promise
from tests.client.test_command_line import run, run_json
from tests.waits import HANG_S, until
from tracker.cli.render.nodes import TYPES
from tracker.client import NodeClient, NodeInfo, NodeList, NodeState
from tracker.client.embedded import EmbeddedTracker
from tracker.core.insight import explain
from tracker.core.insight.diagnosis import SILENT_AFTER_MS
from tracker.core.insight.explain import NodeExplanation
from tracker.core.model import HoldMove, NodeKey
from tracker.core.model.waits import WaitCause, WaitKind


@pytest.fixture
def running() -> Iterator[EmbeddedTracker]:
    """A front at 20 that lives; a worker that is gone, with an item of its own that holds slot 3; one that waits; and
    a query that is gone."""
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
    assert table.column_names == list(TYPES)
    found = rows(running)
    for row in table.to_pylist():
        told = found[row["node_id"]]
        assert set(told) == set(TYPES)
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


def test_only_who_has_no_stream_is_gone_for_a_time() -> None:
    nodes = (
        node("gone", 1_000),
        node("evicted", 2_000, "front", gone="evicted"),
        node("just gone", 999),
        node("stuck", 9_000, connected=True),
        node("retired", 9_000, gone="retired"),
    )
    found = NodeList(TWO_SEGMENTS, nodes, 0, {})
    assert [each.node_id for each in found.gone_for(1_000)] == ["gone", "evicted"]
    assert [each.node_id for each in found.gone_for(0, "query")] == ["gone", "just gone"]
