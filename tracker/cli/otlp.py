"""`lowmark watch --otlp`: min time for tools that gather metrics of many systems."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

import typer

from tracker import __version__
from tracker.cli.common import (
    EXIT_TIMED_OUT,
    fail,
    say,
    told_to_end,
    wrong_usage,
)
from tracker.cli.reaching import reach
from tracker.cli.shared import Shared
from tracker.redacting import shown_url

if TYPE_CHECKING:
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    from tracker.client.signals import ToldToEnd

METRICS_PATH = "v1/metrics"
"""Where a receiver takes metrics, unless an endpoint says otherwise."""
SHORTEST_INTERVAL_S = 1.0
FROM_ENVIRONMENT = "env"
"""The endpoint that OTEL_EXPORTER_OTLP_ENDPOINT and so on name."""
MAX_POINTS_AT_ONCE = 5_000
"""Points in one request; more go in several."""


def export(
    context: typer.Context, pipelines: list[str], endpoint: str, interval_s: float, once: bool
) -> None:
    """Sends min time, lag and open items of the pipelines, or of all, and of their segments to an OpenTelemetry
    receiver until SIGTERM; with `once` ends the command with `EXIT_TIMED_OUT` if the receiver has not taken them."""
    with wrong_usage():
        url = metrics_url(endpoint)
        if interval_s < SHORTEST_INTERVAL_S:
            raise ValueError(f"--interval {interval_s:g} is shorter than {SHORTEST_INTERVAL_S:g} s")
    receiver = shown_url(url) if url else "the receiver"
    try:
        from tracker.consumers.otel import observe

        exporter, provider, reader = _exporting(url)
    except ModuleNotFoundError as error:
        fail(f"lowmark watch --otlp needs {error.name}: pip install 'lowmark[server,otel]'")
    shared = Shared.of(context)
    reach(shared.target, shared.retry_s)
    try:
        with observe(provider.get_meter("lowmark", __version__), shared.target, pipelines):
            ending = None if once else told_to_end()
            say(f"exporting to {receiver}", err=True)
            if ending is not None:
                _go_on(reader, exporter, interval_s, ending)
            elif not _export(reader, exporter):
                fail(f"{receiver} has not taken it; the log has the reason", EXIT_TIMED_OUT)
    finally:
        provider.shutdown()
        exporter.shutdown()


def _go_on(
    reader: InMemoryMetricReader, exporter: OTLPMetricExporter, interval_s: float, ending: ToldToEnd
) -> None:
    """Exports until SIGTERM."""
    while True:
        _export(reader, exporter)
        if ending.wait(interval_s):
            return


def metrics_url(endpoint: str) -> str:
    """Where metrics go; empty for `env`: what the SDK's own variables say. Raises ValueError for what is no URL."""
    if endpoint == FROM_ENVIRONMENT:
        return ""
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(
            f"--otlp {endpoint!r} is no URL of a receiver: http://collector.example:4318"
        )
    path = parts.path if parts.path.strip("/") else f"/{METRICS_PATH}"
    return urlunsplit(parts._replace(path=path))


def _exporting(url: str) -> tuple[OTLPMetricExporter, MeterProvider, InMemoryMetricReader]:
    """What sends, and what gauges are read by. A reader of our own, since a periodic one tells nobody whether a
    receiver has taken what was sent. Raises ModuleNotFoundError."""
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource

    own = Resource.create({"service.name": "lowmark", "service.version": __version__})
    reader = InMemoryMetricReader()
    provider = MeterProvider(
        [reader], resource=own.merge(OTELResourceDetector().detect()), shutdown_on_exit=False
    )
    exporter = OTLPMetricExporter(url or None, max_export_batch_size=MAX_POINTS_AT_ONCE)
    return exporter, provider, reader


def _export(reader: InMemoryMetricReader, exporter: OTLPMetricExporter) -> bool:
    """Whether a receiver has taken what is told now; the exporter tries again for its own timeout."""
    from opentelemetry.sdk.metrics.export import MetricExportResult

    data = reader.get_metrics_data()
    return data is not None and exporter.export(data) is MetricExportResult.SUCCESS
