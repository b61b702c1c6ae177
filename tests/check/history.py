"""Reads a history: JSON lines with a `kind` each. Moments are nanoseconds of one monotonic clock."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.check.groups import Claim, Groups, Harm, Tenure
from tests.check.growth import Mark, Measures

FOREVER = 2**63 - 1
"""The min time of what is complete."""

NEVER_NS = 2**63 - 1
"""The moment of what has not happened."""


class MalformedHistory(Exception):
    """The file is no history; names the line."""


@dataclass(frozen=True)
class Item:
    """An item of a segment: its slot, when it was created, and when it was completely processed."""

    segment: str
    name: str
    slot: int
    created_ns: int
    consumed_ns: int


Edges = tuple[tuple[str, str, int], ...]
"""(source, target, delay in slots) each."""


@dataclass(frozen=True)
class Change:
    """A pipeline that was changed while it ran. edges: of then; floors: by segment the min time that had been announced
    when the change was answered."""

    asked_ns: int
    answered_ns: int
    segments: tuple[str, ...]
    edges: Edges
    floors: dict[str, int]


@dataclass(frozen=True)
class Heard:
    """A min time (exclusive) that a subscriber heard; `segment` is None for the whole pipeline."""

    subscriber: str
    segment: str | None
    min_time: int
    at_ns: int


@dataclass(frozen=True)
class Tick:
    """An acknowledged tick; created and consumed: (segment, slot, number of items)."""

    node: str
    number: int
    created: tuple[tuple[str, int, int], ...]
    consumed: tuple[tuple[str, int, int], ...]
    holds: tuple[tuple[str, str, int], ...] = ()
    """(name, segment, slot): where it says that its node's holds stand; FOREVER: let go of"""
    home: str = ""
    """host:port of the process that acknowledged it, where that is recorded."""
    handed_ns: int = 0
    at_ns: int = 0
    """When it was acknowledged."""


@dataclass(frozen=True)
class SegmentEnd:
    """What a process of the tracker says of a segment at the end."""

    min_time: int
    open_slots: int
    open_items: int


@dataclass(frozen=True)
class Final:
    """What one process of the tracker says at the end; nodes: the last tick applied, by node id."""

    process: str
    segments: dict[str, SegmentEnd]
    late_items: int
    nodes: dict[str, int]


@dataclass(frozen=True)
class RowIn:
    """A row on its way to a sink in order. at_ns: when it got its slot."""

    name: str
    slot: int
    key: str
    at_ns: int


@dataclass(frozen=True)
class RowOut:
    """A row in a sink; the lines of a history have the sink's own order. at_ns: when the sink committed it, by
    the sink's own word, at the latest."""

    name: str
    slot: int
    key: str
    at_ns: int


@dataclass
class History:
    """A whole run. `created` and `consumed` have every line, also repeated ones."""

    pipeline: str = ""
    segments: tuple[str, ...] = ()
    """All that there were, also those that changes added."""
    edges: Edges = ()
    """Before the first change."""
    changes: list[Change] = field(default_factory=list)
    created: list[tuple[str, str, int, int]] = field(default_factory=list)
    """(segment, item, slot, moment)"""
    consumed: list[tuple[str, str, int]] = field(default_factory=list)
    """(segment, item, moment)"""
    absorbed: list[tuple[str, str, int, int]] = field(default_factory=list)
    """(segment, item, slot, moment)"""
    emitted: list[tuple[str, str, int]] = field(default_factory=list)
    """(segment, item, moment)"""
    heard: list[Heard] = field(default_factory=list)
    ticks: list[Tick] = field(default_factory=list)
    finals: list[Final] = field(default_factory=list)
    expected: dict[str, int] | None = None
    released_by: str | None = None
    """The segment whose min time releases rows into a sink; None for a run without one."""
    rows_in: list[RowIn] = field(default_factory=list)
    rows_out: list[RowOut] = field(default_factory=list)
    measures: Measures | None = None
    """Of a run that is measured, of which nothing else is recorded."""
    groups: Groups | None = None
    """Of a run in a deployment of several groups."""

    def items(self) -> list[Item]:
        """Each item once: with its first creation and its last consumption."""
        return _once(self.created, self.consumed)

    def states(self) -> list[Item]:
        """What was only in the state of a query, as an item of the segment in which it was to come out, which is
        done when who reads that segment has taken what came of it."""
        return _once(self.absorbed, self.emitted)


def _once(
    begun: Sequence[tuple[str, str, int, int]], ended: Sequence[tuple[str, str, int]]
) -> list[Item]:
    done: dict[tuple[str, str], int] = {}
    for segment, name, at_ns in ended:
        done[segment, name] = max(at_ns, done.get((segment, name), at_ns))
    found: dict[tuple[str, str], Item] = {}
    for segment, name, slot, at_ns in begun:
        consumed_ns = done.get((segment, name), NEVER_NS)
        found.setdefault((segment, name), Item(segment, name, slot, at_ns, consumed_ns))
    return list(found.values())


