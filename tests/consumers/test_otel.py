"""OTLP: a real receiver of OpenTelemetry's protocol is told what the tracker says, while both come and go."""

from __future__ import annotations

import json
import queue
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from typer.testing import CliRunner, Result

from lowmark.errors import RefusedError, UnavailableError
from tests.client.support import HOUR, consume, done, various_pipelines
from tests.cluster.children import Running
from tests.consumers.receiver import taking_posts
from tests.waits import HANG_S, until
from tracker import __version__
from tracker.cli.app import app
from tracker.cli.common import EXIT_REFUSED, EXIT_TIMED_OUT, EXIT_UNAVAILABLE
from tracker.cli.otlp import metrics_url
from tracker.client import Admin
from tracker.client.embedded import EmbeddedTracker
from tracker.consumers import otel
from tracker.core.insight.diagnosis import CauseKind
from tracker.view import progress

WRONG_USAGE = 2
Key = tuple[str, str | None, str | None]
"""Name of a gauge, pipeline and segment."""


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedTracker]:
    monkeypatch.setattr(progress, "STUCK_AFTER_MS", 0)
    with various_pipelines(1) as embedded:
        yield embedded


class Receiver:
    """What has come. status: how requests are answered."""

    def __init__(self) -> None:
        self.status = 200
        self.refused = 0
        self.paths: list[str] = []
        self.taken: queue.Queue[ExportMetricsServiceRequest] = queue.Queue()

    def take(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers["content-length"]))
        self.paths.append(handler.path)
        if self.status == 200:
            self.taken.put(ExportMetricsServiceRequest.FromString(body))
        else:
            self.refused += 1
        handler.send_response(self.status)
        handler.end_headers()

    def next(self) -> ExportMetricsServiceRequest:
        return self.taken.get(timeout=HANG_S)


@contextmanager
def receiving() -> Iterator[tuple[Receiver, str]]:
    receiver = Receiver()
    with taking_posts(receiver.take) as address:
        yield receiver, address


def points(request: ExportMetricsServiceRequest) -> dict[Key, Any]:
    """The values of a request; of the gauge of causes, the cause in place of its 1."""
    found: dict[Key, Any] = {}
    for resource in request.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                for point in metric.gauge.data_points:
                    named = {each.key: each.value.string_value for each in point.attributes}
                    key = metric.name, named.get(otel.PIPELINE), named.get(otel.SEGMENT)
                    assert key not in found
                    value = getattr(point, point.WhichOneof("value") or "")
                    found[key] = named.get(otel.CAUSE, value)
    return found


def export(running: EmbeddedTracker, *words: str) -> Result:
    environment = {"LOWMARK_TARGET": running.target, "OTEL_EXPORTER_OTLP_METRICS_TIMEOUT": "1"}
    return CliRunner().invoke(app, ["watch", "--once", *words], env=environment)


# --- what is told ---------------------------------------------------------------------------------


def test_a_receiver_is_told_what_the_tracker_says(running: EmbeddedTracker) -> None:
    with receiving() as (receiver, url):
        result = export(running, "--otlp", url)
        assert result.exit_code == 0, result.output
        told = points(request := receiver.next())
    assert receiver.paths == ["/v1/metrics"]
    told_of = {
        each.key: each.value.string_value
        for each in request.resource_metrics[0].resource.attributes
    }
    assert (told_of["service.name"], told_of["service.version"]) == ("lowmark", __version__)
    said = CliRunner().invoke(app, ["status", "--json", "--target", running.target])
    rows = json.loads(said.stdout)
    assert len(rows) == 12
    for row in rows:
        where = row["pipeline"], row["segment"]
        is_number = row["pipeline"] == "numbers"
        values = {
            "lowmark.min_time": datetime.fromisoformat(row["time"]).timestamp()
            if row["time"]
            else None,
            "lowmark.min_time.slot": None if row["complete"] else row["min_time"],
            "lowmark.lag": None if row["lag_ms"] is None else row["lag_ms"] / 1e3,
            "lowmark.open_items": row["open_items"],
            "lowmark.open_slots": row["open_slots"],
            "lowmark.complete": int(row["complete"]),
            "lowmark.stuck": int(row["state"] == "stuck"),
        }
        assert {name: told.get((name, *where)) for name in values} == values
        assert (row["time"] is None) == (row["complete"] or is_number)
        assert ((otel.HELD, *where) in told) == (row["holds"] is not None)
    assert told["lowmark.lag", "held", "first"] == 2 * 3_600.0
    assert told["lowmark.min_time", "held", None] == 3_600.0
    assert told["lowmark.stuck", "held", "first"] == 1
    assert told[otel.HELD, "held", "first"] == CauseKind.NO_READER.value
    assert told[otel.HELD, "waiting", "first"] == CauseKind.FRONT_MISSING.value
    assert told[otel.UP, None, None] == 1 and told[otel.OMITTED, None, None] == 0
    assert {name for name, _, _ in told} == otel.GAUGES.keys()


def test_pipelines_are_named(running: EmbeddedTracker) -> None:
    with receiving() as (receiver, url):
        result = export(running, "-p", "held", "-p", "complete", "--otlp", f"{url}/otlp/own")
        assert result.exit_code == 0, result.output
        told = points(receiver.next())
        assert {pipeline for _, pipeline, _ in told} == {"held", "complete", None}
        assert receiver.paths == ["/otlp/own"]
        unknown = export(running, "-p", "nobody", "--otlp", url)
    assert unknown.exit_code == EXIT_REFUSED and "nobody" in unknown.stderr
    assert receiver.taken.empty()


