"""Pipelines whose slots are pairs of time and round, and whose items go round in a loop until the rounds are over.

They are drawn beside those of the run, so that a schedule without them is what it was before there were any. The
world and its oracle go by the slots; where a child of an item may be is said here in times and rounds.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

from tests.simulation.plan import PipelinePlan, Plan
from tracker.core.model import Cells, Edge, PipelineSpec, TickContent

SHARE = 0.04
"""Of the schedules that could have such pipelines, how many have."""
_FAR_TIMES = 400


def with_rounds(plan: Plan) -> Plan:
    """The plan of a schedule, with rounds in its pipelines where it has been drawn to have them."""
    rng = random.Random(f"rounds {plan.seed}")
    drawn = rng.random() < SHARE
    if not drawn or plan.story or not all(map(_can_loop, plan.pipelines)):
        return plan
    return replace(plan, pipelines=tuple(looping(rng, pipeline) for pipeline in plan.pipelines))


def _can_loop(pipeline: PipelinePlan) -> bool:
    """Of a query, what a batch makes of units has one label, whatever rounds they are of."""
    return (
        pipeline.kind != "queries"
        and not pipeline.spec.evicts
        and not pipeline.write_offs
        and not pipeline.visitors
        and not pipeline.limit_changes
    )


def looping(rng: random.Random, pipeline: PipelinePlan) -> PipelinePlan:
    """A chain that leads back to its beginning, once round with each round."""
    rounds, segments = rng.choice([2, 3, 4]), pipeline.spec.segments
    chain = [Edge(a, b, rng.choice([0, 0, rounds])) for a, b in itertools.pairwise(segments)]
    spec = replace(
        pipeline.spec,
        edges=(*chain, Edge(segments[-1], segments[0], 1)),
        rounds=rounds,
        start_slot=pipeline.spec.start_slot * rounds,
        slack_ns=pipeline.spec.slack_ns // rounds,
        max_open_cells=1_000,
        max_open_units=1_000,
    )
    return replace(pipeline, spec=spec, hops=rng.choice([4, 6, 8]), child_share=0.8, unit_share=0.0)


def may_go(spec: PipelineSpec, before: int, delay: int, slot: int) -> bool:
    """Whether an item may lie at a slot that comes of one at `before`, along an edge of a delay: one that raises
    the round stays in its time."""
    (time, _), (time_before, _) = divmod(slot, spec.rounds), divmod(before, spec.rounds)
    return not 0 < delay < spec.rounds or time == time_before


def beyond_the_last(spec: PipelineSpec) -> TickContent:
    """A tick that must be refused: an item of a last round goes round once more."""
    numbers = {name: number for number, name in enumerate(spec.segments)}
    edge = next(edge for edge in spec.edges if 0 < edge.delay < spec.rounds)
    last = spec.start_slot + _FAR_TIMES * spec.rounds + spec.rounds - 1
    return TickContent(
        created=Cells.of([(numbers[edge.target], last + edge.delay, 7, 1)]),
        consumed=Cells.of([(numbers[edge.source], last, 5, 1)]),
    )
