"""Formats are found by their names; another package brings its own by an entry point."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint

import pytest

from local_tracker.spark.formats import registry
from local_tracker.spark.formats.interface import Format
from local_tracker.spark.formats.sinks import Sink, SinkPlan
from tracker.errors import TrackingError


class Queue(Format):
    name = "queue"

    def sink(self, plan: SinkPlan) -> Sink:
        return Sink(plan)


class Shadow(Queue):
    name = "delta"


NONE = "of no format"


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    registry.formats.cache_clear()
    yield
    registry.formats.cache_clear()


def bring(monkeypatch: pytest.MonkeyPatch, name: str, what: str) -> None:
    point = EntryPoint(name, f"{__name__}:{what}", registry.GROUP)
    monkeypatch.setattr(registry, "entry_points", lambda group: [point])


def test_formats_go_by_the_names_that_spark_has_for_them() -> None:
    names = [each.name for each in registry.formats()]
    assert names == ["files", "kafka", "delta", "iceberg"]
    assert [registry.format_named(name.upper()).name for name in names] == names
    assert registry.format_named("parquet").name == "files"
    assert [each.name for each in registry.table_formats()] == ["delta", "iceberg"]
    with pytest.raises(TrackingError, match=r"known of \('delta', 'iceberg'\), not of 'kafka'"):
        registry.table_format("kafka")


def test_a_format_of_another_package_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    bring(monkeypatch, "queue", "Queue")
    assert isinstance(registry.format_named("Queue"), Queue)


@pytest.mark.parametrize(
    ("name", "what", "said"),
    [
        ("delta", "Shadow", "there is a format of that name already"),
        ("other", "Queue", "is no Format of that name"),
        ("none", "NONE", "is no Format of that name"),
    ],
)
def test_what_is_no_format_of_its_own_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, what: str, said: str
) -> None:
    bring(monkeypatch, name, what)
    with pytest.raises(TrackingError, match=f"entry point {name} = .*{said}"):
        registry.formats()
