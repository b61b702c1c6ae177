"""Durations as all options take them: a number and its unit, `2s`, `1.5h`; in the program they are seconds."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import typer

from tracker.client.moments import parse_duration_ns

NEVER = "never"


def lasting(
    *names: str, help: str, least_s: float = 0.0, may_be_never: bool = False, **more: Any
) -> Any:
    """An option of a duration, which `typer.Option` makes of `more` beside. may_be_never: `never` is infinite."""
    parser = _parser(least_s, may_be_never)
    return typer.Option(*names, help=help, parser=parser, metavar="DURATION", **more)


def _parser(least_s: float, may_be_never: bool) -> Callable[[str | float], float]:
    def seconds(given: str | float) -> float:
        """Raises typer.BadParameter. What a command has as its default is in seconds."""
        if not isinstance(given, str):
            return given
        if may_be_never and given == NEVER:
            return math.inf
        try:
            parsed_s = parse_duration_ns(given) / 1e9
        except ValueError as error:
            also = f", or {NEVER}" if may_be_never else ""
            raise typer.BadParameter(f"{error}, such as 30s or 10m{also}") from None
        if parsed_s < least_s:
            raise typer.BadParameter(f"{given!r} is shorter than the least, {least_s:g}s")
        return parsed_s

    return seconds
