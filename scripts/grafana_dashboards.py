"""Writes the dashboards for Grafana that the chart has, from the list of metrics, and what docs/grafana.md shows of them:
`python -m scripts.grafana_dashboards`.

A query names metrics and labels that there are, by `tracker/metrics/names.py`, or nothing is written. `--check` fails if the
files are not what this makes; the tests do the same.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from grafana_foundation_sdk.builders import dashboard as boards
from grafana_foundation_sdk.builders.common import ReduceDataOptions, VizLegendOptions
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.builders.stat import Panel as Stat
from grafana_foundation_sdk.builders.timeseries import Panel as Lines
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import (
    BigValueGraphMode,
    LegendDisplayMode,
    LegendPlacement,
)
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DataSourceRef,
    VariableRefresh,
    VariableSort,
)

from scripts.chart_readme import CHART
from scripts.marked import between, table_marks
from scripts.summary import ROOT
from tracker.metrics.names import COUNTER, HISTOGRAM, PROCESS, SERVICE, Metric

DIRECTORY = CHART / "files" / "grafana"
PAGE = ROOT / "docs" / "grafana.md"
METRICS = {metric.name: metric for metric in (*SERVICE, *PROCESS)}
OF_THE_TARGET = ("namespace", "job", "instance", "group")
"""Labels that Prometheus adds to whatever it scrapes, and the one that all samples of a tracker's process have."""
MOST_SERIES = 10
"""Lines of a panel that has one for each pipeline, segment or front: the largest."""
SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
STAT_WIDTH, STAT_HEIGHT, LINES_WIDTH, LINES_HEIGHT = 4, 4, 12, 8
"""Of 24 columns that a dashboard is wide."""


class NoSuchMetric(Exception):
    """A query names a metric, or a label of one, that there is not."""


@dataclass(frozen=True)
class Query:
    """A metric, folded. by: the labels that stay; over: by what the rest is folded, into one; quantile: of a histogram;
    most: how many of the largest are shown; scale: what it is multiplied by; where: further matchers; total: a counter since
    its start, and not how fast it grows."""

    metric: str
    fold: str
    by: tuple[str, ...] = ()
    over: str = ""
    quantile: float | None = None
    most: int | None = None
    scale: int = 1
    where: str = ""
    total: bool = False
    legend: str = ""

    @property
    def declared(self) -> Metric:
        """Raises NoSuchMetric."""
        metric = METRICS.get(self.metric)
        if metric is None:
            raise NoSuchMetric(f"{self.metric} is not in tracker/metrics/names.py")
        if unknown := {*self.by} - {*metric.labels, *OF_THE_TARGET}:
            raise NoSuchMetric(f"{self.metric} has no label {', '.join(sorted(unknown))}")
        return metric

    def expression(self, of_a_pipeline: bool) -> str:
        """In PromQL. Raises NoSuchMetric."""
        metric = self.declared
        matchers = ['namespace=~"$namespace"', 'job=~"$job"', 'group=~"$group"']
        if of_a_pipeline and "pipeline" in metric.labels:
            matchers.append('pipeline="$pipeline"')
        matchers += [self.where] if self.where else []
        is_histogram = metric.kind == HISTOGRAM
        text = f"{metric.name}{'_bucket' * is_histogram}{{{', '.join(matchers)}}}"
        if metric.kind in (COUNTER, HISTOGRAM) and not self.total:
            text = f"rate({text}[$__rate_interval])"
        by = (*self.by, "le") if is_histogram else self.by
        kept = f" by ({', '.join(by)})" if by else ""
        text = f"{self.fold}{kept} ({text})"
        if is_histogram:
            text = f"histogram_quantile({self.quantile}, {text})"
        text = f"{self.over} ({text})" if self.over else text
        text = f"topk({self.most}, {text})" if self.most else text
        return text if self.scale == 1 else f"{text} * {self.scale}"

    @property
    def shown(self) -> str:
        """How a line of it is named."""
        return self.legend or " ".join(f"{{{{{label}}}}}" for label in self.by)