def read_history(path: Path) -> History:
    """Reads a file. Raises MalformedHistory, naming the line, for what is no history."""
    lines = []
    with open(path, encoding="utf-8") as text:
        for number, line in enumerate(text, 1):
            try:
                lines.append((number, json.loads(line)))
            except ValueError as error:
                raise MalformedHistory(f"line {number} is not JSON: {error}") from None
    return history_of(lines)


def history_of(lines: Iterable[tuple[int, dict[str, Any]]]) -> History:
    """From numbered lines; they may be in any order."""
    history = History()
    for number, line in lines:
        try:
            _take(history, line)
        except (KeyError, TypeError, ValueError) as error:
            raise MalformedHistory(f"line {number}: {error!r} in {line}") from None
    if not history.pipeline:
        raise MalformedHistory("it has no line of kind 'header'")
    more = (segment for change in history.changes for segment in change.segments)
    history.segments = tuple(dict.fromkeys((*history.segments, *more)))
    _check_segments(history)
    history.changes.sort(key=lambda change: change.answered_ns)
    history.heard.sort(key=lambda heard: heard.at_ns)
    return history


def _take(history: History, line: dict[str, Any]) -> None:
    match line["kind"]:
        case "header":
            history.pipeline = str(line["pipeline"])
            history.segments = tuple(line["segments"])
            history.edges = _edges(line)
            history.released_by = line.get("released_by")
            if "bounds" in line:
                history.measures = Measures({k: int(most) for k, most in line["bounds"].items()})
        case "changed":
            floors = {name: int(slot) for name, slot in line["min_times"].items()}
            moments = int(line["asked_ns"]), int(line["at_ns"])
            change = Change(*moments, tuple(line["segments"]), _edges(line), floors)
            history.changes.append(change)
        case "created":
            slot, at_ns = int(line["slot"]), int(line["at_ns"])
            history.created.append((line["segment"], line["item"], slot, at_ns))
        case "consumed":
            history.consumed.append((line["segment"], line["item"], int(line["at_ns"])))
        case "absorbed":
            slot, at_ns = int(line["slot"]), int(line["at_ns"])
            history.absorbed.append((line["segment"], line["item"], slot, at_ns))
        case "emitted":
            history.emitted.append((line["segment"], line["item"], int(line["at_ns"])))
        case "heard":
            history.heard.append(
                Heard(
                    line["subscriber"], line["segment"], int(line["min_time"]), int(line["at_ns"])
                )
            )
        case "tick":
            created = tuple((s, int(slot), int(n)) for s, slot, n in line["created"])
            consumed = tuple((s, int(slot), int(n)) for s, slot, n in line["consumed"])
            holds = tuple((name, s, int(slot)) for name, s, slot in line.get("holds", ()))
            moments = int(line.get("handed_ns", 0)), int(line.get("at_ns", 0))
            home, number = line.get("home", ""), int(line["number"])
            tick = Tick(line["node"], number, created, consumed, holds, home, *moments)
            history.ticks.append(tick)
        case "final":
            ends = {name: SegmentEnd(**values) for name, values in line["segments"].items()}
            final = Final(line["process"], ends, int(line["late_items"]), dict(line["nodes"]))
            history.finals.append(final)
        case "expected":
            history.expected = {name: int(slot) for name, slot in line["min_times"].items()}
        case "mark":
            if history.measures is None:
                raise ValueError("a mark of a run whose header names no bounds")
            mark = Mark.of(line)
            history.measures.marks[mark.number] = mark
        case "groups":
            homes = {address: int(group) for address, group in line["homes"].items()}
            history.groups = Groups(homes, int(line["at_ns"]), int(line["most_still_ns"]))
            for group, *moments in line["tenures"]:
                history.groups.tenures.append(Tenure(group, *moments))
            for group, *moments in line["claims"]:
                history.groups.claims.append(Claim(group, *moments))
            for group, from_ns, to_ns, what in line["harms"]:
                history.groups.harms.append(Harm(group, from_ns, to_ns, what))
        case "row_in" | "row_out" as which:
            values = (str(line["row"]), int(line["slot"]), str(line["key"]), int(line["at_ns"]))
            if which == "row_in":
                history.rows_in.append(RowIn(*values))
            else:
                history.rows_out.append(RowOut(*values))
        case other:
            raise ValueError(f"unknown kind {other!r}")


def _edges(line: dict[str, Any]) -> Edges:
    return tuple((source, target, int(delay)) for source, target, delay in line["edges"])


def _check_segments(history: History) -> None:
    known = set(history.segments)
    named = {segment for segment, *_ in history.created}
    named |= {segment for segment, *_ in history.consumed}
    named |= {segment for segment, *_ in history.absorbed}
    named |= {segment for segment, *_ in history.emitted}
    named |= {heard.segment for heard in history.heard if heard.segment is not None}
    named |= {history.released_by} if history.released_by is not None else set()
    edges = (*history.edges, *(edge for change in history.changes for edge in change.edges))
    named |= {end for source, target, _ in edges for end in (source, target)}
    if unknown := named - known:
        raise MalformedHistory(f"it names segments that its header has not: {sorted(unknown)}")
