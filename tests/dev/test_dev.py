"""`lowmark dev`: what it starts, what it says of itself, what it keeps, and how it ends."""

from __future__ import annotations

import json
import signal
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import tracker.dev.server
from tests.client.support import TWO_SEGMENTS
from tests.cluster.children import Running, now_slot
from tests.waits import HANG_S, until
from tracker.cli.app import app
from tracker.cli.common import EXIT_REFUSED
from tracker.client import Admin, RefusedError
from tracker.client.subscriber import Subscriber
from tracker.core.insight.describe import PipelineDescription
from tracker.dev.server import DevServer
from tracker.errors import StateError


@pytest.fixture
def taken() -> Iterator[int]:
    """A port on which somebody else listens."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield other.getsockname()[1]


def moves(server: DevServer) -> int:
    """Waits until the sample has left this moment behind; returns where min time is then."""
    with Subscriber(server.target, "sample") as progress:
        assert progress.wait_until(now_slot(), timeout_s=HANG_S)
        return progress.min_time()


def test_the_sample_pipeline_moves() -> None:
    with DevServer(0, 0) as server:
        assert moves(server) > 0
        with Admin(server.target) as admin:
            state = admin.pipeline("sample").state
        assert state.late_items == 0 and not state.complete


def test_a_slow_order_makes_min_time_lag_until_it_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tracker.dev.sample.SLOW_EVERY", 1)
    monkeypatch.setattr("tracker.dev.sample.SLOW_S", 3_600.0)
    with DevServer(0, 0) as server, Admin(server.target) as admin:
        state = until(lambda: _waiting(admin), "no order waits")
        assert state is not None
        parse = state.segments[0]
        assert state.min_time == parse.low < state.fronts[0].heartbeat


def _waiting(admin: Admin) -> PipelineDescription | None:
    """The pipeline's state, once orders of several moments are open."""
    state = admin.pipeline("sample").state
    return state if state.segments[0].open_slots > 1 else None


def test_the_page_shows_the_tracker() -> None:
    with DevServer(0, 0) as server:
        with urllib.request.urlopen(server.url + "api/v1/pipelines", timeout=HANG_S) as answer:
            told = json.load(answer)
        assert "sample" in json.dumps(told)


def test_without_a_sample_there_is_no_pipeline() -> None:
    with DevServer(0, 0, with_sample=False) as server, Admin(server.target) as admin:
        assert admin.pipelines() == []


def test_a_port_that_is_taken_is_named_with_what_to_do(taken: int) -> None:
    for ports, option in (((taken, 0), "--port 0"), ((0, taken), "--dashboard-port 0")):
        with pytest.raises(StateError, match=f"port {taken} .*{option}"):
            DevServer(*ports)
    done = CliRunner().invoke(app, ["dev", "--port", str(taken)])
    assert done.exit_code == EXIT_REFUSED
    assert f"port {taken} of 127.0.0.1 is taken" in done.stderr


def test_the_page_moves_where_its_own_port_is_taken(
    taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracker.dev.server, "DEFAULT_DASHBOARD_PORT", taken)
    with DevServer(0) as server:
        assert not server.url.endswith(f":{taken}/")
        with urllib.request.urlopen(server.url, timeout=HANG_S) as answer:
            assert answer.status == 200


def test_what_it_is_told_is_forgotten_unless_a_directory_keeps_it(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with DevServer(0, 0, data) as server:
        with Admin(server.target) as admin:
            admin.register(TWO_SEGMENTS)
        before = moves(server)
    with DevServer(0, 0, data) as server:
        assert moves(server) > before
        with Admin(server.target) as admin:
            assert {info.spec.name for info in admin.pipelines()} == {"sample", "two"}
            assert admin.pipeline("sample").state.generation == 1
    with DevServer(0, 0) as server, Admin(server.target) as admin, pytest.raises(RefusedError):
        admin.pipeline("two")


def test_the_sample_says_once_that_it_has_ended_and_the_tracker_goes_on() -> None:
    failures: list[Exception] = []
    with DevServer(0, 0, sample_failed=failures.append) as server:
        moves(server)
        with Admin(server.target) as admin:
            admin.restart("sample", admin.pipeline("sample").state.generation)
            until(lambda: failures)
            assert admin.pipelines()
    assert len(failures) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_says_where_it_is_and_ends_cleanly_when_told_to(
    number: signal.Signals, tmp_path: Path
) -> None:
    errors = tmp_path / "errors.log"
    process = Running(
        "tracker.cli", "dev", "--port", "0", "--dashboard-port", "0", "--json", errors=errors
    )
    process.start()
    try:
        said = json.loads(process.until_line(0))
        with urllib.request.urlopen(said["dashboard"], timeout=HANG_S) as answer:
            assert answer.status == 200
        with Admin(said["tracker"]) as admin:
            assert [info.spec.name for info in admin.pipelines()] == [said["pipeline"]]
        process.signal(number)
        process.ends_well()
    finally:
        process.discard()
    assert errors.read_text() == ""


def test_the_next_commands_name_the_tracker_where_it_is_not_at_its_usual_place(
    tmp_path: Path,
) -> None:
    process = Running(
        "tracker.cli", "dev", "--port", "0", "--dashboard-port", "0",
        errors=tmp_path / "errors.log",
    )  # fmt: skip
    process.start()
    try:
        process.until(
            lambda line: line.strip().startswith("lowmark watch -p sample --target 127.0.0.1:")
        )
        process.until(lambda line: line == "Ctrl-C ends it.")
        process.signal(signal.SIGINT)
        process.until_says("ended")
        process.ends_well()
    finally:
        process.discard()