@dataclass(frozen=True)
class Panel:
    """Some queries, as lines over time; or, with `is_stat`, as one number each, the last."""

    title: str
    unit: str
    queries: tuple[Query, ...]
    is_stat: bool = False

    def made(self, of_a_pipeline: bool) -> Stat | Lines:
        """Raises NoSuchMetric."""
        about = " ".join(dict.fromkeys(query.declared.help for query in self.queries))
        panel: Stat | Lines = self._stat() if self.is_stat else self._lines()
        panel = panel.title(self.title).description(about).unit(self.unit).datasource(SOURCE)
        for number, query in enumerate(self.queries):
            target = (
                Dataquery().expr(query.expression(of_a_pipeline)).ref_id(chr(ord("A") + number))
            )
            panel.with_target(
                (target.instant() if self.is_stat else target.range()).legend_format(query.shown)
            )
        return panel

    @staticmethod
    def _stat() -> Stat:
        last = ReduceDataOptions().calcs(["lastNotNull"])
        return (
            Stat()
            .span(STAT_WIDTH)
            .height(STAT_HEIGHT)
            .reduce_options(last)
            .graph_mode(BigValueGraphMode.NONE)
        )

    @staticmethod
    def _lines() -> Lines:
        legend = (
            VizLegendOptions()
            .display_mode(LegendDisplayMode.LIST)
            .placement(LegendPlacement.BOTTOM)
        )
        return (
            Lines()
            .span(LINES_WIDTH)
            .height(LINES_HEIGHT)
            .min(0)
            .fill_opacity(8)
            .legend(legend.show_legend(True))
        )


@dataclass(frozen=True)
class Board:
    """A dashboard. name: of its file, and its uid behind `lowmark-`."""

    name: str
    title: str
    of_a_pipeline: bool
    rows: tuple[tuple[str, tuple[Panel, ...]], ...]

    def json(self) -> str:
        """As Grafana reads it. Raises NoSuchMetric."""
        board = (
            boards.Dashboard(self.title)
            .uid(f"lowmark-{self.name}").tags(["lowmark"]).editable().refresh("30s").time("now-1h", "now")
            .timezone("utc").tooltip(DashboardCursorSync.CROSSHAIR)
            .link(boards.DashboardLink("Lowmark").tags(["lowmark"]).include_vars(True).keep_time(True).as_dropdown(True))
        )  # fmt: skip
        for variable in self._variables():
            board = board.with_variable(variable)
        numbers = count(1)
        for title, panels in self.rows:
            board = board.with_row(boards.Row(title).id(next(numbers)))
            for panel in panels:
                board = board.with_panel(panel.made(self.of_a_pipeline).id(next(numbers)))
        return str(JSONEncoder(indent=2, sort_keys=True).encode(board.build())) + "\n"

    def _variables(self) -> Iterator[boards.DatasourceVariable | boards.QueryVariable]:
        yield boards.DatasourceVariable("datasource").label("Data source").type("prometheus")
        asked = "lowmark_serving"
        yield _variable("namespace", asked).include_all(True).all_value(".*")
        yield _variable("job", asked).include_all(True).all_value(".*")
        yield _variable("group", asked).include_all(True).all_value(".*")
        if self.of_a_pipeline:
            yield _variable("pipeline", "lowmark_pipeline_complete")


def _variable(label: str, metric: str) -> boards.QueryVariable:
    declared = Query(metric, "max", (label,)).declared
    query = f"label_values({declared.name}, {label})"
    return (
        boards.QueryVariable(label).label(label.capitalize()).datasource(SOURCE).query(query)
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED).sort(VariableSort.ALPHABETICAL_ASC)
    )  # fmt: skip


def _number(title: str, query: Query, unit: str = "short") -> Panel:
    return Panel(title, unit, (query,), is_stat=True)


def _lines(title: str, unit: str, *queries: Query) -> Panel:
    return Panel(title, unit, queries)


