"""`python -m tests.check FILE`: `check: OK ...` and 0, or every violation, `check: FAILED ...` and 1;
2 for a file that is no history."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.check.history import MalformedHistory, read_history
from tests.check.rules import violations

SHOWN = 5
"""Violations of a kind that are printed; the rest is counted."""


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("usage: python -m tests.check FILE", file=sys.stderr)
        return 2
    try:
        history = read_history(Path(arguments[0]))
    except (MalformedHistory, OSError) as error:
        print(f"check: FAILED {arguments[0]} cannot be read as a history: {error}")
        return 2
    found = violations(history)
    by_kind: dict[str, list[str]] = {}
    for violation in found:
        by_kind.setdefault(violation.split(":")[0], []).append(violation)
    for kind, violated in by_kind.items():
        for violation in violated[:SHOWN]:
            print(violation)
        if len(violated) > SHOWN:
            print(f"{kind}: {len(violated) - SHOWN} more")
    seen = (
        f"items={len(history.items())} ticks={len(history.ticks)} heard={len(history.heard)} "
        f"pipeline={history.pipeline}"
    )
    if history.released_by is not None:
        seen = f"rows_in={len(history.rows_in)} rows_out={len(history.rows_out)} {seen}"
    if history.measures is not None:
        seen = f"marks={len(history.measures.marks)} pipeline={history.pipeline}"
    if found:
        print(f"check: FAILED violations={len(found)} {seen}")
        return 1
    print(f"check: OK {seen}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
