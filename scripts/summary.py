"""How every `make` target ends: one file `build/<name>.json` and one summary line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"


def finish(
    name: str, *, ok: bool, shown: Mapping[str, object], details: Mapping[str, object]
) -> int:
    """Writes `build/<name>.json` (`ok`, what is shown, and the details), prints `<name>: OK key=value
    ...` (or FAILED) as the last line, and returns the exit code: 0 or 1."""
    BUILD.mkdir(exist_ok=True)
    document = {"ok": ok, **shown, **details}
    (BUILD / f"{name}.json").write_text(json.dumps(document, indent=2) + "\n")
    pairs = " ".join(f"{key}={value}" for key, value in shown.items())
    print(f"{name}: {'OK' if ok else 'FAILED'} {pairs}", flush=True)
    return 0 if ok else 1
