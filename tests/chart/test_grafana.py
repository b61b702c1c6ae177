"""The dashboards for Grafana are made of the metrics that there are, and are in the chart as they are made."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from scripts import grafana_dashboards
from scripts.grafana_dashboards import BOARDS, DIRECTORY, METRICS, NoSuchMetric, Query
from tests.chart.rendering import render
from tests.grafana.judging import KNOWN, asked, judge
from tests.grafana.recording import INTERVAL_S, Recording

LAG = Query("lowmark_segment_lag_seconds", "min", ("segment",))
QUERIES = [
    query for board in BOARDS for _, panels in board.rows for p in panels for query in p.queries
]


def test_the_files_and_the_page_are_as_they_are_made() -> None:
    made = grafana_dashboards.made()
    assert {path for path in made if path.suffix == ".json"} == {*DIRECTORY.glob("*.json")}
    stale = [path.name for path, text in made.items() if path.read_text() != text]
    assert not stale, "run python -m scripts.grafana_dashboards"


@pytest.mark.parametrize("name", sorted({query.metric for query in QUERIES}))
def test_a_metric_that_is_renamed_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(METRICS, name)
    with pytest.raises(NoSuchMetric, match=f"{name} is not in"):
        grafana_dashboards.made()


def test_a_label_that_there_is_not_is_noticed() -> None:
    with pytest.raises(NoSuchMetric, match="has no label colour"):
        replace(LAG, by=("segment", "colour")).expression(False)


def test_queries_read_as_they_should() -> None:
    of_all = 'namespace=~"$namespace", job=~"$job", group=~"$group"'
    assert LAG.expression(False) == f"min by (segment) (lowmark_segment_lag_seconds{{{of_all}}})"
    of_one = f'{of_all}, pipeline="$pipeline"'
    text = f"max (min by (segment) (lowmark_segment_lag_seconds{{{of_one}}})) * 1000"
    assert replace(LAG, over="max", scale=1000).expression(True) == text
    ticks = Query("lowmark_ticks_total", "sum", ("pipeline",), most=3)
    rate = f"rate(lowmark_ticks_total{{{of_all}}}[$__rate_interval])"
    assert ticks.expression(False) == f"topk(3, sum by (pipeline) ({rate}))"
    latency = Query("lowmark_store_commit_duration_seconds", "sum", quantile=0.5)
    rate = f"rate(lowmark_store_commit_duration_seconds_bucket{{{of_all}}}[$__rate_interval])"
    assert latency.expression(True) == f"histogram_quantile(0.5, sum by (le) ({rate}))"


def test_each_panel_has_its_number_place_and_source() -> None:
    for path in DIRECTORY.glob("*.json"):
        board = json.loads(path.read_text())
        numbers = [panel["id"] for panel in board["panels"]]
        assert len({*numbers}) == len(numbers) and board["uid"] == f"lowmark-{path.stem}"
        for panel in board["panels"]:
            if panel["type"] != "row":
                assert panel["datasource"]["uid"] == "${datasource}" and panel["description"]
                assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
        names = {variable["name"] for variable in board["templating"]["list"]}
        assert {"datasource", "namespace", "job"} <= names


def test_they_are_in_config_maps_with_the_label_of_the_sidecar() -> None:
    values = {"metrics": {"enabled": True, "dashboards": {"enabled": True}}}
    maps = [o for o in render(values).kind("ConfigMap") if "grafana" in o["metadata"]["name"]]
    found = {name: json.loads(text) for o in maps for name, text in o["data"].items()}
    assert found == {
        f"lowmark-{p.name}": json.loads(p.read_text()) for p in DIRECTORY.glob("*.json")
    }
    assert all(o["metadata"]["labels"]["grafana_dashboard"] == "1" for o in maps)
    values["metrics"]["dashboards"] = {"enabled": False}
    assert not [o for o in render(values).kind("ConfigMap") if "grafana" in o["metadata"]["name"]]


def test_a_query_without_a_number_and_one_with_another_are_found(tmp_path: Path) -> None:
    """What the judge of `make grafana` is worth."""
    queries = list(asked(DIRECTORY))
    assert {(query.board, query.panel) for query in queries} >= KNOWN.keys()
    (pipelines,) = [query for query in queries if query.panel == "Pipelines"]
    series = 'lowmark_pipelines{instance="a", job="j", namespace="n"}'
    there = Recording({series: [2.0] * 3}, 3)
    assert (
        judge([pipelines], there, tmp_path).empty == judge([pipelines], there, tmp_path).wrong == ()
    )
    assert len(judge([pipelines], Recording({series: [5.0] * 3}, 3), tmp_path).wrong) == 1
    judged = judge([pipelines], Recording({}, 3), tmp_path)
    assert (len(judged.empty), len(judged.wrong)) == (1, 1)
    no_number = Recording({series: [float("nan")] * 3}, 3)
    assert len(judge([pipelines], no_number, tmp_path).empty) == 1 and INTERVAL_S == 15
