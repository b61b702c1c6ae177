"""The page in a real browser: what it shows, live, by keyboard, on narrow screens, in light and dark."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

import tracker
from tests.client.support import create, done, joined_front, promise
from tests.cluster.tracker import Tracker
from tests.dashboard.browser import Browser
from tests.dashboard.scene import SEGMENTS, Scene, Showing, register_many, scene
from tests.dashboard.test_overview import Counting
from tests.docs.pages import ROOT
from tests.waits import HANG_S, until
from tracker.client import Admin
from tracker.client.ports import free_ports
from tracker.client.state_names import name_of
from tracker.core.model import Cells, Edge, PipelineSpec, TickContent, TimeKind
from tracker.core.model.ticks import HoldMove
from tracker.core.model.waits import WaitCause, WaitKind
from tracker.view import overview, progress
from tracker.view.overview import MAX_EXPLAINED, Overview

NARROW, WIDE = 360, 1280
PIPELINES = 200


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        browser = Browser(Path(directory))
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def here() -> Iterator[Scene]:
    with scene() as here:
        here.items("sessions", [90, 100, 101, 900])
        here.consume("sessions", [90])
        here.items("parse", [2_000])
        here.promise()
        yield here


def test_it_shows_the_graph_what_is_open_and_who_takes_part(browser: Browser, here: Scene) -> None:
    page = browser.page(here.url)
    page.until(f"document.querySelectorAll('.segment').length === {len(SEGMENTS)}")
    page.until_says("live", "#link")
    page.until_says("3 items in 3 slots", "#strip")
    assert page.run("document.querySelectorAll('.strip-open').length") >= 3
    for front in ("web", "mobile"):
        assert front in page.text("#fronts")
    assert page.text("#shards").count("serves") == 2
    assert "sessions-query" in page.text("#nodes") and "local-tracker" in page.text("#nodes")
    assert "5 min p50" in page.text("#fresh")
    assert page.run("document.querySelectorAll('.edge').length") == 6, "4 edges, 2 fronts"
    assert page.complaints() == []
    page.close()


def test_it_is_chosen_by_keyboard_and_kept_in_the_address(browser: Browser, here: Scene) -> None:
    page = browser.page(here.url)
    page.until("document.querySelectorAll('.segment').length > 0")
    # Skip link, pipelines, the chosen segment.
    for _ in range(3):
        page.press("Tab")
    focused = "document.activeElement.dataset.key"
    page.until(f"{focused} === 'segment parse'")
    page.press("ArrowRight")
    page.until(f"{focused} === 'segment enrich'")
    page.press("ArrowRight")
    page.press("Enter")
    page.until_says("sessions:", "#why")
    page.until_says("sessions-query", "#why")
    assert page.run("location.hash").endswith("segment=sessions")
    before = page.run("performance.now()")
    page.until(f"performance.now() > {before} + 1500")  # a look or more later
    assert page.run(focused) == "segment sessions", "a look does not take the focus away"
    page.press("End")
    page.until(f"{focused} === 'segment totals'")
    page.close()


def test_a_segment_that_was_removed_is_shown_until_it_is_drained(browser: Browser) -> None:
    with scene() as here, Admin(here.tracker.target) as admin:
        here.items("alerts", [100])
        here.promise()
        page = browser.page(here.url, WIDE, 800)
        page.until(f"document.querySelectorAll('.segment').length === {len(SEGMENTS)}")
        assert page.run("document.querySelector('#under-way').hidden")
        spec = admin.pipeline("clicks").spec
        edges = tuple(edge for edge in spec.edges if edge.target != "alerts")
        admin.apply(replace(spec, segments=SEGMENTS[:-1], edges=edges))
        page.until_says("segment alerts was removed", "#under-way")
        page.until_says("1 items are open there", "#under-way")
        page.until(
            "document.querySelector('.segment.removed .state').textContent.endsWith(', removed')"
        )
        here.consume("alerts", [100])
        page.until(f"document.querySelectorAll('.segment').length === {len(SEGMENTS) - 1}")
        page.until("document.querySelector('#under-way').hidden")
        assert page.complaints() == []
        page.close()


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [NARROW, WIDE])
def test_it_is_readable_at_any_width_in_light_and_dark(
    browser: Browser, here: Scene, width: int, dark: bool
) -> None:
    page = browser.page(here.url, width, 800, dark=dark)
    page.until(f"document.querySelectorAll('.segment').length === {len(SEGMENTS)}")
    page.until_says("slots with open items", "#strip")
    assert page.run("document.documentElement.scrollWidth") <= width, "nothing is cut off"
    assert page.run("document.querySelector('#graph').scrollWidth") <= width
    for selector in ("h2", ".hint", ".facts dt", ".facts dd", ".count", "td", "th", ".why li"):
        assert page.run(CONTRAST.replace("SELECTOR", selector)) >= 4.5, selector
    page.close()


CONTRAST = """(() => {
  const parts = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (node) => {
    for (; node; node = node.parentElement) {
      const back = parts(getComputedStyle(node).backgroundColor);
      if (back.length < 4 || back[3] > 0) return back;
    }
    return [255, 255, 255];
  };
  const found = [...document.querySelectorAll('SELECTOR')].map((node) => {
    const [a, b] = [light(parts(getComputedStyle(node).color)), light(behind(node))];
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  });
  return Math.min(...found);
})()"""
"""The least contrast of a text with what is behind it, as WCAG counts it; 4.5 is its level AA."""


def test_it_is_live_and_says_why_a_segment_is_stuck(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "STUCK_AFTER_MS", 500)
    with scene() as here:
        here.items("sessions", [90, 100])
        here.consume("sessions", [90])
        here.items("enrich", [95])
        here.consume("alerts", [95])  # by who takes it from there before that has been told
        here.promise()
        page = browser.page(here.url)
        page.until_says("1 item in 1 slot", "#strip")
        page.until_says("0 items in 1 slot", "#strip")  # more was taken out than put in so far
        here.pass_on("enrich", "alerts", [95])
        here.readers["sessions"].close()
        page.until_says("! stuck", "#graph")
        page.until_says("query sessions-query is not connected", "#why")
        page.until_says("lowmark nodes retire sessions-query --pipeline clicks", "#why")
        page.until_says("stuck: sessions", "#changes")
        again = here.tracker.node("clicks", "sessions-query", "query")
        again.join(HANG_S)
        here.readers["sessions"] = again
        here.consume("sessions", [100])
        here.promise()
        page.until("!document.querySelector('#graph').textContent.includes('! stuck')")
        page.until_says("nothing open", "#strip")
        assert page.complaints() == []
        page.close()


def test_names_are_text_whatever_they_hold(browser: Browser) -> None:
    bad = "<img src=x onerror=\"document.title='broken'\">"
    with scene(name="one") as here:
        spec = PipelineSpec(bad, (bad, f"{bad}2"), (Edge(bad, f"{bad}2"),), fronts=(bad,))
        here.tracker.register(spec)
        node = here.tracker.node(bad, bad, bad)
        node.join(HANG_S)
        node.join_front(bad, bad, HANG_S)
        page = browser.page(here.url)
        page.until(
            f"[...document.querySelectorAll('#all-rows a')].some((a) => a.textContent === {bad!r})"
        )
        page.run(
            f"[...document.querySelectorAll('#all-rows a')].find((a) => a.textContent === {bad!r}).click()"
        )
        page.until_says(bad, "#fronts")
        page.until_says(bad, "#nodes")
        assert page.run("document.querySelectorAll('main img').length") == 0
        assert "broken" not in page.run("document.title").replace(bad, "")
        assert page.complaints() == []
        page.close()


def test_it_opens_with_all_pipelines_where_there_are_several(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten times as many as a step explains, of which one is stuck; what is asked of the tracker does not grow with them."""
    monkeypatch.setattr(progress, "STUCK_AFTER_MS", 500)
    monkeypatch.setattr(overview, "STUCK_AFTER_MS", 500)
    with scene(shards=1) as here:
        register_many(here.tracker, PIPELINES - 1)
        with Counting(here.tracker.target) as admin:
            steps = Overview(admin)
            assert len(steps.step()) == PIPELINES and admin.explained.total() <= MAX_EXPLAINED
            told, paged = admin.explained.total(), admin.paged
            steps.step()
            assert admin.explained.total() - told <= MAX_EXPLAINED and admin.paged - paged <= 1
        here.items("sessions", [90, 100])
        here.consume("sessions", [90])
        here.promise()
        page = browser.page(here.url)
        here.readers["sessions"].close()
        page.until_says("1 to 50 of 200", "#place")
        first = "document.querySelector('#all-rows tbody tr').innerText"
        page.until(f"{first}.startsWith('clicks') && {first}.includes('! stuck')")
        assert "query sessions-query is not connected" in page.run(first)
        page.until("document.querySelector('#all-rows tbody tr .sparkline path') !== null")
        assert "1 stuck" in page.text("#states") and "199 waiting" in page.text("#states")
        page.run("document.querySelector('#later').click()")
        page.until_says("51 to 100 of 200", "#place")
        page.run(
            "(() => { const s = document.querySelector('#search'); s.focus(); s.value = 'P17'; "
            "s.dispatchEvent(new Event('input')); })()"
        )
        page.until_says("10 pipelines", "#place")
        assert page.run("document.querySelectorAll('#all-rows tbody tr').length") == 10
        assert page.run("document.activeElement.id") == "search", (
            "a look does not take the focus away"
        )
        page.run("document.querySelector('#all-rows a').click()")
        page.until_says("p170", "#name")
        page.until_says("front front has never joined", "#why")
        page.run("history.back()")
        page.until_says("10 pipelines", "#place")
        assert page.complaints() == []
        for width in (NARROW, WIDE):
            page.resize(width, 800)
            assert page.run("document.documentElement.scrollWidth") <= width
        page.close()


