"""Runs the example, shows what each job missed and took twice, and fails if the gated one did either."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from examples.incremental.run import ExampleFailed, Tally, run_example
from examples.incremental.shops import OUTAGE, Sale, clock_text
from lowmark import LowmarkError
from scripts.summary import BUILD, finish

SHOWN_ROWS = 5


def told(sales: list[Sale]) -> list[dict[str, Any]]:
    """Rows for the report."""
    return [
        {
            "row": s.row,
            "shop": s.shop,
            "stamp": clock_text(s.stamp),
            "visible": clock_text(s.visible),
        }
        for s in sales
    ]


def show(name: str, tally: Tally, rows: list[Sale]) -> None:
    missed, repeated = tally.missed(rows), tally.repeated(rows)
    print(f"{name}: of {len(rows)} rows {len(missed)} missed, {len(repeated)} taken twice or more")
    for sale in missed[:SHOWN_ROWS]:
        print(
            f"  missed row {sale.row} of {sale.shop}: stamped {clock_text(sale.stamp)}, visible at "
            f"{clock_text(sale.visible)}"
        )


def main(arguments: list[str]) -> int:
    """Returns 0 if the gated job took every row exactly once."""
    parser = argparse.ArgumentParser(prog="python -m examples.incremental")
    parser.add_argument("--sabotage", choices=["early"], help="the tracker announces too early")
    sabotage = parser.parse_args(arguments).sabotage
    name = "example-incremental"
    try:
        replay = run_example(BUILD / name, sabotage)
    except (ExampleFailed, LowmarkError) as error:
        return finish(name, ok=False, shown={"problem": repr(str(error))}, details={})
    rows, gated, looking_back = replay.rows, replay.gated, replay.looking_back
    show("gated by min time", gated, rows)
    show("looking back 15 minutes", looking_back, rows)
    missed, repeated = gated.missed(rows), gated.repeated(rows)
    shown = {
        "rows": len(rows),
        "late": sum(sale.visible == OUTAGE.stop and sale.stamp in OUTAGE for sale in rows),
        "gated_missed": len(missed),
        "gated_twice": len(repeated),
        "lookback_missed": len(looking_back.missed(rows)),
        "lookback_twice": len(looking_back.repeated(rows)),
    }
    details = {
        "gated": {"missed": told(missed), "twice": told(repeated)},
        "look_back": {
            "missed": told(looking_back.missed(rows)),
            "twice": told(looking_back.repeated(rows)),
        },
    }
    return finish(name, ok=not missed and not repeated, shown=shown, details=details)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
