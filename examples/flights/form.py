"""What the forms of the demo do not share: over files (`examples.flights`), over a broker and tables
(`examples.lake`)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

from examples.flights.expected import RouteKey, RouteTotals
from examples.flights.pipeline import Places
from lowmark import PipelineSpec


class DemoFailed(Exception):
    """The demo cannot go on; says why."""


class DemoSkipped(Exception):
    """What the demo needs can't be had on this machine; says why."""


@dataclass(frozen=True, slots=True)
class Worker:
    """A program of the demo: `python -m module TARGET ROOT *arguments`. It says `ready`, and ends when its
    standard input is closed. terminated: and it gets SIGTERM. ends: it ends by itself when the year is
    over. after_year: it is told `leave` when all others that end by themselves have ended."""

    module: str
    arguments: tuple[str, ...] = ()
    python: str = sys.executable
    terminated: bool = True
    ends: bool = False
    after_year: bool = False


@dataclass(frozen=True, slots=True)
class Form:
    """name: of its last line, and of its files in `build`. fronts: the segment of each. around: starts what
    must be there before all else, and ends it; yields the workers by name, those that come first in the
    pipeline first; may raise DemoSkipped and DemoFailed. totals: what the last query has written. problems: what
    else was wrong, in words."""

    name: str
    spec: PipelineSpec
    fronts: Mapping[str, str]
    around: Callable[[Places], AbstractContextManager[Mapping[str, Worker]]]
    totals: Callable[[Places], dict[RouteKey, RouteTotals]]
    problems: Callable[[Places], list[str]] = lambda _: []
