"""Dead letters: the malformed rows on their way from the first query to a node of their own.

The query's task writes those of its partition into one file, whose name and contents depend on the
micro-batch alone, so that a task that is tried again writes the same file again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lowmark.nodes import child_values, string_key


@dataclass(frozen=True, slots=True)
class Letter:
    """A malformed row: its place in the data, its label, its line, and what is wrong with it."""

    row: int
    slot: int
    line: str
    why: str


def letter_values(rows: Sequence[int]) -> NDArray[np.uint64]:
    """The ack values of the letters of some rows."""
    return child_values(np.uint64(string_key("dead letter")), "row", np.array(rows, np.int64))


def write_letters(directory: Path, name: str, letters: Sequence[Letter]) -> None:
    """Publishes letters as the file `name`, at once."""
    hidden = directory / f".{name}.{os.getpid()}"
    hidden.write_text("".join(json.dumps(asdict(letter)) + "\n" for letter in letters))
    os.replace(hidden, directory / name)


def read_letters(path: Path) -> list[Letter]:
    """The letters of one file."""
    return [Letter(**json.loads(line)) for line in path.read_text().splitlines()]
