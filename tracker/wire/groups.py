"""What the processes of groups ask each other."""

from __future__ import annotations

from typing import Any

from acker.v1 import group_service_pb2 as pb
from tracker.core.log import EndMove, KeepPart, MovePipeline, MoveTerms, PartKept, PlacePipeline
from tracker.core.model.placements import Group, Placement
from tracker.core.moving.driver import Members, Piece, PieceWanted, Where
from tracker.wire.codec import derived
from tracker.wire.placements import GROUP, PLACEMENT
from tracker.wire.refusals import invalid
from tracker.wire.shards import TABLE
from tracker.wire.storage import PART, PIPELINE

_TERMS = derived(MoveTerms, pb.MoveTerms, TABLE)
PIECE_WANTED = derived(PieceWanted, pb.PieceAsked)


def ask_to_pb(what: Any, shard: int | None = None) -> pb.AskRequest:
    """A question of the driver of moves, or of a group that makes itself known."""
    request = pb.AskRequest(shard=shard)
    match what:
        case Where():
            request.where.pipeline = what.pipeline
        case Members():
            request.members.SetInParent()
        case Group():
            request.known.CopyFrom(GROUP.to_pb(what))
        case PieceWanted():
            request.piece.CopyFrom(PIECE_WANTED.to_pb(what))
        case PlacePipeline():
            request.place.pipeline, request.place.group = what.pipeline, what.group
            request.place.ended = what.ended
            if what.expected is not None:
                request.place.expected = what.expected
            if what.seen is not None:
                request.place.seen = what.seen
        case MovePipeline():
            request.coming.CopyFrom(
                pb.ComingAsked(
                    pipeline=what.pipeline, version=what.version, group=what.group,
                    segments=what.segments, next_incarnation=what.next_incarnation,
                    generation=what.generation, level=what.level,
                )
            )  # fmt: skip
        case KeepPart():
            kept = PartKept(what.pipeline, what.version, what.number, what.pieces, what.part)
            request.keep.CopyFrom(PART.to_pb(kept))
        case EndMove():
            request.end.CopyFrom(
                pb.EndAsked(
                    pipeline=what.pipeline, number=what.number, version=what.version, here=what.here
                )
            )
        case _:
            raise TypeError(f"{type(what).__name__} is nothing that groups ask each other")
    return request


def event_from_pb(request: pb.AskRequest) -> Any:
    """The event of the core that a question stands for. Raises Refused(INVALID) for any other."""
    mark = object()
    match request.WhichOneof("what"):
        case "place":
            asked = request.place
            expected = asked.expected if asked.HasField("expected") else None
            seen = asked.seen if asked.HasField("seen") else None
            return PlacePipeline(mark, asked.pipeline, asked.group, expected, asked.ended, seen)
        case "coming":
            coming = request.coming
            return MovePipeline(
                mark, coming.pipeline, coming.version, coming.group, True, coming.segments,
                coming.next_incarnation, coming.generation, coming.level,
            )  # fmt: skip
        case "keep":
            kept = PART.from_pb(request.keep)
            return KeepPart(mark, kept.pipeline, kept.version, kept.number, kept.pieces, kept.part)
        case "end":
            end = request.end
            return EndMove(mark, end.pipeline, end.number, end.version, end.here)
    raise invalid("a question to a group says nothing; is the other process of a newer version?")


def answer_to_pb(answer: Any) -> pb.AskResponse:
    """What is answered: of the core, or read from it."""
    match answer:
        case None:
            return pb.AskResponse(said=pb.Said(yes=True))
        case bool():
            return pb.AskResponse(said=pb.Said(yes=answer))
        case Placement():
            return pb.AskResponse(placement=PLACEMENT.to_pb(answer))
        case MoveTerms():
            return pb.AskResponse(terms=_TERMS.to_pb(answer))
        case Piece():
            piece = pb.Piece(
                part=PIPELINE.to_pb(answer.part), pieces=answer.pieces,
                next_incarnation=answer.next_incarnation, level=answer.level,
            )  # fmt: skip
            return pb.AskResponse(piece=piece)
    raise TypeError(f"{type(answer).__name__} is no answer to a group")


def answer_from_pb(response: pb.AskResponse) -> Any:
    """What the driver of moves is told."""
    match response.WhichOneof("what"):
        case "placement":
            return PLACEMENT.from_pb(response.placement)
        case "terms":
            return _TERMS.from_pb(response.terms)
        case "members":
            return tuple(response.members.shards)
        case "piece":
            piece = response.piece
            part = PIPELINE.from_pb(piece.part)
            return Piece(part, piece.pieces, piece.next_incarnation, piece.level)
        case "groups":
            return tuple(map(GROUP.from_pb, response.groups.groups))
    return None
