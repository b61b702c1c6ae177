"""`python -m tests.elastic.experiments NAME DIRECTORY RESULT`: makes one experiment, and writes what it finds."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from inspect import signature
from pathlib import Path

from tests.cluster.told import end_with_parent


def main(name: str, directory: str, result: str) -> None:
    end_with_parent()
    find = import_module(f"tests.elastic.experiments.{name}").find
    found = find(Path(directory)) if signature(find).parameters else find()
    Path(result).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
