"""python -m tests.scenarios: compares every script with what the processes do; `--write` rewrites."""

from __future__ import annotations

import sys

from tests.scenarios.script import parse, render, run, scripts


def main(arguments: list[str]) -> int:
    """0 if every script says what happens (with --write: it does so from now on)."""
    differ = 0
    for path in scripts():
        text = path.read_text()
        new = render(run(parse(text)))
        if new == text:
            continue
        if "--write" in arguments:
            path.write_text(new)
            print(f"{path.name}: written")
        else:
            differ += 1
            print(f"{path.name}: differs; python -m tests.scenarios --write shows how, in a diff")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
