"""Takes the pictures of docs/dashboard.md: of the demo while it runs, and of a pipeline with a stuck query.

python -m tests.dashboard.pictures
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.dashboard.browser import Browser
from tests.dashboard.scene import scene
from tests.docs.pages import ROOT

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
                time.sleep(REPLAYED * SECONDS)
                page = browser.page(url, *WIDE)
                page.until_says("slots with open items", "#strip")
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


def main(which: str = "") -> None:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        browser = Browser(Path(directory))
        try:
            if which in ("", "stuck"):
                of_a_stuck_query(browser)
            if which in ("", "demo"):
                of_the_demo(browser)
        finally:
            browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
