"""`python -m tests.check FILE`: `check: OK ...` and 0, or every violation, `check: FAILED ...` and 1;
2 for a file that is no history."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.check.groups import still
from tests.check.history import MalformedHistory, read_history
from tests.check.rules import violations

SHOWN = 5
"""Violations of a kind that are printed; the rest is counted."""


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("usage: python -m tests.check FILE", file=sys.stderr)
        return 2
    status, lines = checked(Path(arguments[0]))
    print("\n".join(lines))
    return status


def checked(path: Path) -> tuple[int, list[str]]:
    """The exit code for a file, and the lines that are said of it."""
    try:
        history = read_history(path)
    except (MalformedHistory, OSError) as error:
        return 2, [f"check: FAILED {path} cannot be read as a history: {error}"]
    found = violations(history)
    by_kind: dict[str, list[str]] = {}
    for violation in found:
        by_kind.setdefault(violation.split(":")[0], []).append(violation)
    said: list[str] = []
    for kind, violated in by_kind.items():
        said += violated[:SHOWN]
        if len(violated) > SHOWN:
            said.append(f"{kind}: {len(violated) - SHOWN} more")
    seen = (
        f"items={len(history.items())} ticks={len(history.ticks)} heard={len(history.heard)} "
        f"pipeline={history.pipeline}"
    )
    if history.released_by is not None:
        seen = f"rows_in={len(history.rows_in)} rows_out={len(history.rows_out)} {seen}"
    if history.measures is not None:
        seen = f"marks={len(history.measures.marks)} pipeline={history.pipeline}"
    if history.groups is not None:
        longest_ns = max((still_ns for still_ns, *_ in still(history)), default=0)
        seen = f"tenures={len(history.groups.tenures)} still_ms={longest_ns // 1_000_000} {seen}"
    if found:
        return 1, [*said, f"check: FAILED violations={len(found)} {seen}"]
    return 0, [*said, f"check: OK {seen}"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
