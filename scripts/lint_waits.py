"""Tests wait for events, with the one limit of `tests/waits.py`: no number of their own, and no sleep.

    python -m scripts.lint_waits [DIRECTORY ...]

What is refused, unless a line of the statement, or the one before, has the comment `# expires: why` (a limit that is
the behaviour under test, and has to expire, or is asked again) or `# paces: why` (the pace of a load, a fault, or looks):

- a number, or a name of a module's constant that is one, as a limit of a wait;
- a sleep;
- in a test, a program that is waited for without a limit;
- a mark with a timeout of a test's own.

Zero asks without waiting, and is no limit.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from scripts.summary import ROOT

LEFT_OUT = (
    "tests/core/",
    "tests/waits.py",
    "tests/model/",
    "tests/mutations/",
    "tests/simulation/",
    "tests/load/hurried.py",
)
"""What runs by a clock of its own; the limit itself; the planted fault of `make load`."""
EXPLAINED = ("# expires: ", "# paces: ")
KEYWORDS = re.compile(r"timeout|timeout_s|connect_timeout|finish_s|within_s|.*_timeout_s")
WAITS = {
    "Deadline": 0, "awaitTermination": 0, "communicate": 0, "create_connection": 1, "join": 0, "result": 0,
    "settimeout": 0, "until": 1, "wait": 0, "wait_durable": 0, "wait_for": 1, "wait_round": 2, "wait_until": 1,
}  # fmt: skip
"""Calls, by their last name, that take a limit behind so many other arguments."""
RUNS = ("subprocess.run", "subprocess.check_output")
SLEEPS = ("time.sleep", "asyncio.sleep", "sleep")


def found(path: Path) -> Iterator[tuple[int, str]]:
    """Lines of a module, and what is wrong there."""
    text = path.read_text()
    lines, tree = text.splitlines(), ast.parse(text)
    numbers = {
        target.id: node
        for node in tree.body
        if isinstance(node, ast.Assign) and _is_number(node.value, {})
        for target in node.targets
        if isinstance(target, ast.Name) and not _explained(node, lines)
    }
    for statement in ast.walk(tree):
        if isinstance(statement, ast.Call) and not _explained(statement, lines):
            yield from ((statement.lineno, wrong) for wrong in _wrong(statement, numbers))
            if path.name.startswith("test_") and _runs_for_ever(statement):
                yield (
                    statement.lineno,
                    "a program without a limit: timeout=HANG_S of tests/waits.py",
                )
        elif isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _defaults(statement, numbers, lines)


def _wrong(call: ast.Call, numbers: dict[str, ast.Assign]) -> Iterator[str]:
    name = ast.unparse(call.func)
    last = name.rpartition(".")[2]
    if name in SLEEPS and not _is_zero(call.args[0]):
        yield "a sleep: wait for an event, with `until` of tests/waits.py where nobody announces it"
    if name == "pytest.mark.timeout":
        yield "a timeout of a test's own: each wait has the limit of tests/waits.py"
    limits = [each.value for each in call.keywords if each.arg and KEYWORDS.fullmatch(each.arg)]
    if last in WAITS:
        limits += call.args[WAITS[last] :]
    for limit in limits:
        if _is_number(limit, numbers) and not _is_zero(limit):
            yield f"{ast.unparse(limit)} as a limit of a wait: HANG_S of tests/waits.py is the one"


def _runs_for_ever(call: ast.Call) -> bool:
    named = {each.arg for each in call.keywords}
    return ast.unparse(call.func) in RUNS and not named & {"timeout", None}


def _defaults(
    function: ast.FunctionDef | ast.AsyncFunctionDef,
    numbers: dict[str, ast.Assign],
    lines: Sequence[str],
) -> Iterator[tuple[int, str]]:
    said = function.args
    by_place = [*said.posonlyargs, *said.args]
    pairs = [
        *zip(reversed(by_place), reversed(said.defaults), strict=False),
        *zip(said.kwonlyargs, said.kw_defaults, strict=True),
    ]
    for argument, default in pairs:
        if default is None or not KEYWORDS.fullmatch(argument.arg) or _is_zero(default):
            continue
        if _is_number(default, numbers) and not _explained(default, lines):
            yield (
                default.lineno,
                f"{ast.unparse(default)} as a limit: HANG_S of tests/waits.py is the one",
            )


def _explained(node: ast.stmt | ast.expr, lines: Sequence[str]) -> bool:
    """Whether a line of it, or the one before it, says what expires there."""
    first, last = node.lineno, node.end_lineno or node.lineno
    return any(mark in line for mark in EXPLAINED for line in lines[max(0, first - 2) : last])


def _is_number(node: ast.expr, numbers: dict[str, ast.Assign]) -> bool:
    match node:
        case ast.Constant(value=value):
            return isinstance(value, int | float) and not isinstance(value, bool)
        case ast.Name(id=name):
            return name in numbers
        case ast.BinOp(left=left, right=right):
            return _is_number(left, numbers) and _is_number(right, numbers)
    return False


def _is_zero(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and not node.value


def main(directories: Sequence[str]) -> int:
    """Says each line that is wrong; returns how many there are, at most 1."""
    wrong = 0
    for directory in directories or ("tests",):
        for path in sorted((ROOT / directory).rglob("*.py")):
            name = str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)
            if name.startswith(LEFT_OUT):
                continue
            for line, what in found(path):
                wrong += 1
                print(f"{name}:{line}: {what}")
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