_SEGMENT = ("pipeline", "segment")
_FRONT = ("node", "front")
_OF_WINDOW = 'segment="", behind="promise", window="5m"'
_LATENCIES = (0.5, 0.99)


def _latency(metric: str, *by: str) -> tuple[Query, ...]:
    return tuple(
        Query(metric, "sum", by, quantile=q, legend=f"p{100 * q:g} {' '.join(f'{{{{{b}}}}}' for b in by)}".strip())
        for q in _LATENCIES
    )  # fmt: skip


FLEET = Board(
    "fleet", "Lowmark: all pipelines", False,
    (
        ("Now", (
            _number("Pipelines", Query("lowmark_pipelines", "max", ("group",), over="sum")),
            _number("Complete", Query("lowmark_pipeline_complete", "max", ("pipeline",), over="sum")),
            _number("Largest lag", Query("lowmark_segment_lag_seconds", "min", _SEGMENT, over="max"), "s"),
            _number("Open items", Query("lowmark_segment_open_items", "sum")),
            _number("Processes that serve", Query("lowmark_serving", "sum")),
            _number("Streams of subscribers", Query("lowmark_subscriber_streams", "sum")),
        )),
        ("Pipelines", (
            _lines("Lag behind the fronts", "s", Query("lowmark_segment_lag_seconds", "min", _SEGMENT, most=MOST_SERIES)),
            _lines("Min time stands since", "s", Query("lowmark_segment_unchanged_seconds", "min", _SEGMENT, most=MOST_SERIES)),
            _lines("Lag that 99 of 100 samples of 5 minutes do not pass", "s",
                   Query("lowmark_freshness_level_seconds", "min", ("pipeline",), most=MOST_SERIES,
                         where=f'{_OF_WINDOW}, percentile="99"')),
            _lines("Silent fronts", "s", Query("lowmark_front_silent_seconds", "max", ("pipeline", *_FRONT), most=MOST_SERIES)),
            _lines("Open items by pipeline", "short", Query("lowmark_segment_open_items", "sum", ("pipeline",), most=MOST_SERIES)),
            _lines("Late items a second", "short", Query("lowmark_segment_late_items_total", "sum", ("pipeline",), most=MOST_SERIES)),
        )),
        ("Work", (
            _lines("Ticks a second", "short", Query("lowmark_ticks_total", "sum", ("pipeline",), most=MOST_SERIES)),
            _lines("Refused ticks a second", "short", Query("lowmark_ticks_refused_total", "sum", ("pipeline", "reason"))),
            _lines("Refused calls a second", "short", Query("lowmark_calls_refused_total", "sum", ("reason",))),
            _lines("Nodes that wait", "short", Query("lowmark_nodes_waiting", "sum", ("pipeline", "what"), most=MOST_SERIES)),
            _lines("Until a subscriber is told", "s", *_latency("lowmark_notification_duration_seconds")),
            _lines("Oldest news that a subscriber has not taken", "s", Query("lowmark_subscriber_queue_age_seconds", "max", ("instance",))),
        )),
        ("Processes", (
            _lines("Until a commit is durable", "s", *_latency("lowmark_store_commit_duration_seconds", "instance")),
            _lines("Records that are not durable yet", "short", Query("lowmark_store_backlog_records", "max", ("instance",))),
            _lines("Until another shard has entries durably", "s", *_latency("lowmark_forward_duration_seconds", "instance")),
            _lines("Entries that another shard has not confirmed", "short",
                   Query("lowmark_shard_entries_behind", "max", ("instance", "to_shard"))),
            _lines("Memory", "bytes", Query("lowmark_process_resident_memory_bytes", "max", ("instance",))),
            _lines("Processors", "short", Query("lowmark_process_cpu_seconds_total", "sum", ("instance",))),
        )),
    ),
)  # fmt: skip

