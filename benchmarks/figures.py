"""What a benchmark finds: figures with their spread, bars that they must meet, curves to draw.

A figure is the median of several rounds and their range. One with a bar is judged by the interval of its
values (`benchmarks/pairs.py`), unless it is a count that comes out the same in every run.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from benchmarks.pairs import FEWEST_ROUNDS, MOST_LOOKS, Bar, Verdict, interval


class Budget(Enum):
    """How much time there is: two minutes, three quarters of an hour, or as long as it takes."""

    QUICK = "quick"
    STANDARD = "standard"
    FULL = "full"

    def pick(self, quick: int, standard: int, full: int | None = None) -> int:
        """A number of rounds, rows or ticks for this budget; `full` is as `standard` unless given."""
        if self is Budget.QUICK:
            return quick
        return standard if self is Budget.STANDARD or full is None else full

    @property
    def looks(self) -> int:
        """How often rounds that cannot tell are doubled, and judged again."""
        return self.pick(1, 2, MOST_LOOKS)


@dataclass(frozen=True)
class Figure:
    """One line of the table. `values`: one for each run, in `unit` ("" for a ratio); `against`: what it
    was compared with, or how it was measured. exact: a count that comes out the same in every run, or the
    whole of a long run, which needs no interval."""

    name: str
    values: tuple[float, ...]
    unit: str = ""
    against: str = ""
    bar: Bar | None = None
    exact: bool = False
    judged: Verdict | None = None
    """What a rule of its own has found, where the interval is not what decides."""
    least: float | None = None
    """What decides where it is given: the figure by the rounds of each side that the machine has disturbed least. Whatever else goes
    on adds to what something takes, so the least of many rounds comes out alike where their median does not."""

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def _decides(self) -> float | None:
        """The one value that decides, where it is not an interval that does."""
        return self.median if self.exact else self.least

    @property
    def interval(self) -> tuple[float, float]:
        """Where what decides lies: the median, but for what is exact, or told by its least."""
        decides = self._decides
        return interval(self.values) if decides is None else (decides, decides)

    @property
    def verdict(self) -> Verdict:
        """A figure without a bar has none to miss."""
        if self.judged is not None:
            return self.judged
        return Verdict.MET if self.bar is None else self.bar.verdict(*self.interval)

    def as_data(self) -> dict[str, Any]:
        data: dict[str, Any] = {
            "name": self.name,
            "unit": self.unit,
            "median": self.median,
            "low": min(self.values),
            "high": max(self.values),
            "runs": len(self.values),
            "values": list(self.values),
            "against": self.against,
        }
        if self.bar is not None:
            data |= {"bar": f"{'≤' if self.bar.at_most else '≥'} {shown(self.bar.limit)}"}
            data |= {"bar_name": self.bar.name, "verdict": self.verdict.value}
            data |= {"met": self.verdict is Verdict.MET}
            data |= {"told": self.verdict is not Verdict.CANNOT_TELL}
        has_interval = self._decides is None and self.judged is None
        if has_interval and len(self.values) >= FEWEST_ROUNDS:
            data["interval"] = list(self.interval)
        if self.least is not None:
            data["least"] = self.least
        return data


@dataclass(frozen=True)
class Skipped:
    """A line of the table for what could not be run here, and why."""

    name: str
    why: str

    def as_data(self) -> dict[str, Any]:
        return {"name": self.name, "skipped": self.why}


@dataclass(frozen=True)
class Curve:
    """Something to draw: lines of (x, y) by name."""

    name: str
    x: str
    y: str
    lines: dict[str, list[tuple[float, float]]]
    logarithmic: bool = True
    """Whether x grows by factors."""

    def as_data(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "x": self.x,
            "y": self.y,
            "logarithmic": self.logarithmic,
            "lines": {name: [list(point) for point in line] for name, line in self.lines.items()},
        }


Finding = Figure | Skipped | Curve


def are_told(figures: Iterable[Figure]) -> bool:
    """Whether each has a verdict."""
    return all(figure.verdict is not Verdict.CANNOT_TELL for figure in figures)


def percentile(values: Sequence[float], percent: float) -> float:
    """The value that `percent` of all values do not pass."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def shown(value: float) -> str:
    """A number with about three digits that say something."""
    if value == 0 or abs(value) >= 1000:
        return f"{value:,.0f}"
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}" if abs(value) < 1 else f"{value:.{2 if abs(value) < 10 else 1}f}"


_EMPHASIS = {verdict.value: verdict.value for verdict in Verdict} | {
    Verdict.NOT_MET.value: f"**{Verdict.NOT_MET.value}**"
}


def table(figures: Sequence[dict[str, Any]]) -> str:
    """Figures, as `as_data` gives them, as a table in Markdown."""
    lines = [
        "| what | figure | range (rounds); interval | bar | compared with |",
        "|---|---|---|---|---|",
    ]
    for figure in figures:
        if "skipped" in figure:
            lines.append(f"| {figure['name']} | skipped | | | {figure['skipped']} |")
            continue
        unit = f" {figure['unit']}" if figure["unit"] else ""
        spread = f"{shown(figure['low'])} – {shown(figure['high'])} ({figure['runs']})"
        if "interval" in figure:
            low, high = figure["interval"]
            spread += f"; {shown(low)} – {shown(high)}" if unit else f"; {low:.3f} – {high:.3f}"
        if "least" in figure:
            spread += f"; undisturbed {shown(figure['least'])}"
        bar = f"{figure['bar']}{unit}: {_EMPHASIS[figure['verdict']]}" if "bar" in figure else ""
        lines.append(
            f"| {figure['name']} | {shown(figure['median'])}{unit} | {spread} | {bar} "
            f"| {figure['against']} |"
        )
    return "\n".join(lines)
