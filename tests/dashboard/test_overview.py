"""All pipelines at a glance: the worst first, by a bounded number of questions at a time."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any

import pytest
from typer.testing import CliRunner

import tracker
from tests.client.support import TWO_SEGMENTS, consume, create, done, joined_front, promise
from tests.dashboard.scene import Showing
from tests.dashboard.test_http import asked
from tests.waits import HANG_S, until
from tracker.cli.app import app
from tracker.client import Admin, Explanation, PipelineInfo, UnavailableError
from tracker.client import admin as admin_module
from tracker.client.embedded import EmbeddedTracker
from tracker.core.insight.freshness import SegmentFreshness
from tracker.core.model import TimeKind
from tracker.core.model.slots import FOREVER
from tracker.dashboard import all_pipelines
from tracker.view import overview as overview_module
from tracker.view import progress
from tracker.view.overview import MAX_EXPLAINED, Overview, Row
from tracker.view.pipelines import WatchHistory

HOUR = 360_000  # in slots of 10 ms


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedTracker]:
    """Of four pipelines one is complete, one held by an item that nobody consumes, one waits, and one moves."""
    monkeypatch.setattr(progress, "STUCK_AFTER_MS", 0)
    with tracker.embedded() as embedded:
        for name in ("complete", "held", "waiting"):
            embedded.register(replace(TWO_SEGMENTS, name=name))
        numbers = replace(TWO_SEGMENTS, name="numbers", time=TimeKind.NUMBER, slack_ns=1)
        embedded.register(replace(numbers, segments=("one", "two"), edges=()))
        done(joined_front(embedded.node("complete", "n", "front")).leave_front("front"))
        held = joined_front(embedded.node("held", "n", "front"))
        done(held.commit(create(HOUR, 1)))
        done(held.commit(promise(3 * HOUR)))
        for name, slot in (("complete", FOREVER), ("held", HOUR)):
            assert embedded.subscriber(name).wait_until(slot, timeout_s=HANG_S)
        yield embedded


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Counting(Admin):
    """Counts what it is asked."""

    def __init__(self, target: str) -> None:
        super().__init__(target, HANG_S)
        self.explained: Counter[str] = Counter()
        self.paged = 0

    def explain(self, pipeline: str, *args: Any, **options: Any) -> Explanation:
        self.explained[pipeline] += 1
        return super().explain(pipeline, *args, **options)

    def pages(self, size: int | None = None) -> Iterator[list[PipelineInfo]]:
        for page in super().pages(size):
            self.paged += 1
            yield page


def states(rows: list[Row]) -> list[tuple[str, str]]:
    return [(row.name, row.progress.state) for row in rows]


def test_the_worst_comes_first_with_what_holds_it(running: EmbeddedTracker) -> None:
    clock = Clock()
    with Admin(running.target) as admin:
        overview = Overview(admin, clock)
        # Nobody has stood for long yet: of what waits the reason is asked at once.
        rows = overview.step()
        assert [name for name, _ in states(rows)][-1] == "complete"
        assert ("held", "moving") in states(rows)
        clock.now_s += 5
        rows = until_told(overview, lambda rows: states(rows)[0] == ("held", "stuck"))
        assert states(rows)[-1] == ("complete", "complete")
        assert "nobody has ever consumed from segment first" in rows[0].progress.holds
        assert {row.name for row in rows[1:3]} == {"numbers", "waiting"}
        assert "front front has never joined" in rows[1].progress.holds
        assert rows[0].has("HEL") and rows[0].has("second") and not rows[0].has("third")
        # It moves: what was said of it is not true any more.
        node = running.node("held", "reader")
        node.join(HANG_S)
        done(node.commit(consume(HOUR, 1)))
        assert running.subscriber("held").wait_until(3 * HOUR, timeout_s=HANG_S)
        rows = until_told(overview, lambda rows: dict(states(rows))["held"] == "moving")
        assert "nobody" not in {row.name: row.progress.holds for row in rows}["held"]


def test_what_was_known_of_a_pipeline_that_was_deleted_is_not_said_of_the_one_that_has_its_name(
    running: EmbeddedTracker,
) -> None:
    with Admin(running.target) as admin:
        overview, history = Overview(admin, Clock()), WatchHistory()
        assert ("complete", "complete") in states(overview.step())
        assert history.take(admin.pipeline("complete")).state.complete
        spec = admin.pipeline("complete").spec
        admin.delete("complete", 0)
        until(lambda: admin.register(spec))
        shown = {row.name: row.progress for row in overview.step()}["complete"]
        assert (shown.state, shown.min_time) == (
            "waiting",
            admin.pipeline("complete").state.min_time,
        )
        info = history.take(admin.pipeline("complete"))
        assert not info.state.complete and info.state.segments[0].min_time == shown.min_time


def test_what_is_shown_of_a_pipeline_that_is_restarted_does_not_go_back(
    running: EmbeddedTracker,
) -> None:
    with Admin(running.target) as admin:
        history = WatchHistory()
        before = history.take(admin.pipeline("held"))
        admin.restart("held", 0, from_slot=3 * HOUR)
        after = admin.pipeline("held")
        assert after.state.generation == 1
        ahead = history.take(after).state
        assert history.take(before).state.min_time == ahead.min_time >= before.state.min_time


def until_told(overview: Overview, is_so: Any) -> list[Row]:
    """Steps until the rows are as they are to be, also of a tracker that is away meanwhile."""
    found: list[Row] = []

    def look() -> bool:
        with suppress(UnavailableError):
            found[:] = overview.step()
            return bool(is_so(found))
        return False

    until(look, lambda: str(states(found)))
    return found


def test_charts_are_asked_for_where_they_are_shown(running: EmbeddedTracker) -> None:
    clock = Clock()
    with Admin(running.target) as admin:
        overview = Overview(admin, clock)

        def charts() -> dict[str, tuple[int, ...]]:
            clock.now_s += overview_module.CHART_AGES_S + 1
            return {row.name: row.lags_ms for row in overview.step(["held", "numbers", "none"])}

        until(lambda: charts()["held"])
        found = charts()
        assert len(found["held"]) == overview_module.CHART_POINTS
        assert found["held"][-1] == 2 * 3_600_000, "the newest is the last"
        assert found["numbers"] == () == found["waiting"]


def test_a_step_asks_a_bounded_number_of_questions_and_everybody_has_a_turn(
    running: EmbeddedTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin_module, "PAGE_PIPELINES", 10)
    for number in range(60):
        running.register(replace(TWO_SEGMENTS, name=f"p{number:02}"))
    with Counting(running.target) as admin:
        overview = Overview(admin, Clock())
        assert len(overview.step()) == 64 and admin.paged == 7, "the first time it looks at all"
        for step in range(2, 5):
            before, paged = admin.explained.total(), admin.paged
            overview.step()
            assert admin.explained.total() - before <= MAX_EXPLAINED, step
            assert admin.paged - paged <= 1
        waiting = {f"p{number:02}" for number in range(60)} | {"waiting", "numbers"}
        assert waiting <= set(admin.explained), "each had its turn"
        assert "complete" not in admin.explained
        monkeypatch.setattr(overview_module, "MAX_KEPT", 50)
        small = Overview(admin, Clock())
        assert len(small.step()) == 50 and small.more == 14


def test_where_each_answer_takes_longer_than_a_step_reasons_and_charts_are_asked_for_in_turns(
    running: EmbeddedTracker,
) -> None:
    clock, charted = Clock(), Counter[str]()

    class Slow(Counting):
        def explain(self, *args: Any, **options: Any) -> Explanation:
            clock.now_s += 2 * overview_module.STEP_S
            return super().explain(*args, **options)

        def freshness(
            self, pipeline: str, *args: Any, **options: Any
        ) -> tuple[SegmentFreshness, ...]:
            clock.now_s += 2 * overview_module.STEP_S
            charted[pipeline] += 1
            return super().freshness(pipeline, *args, **options)

    with Slow(running.target) as admin:
        overview = Overview(admin, clock)
        for step in (1, 2):
            overview.step(["held", "waiting"])
            assert (admin.explained.total(), charted.total()) == (step, step)
    assert charted.keys() == {"held", "waiting"} and len(admin.explained) == 2


def test_a_tracker_that_is_away_is_not_forgotten(running: EmbeddedTracker) -> None:
    with Admin(running.target, 1.0) as admin:
        overview = Overview(admin, Clock())
        assert len(overview.step()) == 4
        running.kill_shard(0)
        with pytest.raises(UnavailableError):
            for _ in range(3):
                overview.step()
        running.start_shard(0)
        assert len(until_told(overview, lambda rows: len(rows) == 4)) == 4


def test_the_page_is_served_row_by_row_and_searched(
    running: EmbeddedTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(all_pipelines, "PAGE_ROWS", 2)
    with closing(Showing(running.target)) as showing:

        def page(query: str = "") -> dict[str, Any]:
            status, _, body = asked(showing, f"/api/v1/pipelines{query}")
            assert status == 200, body
            return dict(json.loads(body))

        one, two = page(), page("?offset=2")
        assert (one["all"], one["found"], len(one["pipelines"]), one["more"]) == (4, 4, 2, 0)
        assert len(two["pipelines"]) == 2 and page("?offset=9")["pipelines"] == []
        assert sum(one["states"].values()) == 4
        found = page("?search=Held")
        assert [each["pipeline"] for each in found["pipelines"]] == ["held"] and found["all"] == 4
        assert [each["pipeline"] for each in page("?search=two")["pipelines"]] == ["numbers"]
        for odd in ("-1", "x", "1" * 20, "%C2%B2"):
            assert asked(showing, f"/api/v1/pipelines?offset={odd}")[0] == 400, odd
        lags = json.loads(asked(showing, "/api/v1/pipelines/held/lags")[2])
        assert lags["seconds"] == 3_600
        until(lambda: json.loads(asked(showing, "/api/v1/pipelines/held/lags")[2])["segments"])
        assert json.loads(asked(showing, "/api/v1/pipelines/numbers/lags")[2])["segments"] == []
        assert asked(showing, "/api/v1/pipelines/none/lags")[0] == 404


def test_nothing_is_asked_when_nobody_looks(
    running: EmbeddedTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(all_pipelines, "IDLE_S", 0.1)
    monkeypatch.setattr(all_pipelines, "STEP_INTERVAL_S", 0.2)
    with closing(Showing(running.target)) as showing:
        assert asked(showing, "/api/v1/pipelines")[0] == 200
        until(lambda: not showing.dashboard.follows_all)
        running.register(replace(TWO_SEGMENTS, name="new"))
        again = json.loads(asked(showing, "/api/v1/pipelines")[2])
        assert again["all"] == 5, "who comes back is shown what is there now"


def test_a_tracker_that_was_never_reached_is_said(running: EmbeddedTracker) -> None:
    with closing(Showing(running.target)) as showing:
        running.kill_shard(0)
        status, _, body = asked(showing, "/api/v1/pipelines")
        assert status == 503 and "did not answer" in json.loads(body)["message"]
        running.start_shard(0)


def watch(running: EmbeddedTracker, *words: str) -> str:
    environment = {"LOWMARK_TARGET": running.target, "COLUMNS": "200"}
    result = CliRunner().invoke(app, ["watch", *words], env=environment)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_terminal_shows_the_same(running: EmbeddedTracker) -> None:
    shown = watch(running, "--once")
    assert "2 waiting, 1 moving, 1 complete" in shown
    lines = [line for line in shown.splitlines() if any(n in line for n in ("held", "numbers "))]
    assert any("2.0 h" in line for line in lines)
    told = json.loads(watch(running, "--once", "--json"))
    assert len(told["pipelines"]) == 4 and told["states"]["waiting"] == 2 and told["more"] == 0
    assert json.loads(watch(running, "-p", "held", "--once", "--json"))["spec"]["name"] == "held"


def test_a_terminal_is_watched_until_all_are_complete() -> None:
    with tracker.embedded() as running:
        for name in ("one", "two"):
            running.register(replace(TWO_SEGMENTS, name=name))
            done(joined_front(running.node(name, "n", "front")).leave_front("front"))
        assert "2 complete" in watch(running, "--interval", "50ms")
        lines = [json.loads(line) for line in watch(running, "--json").splitlines()]
        assert lines[-1]["states"]["complete"] == 2
