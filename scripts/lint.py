"""Runs every static check, all of them even if one fails.

python -m scripts.lint [CHECK ...]
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from scripts.summary import ROOT, finish

BIN = Path(sys.executable).parent

CHECKS: dict[str, list[str]] = {
    "ruff": [str(BIN / "ruff"), "check", "."],
    "format": [str(BIN / "ruff"), "format", "--check", "."],
    "lengths": [sys.executable, "-m", "scripts.function_lengths"],
    "waits": [sys.executable, "-m", "scripts.lint_waits"],
    "imports": [str(BIN / "lint-imports")],
    "buf": [str(BIN / "buf"), "lint", "proto"],
    "stubs": [sys.executable, "-m", "scripts.generate_stubs", "--check"],
    "mypy": [str(BIN / "mypy")],
}


def main(arguments: Sequence[str]) -> int:
    """Runs the checks named, or all; returns the exit code."""
    chosen = list(arguments) or list(CHECKS)
    unknown = [name for name in chosen if name not in CHECKS]
    if unknown:
        print(f"lint: no check {unknown[0]!r}; checks are {', '.join(CHECKS)}", file=sys.stderr)
        return 2
    start = time.monotonic()
    codes: dict[str, int] = {}
    for name in chosen:
        print(f"== {name}", flush=True)
        codes[name] = subprocess.call(CHECKS[name], cwd=ROOT)
    failed = [name for name, code in codes.items() if code != 0]
    shown: dict[str, object] = {"checks": len(codes), "seconds": round(time.monotonic() - start)}
    if failed:
        shown["failed"] = ",".join(failed)
    return finish("lint", ok=not failed, shown=shown, details={"exit_codes": codes})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
