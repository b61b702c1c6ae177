"""The promises, each a function from a history to the violations of it.

Items are judged by when they were completely processed, whenever they were created: a min time says
that nothing below it is in flight *and that nothing below it can still appear*. A row that a query has
absorbed, and whose effect is still only in its state, is one of what can still appear.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate

from tests.check.graph import Graphs, distances
from tests.check.groups import GROUP_RULES
from tests.check.growth import grown
from tests.check.history import FOREVER, NEVER_NS, Edges, Heard, History, Item, Tick
from tests.check.rows import ROW_RULES

Violations = Iterator[str]


def false_completions(history: History) -> Violations:
    """No false completion: when (segment, t) is heard, no item whose slot plus the shortest delay to
    that segment is below t is unprocessed, or is still to come, or is still only in a query's state."""
    items, graphs = [*history.items(), *history.states()], Graphs(history)
    known: dict[tuple[str, Edges], tuple[list[int], list[int], list[int]]] = {}
    for heard in history.heard:
        segments = history.segments if heard.segment is None else (heard.segment,)
        for segment in segments:
            key = segment, graphs.edges(heard, segment)
            if key not in known:
                known[key] = _bounded(items, *key)
            bounds, last_done, which = known[key]
            below = bisect_left(bounds, heard.min_time)
            if below and last_done[below - 1] > heard.at_ns:
                culprit = items[which[below - 1]]
                yield (
                    f"false completion: {_said(heard)}, but item {culprit.name!r} of segment "
                    f"{culprit.segment!r} at slot {culprit.slot} {_done(culprit, heard.at_ns)}"
                )
                break


def _bounded(
    items: list[Item], segment: str, edges: Edges
) -> tuple[list[int], list[int], list[int]]:
    """Of the items that can be in a segment: the least slot that each can have there, ascending, and
    for each prefix the moment when all of it was done and which item that was."""
    way = distances({segment, *(end for edge in edges for end in edge[:2])}, edges)
    reaching = sorted(
        (item.slot + way[item.segment, segment], number)
        for number, item in enumerate(items)
        if (item.segment, segment) in way
    )
    bounds = [bound for bound, _ in reaching]
    done = [(items[number].consumed_ns, number) for _, number in reaching]
    latest = list(accumulate(done, max))
    return bounds, [moment for moment, _ in latest], [number for _, number in latest]


def _done(item: Item, at_ns: int) -> str:
    if item.consumed_ns == NEVER_NS:
        return "was never processed"
    return f"was processed {(item.consumed_ns - at_ns) / 1e6:.3f} ms later"


def _said(heard: Heard) -> str:
    what = "the pipeline" if heard.segment is None else f"segment {heard.segment!r}"
    return f"subscriber {heard.subscriber!r} heard {heard.min_time} for {what} at {heard.at_ns}"


def regressions(history: History) -> Violations:
    """Announcements never go back, for a subscriber and a segment."""
    before: dict[tuple[str, str | None], int] = {}
    for heard in history.heard:
        key = heard.subscriber, heard.segment
        if heard.min_time < before.get(key, heard.min_time):
            yield f"regress: {_said(heard)}, after {before[key]}"
        before[key] = heard.min_time


def lost_completions(history: History) -> Violations:
    """No lost completion: at the end every process says what was expected, and every subscriber has
    heard it; all items are processed."""
    if history.expected is None:
        yield "lost completion: the history ends without saying what was expected"
        return
    if not history.finals:
        yield "lost completion: the history ends without what the tracker said at the end"
    for final in history.finals:
        for segment, slot in history.expected.items():
            end = final.segments.get(segment)
            if end is None or end.min_time < slot:
                reached = "nothing" if end is None else _slot(end.min_time)
                yield (
                    f"lost completion: process {final.process} says {reached} for segment "
                    f"{segment!r} at the end, expected {_slot(slot)}"
                )
    last_heard = {(heard.subscriber, heard.segment): heard.min_time for heard in history.heard}
    for subscriber in sorted({heard.subscriber for heard in history.heard}):
        for segment, slot in history.expected.items():
            reached_slot = last_heard.get((subscriber, segment))
            if reached_slot is None or reached_slot < slot:
                said = "nothing" if reached_slot is None else _slot(reached_slot)
                yield (
                    f"lost completion: subscriber {subscriber!r} last heard {said} for segment "
                    f"{segment!r}, expected {_slot(slot)}"
                )
    for item in history.items():
        bound = history.expected.get(item.segment)
        if item.consumed_ns == NEVER_NS and bound is not None and item.slot < bound:
            yield (
                f"lost completion: item {item.name!r} of segment {item.segment!r} at slot "
                f"{item.slot} was never processed"
            )
    for item in history.states():
        bound = history.expected.get(item.segment)
        if item.consumed_ns == NEVER_NS and bound is not None and item.slot < bound:
            yield (
                f"lost completion: {item.name!r} of segment {item.segment!r} at slot {item.slot} never "
                f"came out of the state"
            )


def _slot(slot: int) -> str:
    return "complete" if slot == FOREVER else f"slot {slot}"