@pytest.mark.parametrize("dark", [False, True])
def test_the_first_page_is_readable_in_light_and_dark(browser: Browser, dark: bool) -> None:
    with tracker.embedded() as running, closing(Showing(running.target)) as showing:
        register_many(running, 3)
        page = browser.page(showing.url, NARROW, 800, dark=dark)
        page.until("document.querySelectorAll('#all-rows tbody tr').length === 3")
        assert page.run("document.documentElement.scrollWidth") <= NARROW
        for selector in (
            "h1",
            "label",
            "#states span",
            "#place",
            "#all-rows td",
            "#all-rows th",
            "#all-rows a",
        ):
            assert page.run(CONTRAST.replace("SELECTOR", selector)) >= 4.5, selector
        page.close()


def test_a_segment_has_an_address_of_its_own_and_the_hour_is_drawn(
    browser: Browser, here: Scene
) -> None:
    page = browser.page(f"{here.url}/#pipeline=clicks&segment=sessions")
    page.until_says("sessions:", "#why")
    link = page.run("document.querySelector('#why .share').href")
    assert link.endswith("#pipeline=clicks&segment=sessions")
    page.until("document.querySelector('#hour path.chosen, #hour .empty') !== null")
    again = browser.page(link)
    again.until_says("sessions:", "#why")
    again.until("document.querySelector('#hour path.chosen') !== null")
    assert "whole pipeline" in again.text("#hour") and "sessions" in again.text("#hour")
    again.run("document.querySelector('nav a').click()")
    again.until("document.querySelectorAll('#all-rows tbody tr').length === 1")
    assert again.complaints() == page.complaints() == []
    for each in (page, again):
        each.close()