PIPELINE = Board(
    "pipeline", "Lowmark: one pipeline", True,
    (
        ("Now", (
            _number("Complete before", Query("lowmark_segment_min_time_timestamp_seconds", "max", ("segment",), over="min", scale=1000),
                    "dateTimeAsIso"),
            _number("Largest lag", Query("lowmark_segment_lag_seconds", "min", ("segment",), over="max"), "s"),
            _number("Open items", Query("lowmark_segment_open_items", "sum")),
            _number("Late items", Query("lowmark_segment_late_items_total", "sum", total=True)),
            _number("Written off", Query("lowmark_segment_written_off_items_total", "sum", total=True)),
            _number("Restarts", Query("lowmark_pipeline_generation", "max")),
        )),
        ("Segments", (
            _lines("Lag behind the fronts", "s", Query("lowmark_segment_lag_seconds", "min", ("segment",))),
            _lines("Min time stands since", "s", Query("lowmark_segment_unchanged_seconds", "min", ("segment",))),
            _lines("Lag of the last 5 minutes, by percent of the samples", "s",
                   Query("lowmark_freshness_level_seconds", "min", ("percentile",), where=_OF_WINDOW, legend="p{{percentile}}")),
            _lines("Late items a second", "short", Query("lowmark_segment_late_items_total", "sum", ("segment",))),
            _lines("Open items by segment", "short", Query("lowmark_segment_open_items", "sum", ("segment",))),
            _lines("Open slots by segment", "short", Query("lowmark_segment_open_slots", "sum", ("segment",))),
        )),
        ("Fronts", (
            _lines("Behind the newest promise", "s", Query("lowmark_front_behind_seconds", "max", _FRONT)),
            _lines("Silent", "s", Query("lowmark_front_silent_seconds", "max", _FRONT)),
            _lines("Ahead of the tracker's clock", "s", Query("lowmark_front_ahead_seconds", "max", _FRONT)),
            _lines("Subscribers", "short", Query("lowmark_subscribers", "sum")),
        )),
        ("Nodes", (
            _lines("Ticks a second", "short", Query("lowmark_ticks_total", "sum")),
            _lines("Cells of ticks a second", "short", Query("lowmark_tick_cells_total", "sum", ("kind",))),
            _lines("Refused ticks a second", "short", Query("lowmark_ticks_refused_total", "sum", ("reason",))),
            _lines("Nodes that wait", "short", Query("lowmark_nodes_waiting", "sum", ("what",))),
            _lines("Staged contributions", "short", Query("lowmark_staged_contributions", "sum")),
            _lines("Nodes whose ticks are counted", "short", Query("lowmark_vector_keys", "max")),
        )),
    ),
)  # fmt: skip

BOARDS: Sequence[Board] = (FLEET, PIPELINE)


def rows(board: Board) -> Iterator[str]:
    """A table of a dashboard's panels, in Markdown."""
    yield from ("| row | panel | metrics |", "|---|---|---|")
    for row, panels in board.rows:
        for panel in panels:
            metrics = ", ".join(dict.fromkeys(f"`{query.metric}`" for query in panel.queries))
            yield f"| {row} | {panel.title} | {metrics} |"


def page(now: str) -> str:
    """The page with its tables made anew; the rest as it is."""
    for board in BOARDS:
        marks = table_marks(board.name, "scripts.grafana_dashboards")
        now = between(now, marks, "\n".join(rows(board)), PAGE, board.title)
    return now


def made() -> dict[Path, str]:
    """The files, and what is to be in them. Raises NoSuchMetric."""
    return {
        **{DIRECTORY / f"{board.name}.json": board.json() for board in BOARDS},
        PAGE: page(PAGE.read_text()),
    }


def main() -> int:
    stale = {
        path: text for path, text in made().items() if not path.exists() or path.read_text() != text
    }
    if "--check" in sys.argv[1:]:
        for path in stale:
            print(
                f"{path} is not up to date: python -m scripts.grafana_dashboards", file=sys.stderr
            )
        return int(bool(stale))
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    for path, text in stale.items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
