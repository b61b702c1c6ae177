"""Windows as Spark writes them out in a plan, where `window(...)` itself is no more: read word for word.

Each function takes the text of an expression, and the name in it of the one column that it is made of. What
is not exactly what Spark makes of a window is none.
"""

from __future__ import annotations

import re

from local_tracker.spark.state.rules import Window

_NUMBERS = re.compile(r" - (-?\d+)\) % (\d+)\) < .* END\) - (\d+)\) \+ (\d+)\), LongType, ")
"""Of a window: where the first one begins, how often one begins, which one it is, and its size, in µs."""


def window_of(text: str, name: str) -> tuple[Window, int] | None:
    """A window of a column, and by how many µs it begins before the last one that holds the row."""
    found = _NUMBERS.search(text)
    if found is None:
        return None
    start, slide, back, size = (int(number) for number in found.groups())
    micros = _micros(re.escape(name))
    rest = rf"\(\({micros} - {start}\) % {slide}\)"
    case = rf"CASE WHEN \({rest} < (?:0|cast\(0 as bigint\))\) THEN \({rest} \+ {slide}\) ELSE {rest} END"
    begin = rf"\(\({micros} - {case}\) - {back}\)"
    whole = _struct(_time(begin), _time(rf"\({begin} \+ {size}\)"))
    if whole.fullmatch(text) is None or not 0 < slide <= size:
        return None
    return Window(size, slide, start), back


def is_window_time(text: str, name: str) -> bool:
    """Whether it is `window_time(name)`: the end less a microsecond."""
    end = _micros(re.escape(f"{name}.end"))
    return re.fullmatch(_time(rf"\({end} - 1\)"), text) is not None


def session_gap(text: str, name: str) -> str | None:
    """The gap of a session window of a column, as it was given: `5 minutes`. None where rows say the gap."""
    start = _time(_micros(re.escape(name)))
    gap = rf"{re.escape(name)} \+ cast\((?P<gap>[^()]*) as interval\)"
    end = rf"(?:cast\({gap} as timestamp(?:_ntz)?\))"
    found = _struct(start, _time(_micros(end))).fullmatch(text)
    return None if found is None else found["gap"]


def _micros(time: str) -> str:
    return rf"precisetimestampconversion\({time}, Timestamp(?:NTZ)?Type, LongType\)"


def _time(micros: str) -> str:
    return rf"precisetimestampconversion\({micros}, LongType, Timestamp(?:NTZ)?Type\)"


def _struct(start: str, end: str) -> re.Pattern[str]:
    """Of a window's two times, each perhaps marked as known not to be null. (A marked one is matched by what
    it begins and ends with, since a group can be named once.)"""
    marked = [rf"(?:knownnullable\()?{part}\)?" for part in (start, end)]
    return re.compile(rf"named_struct\(start, {marked[0]}, end, {marked[1]}\)")
