"""`python -m examples.flights`: the demo over files. Ends with `demo: OK flights=336776 ...`, or with what
was wrong and `demo: FAILED ...`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from examples.flights.command import main
from examples.flights.data import AIRPORTS
from examples.flights.form import Form, Worker
from examples.flights.pipeline import SPEC, Places
from examples.flights.proof import newest_totals

DURATION_S = 60.0


@contextmanager
def workers(_: Places) -> Iterator[Mapping[str, Worker]]:
    """Each airport is a front."""
    yield {
        **{name: Worker("examples.flights.airport", (name,), ends=True) for name in AIRPORTS},
        "driver": Worker("examples.flights.driver", terminated=False),
        "dead-letters": Worker("examples.flights.dead_letters"),
    }


FORM = Form(
    name="demo",
    spec=SPEC,
    fronts=dict.fromkeys(AIRPORTS, "parse"),
    around=workers,
    totals=lambda places: newest_totals(places.totals),
)

if __name__ == "__main__":
    sys.exit(main(FORM, "examples.flights", __doc__, DURATION_S))
