"""The example about completeness: what each way says is held against the flights, min time is right at each step, and
what the page shows is what the program finds."""

from __future__ import annotations

import json
import re
from itertools import accumulate
from pathlib import Path

import pytest

from examples.completeness.__main__ import NAME, main
from examples.completeness.answers import Answer, Answers, judge, table_row
from examples.completeness.flights import BEGIN, DAYS, HOUR, STEP, Flight, Frontier, Replay
from examples.completeness.picture import picture
from examples.completeness.watermark import batches, watermarks
from examples.completeness.ways import replayed
from scripts.summary import BUILD
from tests.docs.pages import ROOT, table_rows

PAGE = ROOT / "docs" / "completeness.md"
DAY = Replay(1)


def whole(replay: Replay) -> Answers:
    """Each hour, when it is complete and all before it are."""
    passed = accumulate(map(replay.complete_at, replay.hours), max)
    flights = replay.hours.items()
    told = {h: Answer(at, len(f)) for (h, f), at in zip(flights, passed, strict=True)}
    return Answers("min time", told)


def test_what_is_right_is_exact_and_what_lacks_a_flight_is_early() -> None:
    exact = judge(DAY, whole(DAY))
    assert exact.is_exact and exact.hours == len(DAY.hours) > 15
    hour, flights = next(iter(DAY.hours.items()))
    lacking = whole(DAY)
    lacking.told[hour] = Answer((hour + 1) * HOUR, len(flights) - 2)
    found = judge(DAY, lacking)
    assert (found.early, found.missed, found.is_exact) == ((hour,), 2, False)
    late = whole(DAY)
    late.told[hour] = Answer(DAY.complete_at(hour) + 2 * STEP, len(flights))
    assert judge(DAY, late).late[0] == judge(DAY, late).behind[0] == 2 * STEP
    assert not judge(DAY, late).is_exact
    unsaid = whole(DAY)
    del unsaid.told[hour]
    assert judge(DAY, unsaid).unsaid == 1 and not judge(DAY, unsaid).is_exact


def test_an_hour_is_complete_when_its_last_flight_is_loaded() -> None:
    flight = Flight(1, "JFK", BEGIN + 10, BEGIN + 61)
    assert flight.loaded == BEGIN + 65 + STEP
    on_the_step = Flight(1, "JFK", BEGIN + 10, BEGIN + 60)
    assert on_the_step.loaded == BEGIN + 60 + STEP
    for hour, flights in DAY.hours.items():
        assert DAY.complete_at(hour) >= max(f.loaded for f in flights)
        assert DAY.complete_at(hour) >= (hour + 1) * HOUR


def test_the_frontier_is_the_first_flight_that_is_not_done_or_the_clock() -> None:
    frontier = Frontier([(10, 25), (20, 21), (40, 38)])
    assert [frontier.at(now) for now in (5, 22, 25, 39, 50)] == [5, 10, 25, 39, 50]


def test_the_page_shows_what_the_ways_say() -> None:
    page = PAGE.read_text()
    replay = Replay(DAYS)
    for answers in replayed(replay):
        assert table_row(judge(replay, answers)) in page, answers.way
    assert table_row(judge(replay, whole(replay))) in page
    assert len(table_rows(PAGE, "the way")) == len(replayed(replay)) + 3, "Spark twice, min time"


def test_min_time_tells_each_hour_when_it_is_complete(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--days", "1", "--without-spark"]) == 0
    told = json.loads((BUILD / f"{NAME}.json").read_text())
    assert told["ok"] and told["hours"] == len(DAY.hours)
    assert told["min time"]["early"] == told["min time"]["unsaid"] == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith(f"{NAME}: OK hours=")


def test_a_tracker_that_announces_early_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--days", "1", "--sabotage", "early"]) == 1
    said = capsys.readouterr().out.splitlines()[-1]
    assert re.search(rf"^{NAME}: FAILED .* min_time_beyond=[1-9]", said), said


def test_spark_drops_what_is_behind_its_watermark(tmp_path: Path) -> None:
    hour = BEGIN // HOUR
    begin = hour * HOUR
    minutes = [(5, 10), (25, 20), (20, 130), (100, 105), (260, 262)]
    flights = [Flight(n, "JFK", begin + s, begin + left) for n, (s, left) in enumerate(minutes)]
    (narrow, wide) = watermarks(list(batches(flights)), tmp_path, (30, 180))
    # By 120 minutes a flight of the 100th has moved the narrow one past the hour; the third flight left at 130.
    assert narrow.told[hour] == Answer(begin + 120, 2)
    assert wide.told[hour] == Answer(begin + 270, 3)


def test_the_picture_marks_what_was_said_too_early() -> None:
    ways = replayed(DAY)
    drawn = picture(DAY, 0, ways[:2], whole(DAY))
    assert drawn.count("<circle") > 2, "the legend has one"
    assert picture(DAY, 0, [whole(DAY)], whole(DAY)).count("<circle") == 1
    with pytest.raises(ValueError, match="day 1 is to be drawn"):
        picture(DAY, 1, ways[:2], whole(DAY))
