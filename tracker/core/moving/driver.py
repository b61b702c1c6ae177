"""How a move goes on: what whoever leads a group asks of its own group, of the other one and of the directory.

`follow` is a generator: it yields what to ask, and is sent what was answered. Nothing of it is durable, and all that it asks may
be repeated: the process that leads the group begins it anew after a crash, and two that do it at a time do no harm. Where the
pipeline is, the directory alone decides; a move that does not come forward is given up by a placement that leaves it where it is.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from tracker.core.log import EndMove, KeepPart, MovePipeline, MoveTerms, PlacePipeline
from tracker.core.log.losses import Move
from tracker.core.model import Refusal, RefusalCode
from tracker.core.model.levels import OLDEST_LEVEL
from tracker.core.model.placements import DIRECTORY_GROUP, Group, Placement
from tracker.core.moving.parts import dealt, in_pieces, of_pieces, put_together
from tracker.core.pipeline.snapshot import PipelineSnapshot

MAX_ATTEMPTS = 60
"""How often a step that has to wait is asked for before the move is given up: a second passes in between."""
MAX_LOOKS = 600
"""How often the group to which a pipeline is to come looks whether it does: a second passes in between. Then it is left where it is.
The group that it leaves may be gone for good, and no shard comes or goes while one is on its way."""
FOR_NOW = {RefusalCode.NOT_READY, RefusalCode.NOT_HOME}
"""Why who asks is refused for now, and asks again."""


@dataclass(frozen=True, slots=True)
class Where:
    """Asked of the directory: where a name belongs. Answered by a `Placement`, or None where it belongs nowhere."""

    pipeline: str


@dataclass(frozen=True, slots=True)
class PieceWanted:
    """Asked of a shard that a pipeline leaves: a piece of its part, from 0. Answered by a `Piece`."""

    pipeline: str
    version: int
    number: int


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of a part (`Process.part`), how many there are, the incarnations that were given there are below, and the feature
    level by which it is recorded there."""

    part: PipelineSnapshot
    pieces: int
    next_incarnation: int
    level: int = OLDEST_LEVEL


@dataclass(frozen=True, slots=True)
class Members:
    """Asked of the own group: the shards that count. Answered by their numbers."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What to ask next: also, of the directory, to know a group, or (None) which groups there are. shard: None for the one that decides on it; answered by a `Refusal`, too, or by `AWAY` where nobody answered,
    which may have done it all the same."""

    group: int
    what: (
        Group
        | Where
        | PieceWanted
        | Members
        | MovePipeline
        | KeepPart
        | EndMove
        | PlacePipeline
        | None
    )
    shard: int | None = None


@dataclass(frozen=True, slots=True)
class Pause:
    """Go on in a while."""


@dataclass(frozen=True, slots=True)
class Away:
    """Nobody has answered."""


AWAY = Away()
Steps = Generator[Ask | Pause, Any, Any]


class GivenUp(Exception):
    """A move does not come forward, for a reason that people are told."""


class Decided(Exception):
    """The directory has decided on a move while somebody was asked to wait."""


def follow(move: Move, own: int, attempts: int = MAX_ATTEMPTS) -> Generator[Ask | Pause, Any, str]:
    """Goes on with a move of the group `own` until it has ended there; returns why it was given up, or nothing."""
    why, name, looks = "", move.pipeline, 0
    there = None
    while True:
        placement = yield Ask(DIRECTORY_GROUP, Where(name))
        if _has_decided(placement, move):
            yield from _end(move, own, placement, there)
            return why
        if isinstance(placement, Placement) and not move.arrives:
            try:
                whole, arrival = yield from _gather(move, own, attempts)
                terms = yield from _patiently(Ask(move.group, arrival), attempts, move)
                there = terms.number
                yield from _deal(move, whole, terms, attempts)
            except GivenUp as reason:
                why = str(reason)
                yield from _turn(name, own, move)
                continue
            except Decided:
                continue
            yield from _turn(name, move.group, move)
            continue
        looks += isinstance(placement, Placement)
        if looks > MAX_LOOKS:
            yield Ask(DIRECTORY_GROUP, PlacePipeline(None, name, move.group, move.version))
        yield Pause()


def _turn(name: str, group: int, move: Move) -> Steps:
    """The directory is asked to decide that a pipeline belongs to a group. Where it cannot now, all before that is asked once more: in
    a while, since that may be all of the pipeline."""
    answer = yield Ask(DIRECTORY_GROUP, PlacePipeline(None, name, group, move.version))
    if _is_for_now(answer):
        yield Pause()


def _has_decided(placement: Any, move: Move) -> bool:
    """Whether the directory has decided on a move, by where it says that the pipeline belongs."""
    return placement is None or (
        isinstance(placement, Placement) and placement.version > move.version
    )


