"""One day as SVG: up to which moment each way said that all is complete, as the day went on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from examples.completeness.answers import Answers
from examples.completeness.flights import BEGIN, DAY, HOUR, STEP, Replay, clock_text

WIDTH, HEIGHT = 900, 560
LEFT, RIGHT, TOP, BOTTOM = 80, 30, 90, 60
FIRST, LAST = 5 * HOUR, 27 * HOUR
"""Of the day that is drawn: from five in the morning to three of the next."""
COLOURS = ("#1d4ed8", "#b45309", "#7e22ce", "#be185d")
MIN_TIME, TRUE, WRONG, INK, GREY = "#047857", "#d1fae5", "#b91c1c", "#0f172a", "#94a3b8"


class Plot:
    """Clock to the right, and the moment that is said to be complete upwards."""

    def __init__(self, replay: Replay, day: int) -> None:
        """day: from 0. Raises ValueError where the replay has none such."""
        if not 0 <= day < replay.days:
            raise ValueError(
                f"day {day} is to be drawn; the replay has days 0 to {replay.days - 1}"
            )
        self._replay = replay
        self.begin, self.end = BEGIN + day * DAY + FIRST, BEGIN + day * DAY + LAST

    def x(self, minute: int) -> float:
        part = (min(max(minute, self.begin), self.end) - self.begin) / (self.end - self.begin)
        return round(LEFT + part * (WIDTH - LEFT - RIGHT), 1)

    def y(self, minute: int) -> float:
        part = (min(max(minute, self.begin), self.end) - self.begin) / (self.end - self.begin)
        return round(HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM), 1)

    def steps(self, line: Sequence[tuple[int, int]]) -> list[tuple[float, float]]:
        """The corners of what was said: it stands until more is said, and is not taken back."""
        corners: list[tuple[float, float]] = [(self.x(self.begin), self.y(self.begin))]
        highest = self.begin
        for minute, told in line:
            if told > highest and minute <= self.end:
                corners += [(self.x(minute), self.y(highest)), (self.x(minute), self.y(told))]
                highest = told
        return [*corners, (self.x(self.end), self.y(highest))]

    def truth(self) -> list[tuple[int, int]]:
        """Up to where all flights were loaded, from when on."""
        frontier = self._replay.frontier()
        return [(now, frontier.at(now)) for now in range(BEGIN, self.end + 1, STEP)]

    def wrong(self, answers: Answers) -> Iterator[tuple[float, float]]:
        """Where an hour of the day was said to be complete, and was not."""
        for hour, answer in answers.told.items():
            end = (hour + 1) * HOUR
            lacks = answer.flights < len(self._replay.hours.get(hour, ()))
            if lacks and self.begin < end <= self.end and answer.minute <= self.end:
                yield self.x(answer.minute), self.y(end)


def picture(replay: Replay, day: int, ways: Sequence[Answers], min_time: Answers) -> str:
    """The SVG. ways: the others, at most as many as there are colours. Raises ValueError."""
    if len(ways) > len(COLOURS):
        raise ValueError(f"{len(ways)} ways are to be drawn; there are {len(COLOURS)} colours")
    plot = Plot(replay, day)
    parts = [*_ground(plot)]
    for place, (answers, colour) in enumerate(zip(ways, COLOURS, strict=False)):
        parts.append(_polyline(plot.steps(answers.progress()), colour, 1.8))
        parts += [
            f'<circle cx="{x}" cy="{y}" r="3.6" fill="{WRONG}"/>' for x, y in plot.wrong(answers)
        ]
        parts += _legend(place, answers.way.replace("`", ""), colour, 1.8)
    parts.append(_polyline(plot.steps(min_time.line), MIN_TIME, 3))
    parts += _legend(len(ways), min_time.way, MIN_TIME, 3)
    parts.append(
        f'<circle cx="{LEFT + 20}" cy="{TOP + 22 + 20 * (len(ways) + 1)}" r="3.6" fill="{WRONG}"/>'
    )
    parts.append(
        _text(
            LEFT + 44,
            TOP + 27 + 20 * (len(ways) + 1),
            "said of an hour that was not complete",
            WRONG,
        )
    )
    return "\n".join([*parts, "</svg>"]) + "\n"


def _ground(plot: Plot) -> Iterator[str]:
    title = "Up to which moment each way said that all flights are loaded, as the day went on"
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="Helvetica, Arial, sans-serif" font-size="13" role="img" aria-labelledby="title desc">'
    )
    yield f'<title id="title">{title}</title>'
    yield (
        '<desc id="desc">Min time runs along the edge of what is true. The other ways lie above it, where they '
        "report hours of which flights are still to come, or far below it.</desc>"
    )
    yield f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>'
    yield _text(LEFT, 32, title, INK, bold=True)
    yield _text(
        LEFT, 54, "Green is what is true. What lies above it was said too early.", "#64748b"
    )
    floor = plot.y(plot.begin)
    corners = [*plot.steps(plot.truth()), (plot.x(plot.end), floor), (plot.x(plot.begin), floor)]
    yield f'<polygon points="{_points(corners)}" fill="{TRUE}"/>'
    for minute in range(plot.begin + HOUR, plot.end + 1, 3 * HOUR):
        x, y = plot.x(minute), plot.y(minute)
        yield f'<line x1="{x}" y1="{TOP}" x2="{x}" y2="{floor}" stroke="#e2e8f0"/>'
        yield f'<line x1="{LEFT}" y1="{y}" x2="{WIDTH - RIGHT}" y2="{y}" stroke="#e2e8f0"/>'
        yield _text(x, HEIGHT - BOTTOM + 20, clock_text(minute), INK, "middle")
        yield _text(LEFT - 8, y + 4, clock_text(minute), INK, "end")
    yield _polyline([(LEFT, floor), (WIDTH - RIGHT, TOP)], GREY, 1, dashes="4 4")
    yield _text(WIDTH - RIGHT - 8, TOP - 6, "now", "#64748b", "end")
    yield _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 14, "the clock in New York", INK, "middle")
    yield _text(LEFT - 60, TOP - 10, "said to be complete up to", INK)


def _legend(place: int, name: str, colour: str, width: float) -> Iterator[str]:
    y = TOP + 22 + 20 * place
    yield _polyline([(LEFT + 8, y), (LEFT + 36, y)], colour, width)
    yield _text(LEFT + 44, y + 5, name, colour, bold=width > 2)


def _points(corners: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x},{y}" for x, y in corners)


def _polyline(
    corners: Sequence[tuple[float, float]], colour: str, width: float, dashes: str = ""
) -> str:
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return (
        f'<polyline points="{_points(corners)}" fill="none" stroke="{colour}" stroke-width="{width}"'
        f"{dashed}/>"
    )


def _text(
    x: float, y: float, text: str, fill: str, anchor: str = "start", *, bold: bool = False
) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return (
        f'<text x="{x}" y="{y}" fill="{fill}" text-anchor="{anchor}"{weight}>{escape(text)}</text>'
    )
