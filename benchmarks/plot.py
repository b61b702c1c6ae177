"""Lines over a grid, as SVG: enough to see whether something grows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from benchmarks.figures import shown

WIDTH, HEIGHT = 560, 300
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 36, 52
COLOURS = ("#1f6f8b", "#c8553d", "#588157", "#8d6a9f", "#b08900")
Point = Sequence[float]


def plot(
    title: str,
    x: str,
    y: str,
    lines: Mapping[str, Sequence[Point]],
    by_factors: bool,
    marks: Sequence[tuple[float, str]] = (),
) -> str:
    """An SVG of lines by name; y begins at 0, unless the values span more than two factors of ten. marks:
    places on x, each with what happened there."""
    xs = _Scale([p[0] for line in lines.values() for p in line], LEFT, WIDTH - RIGHT, by_factors)
    values = [p[1] for line in lines.values() for p in line]
    spans_much = min(values) > 0 and max(values) / min(values) > 100
    ys = _Scale(values if spans_much else [0.0, *values], HEIGHT - BOTTOM, TOP, spans_much)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        _text(WIDTH / 2, 18, title, size=13),
        _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, x),
        f'<g transform="translate(14 {(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)">{_text(0, 0, y)}</g>',
    ]
    for value in ys.ticks():
        parts.append(_line(LEFT, ys.at(value), WIDTH - RIGHT, ys.at(value)))
        parts.append(_text(LEFT - 6, ys.at(value) + 4, shown(value), anchor="end"))
    for value in xs.ticks():
        parts.append(_line(xs.at(value), HEIGHT - BOTTOM, xs.at(value), HEIGHT - BOTTOM + 4))
        parts.append(_text(xs.at(value), HEIGHT - BOTTOM + 18, shown(value)))
    for place, (at, what) in enumerate(marks):
        parts += _marked(xs.at(at), what, HEIGHT - BOTTOM - 6 - 12 * (place % 3))
    for place, (name, line) in enumerate(lines.items()):
        parts += _drawn(name, line, xs, ys, place, len(lines))
    return "\n".join([*parts, "</svg>"]) + "\n"


class _Scale:
    """Values to places between two ends, evenly or by factors."""

    def __init__(
        self, values: Sequence[float], first: float, last: float, by_factors: bool
    ) -> None:
        self.by_factors = by_factors
        self._low, self._high = self._of(min(values)), self._of(max(values))
        if self._low == self._high:
            self._high += 1
        self._first, self._last = first, last

    def _of(self, value: float) -> float:
        return math.log10(value) if self.by_factors else value

    def at(self, value: float) -> float:
        part = (self._of(value) - self._low) / (self._high - self._low)
        return round(self._first + part * (self._last - self._first), 1)

    def ticks(self) -> list[float]:
        if self.by_factors:
            first, last = math.ceil(self._low - 1e-9), math.floor(self._high + 1e-9)
            return [10.0**power for power in range(first, last + 1)]
        step = 10.0 ** math.floor(math.log10(self._high - self._low))
        if (self._high - self._low) / step < 3:
            step /= 5
        while (self._high - self._low) / step > 6:
            step *= 2
        first = math.ceil(self._low / step)
        return [n * step for n in range(first, math.floor(self._high / step) + 1)]


def _drawn(
    name: str, line: Sequence[Point], xs: _Scale, ys: _Scale, place: int, count: int
) -> list[str]:
    colour = COLOURS[place % len(COLOURS)]
    points = [(xs.at(p[0]), ys.at(p[1])) for p in line]
    path = " ".join(f"{x},{y}" for x, y in points)
    parts = [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>']
    parts += [f'<circle cx="{x}" cy="{y}" r="2.5" fill="{colour}"/>' for x, y in points]
    if count > 1:
        parts.append(_text(LEFT + 8, TOP + 12 + 14 * place, name, "start", fill=colour))
    return parts


def _marked(x: float, what: str, y: float) -> list[str]:
    line = f'<line x1="{x}" y1="{TOP}" x2="{x}" y2="{HEIGHT - BOTTOM}" stroke="#999" stroke-dasharray="3 3"/>'
    return [line, _text(x + 3, y, what, "start", size=10, fill="#666")]


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="#ddd"/>'


def _text(
    x: float, y: float, text: str, anchor: str = "middle", size: int = 11, fill: str = "#333"
) -> str:
    return (
        f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-size="{size}" fill="{fill}">'
        f"{escape(text)}</text>"
    )