def _end(move: Move, own: int, placement: Placement | None, there: int | None) -> Steps:
    """The directory has decided: the group that has the pipeline from now on is told first, where it is known by which move it comes
    there (`there`). Without that it follows by itself. placement: where the name belongs by now; None where it is free."""
    name = move.pipeline
    version = move.version + 1 if placement is None else placement.version
    decides = placement is not None and placement.came_from == move.version
    here = placement is not None and decides and placement.group == own
    if not move.arrives and placement is not None and decides:
        taken = placement.group == move.group
        try:
            if there is not None:
                ends = EndMove(None, name, there, version, taken)
                yield from _patiently(Ask(move.group, ends), attempts=3)
        except GivenUp:
            pass  # it follows by itself
    elif not move.arrives:
        # Another one of its name may be in the other group by now, or come there: that group follows by itself.
        again = placement is not None and placement.came_from < move.version
        is_own = placement is not None and placement.group == own
        here = (again and is_own) or (yield from _was_deleted(move, own))
    answer: Any = AWAY
    while _is_for_now(answer):
        answer = yield Ask(own, EndMove(None, name, move.number, version, here))
        if answer is not None:
            yield Pause()


def _was_deleted(move: Move, own: int) -> Generator[Ask | Pause, Any, bool]:
    """Whether a pipeline of which the directory knows no more was deleted here, as its move began. It was not where each shard
    still has all of it, and is at rest: then the directory has turned, and it was deleted where it went."""
    while True:
        shards = yield Ask(own, Members())
        known = []
        for shard in shards if isinstance(shards, tuple) else ():
            known.append((yield Ask(own, PieceWanted(move.pipeline, move.version, 0), shard)))
        for answer in known:
            if isinstance(answer, Refusal) and answer.code is RefusalCode.UNKNOWN_PIPELINE:
                return True
        if known and not any(map(_is_for_now, known)):
            return False
        yield Pause()


def _gather(
    move: Move, own: int, attempts: int
) -> Generator[Ask | Pause, Any, tuple[PipelineSnapshot, MovePipeline]]:
    """Everything that the pipeline is, put together, and what the other group is asked before it comes. Raises GivenUp."""
    name, version = move.pipeline, move.version
    parts: dict[int, PipelineSnapshot] = {}
    incarnation, level = 1, OLDEST_LEVEL
    for shard in (yield from _patiently(Ask(own, Members()), attempts, move)):
        kept: list[PipelineSnapshot] = []
        pieces = 1
        while len(kept) < pieces:
            wanted = PieceWanted(name, version, len(kept))
            piece = yield from _patiently(Ask(own, wanted, shard), attempts, move)
            kept.append(piece.part)
            pieces, level = piece.pieces, max(level, piece.level)
            incarnation = max(incarnation, piece.next_incarnation)
        parts[shard] = of_pieces(kept)
    whole = put_together(parts)
    spec = whole.changed or whole.spec
    arrival = MovePipeline(
        None,
        name,
        version,
        own,
        arrives=True,
        segments=len(spec.segments),
        next_incarnation=incarnation,
        generation=whole.restarts[-1].restart.generation if whole.restarts else 0,
        level=level,
    )
    return whole, arrival


def _deal(move: Move, whole: PipelineSnapshot, terms: MoveTerms, attempts: int) -> Steps:
    """It becomes durable in the other group. Raises GivenUp."""
    for shard in terms.members:
        cut = [*in_pieces(dealt(whole, terms.table, shard))]
        for number, part in enumerate(cut):
            keep = KeepPart(None, move.pipeline, move.version, number, len(cut), part)
            yield from _patiently(Ask(move.group, keep, shard), attempts, move)


def _is_for_now(answer: Any) -> bool:
    """Whether it says no more than that who asks is to ask again."""
    return isinstance(answer, Away) or (isinstance(answer, Refusal) and answer.code in FOR_NOW)


def _patiently(ask: Ask, attempts: int, move: Move | None = None) -> Steps:
    """Asks until there is an answer that is no refusal for now. Raises GivenUp where that is final, or does not come; Decided where
    the directory has decided on the move meanwhile, which somebody may have given up: then what is asked for may never be."""
    answer: Any = AWAY
    for _ in range(attempts):
        answer = yield ask
        if isinstance(answer, Refusal) and answer.code not in FOR_NOW:
            raise GivenUp(answer.message)
        if not isinstance(answer, Refusal | Away):
            return answer
        yield Pause()
        if move is not None and _has_decided(
            (yield Ask(DIRECTORY_GROUP, Where(move.pipeline))), move
        ):
            raise Decided
    said = answer.message if isinstance(answer, Refusal) else f"group {ask.group} does not answer"
    raise GivenUp(said)