def test_no_more_segments_are_told_than_the_limit(
    running: EmbeddedTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otel, "MAX_SEGMENTS", 5)
    reader = InMemoryMetricReader()
    meter = MeterProvider([reader], shutdown_on_exit=False).get_meter("test")
    with otel.observe(meter, running.target):
        for _ in range(2):
            told = collected(reader)
            assert told[otel.OMITTED, None, None] == 7
            assert len([key for key in told if key[0] == "lowmark.open_items"]) == 5


# --- who is away ----------------------------------------------------------------------------------


def collected(reader: InMemoryMetricReader) -> dict[Key, float]:
    """What a program's own metrics have by now."""
    data: Any = reader.get_metrics_data()
    if data is None:
        return {}
    return {
        (metric.name, point.attributes.get(otel.PIPELINE), point.attributes.get(otel.SEGMENT)): point.value
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
    }  # fmt: skip


def test_while_the_tracker_is_away_nothing_old_is_told(
    running: EmbeddedTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otel, "ANSWER_TIMEOUT_S", 1.0)  # expires: it is away; asked again
    reader = InMemoryMetricReader()
    meter = MeterProvider([reader], shutdown_on_exit=False).get_meter("test")

    def observed() -> otel.Observed | None:
        with suppress(UnavailableError):
            return otel.observe(meter, running.target, ["held"])
        return None

    observing = until(observed)
    assert observing is not None
    with observing:
        until(lambda: collected(reader).get(("lowmark.min_time", "held", None)) == 3_600.0)
        running.kill_shard(0)
        assert collected(reader) == {(otel.UP, None, None): 0}
        with pytest.raises(UnavailableError):
            otel.observe(meter, running.target)
        running.start_shard(0)
        until(lambda: ("lowmark.min_time", "held", None) in collected(reader))
        monkeypatch.setattr(otel, "ANSWER_TIMEOUT_S", HANG_S)
        with pytest.raises(RefusedError, match="nobody"):
            otel.observe(meter, running.target, ["nobody"])
    assert collected(reader) == {}, "it is closed"


def test_where_one_of_the_named_is_deleted_the_others_are_told_of(running: EmbeddedTracker) -> None:
    reader = InMemoryMetricReader()
    meter = MeterProvider([reader], shutdown_on_exit=False).get_meter("test")
    with otel.observe(meter, running.target, ["complete", "held"]), Admin(running.target) as admin:
        assert {pipeline for _, pipeline, _ in collected(reader)} == {"complete", "held", None}
        spec = admin.pipeline("complete").spec
        admin.delete("complete", 0)
        told = collected(reader)
        assert {pipeline for _, pipeline, _ in told} == {"held", None}
        assert told[otel.UP, None, None] == 1
        until(lambda: admin.register(spec))
        assert {pipeline for _, pipeline, _ in collected(reader)} == {"complete", "held", None}


@pytest.mark.parametrize("status", [400, 503])
def test_a_receiver_that_does_not_take_it_is_told_of_by_the_exit_status(
    running: EmbeddedTracker, status: int
) -> None:
    with receiving() as (receiver, url):
        receiver.status = status
        result = export(running, "-p", "held", "--otlp", url)
        assert result.exit_code == EXIT_TIMED_OUT, result.output
        assert f"{url}/v1/metrics has not taken it" in result.stderr


def test_it_goes_on_when_the_receiver_is_back_and_ends_when_it_is_told(
    running: EmbeddedTracker, tmp_path: Path
) -> None:
    with receiving() as (receiver, url):
        receiver.status = 400
        exporting = Running(
            "tracker.cli", "watch", "--otlp", url, "-p", "held", "--interval", "1s",
            "--target", running.target, errors=tmp_path / "export.log",
        )  # fmt: skip
        exporting.start()
        try:
            until(lambda: receiver.refused, (tmp_path / "export.log").read_text)
            reader = running.node("held", "reader")
            reader.join(HANG_S)
            done(reader.commit(consume(HOUR, 1)))
            assert running.subscriber("held").wait_until(3 * HOUR, timeout_s=HANG_S)
            receiver.status = 200
            until(lambda: points(receiver.next())["lowmark.min_time", "held", None] == 3 * 3_600.0)
        finally:
            exporting.signal(signal.SIGTERM)
        exporting.ends_well()


# --- what cannot be -------------------------------------------------------------------------------


def test_what_is_no_endpoint_is_refused(running: EmbeddedTracker) -> None:
    for words in (
        ["--otlp", "collector:4318"],
        ["--otlp", "http://"],
        ["--otlp", "env", "--interval", "500ms"],
        ["--otlp", "env", "--interval", "soon"],
    ):
        assert export(running, *words).exit_code == WRONG_USAGE, words


def test_an_endpoint_is_a_receiver_or_its_path() -> None:
    assert metrics_url("env") == ""
    for given in ("http://a.example:4318", "http://a.example:4318/"):
        assert metrics_url(given) == "http://a.example:4318/v1/metrics"
    assert metrics_url("https://a.example/x?k=1") == "https://a.example/x?k=1"


def test_a_tracker_that_is_not_there_is_said_at_once() -> None:
    result = CliRunner().invoke(
        app, ["watch", "--otlp", "env", "--once", "--target", "127.0.0.1:1"]
    )
    assert result.exit_code == EXIT_UNAVAILABLE


def test_without_the_extra_it_is_named(
    running: EmbeddedTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.metrics", None)
    result = export(running, "--otlp", "env")
    assert result.exit_code == EXIT_REFUSED
    assert "pip install 'lowmark[server,otel]'" in result.stderr
