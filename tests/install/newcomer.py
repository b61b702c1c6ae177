"""The first minutes of a newcomer: the README's "Start in a minute" and docs/start.md, block by block, from the wheel in
a fresh environment in another directory.

    python -m tests.install.newcomer [--pictures docs/img] [--sabotage early]

The blocks run as they stand there, but for where the wheel lies, on which ports it listens, and that somebody ends
`lowmark watch` by Ctrl-C after a while; one that has run already does not run again. Seconds are counted from
the first `pip install` on, with wheels gathered before: until the sample pipeline of `lowmark dev` has passed the moment
at which it was started, which is the bound's; and until the pipeline of `lowmark init` has, Spark's own installation
among them. Then `tests/install/trial.py` brings a query of somebody's own from a plain one to a report that starts when its
hour is complete; with the sabotage that report does not wait, and nothing else is run.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from lowmark import Admin, Subscriber
from lowmark.testing import free_ports
from scripts.artifacts import StepFailed
from scripts.summary import BUILD, ROOT, finish
from tests.cluster.children import now_slot
from tests.dashboard.browser import Browser
from tests.docs.pages import Block, blocks, blocks_below
from tests.install import trial
from tests.install.environments import Environment, build, fresh, locked
from tests.waits import PROGRAM_S, until

SECTION = "Start in a minute"
PAGE = ROOT / "docs" / "start.md"
BOUND_S = 60
"""At most so long from `pip install` to the first min time."""
WATCH_S = 10
"""How long somebody watches."""
SAMPLE, OWN = "sample", "orders"
SAID = {
    "python reader.py": "run 0: ",
    "lowmark watch": "parse",
    "lowmark explain": "parse",
    "with embedded()": "is shipped",
    "lowmark init": "pipeline.yaml",
}
"""By what is in a block: what running it says."""
SIZE = (1280, 900)


class NewcomerLost(Exception):
    """A step of the README does not do what it says."""


@dataclass
class Walk:
    """A newcomer on their way through the blocks. `close` ends all that they have started."""

    environment: Environment
    wheel: Path
    port: int
    dashboard_port: int
    place: Path
    """Where the shell is: `cd` lasts from block to block."""
    began_s: float = field(default_factory=time.monotonic)
    _groups: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def variables(self) -> dict[str, str]:
        return self.environment.variables | {"LOWMARK_TARGET": self.target}

    def passed_s(self) -> float:
        return round(time.monotonic() - self.began_s, 1)

    def named(self, text: str) -> str:
        """A block's text with the address at which its tracker is."""
        return text.replace("127.0.0.1:7070", self.target)

    def run(self, block: Block) -> str:
        """Runs a block to its end, but for what it leaves running behind it; returns what it printed."""
        text = self.named(block.text)
        if block.info.startswith("python"):
            return self._end([str(self.environment.python), "-c", text])
        text = re.sub(r"'lowmark\[(\S+)\]'", rf"'lowmark[\1] @ {self.wheel.as_uri()}'", text)
        dev = f"lowmark dev --port {self.port} --dashboard-port {self.dashboard_port} &"
        text = re.sub(r"^lowmark dev$", dev, text, flags=re.MULTILINE)
        # `timeout` ends with 124 where it had to end what it runs, by the signal of Ctrl-C here.
        watched = rf"{{ timeout --foreground --signal INT {WATCH_S} \1 || test $? = 124; }}"
        text = re.sub(r"^(lowmark watch .*)$", watched, text, flags=re.MULTILINE)
        where = self.place / ".place"
        said = self._end(["bash", "-ec", f"{text}\npwd > '{where}'"])
        self.place = Path(where.read_text().strip())
        return said

    def _end(self, command: list[str]) -> str:
        log = self.environment.work / f"{len(self._groups)}.log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                command, cwd=self.place, env=self.variables, stdin=subprocess.DEVNULL, stdout=file,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        self._groups.append(process)
        status = process.wait(PROGRAM_S)
        said = log.read_text(errors="replace")
        if status != 0:
            raise NewcomerLost(f"{command[-1]} ended with {status}: {said[-3000:]}")
        return said

    def said(self) -> str:
        """The ends of what all blocks have printed."""
        logs = sorted(self.environment.work.glob("*.log"))
        return "\n".join(
            f"-- {log.name}\n{log.read_text(errors='replace')[-1500:]}" for log in logs
        )

    def reach_now(self, pipeline: str) -> None:
        """Waits until a pipeline has passed this moment."""
        moment = now_slot()
        with Subscriber(self.target, pipeline) as progress:
            # expires: asked again
            until(lambda: progress.wait_until(moment, timeout_s=5.0), self.said)

    def front_has_begun(self) -> None:
        """Waits as long as a person takes to read on: until the front has let something in."""
        with Admin(self.target) as admin:

            def something() -> bool:
                return admin.pipeline(OWN).state.segments[0].open_items > 0

            until(something, self.said)

    def close(self) -> None:
        """Whoever has been started in the background is of its block's group."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in self._groups:
                try:
                    os.killpg(process.pid, number)
                except ProcessLookupError:
                    continue
            if number is signal.SIGTERM:
                time.sleep(2.0)  # paces: they end by themselves, or are killed


def gather_wheels(wheel: Path, directory: Path, constraints: Path) -> None:
    """Puts the wheels of all that is installed into a directory, from pip's caches where they are there."""
    environment = fresh(directory, sys.executable)
    environment.run(
        [str(environment.python), "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-input",
         "--wheel-dir", str(directory / "wheels"), "--constraint", str(constraints), f"{wheel}[server,spark]"],
        PROGRAM_S,
    )  # fmt: skip


