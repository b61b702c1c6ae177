"""What became of one scheduler's run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Outcome:
    """wrong: what does not hold; broken: why the run did not come to its end; skipped: why it could not be tried;
    numbers: what was counted. seconds: of all,
    install_seconds: of those, what its environment took."""

    name: str
    hours: int = 0
    reports: int = 0
    kills: int = 0
    seconds: int = 0
    install_seconds: int = 0
    wrong: list[str] = field(default_factory=list)
    broken: str = ""
    skipped: str = ""
    numbers: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        if self.skipped:
            return f"{self.name}: skipped, {self.skipped}"
        if self.wrong or self.broken:
            return f"{self.name}: FAILED, {'; '.join(filter(None, [*self.wrong, self.broken]))}"
        more = "".join(f", {value} {name}" for name, value in self.numbers.items())
        return (
            f"{self.name}: OK, {self.hours} hours, {self.reports} reports, {self.kills} kills{more}, "
            f"{self.seconds} s, of which {self.install_seconds} to install"
        )