def test_it_shows_what_a_query_waits_for(browser: Browser) -> None:
    with scene() as here:
        here.items("sessions", [90])
        here.promise()
        reader = here.readers["sessions"]
        reader.report_waits(
            [WaitCause(WaitKind.UNKNOWN_ITEMS, "1 file that no tick has created", 2, 7)]
        )
        totals = SEGMENTS.index("totals")
        rows = HoldMove(name_of(totals, 1_772_445_600_000), totals, here.start + 90)
        consumed = Cells.of([(SEGMENTS.index("sessions"), here.start + 90, 20_091, 1)])
        done(reader.commit(TickContent(consumed=consumed, holds=(rows,))))
        page = browser.page(here.url)
        page.until_says("1 file that no tick has created", "#nodes")
        page.until_says("rows in its state wait for event time 2026-03-02T10:00:00.000Z", "#nodes")
        page.until_says("holds totals at", "#nodes")
        page.close()


def test_where_slots_are_numbers_it_shows_numbers(browser: Browser) -> None:
    with tracker.embedded() as running, closing(Showing(running.target)) as showing:
        running.register(
            PipelineSpec(
                "two", ("first", "second"), (Edge("first", "second"),), fronts=("front",),
                time=TimeKind.NUMBER, slack_ns=1, start_slot=10,
            )
        )  # fmt: skip
        node = joined_front(running.node("two", "table", "front"))
        done(node.commit(create(17, 1)))
        done(node.commit(promise(1_020)))
        page = browser.page(showing.url)
        page.until_says("slot 17", "#headline-time")
        page.until_says("1,003 slots", "#facts")
        assert "behind the clock\n–" in page.text("#facts").lower()
        page.until_says("lag 1,003 slots", "#graph")
        page.until_says("slot 1020", "#fronts")
        page.until_says("a bar is 10 slots wide", "#strip")
        assert "1970-" not in page.text("body") and "UTC" not in page.text("#headline-time")
        assert page.complaints() == []
        page.close()


def test_a_tracker_serves_it_and_says_when_it_is_gone(browser: Browser, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    listen = f"127.0.0.1:{port}"
    with Tracker(tmp_path, options=("--dashboard-listen", listen)) as tracker:
        until(lambda: listens(port), f"nobody listens at {listen}")
        page = browser.page(f"http://{listen}")
        page.until_says("No pipeline is registered yet", "#all-rows")
        assert tracker.shards[0].stop() == 0
        page.close()


def listens(port: int) -> bool:
    with socket.socket() as caller:
        return caller.connect_ex(("127.0.0.1", port)) == 0


def test_pictures_of_it_are_in_the_docs() -> None:
    page = (ROOT / "docs" / "dashboard.md").read_text()
    for name in (
        "dashboard-all",
        "dashboard-stuck",
        "dashboard-demo",
        "dashboard-dark",
        "dashboard-narrow",
    ):
        picture = ROOT / "docs" / "img" / f"{name}.png"
        assert picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
        assert f"img/{name}.png" in page
