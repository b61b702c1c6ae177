"""What each check came to: `build/check.json`, by check and form, the newest of each.

All checks take hours, on one commit. So what they came to is also kept beside the code, in `recorded.json`, which
`python -m scripts.check --page` writes: whoever checks out that commit, or one that adds no more than the record, goes on
from there.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from scripts.summary import BUILD, ROOT

RECORD = BUILD / "check.json"
RECORDED = ROOT / "scripts" / "check" / "recorded.json"
PAGE = ROOT / "docs" / "verification.md"
SEEDS = ROOT / "tests" / "mutations" / "seeds.json"
"""By which seed each mutation was found, which decides where a hunt begins and not how it ends."""
SEARCHED = ROOT / "tests" / "simulation" / "searched.jsonl"
LOADED = ROOT / "tests" / "load" / "loaded.jsonl"
"""Which seeds were searched, and which runs beside a load held: each takes hours, of many sittings."""
FIGURES = (ROOT / "docs" / "performance.md", ROOT / "docs" / "img" / "bench-*.svg")
"""What `make bench` has measured, as `python -m benchmarks.report` puts it there."""
BESIDE_THE_CODE = (RECORDED, PAGE, SEEDS, SEARCHED, LOADED, *FIGURES)
"""A commit that changes only these has the code of the one before."""
CHANGED = "+"
"""Behind a commit: the code differed from it."""


class Status(StrEnum):
    """OK of a sabotage: the check found the planted fault. BROKEN: the check ended without a judgement."""

    OK = "OK"
    FAILED = "FAILED"
    BROKEN = "BROKEN"
    SKIPPED = "SKIPPED"


@dataclass(frozen=True)
class Result:
    """One run of a check. line: the last that it said, or why it did not run. commit: of the code that was checked."""

    check: str
    form: str
    status: Status
    line: str
    seconds: float
    commit: str


def commit() -> str:
    """The last commit that changed the code that is checked out, with `+` where that has changed since."""
    others = [f":(exclude){path.relative_to(ROOT)}" for path in BESIDE_THE_CODE]

    def git(*arguments: str) -> str:
        command = ["git", *arguments, "--", ".", *others]
        return subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.strip()

    return git("log", "-1", "--format=%h") + (CHANGED if git("status", "--porcelain") else "")


def noted(paths: Iterable[Path], codes: Collection[str]) -> Iterator[dict[str, Any]]:
    """What `note` has written of these codes, by which a run that was interrupted goes on; nothing of a commit with
    changes."""
    fixed = {code for code in codes if not code.endswith(CHANGED)}
    for text in (text for path in paths if path.exists() for text in path.read_text().splitlines()):
        with suppress(ValueError):  # the last line of a run that was killed
            line = json.loads(text)
            if line["commit"] in fixed:
                yield line


def note(path: Path, said: Mapping[str, Any], code: str) -> None:
    """A line for what came of a part of a run. code: the commit that it ran on, or what stands for its code."""
    path.parent.mkdir(exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps({**said, "commit": code}) + "\n")


@dataclass
class Record:
    """The newest result of each check and form. It is written after each check, so that a run that is ended goes on
    where it was."""

    path: Path = RECORD
    recorded: Path = RECORDED
    results: dict[tuple[str, str], Result] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path = RECORD, recorded: Path = RECORDED) -> Record:
        """What was recorded beside the code, and what has run here since."""
        return cls(path, recorded, {**_read(recorded), **_read(path)})

    def add(self, result: Result) -> None:
        """Keeps what another run has added meanwhile."""
        here = {**_read(self.path), (result.check, result.form): result}
        self.results.update(here)
        self.path.parent.mkdir(exist_ok=True)
        fresh = self.path.with_suffix(".new")
        fresh.write_text(_text(here.values()))
        fresh.replace(self.path)

    def keep(self, names: Collection[str]) -> None:
        """Records beside the code what these checks came to."""
        kept = [each for each in self.results.values() if each.check in names]
        self.recorded.write_text(_text(sorted(kept, key=lambda each: (each.check, each.form))))

    def of(self, check: str, form: str) -> Result | None:
        return self.results.get((check, form))

    def is_done(self, check: str, form: str, code: str) -> bool:
        """Whether it was OK on this very commit."""
        last = self.of(check, form)
        is_fixed = not code.endswith(CHANGED)
        return last is not None and is_fixed and last.commit == code and last.status is Status.OK

    def has_failed(self, check: str, form: str) -> bool:
        last = self.of(check, form)
        return last is not None and last.status in (Status.FAILED, Status.BROKEN)


def _read(path: Path) -> dict[tuple[str, str], Result]:
    rows = json.loads(path.read_text())["results"] if path.exists() else []
    results = [Result(**{**row, "status": Status(row["status"])}) for row in rows]
    return {(each.check, each.form): each for each in results}


def _text(results: Iterable[Result]) -> str:
    """One line for each, so that two runs change different lines."""
    rows = ",\n".join(json.dumps(asdict(each)) for each in results)
    return f'{{"results": [\n{rows}\n]}}\n'
