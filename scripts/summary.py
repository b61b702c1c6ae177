"""How every `make` target ends: one file `build/<name>.json` and one summary line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"


def finish(
    name: str, *, ok: bool, shown: Mapping[str, object], details: Mapping[str, object],
    skipped: str = "",
) -> int:  # fmt: skip
    """Writes `build/<name>.json` (`ok`, what is shown, and the details), prints `<name>: OK key=value
    ...` (or FAILED) as the last line, and returns the exit code: 0 or 1. skipped: why some of it could not be
    tried, where that is all that keeps it from being OK; the line then says SKIPPED and why."""
    BUILD.mkdir(exist_ok=True)
    document = {"ok": ok, **shown, **details, **({"reason": skipped} if skipped else {})}
    (BUILD / f"{name}.json").write_text(json.dumps(document, indent=2) + "\n")
    pairs = [f"{key}={value}" for key, value in shown.items()]
    said = ["OK" if ok else "SKIPPED" if skipped else "FAILED", *pairs, skipped]
    print(f"{name}: {' '.join(filter(None, said))}", flush=True)
    return 0 if ok else 1
