"""A badge: a small picture that says up to when a pipeline is complete, or how far it is behind, for other pages."""

from __future__ import annotations

from datetime import UTC, datetime
from xml.sax.saxutils import escape

from tracker.client import PipelineInfo
from tracker.core.model.names import printable
from tracker.core.model.slots import FOREVER
from tracker.view.model import lag_slots
from tracker.view.pipelines import clock_time, slots_text, time_text
from tracker.view.progress import State

MAX_LABEL_CHARACTERS = 40
"""Of a name on a badge; a longer one is cut."""
_COLOURS: dict[State, str] = {
    "complete": "#1a7f37", "moving": "#0a6e8a", "waiting": "#6e7781", "stuck": "#b42318",
}  # fmt: skip
_CHARACTER, _GAP, _HEIGHT = 6.6, 8, 20
"""Widths in pixels, about: the text is fitted into them."""


def badge(
    info: PipelineInfo, segment: str | None, slot: int, state: State, show: str, now: datetime
) -> bytes:
    """The picture (SVG) of a pipeline or of one of its segments, whose min time is at a slot. show: `min_time` or `lag`."""
    label = printable(info.spec.name if segment is None else f"{info.spec.name} {segment}")
    if len(label) > MAX_LABEL_CHARACTERS:
        label = label[: MAX_LABEL_CHARACTERS - 1] + "…"
    said = lag_text(slot, info) if show == "lag" else complete_text(slot, info, now)
    if state == "stuck":
        said += ", stuck"
    return _drawn(label, said, _COLOURS[state]).encode()


def complete_text(slot: int, info: PipelineInfo, now: datetime) -> str:
    """`complete to 14:05` (UTC), with the date where that is not today's."""
    if slot == FOREVER:
        return "complete"
    moment = clock_time(slot, info.spec)
    if moment is None:
        return f"complete to {time_text(slot, info.spec)}"
    is_today = moment.date() == now.astimezone(UTC).date()
    return f"complete to {moment.strftime('%H:%M' if is_today else '%Y-%m-%d %H:%M')}"


def lag_text(slot: int, info: PipelineInfo) -> str:
    """How far behind the newest promise of a front."""
    if slot == FOREVER:
        return "complete"
    lag = lag_slots(slot, info)
    return "no front" if lag is None else f"{slots_text(lag, info.spec)} behind"


def _drawn(label: str, said: str, colour: str) -> str:
    widths = [round(_CHARACTER * len(text)) + 2 * _GAP for text in (label, said)]
    texts = [
        f'<text x="{x}" y="14" textLength="{width - 2 * _GAP}" lengthAdjust="spacingAndGlyphs">{escape(text)}</text>'
        for x, width, text in zip((_GAP, widths[0] + _GAP), widths, (label, said), strict=True)
    ]
    whole = escape(f"{label}: {said}", {'"': "&quot;"})
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{sum(widths)}" height="{_HEIGHT}" role="img" aria-label="{whole}">'
        f"<title>{whole}</title>"
        f'<rect width="{sum(widths)}" height="{_HEIGHT}" rx="3" fill="#3d444d"/>'
        f'<rect x="{widths[0]}" width="{widths[1]}" height="{_HEIGHT}" rx="3" fill="{colour}"/>'
        f'<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">{"".join(texts)}</g></svg>\n'
    )
