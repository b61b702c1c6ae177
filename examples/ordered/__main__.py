"""Publishes out of order, kills the sink, and compares what it has written: `OK` if in order, and each once."""

from __future__ import annotations

import itertools
import json
import queue
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from examples.children import Child, Said, free_ports
from examples.ordered.pipeline import FRONTS, NAME, SEGMENT, SPEC
from lowmark import Admin, FileFront
from lowmark.fronts import FrontOptions
from scripts.summary import BUILD, finish

ROWS = 30
BEHIND_S = 7
KILL_AFTER = (8, 17, 23)
WAIT_S = 300.0
LOOK_S = 0.02


def written(root: Path) -> list[dict[str, object]]:
    """The whole lines of the output."""
    path = root / "out.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def _now_ns(clocks: dict[str, int], front: str) -> int:
    return clocks[front] * 10**9


def run(root: Path) -> tuple[list[tuple[int, str]], int]:
    """Runs all of it; returns the rows that were published, as (slot, row), and the number of kills."""
    target = f"127.0.0.1:{free_ports(1)}"
    said: queue.Queue[Said] = queue.Queue()
    serve = ["tracker.cli", "serve", "--listen", target, "--store", f"sqlite:{root / 'store'}"]
    children = [Child("tracker", serve, root / "logs", said)]
    clocks = dict.fromkeys(FRONTS, 0)
    fronts: dict[str, FileFront] = {}
    rows: list[tuple[int, str]] = []

    def start_sink() -> None:
        name = f"sink-{len(children)}"
        command = ["examples.ordered.sink", target, str(root)]
        children.append(Child(name, command, root / "logs", said))

    try:
        with Admin(target, WAIT_S) as admin:
            admin.register(SPEC)
        for name in FRONTS:
            fronts[name] = FileFront(
                target,
                NAME,
                name,
                SEGMENT,
                root / "in",
                format="json",
                options=FrontOptions(clock=partial(_now_ns, clocks, name)),
            )
        with ThreadPoolExecutor() as pool:  # min time begins when both have joined
            list(pool.map(lambda front: front.start(WAIT_S), fronts.values()))
        start_sink()
        for second in range(ROWS):
            for name, late in zip(FRONTS, (0, BEHIND_S), strict=True):
                clocks[name] = max(1, second - late)
                file = fronts[name].write([{"row": len(rows)}])
                assert file is not None
                rows.append((file.slot, json.dumps({"row": len(rows)})))
            if second in KILL_AFTER:
                children[-1].process.kill()
                children[-1].process.wait()
                start_sink()
        for front in fronts.values():
            front.leave()
        deadline_s = time.monotonic() + WAIT_S
        while len(written(root)) < len(rows) and time.monotonic() < deadline_s:
            time.sleep(LOOK_S)
    finally:
        for front in fronts.values():
            front.close()
        for child in reversed(children):
            child.stop()
    return rows, len(KILL_AFTER)


def main() -> int:
    name = "example-ordered"
    root = BUILD / name
    shutil.rmtree(root, ignore_errors=True)
    for directory in ("logs", "in"):
        (root / directory).mkdir(parents=True)
    rows, kills = run(root)
    out = written(root)
    slots = [slot for slot, _ in rows]
    found = [(int(str(row["slot"])), str(row["row"])) for row in out]
    shown = {
        "rows": len(rows),
        "written": len(out),
        "arrived_out_of_order": sum(a > b for a, b in itertools.pairwise(slots)),
        "kills": kills,
    }
    in_order = [slot for slot, _ in found] == sorted(slots)
    ok = in_order and sorted(found) == sorted(rows)
    return finish(name, ok=ok, shown=shown, details={"in_order": in_order})


if __name__ == "__main__":
    sys.exit(main())
