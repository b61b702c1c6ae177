"""Functions fit a screen: from `def` to the last line of its body none takes 70 lines or more.

python -m scripts.function_lengths [DIRECTORY ...]
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from scripts.summary import ROOT

LIMIT = 70
CHECKED = (
    "lowmark", "tracker", "local_tracker", "fronts", "scripts", "tests", "examples", "benchmarks",
)  # fmt: skip


def too_long(source: str) -> Iterator[tuple[int, str, int]]:
    """Of each function that is too long, those inside of others and methods too: the line of its `def`,
    its name and its number of lines."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines >= LIMIT:
                yield node.lineno, node.name, lines


def main(arguments: Sequence[str]) -> int:
    """Checks the product, the tests, the examples and the benchmarks, or the directories named; prints
    each function that is too long. Returns the exit code."""
    found = False
    for directory in [Path(name) for name in arguments] or [ROOT / name for name in CHECKED]:
        for path in sorted(directory.rglob("*.py")):
            for line, name, lines in too_long(path.read_text(encoding="utf-8")):
                found = True
                print(f"{path}:{line}: {name} has {lines} lines; the limit is {LIMIT - 1}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