def open_cells(history: History) -> Violations:
    """At the end all checksums are zero, the tallies are too, and nothing came late; but for segments
    that the run was to leave incomplete."""
    incomplete = {s for s, slot in (history.expected or {}).items() if slot != FOREVER}
    for final in history.finals:
        for segment, end in final.segments.items():
            if segment in incomplete:
                continue
            if end.open_slots:
                yield (
                    f"open cells: process {final.process} has {end.open_slots} slots of segment "
                    f"{segment!r} open at the end"
                )
            if end.open_items:
                yield (
                    f"open cells: process {final.process} counts {end.open_items} open items in "
                    f"segment {segment!r} at the end"
                )
        if final.late_items:
            yield (
                f"late: process {final.process} counts {final.late_items} items that were consumed "
                f"below min time"
            )


def items_counted_once(history: History) -> Violations:
    """Every item is created once and consumed once."""
    created = Counter((segment, name) for segment, name, _, _ in history.created)
    consumed = Counter((segment, name) for segment, name, _ in history.consumed)
    for what, count in (("created", created), ("consumed", consumed)):
        for (segment, name), times in count.items():
            if times > 1:
                yield f"counted twice: item {name!r} of segment {segment!r} was {what} {times} times"
    for segment, name in consumed.keys() - created.keys():
        yield (
            f"counted wrongly: item {name!r} of segment {segment!r} was consumed and never created"
        )


def ticks_counted_once(history: History) -> Violations:
    """Every acknowledged tick is counted once: its number occurs once, no process of the tracker is
    behind it at the end, and the ticks together say what happened to the items."""
    yield from _numbers(history)
    yield from _tallies(history)
    slots = {(segment, name): slot for segment, name, slot, _ in history.created}
    created = Counter((segment, slot) for segment, _, slot, _ in history.created)
    consumed = Counter(
        (segment, slots[segment, name])
        for segment, name, _ in history.consumed
        if (segment, name) in slots
    )
    yield from _compare("created", created, (tick.created for tick in history.ticks))
    yield from _compare("consumed", consumed, (tick.consumed for tick in history.ticks))


def _numbers(history: History) -> Violations:
    numbers: dict[str, Counter[int]] = defaultdict(Counter)
    for tick in history.ticks:
        numbers[tick.node][tick.number] += 1
    for node, count in sorted(numbers.items()):
        for number, times in sorted(count.items()):
            if times > 1:
                yield f"counted twice: tick {number} of node {node!r} was acknowledged {times} times"
        for final in history.finals:
            if node in final.nodes and final.nodes[node] < max(count):
                yield (
                    f"tick lost: process {final.process} has node {node!r} at {final.nodes[node]}, "
                    f"tick {max(count)} was acknowledged"
                )


def _tallies(history: History) -> Violations:
    """What the tracker counts as open is what the ticks created and did not consume."""
    left = Counter(_held(history))
    for tick in history.ticks:
        for segment, _, count in tick.created:
            left[segment] += count
        for segment, _, count in tick.consumed:
            left[segment] -= count
    for final in history.finals:
        for segment, end in final.segments.items():
            if end.open_items != left[segment]:
                yield (
                    f"counted wrongly: process {final.process} counts {end.open_items} open items "
                    f"in segment {segment!r} at the end, acknowledged ticks say {left[segment]}"
                )


def _held(history: History) -> list[str]:
    """The segments of the holds that nodes still have at the end, each once for each hold."""

    def in_order(tick: Tick) -> tuple[int, int]:
        incarnation = tick.node.rpartition("#")[2]
        return int(incarnation) if incarnation.isdigit() else 0, tick.number

    stands: dict[tuple[str, str], tuple[str, int]] = {}
    for tick in sorted((tick for tick in history.ticks if tick.holds), key=in_order):
        node = tick.node.partition("#")[0]
        stands |= {(node, name): (segment, slot) for name, segment, slot in tick.holds}
    return [segment for segment, slot in stands.values() if slot != FOREVER]


def _compare(
    what: str,
    items: Counter[tuple[str, int]],
    told: Iterable[tuple[tuple[str, int, int], ...]],
) -> Violations:
    in_ticks: Counter[tuple[str, int]] = Counter()
    for cells in told:
        for segment, slot, count in cells:
            in_ticks[segment, slot] += count
    for segment, slot in sorted(items.keys() | in_ticks.keys()):
        if items[segment, slot] != in_ticks[segment, slot]:
            yield (
                f"counted wrongly: {items[segment, slot]} items of segment {segment!r} were {what} "
                f"at slot {slot}, acknowledged ticks say {in_ticks[segment, slot]}"
            )


def vacuous(history: History) -> Violations:
    """A run in which nothing happened proves nothing."""
    heard = {h.segment for h in history.heard}
    for segment in history.segments:
        if segment not in heard:
            yield f"nothing to check: no subscriber heard anything of segment {segment!r}"
        if not any(line[0] == segment for line in history.created):
            yield f"nothing to check: segment {segment!r} never had an item"
    if not history.ticks:
        yield "nothing to check: no tick was acknowledged"


RULES: tuple[Callable[[History], Violations], ...] = (
    false_completions,
    regressions,
    lost_completions,
    open_cells,
    items_counted_once,
    ticks_counted_once,
    vacuous,
    *GROUP_RULES,
)


def violations(history: History) -> list[str]:
    """All that a history breaks."""
    if history.measures is not None:
        return [*grown(history.measures)]
    rules = RULES if history.released_by is None else (regressions, *ROW_RULES)
    return [violation for rule in rules for violation in rule(history)]
