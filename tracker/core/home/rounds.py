"""What a tick may create in a pipeline with rounds: what comes in, at round 0; what goes round, within its time.

An edge that raises the round keeps the time: behind the last round there is none, and the slot that follows is
round 0 of the next time, which an item must not come to by going round. A tick does not say which item came of
which. Refused is what cannot have come of anything that the tick consumed, along any edge: never by a guess.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from tracker.core.model import Cells, Edge, PipelineSpec, RefusalCode, Refused

Ways = dict[int, list[tuple[Edge | None, int]]]
"""By segment that an edge raises the round into, the edges that lead there and the segments that they come from."""


def check_roots(spec: PipelineSpec, created: Cells) -> None:
    """Raises Refused(INVALID) unless all lies at round 0. created: what a front alone can have created."""
    within = created.slots % spec.rounds != 0
    if within.any():
        at = int(within.argmax())
        raise Refused(
            RefusalCode.INVALID,
            f"pipeline {spec.name!r}: segment {spec.segments[int(created.segments[at])]!r}: an item came in at "
            f"{_where(spec, int(created.slots[at]))}; what a front labels begins at round 0 (a client of an older "
            "release does not know of rounds: use this one's)",
        )


def check_rounds(spec: PipelineSpec, ways: Ways, created: Cells, consumed: Cells) -> None:
    """Raises Refused(INVALID) where something created can only have gone round into another time. All of it came
    of what the same tick consumed, along declared edges, or is a part of it, in its segment and time. ways: of
    the pipeline, as `ways_round` finds them."""
    for number in created.lowest_slots().keys() & ways.keys():
        slots = np.unique(created.slots[created.segments == number])
        comes, raised = np.zeros(len(slots), bool), np.zeros(len(slots), bool)
        for edge, source in ways[number]:
            of = np.unique(consumed.slots[consumed.segments == source])
            if not len(of):
                continue
            rounds = 0 if edge is None else spec.times.raised_by(edge.delay)
            if edge is None or rounds:
                comes |= _within_its_time(slots, of, rounds, spec.rounds)
                raised |= bool(rounds) & (slots - rounds >= of[0])
            else:
                comes |= slots - edge.delay >= of[0]
        refused = raised & ~comes
        if refused.any():
            raise _passed_the_last(spec, number, int(slots[int(refused.argmax())]))


def ways_round(spec: PipelineSpec) -> Ways:
    """All edges into segments that one of them leads to by raising the round; None for one that nobody declares,
    from such a segment to itself, by which an item is split in two."""
    numbers = {name: number for number, name in enumerate(spec.segments)}
    ways: Ways = {}
    for edge in spec.edges:
        if spec.times.raised_by(edge.delay):
            ways.setdefault(numbers[edge.target], [])
    for edge in spec.edges:
        if numbers[edge.target] in ways:
            ways[numbers[edge.target]].append((edge, numbers[edge.source]))
    for number, into in ways.items():
        if all(source != number for _, source in into):
            into.append((None, number))
    return ways


def _within_its_time(
    slots: NDArray[np.int64], of: NDArray[np.int64], rounds: int, per_time: int
) -> NDArray[np.bool_]:
    """Which slots are of a time in which `of`, ascending, has one that is lower by at least so many rounds."""
    places = np.searchsorted(of, slots // per_time * per_time)
    first = of[np.minimum(places, len(of) - 1)]
    return (places < len(of)) & (first <= slots - rounds)


def _passed_the_last(spec: PipelineSpec, number: int, slot: int) -> Refused:
    def named(edges: Iterable[Edge]) -> str:
        return ", ".join(f"{edge.source!r} -> {edge.target!r}" for edge in edges)

    segment = spec.segments[number]
    raising = [e for e in spec.edges if e.target == segment and spec.times.raised_by(e.delay)]
    return Refused(
        RefusalCode.INVALID,
        f"pipeline {spec.name!r}: segment {segment!r}: an item was created at {_where(spec, slot)}, and what was "
        f"consumed with it is of earlier times: along {named(raising)}, which raises the round, it stays in its "
        f"time, whose last round is {spec.rounds - 1}; end the loop there, or register the pipeline with more rounds",
    )


def _where(spec: PipelineSpec, slot: int) -> str:
    return f"{spec.times.text(slot)} (slot {slot})"
