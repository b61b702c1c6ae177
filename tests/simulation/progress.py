"""What has been searched already: an interrupted search goes on, and ranges of seeds add up.

Each block of seeds that was run is a line of a file, under a digest of all code that decides what a
seed does. Lines of other code are passed over, so nothing is counted that this code has not run.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

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


def commit() -> str:
    """The commit that is checked out, with `+` where what is simulated differs from it; "" where
    there is no git."""

    def git(*arguments: str) -> str:
        command = ["git", *arguments]
        return subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", *SIMULATED) else "")
    except (OSError, subprocess.CalledProcessError):
        return ""


@dataclass
class Block:
    """A range of seeds that was run, in so many seconds on all cores."""

    seeds: range
    fault: str | None
    seconds: float
    summary: Summary


class Progress:
    """The file of blocks, for the code as it is."""

    def __init__(self, path: Path = PROGRESS) -> None:
        self.path = path
        self.code = code_digest()
        self.blocks = list(self.read())

    def read(self) -> Iterator[Block]:
        """The blocks in the file that ran by the code as it is."""
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        for line in lines:
            try:
                data = json.loads(line)
            except ValueError:
                continue  # the last line of a run that was killed
            if data["code"] == self.code:
                yield _block(data)

    def done(self, seeds: range, fault: str | None) -> list[Block]:
        """The blocks that lie within a range, each seed at most once."""
        chosen, end = [], seeds.start
        for block in sorted(self.blocks, key=lambda b: b.seeds.start):
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
        data = {
            "code": self.code,
            "first": block.seeds.start,
            "last": block.seeds.stop,
            "fault": block.fault,
            "seconds": round(block.seconds, 3),
            **block.summary.as_data(),
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(json.dumps(data) + "\n")


def _block(data: dict[str, Any]) -> Block:
    seeds = range(data["first"], data["last"])
    return Block(seeds, data["fault"], data["seconds"], Summary.from_data(data))


def add_up(blocks: list[Block]) -> tuple[Summary, float]:
    """All blocks together, and their seconds."""
    total = Summary()
    for block in blocks:
        total.add(block.summary)
    return total, sum(block.seconds for block in blocks)
