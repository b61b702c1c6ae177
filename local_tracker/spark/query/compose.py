"""From what a micro-batch read and wrote to the one tick that says so.

A file is an item as a whole: the hash of its name is XORed out of the segment that the query reads
and into the segment of each query that will read what it wrote (rule 1: both in one tick). What a
batch creates is labelled with the oldest slot that it consumed, plus the delay of the edge: always
safe, only coarser than labels of single rows.

Acks of user code arrive as contributions, one for each task attempt of each operator, of every
evaluation that Spark chose to do. What counts is one attempt of each partition of one complete
stage; all others must be equal, or the code is not deterministic and nothing can be counted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from local_tracker.core.merge import merge_cells
from tracker.core.model import Batch, Cells, StagedContribution, TickContent, Unit
from tracker.core.model.ack_values import unit_value
from tracker.core.model.rounds import Rounds

_Rows = tuple[tuple[int, int, int, int], ...]
_NOTHING: tuple[_Rows, _Rows] = ((), ())


class ComposeError(Exception):
    """A batch's tick cannot be composed; names the batch, the operator or unit, and what to do."""


@dataclass(frozen=True, slots=True)
class CreatedUnit:
    """A file that a batch committed, and the numbers of the segments of those who read it."""

    name: str
    segments: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BatchUnits:
    """One micro-batch, by units. `consumed` has the slot of each; `label_slots` says, by segment
    number, under which slot this batch creates (`label_slots()`)."""

    query: str
    batch: int
    fingerprint: bytes
    consumed: tuple[Unit, ...]
    created: tuple[CreatedUnit, ...]
    label_slots: Mapping[int, int]


def fingerprint(
    offsets: str, consumed: Mapping[int, Iterable[str]], created: Iterable[CreatedUnit]
) -> bytes:
    """16 bytes: a hash of a batch's input (its offsets as logged and the names that it consumed), and
    one of what it is to the pipeline (those names by segment number, and the units that it created).
    The same whenever the batch is read from its logs again.
    """
    names = sorted(name for group in consumed.values() for name in group)
    contents: list[object] = []
    for segment in sorted(consumed):
        contents += ["consumed", segment, *sorted(consumed[segment])]
    for unit in sorted(created, key=lambda u: (u.name, u.segments)):
        contents += ["created", unit.name, *sorted(unit.segments)]
    return _digest([offsets, *names]) + _digest(contents)


def same_input(one: bytes, other: bytes) -> bool:
    """Whether two fingerprints are of one batch, though its readers may have changed since."""
    return one[:8] == other[:8]


def _digest(parts: Iterable[object]) -> bytes:
    digest = blake2b(digest_size=8, person=b"lowmark.batch")
    for part in parts:
        raw = str(part).encode()
        digest.update(len(raw).to_bytes(8) + raw)
    return digest.digest()


ONE_ROUND = Rounds()


def label_slots(
    consumed: Iterable[Unit], delays: Mapping[tuple[int, int], int], times: Rounds = ONE_ROUND
) -> dict[int, int]:
    """The slot under which what a batch creates is labelled, by the number of the segment it goes to.

    `delays` has the delay, in slots, of each edge (source, target) by segment numbers. It is the
    least of consumed slot + delay; empty if nothing was consumed.

    An edge that raises the round keeps the time: what has come to the last round goes round no more. So where a batch
    has read other slots as well, what it creates came of those. Where it has not, its slot is one of the next time, which
    its home refuses.
    """
    read: dict[int, set[int]] = {}
    for unit in consumed:
        read.setdefault(unit.segment, set()).add(unit.slot)
    slots: dict[int, int] = {}
    beyond: dict[int, int] = {}
    for (source, target), delay in delays.items():
        rounds = times.raised_by(delay)
        for slot in read.get(source, ()):
            is_within = not rounds or times.split(slot)[1] + rounds < times.per_time
            found = slots if is_within else beyond
            found[target] = min(slot + delay, found.get(target, slot + delay))
    return beyond | slots


def compose(units: BatchUnits, contributions: tuple[Cells, Cells] | None = None) -> TickContent:
    """The tick of a batch. `contributions`: what user code created and consumed, as counted by
    `count_contributions`.

    Raises ComposeError where a unit is created in a segment that has no label slot.
    """
    # Once in each segment, however often it was listed: a second XOR would take it out again.
    created = list(
        dict.fromkeys(
            Unit(segment, unit.name, _label_slot(units, unit, segment))
            for unit in units.created
            for segment in unit.segments
        )
    )
    extra_created, extra_consumed = contributions or (Cells.empty(), Cells.empty())
    return TickContent(
        created=_merged([_cells(created), extra_created]),
        consumed=_merged([_cells(units.consumed), extra_consumed]),
        batch=Batch(units.query, units.batch, units.fingerprint),
        units_created=tuple(created),
        units_consumed=units.consumed,
    )


def _label_slot(units: BatchUnits, unit: CreatedUnit, segment: int) -> int:
    slot = units.label_slots.get(segment)
    if slot is None:
        raise ComposeError(
            f"batch {units.batch} of query {units.query} wrote {unit.name} for segment number "
            f"{segment}, but no edge leads there from the segments that it read; register one"
        )
    return slot


