"""What has been searched already: an interrupted search goes on, and ranges of seeds add up.

Each block of seeds that was run is a line of a file, under a digest of all code that decides what a
seed does. Lines of other code are passed over, so nothing is counted that this code has not run. What a
long search has run can be kept beside the code (`--keep`); `--fresh` counts nothing that ran before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from scripts.check.record import SEARCHED, note, noted
from scripts.summary import BUILD, ROOT
from tests.simulation.run import Summary

BLOCK_SEEDS = 250
"""Seeds of one line; what an interruption loses at most."""
PROGRESS = BUILD / "sim-progress.jsonl"
SIMULATED = (
    "tracker/core", "local_tracker/core", "local_tracker/spark/query/compose.py", "tests/simulation",
    "tests/core/graphs.py", "tests/inside.py",
)  # fmt: skip
_NOT_RUN = ("__main__.py", "run.py", "progress.py", "cut_rules.py", "digest.py")
"""Files of the simulator that do not decide what a seed does."""


def code_digest() -> str:
    """Of the production code that is simulated and of the simulator."""
    digest = blake2b(digest_size=8)
    for place in SIMULATED:
        path = ROOT / place
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            if file.name not in _NOT_RUN and not file.name.startswith("test_"):
                digest.update(f"{file.relative_to(ROOT)}\0".encode() + file.read_bytes())
    return digest.hexdigest()


@dataclass
class Block:
    """A range of seeds that was run, in so many seconds on all cores."""

    seeds: range
    fault: str | None
    seconds: float
    summary: Summary


class Progress:
    """The file of blocks, for the code as it is, and what is kept beside the code."""

    def __init__(self, path: Path = PROGRESS, kept: Path = SEARCHED) -> None:
        self.path, self.kept = path, kept
        self.code = code_digest()
        self.blocks = list(self.read())

    def read(self) -> Iterator[Block]:
        """The blocks that ran by the code as it is."""
        return map(_block, noted((self.kept, self.path), {self.code}))

    def done(self, seeds: range, fault: str | None) -> list[Block]:
        """The blocks that lie within a range, each seed at most once."""
        chosen, end = [], seeds.start
        for block in sorted(self.blocks, key=lambda b: (b.seeds.start, -b.seeds.stop)):
            inside = end <= block.seeds.start and block.seeds.stop <= seeds.stop
            if inside and block.fault == fault:
                chosen.append(block)
                end = block.seeds.stop
        return chosen

    def missing(self, seeds: range, fault: str | None) -> Iterator[range]:
        """The seeds of a range that no block has, in pieces of at most a block."""
        at = seeds.start
        stops = [*(block.seeds for block in self.done(seeds, fault)), range(seeds.stop, seeds.stop)]
        for done in stops:
            while at < done.start:
                end = min(done.start, (at // BLOCK_SEEDS + 1) * BLOCK_SEEDS)
                yield range(at, end)
                at = end
            at = max(at, done.stop)

    def add(self, block: Block) -> None:
        """Notes a block; it counts from now on, also for later searches."""
        self.blocks.append(block)
        note(self.path, _data(block), self.code)

    def keep(self) -> None:
        """Writes what was searched beside the code: each stretch of seeds as one block."""
        self.kept.unlink(missing_ok=True)
        stretches: list[list[Block]] = []
        for block in self.done(range(1 << 62), None):
            if not stretches or stretches[-1][-1].seeds.stop < block.seeds.start:
                stretches.append([])
            stretches[-1].append(block)
        for blocks in stretches:
            total, seconds = add_up(blocks)
            seeds = range(blocks[0].seeds.start, blocks[-1].seeds.stop)
            note(self.kept, _data(Block(seeds, None, seconds, total)), self.code)


def _data(block: Block) -> dict[str, Any]:
    return {
        "first": block.seeds.start,
        "last": block.seeds.stop,
        "fault": block.fault,
        "seconds": round(block.seconds, 3),
        **block.summary.as_data(),
    }


def _block(data: dict[str, Any]) -> Block:
    seeds = range(data["first"], data["last"])
    return Block(seeds, data["fault"], data["seconds"], Summary.from_data(data))


def add_up(blocks: list[Block]) -> tuple[Summary, float]:
    """All blocks together, and their seconds."""
    total = Summary()
    for block in blocks:
        total.add(block.summary)
    return total, sum(block.seconds for block in blocks)
