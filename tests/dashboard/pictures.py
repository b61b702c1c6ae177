"""Takes the pictures of docs/dashboard.md: of the demo while it runs, of a pipeline with a stuck query,
and of all pipelines where there are several.

python -m tests.dashboard.pictures
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.cluster.children import now_slot
from tests.dashboard.browser import Browser
from tests.dashboard.scene import scene
from tests.docs.pages import ROOT
from tests.waits import HANG_S
from tracker.core.model import Heartbeat, PipelineSpec, TickContent

PICTURES = ROOT / "docs" / "img"
WIDE, NARROW = (1280, 900), (390, 844)
REPLAYED = 0.4
"""The share of the year after which pictures are taken."""
SECONDS = 60


def of_the_demo(browser: Browser) -> None:
    """Runs the demo, and looks at it while the year goes on."""
    command = [sys.executable, "-m", "examples.flights", "--seconds", str(SECONDS)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        url, taken = "", False
        for line in demo.stdout:
            print(line, end="", flush=True)
            if line.startswith("dashboard: "):
                url = line.split()[1]
            elif line.startswith("replaying") and not taken:
                taken = True
                # Of a replay, this much is shown better when it has gone on for a while.
                time.sleep(REPLAYED * SECONDS)  # paces: the load
                page = browser.page(url, *WIDE)
                page.until_says("slots with open items", "#strip")
                # A picture names no directory of the machine that it was taken on.
                page.until("!document.querySelector('main').textContent.includes('file:/')")
                page.screenshot(PICTURES / "dashboard-demo.png")
                page.close()
    assert taken and demo.returncode == 0, f"the demo ended with {demo.returncode}"


def of_a_stuck_query(browser: Browser) -> None:
    """A query that reads sessions has ended: it is named."""
    chance = random.Random(1)
    with scene(shards=2) as here:
        here.items("totals", [1, 2])
        here.consume("totals", [1, 2])
        here.items("alerts", [3])
        here.consume("alerts", [3])
        here.items("sessions", [10, *sorted(chance.sample(range(1_500, 5_200), 160))])
        here.consume("sessions", [10])
        here.items("parse", sorted(chance.sample(range(5_200, 5_950), 60)))
        here.items("alerts", sorted(chance.sample(range(4_200, 5_900), 20)))
        here.promise(20)
        first = browser.page(here.url, *WIDE)
        first.until_says("live", "#link")
        here.readers["sessions"].close()
        for name, size, dark in (
            ("stuck", WIDE, False), ("dark", WIDE, True), ("narrow", NARROW, False),
        ):  # fmt: skip
            page = browser.page(here.url, *size, dark=dark)
            page.until_says("2 segments stuck", "#facts")
            page.until_says("query sessions-query is not connected", "#why")
            page.screenshot(PICTURES / f"dashboard-{name}.png")
            page.close()


ALL_SECONDS = 150
"""Of an hour so much is drawn for the picture of all pipelines."""
MOVING = {
    "billing": 0,
    "catalogue": 5,
    "fraud": 40,
    "inventory": 15,
    "orders": 90,
    "payments": 2,
    "search": 10,
}
"""Pipelines that move, and how many seconds they are behind at most."""


def of_all(browser: Browser) -> None:
    """Ten pipelines: of one the query that reads sessions has ended, two wait for their fronts."""
    chance = random.Random(2)
    with scene() as here:
        for name in ("refunds", "shipping"):
            here.tracker.register(PipelineSpec(name, ("load",), fronts=("warehouse",)))
        fronts, promised = {}, dict[str, int]()
        for name in MOVING:
            both = {"web": "load", "web-report": "report"}
            spec = PipelineSpec(
                name, tuple(both.values()), fronts=tuple(both), start_slot=here.start
            )
            here.tracker.register(spec)
            fronts[name] = here.tracker.node(name, "web", "front")
            fronts[name].join(HANG_S)
            for front, segment in both.items():
                fronts[name].join_front(front, segment, HANG_S)
        here.items("sessions", [10, *range(1_500, 5_200, 40)])
        here.consume("sessions", [10])
        here.readers["sessions"].close()
        end = time.monotonic() + ALL_SECONDS
        while time.monotonic() < end:
            here.promise()
            for name, behind_s in MOVING.items():
                newest = now_slot() - int(100 * chance.uniform(0.1, 1) * behind_s)
                late = promised[name] = max(promised.get(name, here.start), newest)
                ahead, back = Heartbeat("web", now_slot()), Heartbeat("web-report", late)
                fronts[name].commit(TickContent(heartbeats=(ahead, back))).result(HANG_S)
            time.sleep(1)  # paces: the load
        page = browser.page(here.url, *WIDE)
        page.until_says("10 pipelines", "#place")
        page.until_says("query sessions-query is not connected", "#all-rows")
        page.until("document.querySelectorAll('.sparkline').length >= 8")
        page.screenshot(PICTURES / "dashboard-all.png")
        page.close()


def main(which: str = "") -> None:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        browser = Browser(Path(directory))
        try:
            if which in ("", "stuck"):
                of_a_stuck_query(browser)
            if which in ("", "all"):
                of_all(browser)
            if which in ("", "demo"):
                of_the_demo(browser)
        finally:
            browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