def _cells(units: Iterable[Unit]) -> Cells:
    return Cells.of((unit.segment, unit.slot, unit_value(unit.name), 1) for unit in units)


def _merged(parts: Iterable[Cells]) -> Cells:
    return merge_cells(Cells.concatenate(parts))


# --- acks of user code ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Evaluations:
    """What is known of how a batch was evaluated.

    runs: the query's runs, oldest first. published_by: the run whose evaluation was published, where
    a writer has recorded it. stage_tasks: the number of tasks that a stage of the last run had at its
    first attempt; None where that is not known any more. operators: those that must have handed over.
    """

    runs: Sequence[str]
    published_by: str | None = None
    stage_tasks: Callable[[int], int | None] = lambda stage: None
    operators: Sequence[str] = ()


def count_contributions(
    query: str, batch: int, staged: Sequence[StagedContribution], evaluations: Evaluations
) -> tuple[Cells, Cells]:
    """What user code created and consumed in a batch, each operator counted once.

    The run that counts is the one whose evaluation was published, else the newest that evaluated
    anything: a later run finds the batch in the sink and does not evaluate it again. Of its stages,
    the complete ones with the most tasks saw all partitions (smaller ones are `take`s, or re-runs of
    a part); they must agree. Raises ComposeError, naming batch and operator, where they don't.
    """
    mine = [c for c in staged if c.query == query and c.batch == batch]
    run = _counted_run(mine, evaluations)
    by_operator: dict[str, list[StagedContribution]] = defaultdict(list)
    for contribution in mine:
        if contribution.run == run:
            by_operator[contribution.operator].append(contribution)
    missing = [name for name in evaluations.operators if name not in by_operator]
    if missing:
        raise ComposeError(
            f"operator {missing[0]!r} in batch {batch} of query {query}: it has handed nothing over, so "
            f"the batch was written without it, or it was not read to its end; acknowledge above limits, "
            f"and in operators whose output is used"
        )
    tasks_known = bool(evaluations.runs) and run == evaluations.runs[-1]
    created, consumed = [], []
    for operator in sorted(by_operator):
        whole = _one_evaluation(
            f"operator {operator!r} in batch {batch} of query {query}",
            by_operator[operator],
            evaluations.stage_tasks if tasks_known else lambda stage: None,
        )
        created.append(Cells.of(whole[0]))
        consumed.append(Cells.of(whole[1]))
    return _merged(created), _merged(consumed)


def _counted_run(mine: Sequence[StagedContribution], evaluations: Evaluations) -> str | None:
    found = {contribution.run for contribution in mine}
    if not found:
        return None
    if evaluations.published_by is not None:
        return evaluations.published_by
    # A run that was killed before it could be recorded is later than all that were, except the last.
    age = {run: float(index) for index, run in enumerate(evaluations.runs)}
    unknown = len(age) - 1.5
    return max(found, key=lambda run: (age.get(run, unknown), run))


def _one_evaluation(
    what: str, contributions: Sequence[StagedContribution], stage_tasks: Callable[[int], int | None]
) -> tuple[_Rows, _Rows]:
    """What one complete evaluation of an operator created and consumed."""
    by_stage: dict[tuple[int, int], dict[int, tuple[_Rows, _Rows]]] = defaultdict(dict)
    for c in contributions:
        partitions = by_stage[c.execution, c.stage]
        acked = (_rows([c.created]), _rows([c.consumed]))
        if partitions.setdefault(c.partition, acked) != acked:
            raise ComposeError(
                f"{what}: two attempts of partition {c.partition} of stage {c.stage} acknowledged "
                f"different items; make the operator deterministic (no random, clock or order)"
            )
    sizes = {key: stage_tasks(key[1]) or len(by_stage[key]) for key in by_stage}
    # Of what `take` looks at, only the first stage begins with partition 0, and is of that alone.
    complete = [key for key in by_stage if by_stage[key].keys() >= {*range(sizes[key])}]
    most = max((sizes[key] for key in complete), default=0)
    if not complete or (most == 1 and any(by_stage[key].keys() - {0} for key in by_stage)):
        seen = ", ".join(
            f"stage {stage}: {len(by_stage[execution, stage])} of {sizes[execution, stage]}"
            for execution, stage in sorted(by_stage)
        )
        raise ComposeError(
            f"{what}: no evaluation handed over all of its partitions ({seen}), so its acks do not "
            f"cover the batch; don't stop reading it early (limit, first, isEmpty alone)"
        )
    totals = {key: _total(by_stage[key].values()) for key in complete if sizes[key] == most}
    first = min(totals)
    for key, total in sorted(totals.items()):
        if total != totals[first]:
            raise ComposeError(
                f"{what}: its evaluations in stages {first[1]} and {key[1]} acknowledged different "
                f"items; make it deterministic, or give each use of it a name of its own"
            )
    return totals[first]


def _total(acked: Iterable[tuple[_Rows, _Rows]]) -> tuple[_Rows, _Rows]:
    parts = list(acked)
    if not parts:
        return _NOTHING
    return (
        _rows([Cells.of(created) for created, _ in parts]),
        _rows([Cells.of(consumed) for _, consumed in parts]),
    )


def _rows(cells: Iterable[Cells]) -> _Rows:
    return tuple(_merged(cells).rows())
