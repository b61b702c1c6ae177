"""`make grafana`: each query of each dashboard of the chart over a recorded run of a real tracker, evaluated by promtool.

    python -m tests.grafana [--sabotage renamed]

With --sabotage the tracker serves a metric by another name, and the check must fail.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time

from scripts import grafana_dashboards
from scripts.summary import BUILD, finish
from tests.grafana.judging import asked, judge
from tests.grafana.recording import record

SABOTAGES = ("renamed",)
SHOWN = 10


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.grafana", description=__doc__)
    parser.add_argument("--sabotage", choices=SABOTAGES, default="")
    given = parser.parse_args()
    directory = BUILD / "grafana"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    began_s = time.monotonic()
    recording = record(directory / "tracker", given.sabotage)
    queries = list(asked(grafana_dashboards.DIRECTORY))
    judged = judge(queries, recording, directory)
    said = [*judged.empty, *judged.wrong]
    for each in said[:SHOWN]:
        print(f"grafana: {each}", flush=True)
    shown = {
        "dashboards": len({query.board for query in queries}),
        "panels": len({(query.board, query.panel) for query in queries}),
        "queries": len(queries), "series": len(recording.series), "scrapes": recording.scrapes,
        "empty": len(judged.empty), "wrong": len(judged.wrong), "seconds": round(time.monotonic() - began_s),
    }  # fmt: skip
    return finish("grafana", ok=not said and bool(queries), shown=shown, details={"said": said})


if __name__ == "__main__":
    sys.exit(main())
