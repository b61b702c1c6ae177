"""Which run's evaluation of an operator counts, where several runs of a query have published one batch.

A function of `foreachBatch` may write several outputs. Where the driver was killed between two of them, one run has published
the first, and the next one the other: each has evaluated the operators of its own outputs, and what the earlier one left
of the others is a part of them, as what the later one only looked at.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from local_tracker.core.merge import merge_cells
from local_tracker.spark.query.compose import Evaluations, count_contributions
from tracker.core.model import Cells, StagedContribution

_Evaluated = dict[str, dict[str, list[StagedContribution]]]
"""Contributions by operator and run."""


def count_published(
    query: str,
    batch: int,
    staged: Sequence[StagedContribution],
    evaluations: Evaluations,
    published_by: Sequence[str],
) -> tuple[Cells, Cells]:
    """What user code created and consumed in a batch, each operator counted once, by the run that has evaluated most of it, of
    those that have published the batch and the newest behind the first of them: what one writes by other means nobody records.
    Raises as `count_contributions`."""
    by_operator: _Evaluated = defaultdict(lambda: defaultdict(list))
    for contribution in staged:
        by_operator[contribution.operator][contribution.run].append(contribution)
    counted: dict[str, str] = {}
    for operator, by_run in by_operator.items():
        run = _counted_run(by_run, evaluations, published_by)
        if run is not None:
            counted[operator] = run
    created, consumed = [], []
    for run in dict.fromkeys([*published_by, *counted.values()]):
        mine = [c for c in staged if counted.get(c.operator) == c.run == run]
        named = [
            each for each in evaluations.operators if counted.get(each, published_by[0]) == run
        ]
        of_run = replace(evaluations, published_by=run, operators=named)
        parts = count_contributions(query, batch, mine, of_run)
        created.append(parts[0])
        consumed.append(parts[1])
    return merge_cells(Cells.concatenate(created)), merge_cells(Cells.concatenate(consumed))


def _counted_run(
    by_run: dict[str, list[StagedContribution]],
    evaluations: Evaluations,
    published_by: Sequence[str],
) -> str | None:
    """None where only runs have evaluated it that are older than any that has published: their code may have been another."""
    # A run that was killed before it could be recorded is later than all that were, except the last.
    age = {run: float(index) for index, run in enumerate(evaluations.runs)}

    def newest(run: str) -> tuple[float, str]:
        return age.get(run, len(age) - 1.5), run

    def evaluated(run: str) -> tuple[int, bool, tuple[float, str]]:
        stages: dict[tuple[int, int], set[int]] = defaultdict(set)
        for each in by_run[run]:
            stages[each.execution, each.stage].add(each.partition)
        return max(map(len, stages.values())), run in published_by, newest(run)

    last, first = max(by_run, key=newest), min(published_by, key=newest)
    candidates = [run for run in by_run if run in published_by]
    if newest(last) > newest(first):
        candidates.append(last)
    return max(candidates, key=evaluated, default=None)
