"""What each check came to: `build/check.json`, by check and form, the newest of each."""

from __future__ import annotations

import json
import subprocess
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path

from scripts.summary import BUILD, ROOT

RECORD = BUILD / "check.json"
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
    """The commit that is checked out, with `+` where the code differs from it."""

    def git(*arguments: str) -> str:
        command = ["git", *arguments]
        return subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.strip()

    return git("rev-parse", "--short", "HEAD") + (CHANGED if git("status", "--porcelain") else "")


@dataclass
class Record:
    """The newest result of each check and form. It is written after each check, so that a run that is ended goes on
    where it was."""

    path: Path = RECORD
    results: dict[tuple[str, str], Result] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path = RECORD) -> Record:
        rows = json.loads(path.read_text())["results"] if path.exists() else []
        results = [Result(**{**row, "status": Status(row["status"])}) for row in rows]
        return cls(path, {(each.check, each.form): each for each in results})

    def add(self, result: Result) -> None:
        """Keeps what another run has added meanwhile."""
        self.results = {**Record.read(self.path).results, (result.check, result.form): result}
        rows = [asdict(each) for each in self.results.values()]
        self.path.parent.mkdir(exist_ok=True)
        fresh = self.path.with_suffix(".new")
        fresh.write_text(json.dumps({"results": rows}, indent=1) + "\n")
        fresh.replace(self.path)

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
