"""What somebody tests their own pipeline with: the page's tests by real pytest, from the wheel, and a query that is checked.

    python -m tests.testing [--quick] [--sabotage double|lost|early]

With a sabotage the checked query is one that does so when its driver dies, as people write them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from lowmark.testing import EmbeddedTracker
from scripts.summary import ROOT, finish
from tests.testing.stranger import installed, outcomes, run_pytest, write_page
from tests.waits import PROGRAM_S
from tracker.testing.checking import check_program
from tracker.testing.moments import Moment

QUERIES = Path(__file__).with_name("queries")
SABOTAGES = {
    "double": ("appends.py", Moment.COMMIT),
    "lost": ("marks.py", Moment.TASKS),
    "early": ("behind.py", Moment.DURABLE),
}
"""By fault: a query that has it, and a moment at which it shows."""
QUICK = (Moment.COMMIT, Moment.TICK)
ROWS = 36
TIMED = 20
"""So many trackers are started, to know what the fixture takes."""


def write_sample(path: Path) -> Path:
    path.write_text("".join(json.dumps({"pieces": pieces}) + "\n" for pieces in range(ROWS)))
    return path


def counted(checked: dict[str, Any]) -> dict[str, int]:
    """Rows by what became of them, from what the command says as JSON."""
    one = checked["one"]
    differences = one["differences"]
    return {
        "rows": checked["rows_out"],
        "kills": len(one["killed"]),
        "missed": len(one["moments"]) - len(one["killed"]),
        "lost": len(differences["lost"]),
        "doubled": len(differences["doubled"]),
        "strange": len(differences["strange"]),
        "early": one["early"],
    }


def by_command(sample: Path) -> dict[str, Any]:
    """The sound query, checked by the command as it stands."""
    command = ["--json", "query", "check", str(QUERIES / "sound.py"), str(sample)]
    done = subprocess.run(
        [sys.executable, "-m", "tracker.cli", *command],
        cwd=ROOT, check=False, capture_output=True, text=True, timeout=PROGRAM_S,
    )  # fmt: skip
    if not done.stdout:
        raise AssertionError(f"lowmark query check ended with {done.returncode}: {done.stderr}")
    checked: dict[str, Any] = json.loads(done.stdout)
    assert checked["ok"] == (done.returncode == 0), done
    return checked


def fixture_ms() -> float:
    """The median of how long a tracker in memory takes to start and to end, without the imports."""
    seconds = []
    for _ in range(TIMED):
        began_s = time.perf_counter()
        EmbeddedTracker().close()
        seconds.append(time.perf_counter() - began_s)
    return round(median(seconds) * 1000, 1)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.testing", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="no query by the page, two kills")
    parser.add_argument("--sabotage", choices=SABOTAGES)
    given = parser.parse_args()
    began_s = time.monotonic()
    details: dict[str, Any] = {"sabotage": given.sabotage}
    with tempfile.TemporaryDirectory() as folder:
        sample = write_sample(Path(folder, "sample.jsonl"))
        shown: dict[str, object] = {}
        page = {"passed": 0}
        if given.sabotage:
            query, moment = SABOTAGES[given.sabotage]
            checked = json.loads(check_program(QUERIES / query, sample, (moment,)).as_json())
        else:
            (own := Path(folder, "own")).mkdir()
            write_page(own, with_spark=not given.quick)
            done = run_pytest(own, installed(Path(folder, "site")))
            page, details["pytest"] = outcomes(done), done.stdout
            shown |= {"tests": page.get("passed", 0), "fixture_ms": fixture_ms()}
            quick = given.quick and check_program(QUERIES / "sound.py", sample, QUICK)
            checked = json.loads(quick.as_json()) if quick else by_command(sample)
    counts = counted(checked)
    ok = checked["ok"] and (given.sabotage or (set(page) == {"passed"} and not counts["missed"]))
    shown |= {**counts, "seconds": round(time.monotonic() - began_s)}
    return finish("testing", ok=bool(ok), shown=shown, details={**details, "checked": checked})


if __name__ == "__main__":
    sys.exit(main())
