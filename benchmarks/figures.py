"""What a benchmark finds: figures with their spread, bars that they must meet, curves to draw.

A figure is the median of several runs and their range. Where two things are compared they are run by
turns in one run of the benchmark, and the figure is made of one ratio for each pair: whatever else the
machine does then falls on both.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any


class Budget(Enum):
    """How much time there is: two minutes, fifteen, or as long as it takes."""

    QUICK = "quick"
    STANDARD = "standard"
    FULL = "full"

    def pick(self, quick: int, standard: int, full: int | None = None) -> int:
        """A number of rounds, rows or ticks for this budget; `full` is as `standard` unless given."""
        if self is Budget.QUICK:
            return quick
        return standard if self is Budget.STANDARD or full is None else full


@dataclass(frozen=True)
class Bar:
    """What a figure must reach: at most, or at least, `limit`."""

    limit: float
    at_most: bool = True

    def holds(self, value: float) -> bool:
        return value <= self.limit if self.at_most else value >= self.limit

    def __str__(self) -> str:
        return f"{'≤' if self.at_most else '≥'} {shown(self.limit)}"


@dataclass(frozen=True)
class Figure:
    """One line of the table. `values`: one for each run, in `unit` ("" for a ratio); `against`: what it
    was compared with, or how it was measured. by_interval: the bar is met or missed only where the
    interval of the values does not span it."""

    name: str
    values: tuple[float, ...]
    unit: str = ""
    against: str = ""
    bar: Bar | None = None
    by_interval: bool = False

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def met(self) -> bool:
        """Whether the median meets the bar; a figure without one has none to miss."""
        return self.bar is None or self.bar.holds(self.median)

    @property
    def is_told(self) -> bool:
        """Whether the values say if the bar is met; else their interval spans it."""
        if self.bar is None or not self.by_interval:
            return True
        low, high = interval(self.values)
        return self.bar.holds(low) == self.bar.holds(high)

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
            data |= {"bar": str(self.bar), "met": self.met, "told": self.is_told}
        if self.by_interval:
            data["interval"] = list(interval(self.values))
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

_TWO_SIDED_95 = 1.96


def ratios(over: Sequence[float], under: Sequence[float]) -> tuple[float, ...]:
    """One for each pair of runs."""
    return tuple(a / b for a, b in zip(over, under, strict=True))


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Where the middle of what the values are taken from lies, with 95 %: by the signed ranks of their
    differences from it (Hodges and Lehmann's interval), which a few wild values move little."""
    number = len(values)
    middles = sorted((values[i] + values[j]) / 2 for i in range(number) for j in range(i, number))
    deviation = math.sqrt(number * (number + 1) * (2 * number + 1) / 24)
    left_out = max(0, math.floor(len(middles) / 2 - _TWO_SIDED_95 * deviation))
    return middles[left_out], middles[-1 - left_out]


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


def _verdict(figure: dict[str, Any]) -> str:
    if not figure.get("told", True):
        return "cannot tell"
    return "met" if figure["met"] else "**not met**"


def table(figures: Sequence[dict[str, Any]]) -> str:
    """Figures, as `as_data` gives them, as a table in Markdown."""
    lines = [
        "| what | figure | range | bar | compared with |",
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
            spread += f"; 95 %: {low:.3f} – {high:.3f}"
        bar = f"{figure['bar']}{unit}: {_verdict(figure)}" if "bar" in figure else ""
        lines.append(
            f"| {figure['name']} | {shown(figure['median'])}{unit} | {spread} | {bar} "
            f"| {figure['against']} |"
        )
    return "\n".join(lines)
