"""What homes log when shards are lost for good: an operator's declaration, what each shard that is left knows, and the
state from which all of them go on (rule 10).

The log of a lost shard ends at another entry at each of the others, and nobody can send the rest. So it is not its
entries that they agree on, but what follows from them: each logs what it knows (`LossHeard`), and the one that leads puts
that together (`ShardLost`). Generations, changes, deletions, tables and placements are numbered, so of each the newest counts.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from tracker.core.model import DroppedCells, PipelineSpec, Restart
from tracker.core.model.placements import Placement
from tracker.core.model.routing import RoutingTable

INCARNATIONS_PER_LOSS = 2**40
"""With each shard that was ever lost, the incarnations of nodes go on from the next multiple: above any that a lost one can
have given without another hearing of it, also where a pipeline has brought along what was left out in another group."""
GENERATIONS_PER_LOSS = 1_000_000
"""The same of a pipeline's generations: a lost registrar, or a lost leader, may have begun some that nobody else has heard
of, and nodes may have committed in them."""


def generation_after(base: int, lost: Collection[int], known: int = 0) -> int:
    """The generation in which a pipeline goes on when all these were ever declared lost. base: as `Pipeline.base`, so that it is
    above those that the pipeline, or one of its name, had elsewhere; and no two declarations give the same, also where one of them
    is by shards that have not heard how another one ended. known: one that it had; what was stored before there was a base has none."""
    return max(base + len(lost), base_of(known) + 1) * GENERATIONS_PER_LOSS + 1


def base_of(generation: int) -> int:
    """The multiple of GENERATIONS_PER_LOSS above which losses begin to count, for a pipeline that comes in a generation, or begins
    above it."""
    return generation // GENERATIONS_PER_LOSS


def incarnation_after(incarnation: int, lost: Collection[int]) -> int:
    """From which incarnation on keys are given when all these were ever declared lost. incarnation: from which on those that are
    left would give them. In another generation a key may have the same: a key counts in the generation in which it was given."""
    come = incarnation // INCARNATIONS_PER_LOSS
    return (len(lost) if come < len(lost) else come + len(lost)) * INCARNATIONS_PER_LOSS


def follows(generation: int, before: int) -> bool:
    """Whether a generation is the next one after another, by a restart or a deletion."""
    return generation == before + 1 or (
        generation > before and generation % GENERATIONS_PER_LOSS == 1
    )


@dataclass(frozen=True, slots=True)
class PipelineKnown:
    """What a shard knows of a pipeline when others are declared lost.

    restart: how its generation began; before: and those before it, oldest first. base: as `Pipeline.base`. placed: the version
    of its placement. least: min time of the whole pipeline, the largest that it has announced, or heard that anyone has. bound:
    what no lost shard can have announced more than; None where it cannot tell. open: what lost shards have reported to be open,
    added up by segment; their `highest` is not known, and is the lowest.
    """

    spec: PipelineSpec
    restart: Restart | None
    changed: PipelineSpec | None
    changes: int
    least: int
    bound: int | None
    open: tuple[DroppedCells, ...] = ()
    placed: int = 0
    base: int = 0
    before: tuple[Restart, ...] = ()

    @property
    def generation(self) -> int:
        return 0 if self.restart is None else self.restart.generation


@dataclass(frozen=True, slots=True)
class Move:
    """A pipeline that goes to another group, or comes from one, by the sequencer's move `number`. version: of its placement; ready:
    the shards that have done their part; lost: shards that were declared lost meanwhile, with what they had of it."""

    pipeline: str
    number: int
    version: int
    group: int
    arrives: bool
    ready: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ShardsKnown:
    """What a shard knows of the shards when some are declared lost. former: of those that have left, and of all others,
    how much of their logs it has; version: of the newest table; moving, moved: of moves, those under way, and the number of the
    last that has begun."""

    members: tuple[int, ...]
    former: tuple[tuple[int, int], ...]
    next_shard: int
    version: int
    moves: int
    next_incarnation: int
    moving: tuple[Move, ...] = ()
    moved: int = 0


@dataclass(frozen=True, slots=True)
class LossDeclared:
    """By an operator's word some shards never come back. lost: all that were ever declared lost, ascending, so that a later
    declaration takes the place of one that is under way. The smallest shard that is left logs it."""

    lost: tuple[int, ...]
    write_off: bool
    at_ms: int


@dataclass(frozen=True, slots=True)
class LossHeard:
    """What a shard that is left knows; it takes nothing of the lost ones any more, and decides on nothing until `ShardLost`.
    lost: as declared. Of several, the last one alone has `shards`; ended: deleted pipelines, by the generation that ended
    each; placed: of the directory, where names belong."""

    lost: tuple[int, ...]
    pipelines: tuple[PipelineKnown, ...] = ()
    ended: tuple[tuple[str, int], ...] = ()
    shards: ShardsKnown | None = None
    placed: tuple[Placement, ...] = ()


@dataclass(frozen=True, slots=True)
class WithoutLost:
    """The shards from here on. lost: those that are fenced; former: those that have left, with the last number of each
    one's log; heard: by home its last `LossHeard`, which whoever applies this has applied. The home that logs it is the
    sequencer, by `move`."""

    lost: tuple[int, ...]
    former: tuple[tuple[int, int], ...]
    members: tuple[int, ...]
    draining: tuple[int, ...]
    table: RoutingTable
    next_shard: int
    move: int
    next_incarnation: int
    heard: tuple[tuple[int, int], ...]
    moving: tuple[Move, ...] = ()
    moved: int = 0


@dataclass(frozen=True, slots=True)
class ShardLost:
    """How all go on without the shards that were declared `lost`. Of several, the last one alone has `shards`; of the
    pipelines, `bound` is where a new generation begins, as a home decides that lets it (None: an operator has to name it)."""

    lost: tuple[int, ...]
    pipelines: tuple[PipelineKnown, ...] = ()
    ended: tuple[tuple[str, int], ...] = ()
    shards: WithoutLost | None = None
    placed: tuple[Placement, ...] = ()


@dataclass(frozen=True, slots=True)
class LossReport:
    """What became of pipelines when shards were declared lost: of each what is known, and from where on it can go on."""

    lost: tuple[int, ...]
    write_off: bool
    pipelines: tuple[PipelineKnown, ...]


LossStep = LossDeclared | LossHeard | ShardLost
