"""Searches, compares with a plain breadth-first search, and fails if one distance differs."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from examples.shortest_paths.graph import distances
from examples.shortest_paths.run import FULL, ExampleFailed, Size, run
from lowmark import LowmarkError
from scripts.summary import BUILD, finish


def main(arguments: list[str], root: Path = BUILD / "example-rounds", size: Size = FULL) -> int:
    """Returns 0 if every distance is right."""
    parser = argparse.ArgumentParser(prog="python -m examples.shortest_paths")
    parser.add_argument(
        "--sabotage", choices=["early"], help="workers go on before a round is over"
    )
    sabotage = parser.parse_args(arguments).sabotage
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    try:
        ran = run(root, size, early=sabotage == "early")
    except (ExampleFailed, LowmarkError) as error:
        problem = {"problem": repr(str(error))}
        return finish("example-rounds", ok=False, shown=problem, details={})
    wrong = [
        int((found != distances(ran.graph, start)).sum())
        for found, start in zip(ran.found, ran.starts, strict=True)
    ]
    shown = {
        "vertices": size.vertices,
        "edges": size.edges,
        "workers": size.workers,
        "searches": size.searches,
        "rounds": max(ran.rounds.values()) + 1,
        "kills": ran.kills,
        "wrong": sum(wrong),
    }
    details = {"wrong_by_search": wrong, "rounds_by_search": list(ran.rounds.values())}
    return finish("example-rounds", ok=not any(wrong), shown=shown, details=details)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
