"""Runs for OpenLineage: one for each period, whoever tells it and however often."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from tests.consumers.receiver import taking_posts
from tests.consumers.test_marks import AT, HOURS, hour
from tracker import __version__
from tracker.consumers.periods.cut import Cut
from tracker.consumers.periods.once import do_once
from tracker.consumers.periods.openlineage import (
    API_KEY_VARIABLE,
    FACET,
    LineageMark,
    dataset_of,
    run_id,
)
from tracker.core.model.slots import FOREVER
from tracker.errors import StateError


class Lineage:
    """A receiver of events. statuses: how the next requests are answered, then with 201."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = list(statuses)
        self.paths: list[str] = []
        self.keys: list[str | None] = []
        self.events: list[dict[str, Any]] = []
        """Of those requests that were taken."""

    def take(self, handler: BaseHTTPRequestHandler) -> None:
        event = json.loads(handler.rfile.read(int(handler.headers["content-length"])))
        status = self.statuses.pop(0) if self.statuses else 201
        self.paths.append(handler.path)
        self.keys.append(handler.headers["authorization"])
        if status == 201:
            self.events.append(event)
        handler.send_response(status)
        handler.send_header("content-length", "0")
        handler.end_headers()

    def runs(self) -> dict[str, list[str]]:
        """By run the types of its events, in the order in which they came."""
        found: dict[str, list[str]] = {}
        for event in self.events:
            found.setdefault(event["run"]["runId"], []).append(event["eventType"])
        return found


@contextmanager
def lineage(*statuses: int) -> Iterator[tuple[Lineage, str]]:
    receiver = Lineage(*statuses)
    with taking_posts(receiver.take) as address:
        yield receiver, address


def test_a_period_is_a_run_with_its_time_its_data_and_min_time(tmp_path: Path) -> None:
    outputs = ["s3://lake/orders/priced", "/data/orders"]
    with lineage() as (receiver, url):
        for place in (url, str(tmp_path)):
            do_once(LineageMark(HOURS, place, namespace="shop", outputs=outputs), hour(9), AT)
    run = str(run_id("shop", hour(9)))
    (file,) = tmp_path.iterdir()
    assert file.name == f"{run}.json"
    assert [json.loads(line) for line in file.read_text().splitlines()] == receiver.events
    assert receiver.paths == ["/api/v1/lineage"] * 2
    start, complete = receiver.events
    assert (start["eventType"], start["eventTime"]) == ("START", "2026-03-02T09:00:00.000+00:00")
    assert (complete["eventType"], complete["eventTime"]) == (
        "COMPLETE",
        AT.isoformat(timespec="milliseconds"),
    )
    for event in (start, complete):
        assert event["run"]["runId"] == run
        assert (event["job"]["namespace"], event["job"]["name"]) == ("shop", "orders.load")
        assert event["producer"] == f"urn:lowmark:{__version__}"
        assert [(each["namespace"], each["name"]) for each in event["outputs"]] == [
            ("s3://lake", "orders/priced"), ("file", "/data/orders"),
        ]  # fmt: skip
        facets = event["run"]["facets"]
        nominal = facets["nominalTime"]
        assert nominal["nominalStartTime"] == "2026-03-02T09:00:00+00:00"
        assert nominal["nominalEndTime"] == "2026-03-02T10:00:00+00:00"
        told = facets[FACET]
        assert {name: told[name] for name in hour(9).fields()} == hour(9).fields()
        assert (told["pipeline"], told["segment"]) == ("orders", "load")
        assert told["min_time"] == hour(9).to_slot and not told["complete"]
        assert (told["time"], told["complete_at"]) == (
            "2026-03-02T10:00:00+00:00", AT.isoformat(timespec="milliseconds"),
        )  # fmt: skip


def test_lateness_counts_and_numbers_have_no_time(tmp_path: Path) -> None:
    late = Cut(slots=3_600, lateness=60, slack_ns=10**9)
    numbers = Cut(slots=10)
    with lineage() as (receiver, url):
        do_once(LineageMark(late, url), hour(9), AT)
        do_once(LineageMark(numbers, url), numbers.period("versions", None, 20), None)
        do_once(
            LineageMark(HOURS, url), HOURS.period("orders", None, hour(9).from_slot, FOREVER), AT
        )
    facets = [
        event["run"]["facets"] for event in receiver.events if event["eventType"] == "COMPLETE"
    ]
    assert facets[0][FACET]["time"] == "2026-03-02T10:01:00+00:00"
    assert facets[1].keys() == {FACET}
    assert (facets[1][FACET]["min_time"], facets[1][FACET].get("time")) == (30, None)
    assert facets[2][FACET]["complete"] and "nominalEndTime" not in facets[2]["nominalTime"]
    assert receiver.events[2]["job"]["name"] == "versions"


def test_runs_are_known_by_pipeline_segment_and_period() -> None:
    own = run_id("shop", hour(9))
    assert own == run_id("shop", hour(9)) and own.version == 5
    others = [("shop", hour(10)), ("shop", hour(9, "others")), ("lowmark", hour(9))]
    assert len({own, *(run_id(namespace, period) for namespace, period in others)}) == 4


def test_a_file_that_is_there_stays_as_it_is(tmp_path: Path) -> None:
    mark = LineageMark(HOURS, str(tmp_path / "events"))
    do_once(mark, hour(9), AT)
    (file,) = (tmp_path / "events").iterdir()
    before = file.read_bytes()
    do_once(mark, hour(9), None)
    assert file.read_bytes() == before


def test_a_receiver_that_is_away_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(API_KEY_VARIABLE, "word")
    with lineage(503, 429, 201, 500) as (receiver, url):
        do_once(LineageMark(HOURS, f"{url}/own/path", attempts=4), hour(9), AT)
        assert receiver.runs() == {str(run_id("lowmark", hour(9))): ["START", "COMPLETE"]}
        assert set(receiver.paths) == {"/own/path"} and set(receiver.keys) == {"Bearer word"}


@pytest.mark.parametrize(("statuses", "sent"), [((404,), 1), ((503, 503), 2)])
def test_a_receiver_that_does_not_take_a_run_is_named(statuses: tuple[int, ...], sent: int) -> None:
    with lineage(*statuses) as (receiver, url):
        mark = LineageMark(HOURS, url, attempts=2)
        with pytest.raises(StateError, match=rf"{url} has not taken run .* tried again when"):
            do_once(mark, hour(9), AT)
        assert len(receiver.paths) == sent
        do_once(mark, hour(9), AT)
        assert len(receiver.events) == 2


def test_a_receiver_that_is_not_there_is_named() -> None:
    with pytest.raises(StateError, match="has not taken run"):
        do_once(LineageMark(HOURS, "http://127.0.0.1:1", attempts=1), hour(9), AT)


@pytest.mark.parametrize(
    "where", ["orders", "s3://lake", "s3://lake/", "://x/y", "s3:///orders", ""]
)
def test_what_names_no_data_set_is_refused(where: str) -> None:
    with pytest.raises(ValueError, match="names no data set"):
        dataset_of(where)


def test_a_url_with_a_password_is_refused() -> None:
    with pytest.raises(ValueError, match=API_KEY_VARIABLE) as refused:
        LineageMark(HOURS, "http://{}@lineage.example".format("me:word"))
    assert "word@" not in str(refused.value)


def test_without_the_extra_it_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "openlineage.client", None)
    with pytest.raises(
        StateError, match=r"needs openlineage.*pip install 'lowmark\[openlineage\]'"
    ):
        LineageMark(HOURS, str(tmp_path))
