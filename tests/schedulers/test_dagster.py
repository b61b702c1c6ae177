"""What Dagster is asked for, without Dagster: it cannot be installed beside the rest, and `make schedulers` runs the real one."""

from __future__ import annotations

import importlib.util
import sys
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock
from zoneinfo import ZoneInfo

import pytest

from tracker.consumers.periods.cut import Cut
from tracker.core.model.slots import FOREVER

HOUR, DAY = 3_600, 86_400
STEP = "orders_by_hour"


@pytest.fixture
def lowmark_dagster(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What the module asks for and looks up, over a stand-in for Dagster whose requests for runs are what they were given."""
    dagster = MagicMock()
    dagster.RunRequest = SimpleNamespace
    monkeypatch.setitem(sys.modules, "dagster", dagster)
    spec = importlib.util.find_spec("lowmark.dagster")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    inside = vars(module)
    return SimpleNamespace(runs=inside["_runs"], begun_at=inside["_begun_at"])


class Days:
    """Partitions as Dagster cuts them: days of a time zone."""

    def __init__(self, zone: str) -> None:
        self.zone = ZoneInfo(zone)

    def get_partition_key_for_timestamp(self, timestamp: float) -> str:
        return f"{datetime.fromtimestamp(timestamp, self.zone):%Y-%m-%d}"

    def time_window_for_partition_key(self, key: str) -> SimpleNamespace:
        begin = datetime.fromisoformat(key).replace(tzinfo=self.zone)
        return SimpleNamespace(start=begin, end=begin + timedelta(days=1))


def days_asked_for(
    module: Any, zone: str, every: int, since: datetime, until: datetime
) -> list[tuple[str, str]]:
    """The partitions of the runs that are asked for, each with the key of its run, of all periods between two moments."""
    cut, partitions, found = Cut(every, 0, 10**9), Days(zone), []
    for begin in range(int(since.timestamp()), int(until.timestamp()), every):
        period = cut.period("orders", "load", begin)
        assert period.end is not None
        for run in module.runs(period, partitions, None):
            assert partitions.time_window_for_partition_key(run.partition_key).end <= period.end
            found.append((run.partition_key, run.run_key))
    return found


@pytest.mark.parametrize("every", [DAY, HOUR])
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Atlantic/Azores", "America/New_York"])
def test_each_day_of_a_time_zone_is_asked_for_once_it_is_complete_and_once(
    lowmark_dagster: Any, zone: str, every: int
) -> None:
    """Also where it has 23 or 25 hours, and begins or ends at the very hour at which a period does."""
    for since in (datetime(2026, 3, 25, tzinfo=UTC), datetime(2026, 10, 22, tzinfo=UTC)):
        until = since + timedelta(days=12)
        asked = days_asked_for(lowmark_dagster, zone, every, since, until)
        days = [datetime.fromisoformat(day) for day, _ in asked]
        assert days == [days[0] + timedelta(days=n) for n in range(len(asked))]
        assert len({key for _, key in asked}) == len(asked)
        following = f"{days[-1] + timedelta(days=1):%Y-%m-%d}"
        assert Days(zone).time_window_for_partition_key(following).end > until


def test_a_run_has_the_key_of_its_period_and_the_last_one_the_partition_that_it_begins_in(
    lowmark_dagster: Any,
) -> None:
    cut, begin = Cut(DAY, 0, 10**9), int(datetime(2026, 3, 2, tzinfo=UTC).timestamp())
    day, last = (cut.period("orders", "load", begin, end) for end in (begin + DAY, FOREVER))
    for period in (day, last):
        (run,) = lowmark_dagster.runs(period, Days("UTC"), None)
        assert (run.run_key, run.partition_key) == (period.key, "2026-03-02")
        (run,) = lowmark_dagster.runs(period, None, None)
        assert (run.run_key, run.partition_key) == (period.key, None)


class Instance:
    """What Dagster has recorded of one partition: made at 100, by a step whose attempts began at 20, at 60, and after it."""

    def __init__(self, run: str, step: str | None) -> None:
        self.run, self.step = run, step

    def fetch_materializations(self, wanted: object, limit: int) -> SimpleNamespace:
        entry = SimpleNamespace(step_key=self.step)
        made = SimpleNamespace(timestamp=100.0, run_id=self.run, event_log_entry=entry)
        return SimpleNamespace(records=[made][:limit])

    def get_run_step_stats(self, run: str, steps: list[str]) -> list[SimpleNamespace]:
        assert (run, steps) == (self.run, [self.step])
        attempts = [SimpleNamespace(start_time=at) for at in (20.0, 60.0, None, 130.0)]
        return [SimpleNamespace(attempts_list=attempts)]


def test_a_partition_is_as_old_as_the_beginning_of_the_step_that_made_it(
    lowmark_dagster: Any,
) -> None:
    """What it read may have been read then, before its period was complete, though it was done behind that."""
    assert lowmark_dagster.begun_at(Instance("a run", STEP), None, "an hour") == [60.0]
    assert lowmark_dagster.begun_at(Instance("", None), None, "an hour") == [100.0]
