"""docs/security.md shows what the code takes."""

from __future__ import annotations

from tests.docs.pages import ROOT, blocks, table_rows
from tracker.core.process import ProcessConfig
from tracker.service.rpc import access, budgets, nodes, pipelines, progress, sizes, waiters
from tracker.service.rpc.limits import Limits
from tracker.service.rpc.tokens import Right, parse_tokens
from tracker.wire import grpc_options

PAGE = ROOT / "docs" / "security.md"


def test_the_file_of_tokens_is_one() -> None:
    (shown,) = [block.text for block in blocks(PAGE) if block.info == "yaml"]
    (token,) = parse_tokens(shown.encode(), "the page")
    assert token.may(Right.COMMIT, "flights")


def test_every_right_is_explained() -> None:
    shown = {row[0].strip("`") for row in table_rows(PAGE, "right")}
    assert shown == {right.value for right in Right}


def test_how_often_refusals_are_logged_is_said_rightly() -> None:
    assert (access.MAX_LOGGED_REFUSALS, access.LOGGED_PERIOD_S) == (20, 10.0)
    assert "20 times in ten seconds" in " ".join(PAGE.read_text().split())


def test_the_limits_are_those_of_the_code() -> None:
    shown = {row[0].strip("`"): row[2] for row in table_rows(PAGE, "limit")}
    given = Limits()
    assert shown["max_subscribers"] == f"{given.max_subscribers:,}"
    assert shown["max_streams_per_client"] == f"{given.max_streams_per_client:,}"
    assert shown["max_calls_per_s"] == "none" and not given.max_calls_per_s
    assert shown["max_ticks_per_s"] == "none" and not given.max_ticks_per_s
    assert shown["message size"] == f"{grpc_options.MAX_MESSAGE_BYTES // 2**20} MiB"
    assert shown["tick size"] == f"{(grpc_options.MAX_TICK_BYTES + 1024) // 2**20} MiB - 1 KiB"
    assert shown["max_segments"] == f"{ProcessConfig().max_segments:,}"
    assert shown["max_nodes` of a process"] == f"{ProcessConfig().max_nodes:,}"
    page = (pipelines.MAX_PAGE_PIPELINES, pipelines.MAX_PAGE_BYTES // 2**20)
    assert shown["page of pipelines"] == f"{page[0]:,}, or {page[1]} MiB"
    config = ProcessConfig()
    assert shown["max_segments` of a token"] == f"{config.max_segments // budgets.PART:,}"
    assert shown["max_nodes` of a token"] == f"{config.max_nodes // budgets.PART:,}"
    for name in ("most_open_cells", "most_open_units", "most_nodes", "most_staged"):
        assert shown[name] == f"{getattr(config, name):,}"
    assert shown["request size"] == f"{sizes.MAX_REQUEST_BYTES // 1024} KiB"
    assert shown["probe size"] == f"{grpc_options.MAX_PROBE_BYTES // 1024} KiB"
    assert shown["bytes in flight"] == f"{given.max_bytes_in_flight // 2**20} MiB"
    own = given.max_bytes_in_flight_per_client
    assert shown["bytes in flight of a client"] == f"{own // 2**20} MiB"
    assert shown["streams"] == f"{grpc_options.MAX_STREAMS_PER_CONNECTION:,}"
    assert shown["calls that nobody serves yet"] == f"{grpc_options.MAX_PENDING_CALLS:,}"
    assert shown["max_connection_age_ms"] == f"{given.max_connection_age_ms // 3_600_000} h"
    assert shown["age of a probe's connection"] == f"{grpc_options.MAX_PROBE_AGE_MS // 60_000} min"
    assert shown["handshake"] == f"{grpc_options.HANDSHAKE_TIMEOUT_MS // 1000} s"
    assert shown["idle"] == f"{grpc_options.MAX_IDLE_MS // 60_000} min"
    assert shown["pipelines of one stream of subscriptions"] == f"{progress.MAX_SUBSCRIPTIONS:,}"
    assert shown["calls that wait"] == f"{waiters.MAX_WAITERS:,}"
    assert shown["unread answers of a stream of ticks"] == f"{nodes.MAX_UNANSWERED:,}"
