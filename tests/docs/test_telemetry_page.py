"""docs/telemetry.md names the gauges, the limits and the fields that there are, and its programs run."""

from __future__ import annotations

import json

from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

import tracker
from local_tracker.spark.session import progress_listener
from tests.docs.pages import ROOT, blocks, table_rows
from tracker.consumers import otel
from tracker.consumers.periods import openlineage
from tracker.core.model import PipelineSpec
from tracker.view import overview
from tracker.view.pipelines import min_time_json

PAGE = ROOT / "docs" / "telemetry.md"
TEXT = " ".join(PAGE.read_text().split())


def test_the_table_has_every_gauge() -> None:
    rows = [tuple(cell.strip("`") for cell in row) for row in table_rows(PAGE, "gauge")]
    assert rows == [(name, unit, told) for name, (unit, told) in otel.GAUGES.items()]


def test_the_limits_are_those_of_the_code() -> None:
    assert f"at most {otel.MAX_SEGMENTS:,} segments over its life" in TEXT
    assert f"why up to {overview.MAX_EXPLAINED} of them" in TEXT
    assert f"asked again, {openlineage.ATTEMPTS} times" in TEXT
    assert f"up to {progress_listener.MAX_WAITING:,} reports wait" in TEXT
    for name in (
        openlineage.FACET,
        openlineage.API_KEY_VARIABLE,
        otel.CAUSE,
        otel.SEGMENT,
    ):
        assert f"`{name}`" in TEXT
    assert f"`/{openlineage.ENDPOINT}`" in TEXT


def test_the_report_that_is_shown_is_one() -> None:
    (shown,) = [json.loads(block.text) for block in blocks(PAGE) if block.info == "json"]
    whole, segment = shown[progress_listener.KEY]["segments"]
    spec = PipelineSpec("orders", ("load",), fronts=("shop",))
    for each in (whole, segment):
        assert min_time_json(each["min_time"], spec).items() <= each.items()
        assert each["lag_ms"] == 10 * each["lag_slots"]
    assert segment["segment"] == "load" and whole["segment"] is None


def test_a_program_of_its_own_has_the_gauges() -> None:
    (program,) = [b.text for b in blocks(PAGE) if b.info == "python" and "observe" in b.text]
    reader = InMemoryMetricReader()
    metrics.set_meter_provider(MeterProvider([reader], shutdown_on_exit=False))
    with tracker.embedded() as lowmark:
        lowmark.register(PipelineSpec("orders", ("load",), fronts=("shop",)))
        names: dict[str, object] = {}
        exec(
            compile(program.replace("127.0.0.1:7070", lowmark.target), "docs/telemetry.md", "exec"),
            names,
        )
        data = reader.get_metrics_data()
        names["observed"].close()  # type: ignore[attr-defined]
    assert data is not None
    (told,) = [scope.metrics for each in data.resource_metrics for scope in each.scope_metrics]
    assert {"lowmark.min_time", otel.UP} <= {metric.name for metric in told}