def picture(url: str, pipeline: str, path: Path) -> None:
    """The dashboard's page of a pipeline, drawn by Chromium, without a complaint of its own."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(Path(profile))
        try:
            page = browser.page(f"{url}#pipeline={pipeline}", *SIZE)
            page.until_says("live", "#link")
            page.until_says("moving", "#facts")
            page.until_says("slots with open items", "#strip")
            page.until("document.querySelector('#hour svg') !== null")
            page.until("/ items? in /.test(document.querySelector('#strip').textContent)")
            # A picture names no directory of the machine that it was taken on.
            page.until("!document.querySelector('main').textContent.includes('file:/')")
            page.screenshot(path)
            if complaints := page.complaints():
                raise NewcomerLost(f"the page of {pipeline} complains: {complaints}")
        finally:
            browser.close()


def _blocks() -> list[Block]:
    """Those that run, in the order in which somebody meets them; what both pages say is run once."""
    both = [*blocks_below(ROOT / "README.md", SECTION), *blocks(PAGE)]
    alone = {block.text: block for block in both}.values()
    return [block for block in alone if block not in trial.section()]


def _expected(block: Block) -> list[str]:
    """What a block must have said, by what is in it."""
    return [said for part, said in SAID.items() if part in block.text]


def go(walk: Walk, pictures: Path) -> dict[str, object]:
    """Goes through the README's blocks, then through those of the page; returns the seconds."""
    start, *rest = _blocks()
    walk.run(start)
    installed_s = walk.passed_s()
    walk.reach_now(SAMPLE)
    first_s = walk.passed_s()
    print(f"newcomer: min time of {SAMPLE} after {first_s} s", flush=True)
    url = f"http://127.0.0.1:{walk.dashboard_port}/"
    own_s = 0.0
    for block in rest:
        reads = "reader.py" in block.text
        if reads:
            walk.front_has_begun()
            walk.reach_now(OWN)
            own_s = walk.passed_s()
            print(f"newcomer: min time of {OWN} after {own_s} s", flush=True)
        said = walk.run(block)
        for expected in _expected(block):
            if expected not in said:
                raise NewcomerLost(f"{block.text} does not say {expected!r}: {said[-2000:]}")
    for pipeline in (SAMPLE, OWN):
        picture(url, pipeline, pictures / f"dev-{pipeline}.png")
    return {
        "seconds_to_first_min_time": first_s, "seconds_to_own_min_time": own_s,
        "seconds_to_install": installed_s, "blocks": 1 + len(rest),
    }  # fmt: skip


def begin(environment: Environment, wheel: Path) -> Walk:
    """A newcomer at the beginning of their way, with ports of their own."""
    port, dashboard_port = free_ports(2)
    return Walk(environment, wheel, port, dashboard_port, environment.work)


def walk_all(
    environment: Environment, wheel: Path, pictures: Path, sabotage: str
) -> dict[str, object]:
    """The README and its page, unless sabotaged, and then the trial, each with a tracker of its own."""
    shown: dict[str, object] = {}
    if not sabotage:
        walk = begin(environment, wheel)
        try:
            shown = go(walk, pictures)
        finally:
            walk.close()
    walk = begin(environment, wheel)
    try:
        walk.run(Block("", "sh", "pip install 'lowmark[server,spark]'\nlowmark dev\n"))
        return shown | trial.go(walk, sabotage == trial.EARLY)
    finally:
        walk.close()


def is_well(shown: dict[str, object]) -> bool:
    """Whether the bounds hold and no report is wrong. Those of a sabotaged run lack the README's seconds."""
    first_s, trial_s = shown.get("seconds_to_first_min_time", 0.0), shown["trial_s"]
    assert isinstance(first_s, float) and isinstance(trial_s, float)
    lines = shown["changed_lines"]
    assert isinstance(lines, int)
    in_time = first_s <= BOUND_S and trial_s <= trial.MOST_S
    return in_time and lines <= trial.MOST_LINES and not shown["wrong_hours"]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.install.newcomer", description=__doc__)
    parser.add_argument(
        "--pictures", type=Path, default=BUILD, help="a directory for the pictures of the page"
    )
    parser.add_argument("--sabotage", choices=(trial.EARLY,), default="")
    given = parser.parse_args(arguments)
    shown: dict[str, object] = {}
    wrong = ""
    with tempfile.TemporaryDirectory(
        prefix="lowmark-newcomer-", ignore_cleanup_errors=True
    ) as directory:
        root = Path(directory)
        try:
            wheel, constraints = build(root / "dist").wheel, root / "constraints.txt"
            constraints.write_text(locked(without=()))
            (root / "wheels").mkdir()
            gather_wheels(wheel, root / "wheels", constraints)
            (root / "here").mkdir()
            environment = fresh(root / "here", sys.executable)
            os.environ |= {
                "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(root / "wheels" / "wheels"),
                "PIP_CONSTRAINT": str(constraints),
            }  # fmt: skip
            shown = walk_all(environment, wheel, given.pictures.resolve(), given.sabotage)
        except (
            AssertionError,
            StepFailed,
            NewcomerLost,
            ValueError,
            subprocess.TimeoutExpired,
        ) as error:
            wrong = str(error)
            print(f"newcomer: {wrong}", flush=True)
    ok = not wrong and is_well(shown)
    return finish("newcomer", ok=ok, shown={**shown, "bound_s": BOUND_S}, details={"wrong": wrong})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
