"""`lowmark export`: min time for tools that gather metrics of many systems."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated
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
from tracker.client.moments import parse_duration_ns
from tracker.redacting import shown_url

if TYPE_CHECKING:
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

METRICS_PATH = "v1/metrics"
"""Where a receiver takes metrics, unless an endpoint says otherwise."""
SHORTEST_INTERVAL = "1s"
MAX_POINTS_AT_ONCE = 5_000
"""Points in one request; more go in several."""


def otlp(
    context: typer.Context,
    pipeline: Annotated[
        list[str] | None,
        typer.Option("--pipeline", "-p", help="these pipelines alone; may be repeated"),
    ] = None,
    endpoint: Annotated[
        str,
        typer.Option(
            help="the receiver: http://collector.example:4318; if not given, by OTEL_EXPORTER_OTLP_ENDPOINT, and so on"
        ),
    ] = "",
    interval: Annotated[str, typer.Option(help="between exports: 15s, 1m; 1s at least")] = "15s",
    once: Annotated[bool, typer.Option("--once", help="export once, and end")] = False,
) -> None:
    """Send min time, lag and open items of all pipelines and their segments to an OpenTelemetry receiver, by OTLP over
    HTTP, until SIGTERM.

    Headers, certificates, timeout and compression are those of the variables OTEL_EXPORTER_OTLP_..., attributes of
    the resource those of OTEL_RESOURCE_ATTRIBUTES. What a receiver that is away has not taken is not kept: the next
    export tells how things are then. With --once, exit status 3 if the receiver has not taken it.
    """
    shared = Shared.of(context)
    reach(shared.target, shared.retry_s)
    with wrong_usage():
        url, interval_s = metrics_url(endpoint), _interval_s(interval)
    receiver = shown_url(url) if url else "the receiver"
    try:
        from tracker.consumers.otel import observe

        exporter, provider, reader = _exporting(url)
    except ModuleNotFoundError as error:
        fail(f"lowmark export otlp needs {error.name}: pip install 'lowmark[server,otel]'")
    try:
        with observe(provider.get_meter("lowmark", __version__), shared.target, pipeline or ()):
            say(f"exporting to {receiver}", err=True)
            if not once:
                _go_on(reader, exporter, interval_s)
            elif not _export(reader, exporter):
                fail(f"{receiver} has not taken it; the log says why", EXIT_TIMED_OUT)
    finally:
        provider.shutdown()
        exporter.shutdown()


def _go_on(reader: InMemoryMetricReader, exporter: OTLPMetricExporter, interval_s: float) -> None:
    """Exports until SIGTERM."""
    ending = told_to_end()
    while True:
        _export(reader, exporter)
        if ending.wait(interval_s):
            return


def metrics_url(endpoint: str) -> str:
    """Where metrics go; empty for what the SDK's own variables say. Raises ValueError for what is no URL."""
    if not endpoint:
        return ""
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(
            f"--endpoint {endpoint!r} is no URL of a receiver: http://collector.example:4318"
        )
    path = parts.path if parts.path.strip("/") else f"/{METRICS_PATH}"
    return urlunsplit(parts._replace(path=path))


def _interval_s(interval: str) -> float:
    interval_ns = parse_duration_ns(interval)
    if interval_ns < parse_duration_ns(SHORTEST_INTERVAL):
        raise ValueError(f"--interval {interval} is shorter than {SHORTEST_INTERVAL}")
    return interval_ns / 1e9


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
