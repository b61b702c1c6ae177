"""docs/http.md: its commands run as they stand there, against `lowmark dev`, and its figures are those of the code."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from scripts.http_page import PAGE, written
from tests.docs.pages import Block, blocks, table_rows
from tests.waits import HANG_S, until
from tracker import http
from tracker.client import Admin
from tracker.dashboard import all_pipelines, events, openapi, query, routes, server, shared
from tracker.dev.sample import NAME
from tracker.dev.server import DEFAULT_DASHBOARD_PORT, DevServer

ADDRESS = f"127.0.0.1:{DEFAULT_DASHBOARD_PORT}"
COMMANDS = [block for block in blocks(PAGE) if block.info == "sh"]


@pytest.fixture(scope="module")
def dev() -> Iterator[DevServer]:
    with DevServer(0, 0) as server, Admin(server.target) as admin:
        until(lambda: any(p.spec.name == NAME and p.state.begun for p in admin.pipelines()))
        yield server


def run(command: str, dev: DevServer, directory: Path) -> str:
    """What a block of the page prints."""
    (directory / "orders.token").write_text("lowmark_any")
    address = dev.url.removeprefix("http://").rstrip("/")
    done = subprocess.run(
        ["bash", "-ec", command.replace(ADDRESS, address)], cwd=directory, capture_output=True,
        text=True, check=True, timeout=HANG_S,
    )  # fmt: skip
    return done.stdout


@pytest.mark.parametrize("block", COMMANDS, ids=lambda block: block.text.splitlines()[0][-60:])
def test_each_command_runs_line_by_line(block: Block, dev: DevServer, tmp_path: Path) -> None:
    for line in block.text.splitlines():
        said = run(line, dev, tmp_path)
        if "/none/" in line:
            assert json.loads(said) == json.loads(shown("refused.unknown"))
        elif "/events" in line:
            fields = [each.partition(": ") for each in said.splitlines() if each]
            assert [name for name, _, _ in fields] == ["retry", "id", "event", "data"]
            assert json.loads(fields[-1][2])["pipeline"] == NAME
        elif "--etag-compare" in line:
            assert said.strip() in ("200", "304")
        elif "-o " not in line:
            assert "code" not in json.loads(said), said
    for picture in tmp_path.glob("*.svg"):
        assert picture.read_text().startswith("<svg ")


def shown(word: str) -> str:
    """The block of JSON with a word in it."""
    (found,) = [each.text for each in blocks(PAGE) if each.info == "json" and word in each.text]
    return found


def test_the_answer_that_is_shown_is_one() -> None:
    schema = {"$ref": "#/components/schemas/MinTimes", **openapi.document()}
    Draft202012Validator(schema).validate(json.loads(shown('"more_segments"')))


def test_the_table_of_routes_is_fresh() -> None:
    assert PAGE.read_text() == written(PAGE.read_text()), "run python -m scripts.http_page"


def test_the_limits_are_those_of_the_code() -> None:
    page = " ".join(PAGE.read_text().split())
    limits = {row[0]: row[1] for row in table_rows(PAGE, "what")}
    share = int(server.MAX_CONNECTIONS * http.SHARE_OF_AN_ADDRESS)
    assert limits["connections"] == f"{server.MAX_CONNECTIONS}, of them {share} of one address"
    assert limits["streams of events"].startswith(
        f"{events.MAX_STREAMS}, of them {events.MAX_STREAMS_OF_A_CLIENT} of"
    )
    assert limits["pipelines with streams"] == str(events.MAX_FOLLOWED)
    assert limits["questions to the tracker that are under way"] == str(shared.MAX_ASKED)
    assert limits["parameters; characters of a search"] == (
        f"{http.MAX_PARAMETERS}; {routes.MAX_SEARCH_CHARACTERS}"
    )
    assert limits["the head of a request"] == (
        f"{http.MAX_HEAD_BYTES:,} bytes, in {http.HEAD_TIMEOUT_S:g} s"
    )
    assert limits["a client that takes nothing"] == f"{http.WRITE_TIMEOUT_S:g} s"
    assert limits["pipelines on a page; segments, fronts, nodes of one"] == (
        f"{all_pipelines.PAGE_ROWS}; {query.MAX_SHOWN_SEGMENTS} each"
    )
    assert query.MAX_SHOWN_SEGMENTS == query.MAX_SHOWN_FRONTS == query.MAX_SHOWN_NODES
    assert f"at most one event in {1000 * events.EVENT_INTERVAL_S:g} ms" in page
    assert f"For {events.KEEP_ALIVE_S:g} s without news" in page
    (cached_s,) = [route.cached_s for route in routes.ROUTES if route.name == "badge"]
    assert f"kept for {cached_s} s" in page
    assert shared.LOOK_INTERVAL_S == 1.0 and "at most a second old" in page
