"""`python -m examples.lake`: the demo over a broker and tables on an S3 server. Ends with `demo-lake: OK
flights=336776 ...`, or with what was wrong and `demo-lake: FAILED ...`."""

from __future__ import annotations

import queue
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pyarrow.parquet as pq

from examples.children import Child, Said
from examples.flights.command import main
from examples.flights.data import AIRPORTS
from examples.flights.expected import RouteKey, RouteTotals
from examples.flights.form import DemoFailed, DemoSkipped, Form, Worker
from examples.flights.pipeline import Places
from examples.flights.proof import route_of, totals_of
from examples.lake.logs import delta_files
from examples.lake.pipeline import FRONT, SPEC
from examples.lake.reader import problems
from examples.lake.site import BUCKET, TOPIC, Site

DURATION_S = 90.0
PARTS_TIMEOUT_S = 1800.0
"""How long the broker and the S3 server may take to start, and to be fetched the first time."""


@contextmanager
def around(places: Places) -> Iterator[Mapping[str, Worker]]:
    """The broker and the S3 server; the workers know by a file where they are."""
    said: queue.Queue[Said] = queue.Queue()
    print(
        "demo-lake: starting a broker and an S3 server; they are fetched the first time", flush=True
    )
    command = ["tests.connectors.parts.serving", str(places.root / "parts")]
    parts = Child("parts", [*command, BUCKET, TOPIC, str(len(AIRPORTS))], places.logs, said)
    try:
        site = _site(parts, said)
        site.write(places.root)
        yield _workers(site)
    finally:
        parts.stop(terminate=False)


def _site(parts: Child, said: queue.Queue[Said]) -> Site:
    try:
        event = said.get(timeout=PARTS_TIMEOUT_S).event
    except queue.Empty:
        raise DemoFailed(f"the parts are not there after {PARTS_TIMEOUT_S:g} s") from None
    if event is not None and event["event"] == "ready":
        return Site(**{name: value for name, value in event.items() if name != "event"})
    if event is not None and event["event"] == "unavailable":
        raise DemoSkipped(event["reason"])
    raise DemoFailed(f"the parts have ended; {parts.log} ends with:\n{parts.log_tail()}")


def _workers(site: Site) -> dict[str, Worker]:
    return {
        **{name: Worker("examples.lake.airport", (name,), ends=True) for name in AIRPORTS},
        FRONT: Worker("examples.lake.front", ends=True, after_year=True),
        "driver": Worker("examples.lake.driver", python=site.python, terminated=False),
        "dead-letters": Worker("examples.flights.dead_letters"),
    }


def totals(places: Places) -> dict[RouteKey, RouteTotals]:
    """What the Delta table of totals has at the end, by its log; empty if it was not made."""
    if not (places.root / "site.json").exists():
        return {}
    files = delta_files(Site.read(places.root).objects("totals"))
    rows = [row for path in files for row in pq.read_table(path).to_pylist()]
    return {route_of(row): totals_of(row) for row in rows}


FORM = Form(
    name="demo-lake",
    spec=SPEC,
    fronts={FRONT: "parse"},
    around=around,
    totals=totals,
    problems=lambda places: problems(places.reads),
)

if __name__ == "__main__":
    sys.exit(main(FORM, "examples.lake", __doc__, DURATION_S))
