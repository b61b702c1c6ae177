"""Which steps of rule 10 a process can take from another home, by what it knows of the shards.

A step that no process can have decided on is refused before it is logged: once it is durable, a process
would stop by it at every start. Home logs reach a process in any order, so it may hear of a version whose
table has not come yet, where one is under way; and late of the version before.
"""

from __future__ import annotations

from collections.abc import Iterable

from tracker.core.log import losses, steps
from tracker.core.membership.membership import Membership
from tracker.core.model import RefusalCode, Refused
from tracker.core.model.routing import RoutingTable

MAX_NUMBER = 2**62
"""Of entries, ticks, incarnations and generations: what is counted on from it still is an int64."""
MAX_ADDRESS_CHARACTERS = 300

_OF_THE_SEQUENCER = (
    steps.ShardJoining, steps.ShardJoined, steps.ShardRemoved, steps.RescaleProposed, steps.RoutingChanged, steps.ShardLeaving,
    steps.SequencerMoved, steps.SequencerBegun, steps.FeatureLevelRaised, steps.MoveBegun, steps.MoveEnded,
)  # fmt: skip


def table_of(known: Membership, home: int) -> RoutingTable | None:
    """The table by which a home splits its entries, and takes up nodes, as far as is known; None where
    that table has not come yet."""
    newest = known.table.version
    if any(version > newest and home in homes for version, homes in known.adopted.items()):
        return None
    return known.table if newest == 0 or home in known.adopted_at else known.previous


def check_step(
    known: Membership, own: int, step: steps.MembershipStep, home: int, *, loses: bool = False
) -> None:
    """Raises Refused(INVALID) for a step of another home's log that the process of shard `own` could not
    take. The home itself is a member. loses: whether shards are being declared lost: then the next sequencer may be heard
    before what the one before has logged."""
    if isinstance(step, steps.SequencerBegun) and step.move > known.moves:
        return  # it is taken only where the log that names it may be that of a lost shard
    if isinstance(step, _OF_THE_SEQUENCER):
        if loses and isinstance(step, steps.SequencerMoved) and step.move <= known.moves:
            return
        if home != known.sequencer and not loses:
            raise _refused(step, home, f"only shard {known.sequencer} says that")
        if not known.is_led and not isinstance(step, steps.SequencerBegun):
            raise _refused(step, home, "it has not begun to be the sequencer")
        _check_led(known, step, home)
        return
    match step:
        case steps.SlotBounds():
            asked = known.asked.version if known.asked is not None else None
            if own == known.sequencer and step.version != asked:
                raise _refused(step, home, f"it was asked for version {asked}")
            _check_version(known, step, home, step.version, (0, 1))
        case steps.RoutingActivated():
            _check_adopts(known, own, step, home)
            _check_number(step, home, "next incarnation", step.next_incarnation)
        case steps.NodesMoved():
            _check_adopts(known, own, step, home)
            _check_nodes(known, step, home)
        case steps.CellsMoved() | steps.HandoverFinished():
            _check_version(known, step, home, step.version, (-1, 0))
            if home in known.done.get(step.version, ()):
                raise _refused(step, home, f"it has nothing more to hand over by {step.version}")
        case steps.DepartureSummarized() | steps.ShardLeft():
            _check_left(known, step, home)
        case losses.LossDeclared() | losses.LossHeard() | losses.ShardLost():
            _check_loss(known, step, home)


def _check_led(known: Membership, step: steps.MembershipStep, home: int) -> None:
    match step:
        case steps.ShardJoining():
            if step.shard != known.next_shard:
                raise _refused(step, home, f"the next shard is number {known.next_shard}")
            if len(known.with_newcomers) >= steps.MAX_SHARDS:
                raise _refused(step, home, f"there are {steps.MAX_SHARDS} shards at most")
            if not 0 < len(step.address) <= MAX_ADDRESS_CHARACTERS:
                raise _refused(
                    step,
                    home,
                    f"an address has 1 to {MAX_ADDRESS_CHARACTERS} characters",
                )
        case steps.ShardJoined() | steps.ShardRemoved():
            if step.shard not in known.joining:
                raise _refused(step, home, f"joining are {sorted(known.joining)}")
        case steps.RescaleProposed():
            if known.asked is not None:
                raise _refused(step, home, f"version {known.asked.version} is being agreed on")
            _check_version(known, step, home, step.version, (1,))
            _check_owning(known, step, home, step.shards, step.shards)
        case steps.RoutingChanged():
            _check_version(known, step, home, step.table.version, (1,))
            _check_owning(known, step, home, step.table.shards, step.table.owning)
        case steps.ShardLeaving():
            gone = known.members | known.former.keys()
            if step.shard == home or step.shard not in gone - {*known.table.owning}:
                raise _refused(step, home, "it is none that owns no slots any more")
        case steps.SequencerMoved():
            if step.move != known.moves + 1 or step.shard not in known.members - {home}:
                raise _refused(
                    step, home, f"move {known.moves + 1} is next, to one of {sorted(known.members)}"
                )
        case steps.MoveBegun():
            if step.number != known.moved + 1 or step.pipeline in known.moving:
                raise _refused(
                    step,
                    home,
                    f"move {known.moved + 1} is next, and moving are {sorted(known.moving)[:20]}",
                )
            _check_number(step, home, "placement", step.version)
            _check_number(step, home, "next incarnation", step.next_incarnation)
        case steps.MoveEnded():
            move = known.moving.get(step.pipeline)
            if move is None or move.number != step.number:
                raise _refused(step, home, f"moving are {sorted(known.moving)[:20]}")
            _check_number(step, home, "placement", step.version)
        case steps.FeatureLevelRaised():
            if step.level < known.level:
                raise _refused(step, home, f"all record by feature level {known.level} already")
        case steps.SequencerBegun():
            if step.move != known.moves or known.is_led:
                raise _refused(step, home, f"it decides by move {known.moves} already")


def _check_owning(
    known: Membership,
    step: steps.MembershipStep,
    home: int,
    newest: Iterable[int],
    owning: Iterable[int],
) -> None:
    """Those that own new slots are members; older ones may be a former shard's whose departure summaries came early."""
    newest = tuple(newest)
    repeated = len({*newest}) != len(newest)
    there = known.members >= {*newest} and known.members | known.former.keys() >= {*owning}
    if not newest or repeated or not there:
        raise _refused(step, home, f"members are {sorted(known.members)}")


def _check_adopts(
    known: Membership, own: int, step: steps.RoutingActivated | steps.NodesMoved, home: int
) -> None:
    """A home may be ahead by a table that is being made, except of the shard that makes it. One that has left is asked
    nothing more before another table is made."""
    asked = known.asked is not None or bool(known.draining) or own in known.former
    coming = own != known.sequencer and asked
    _check_version(known, step, home, step.version, (0, 1) if coming else (0,))
    if home in known.adopted.get(step.version, ()):
        raise _refused(step, home, f"it goes by version {step.version} already")


def _check_nodes(known: Membership, step: steps.NodesMoved, home: int) -> None:
    if step.home == home or step.home not in known.members:
        raise _refused(step, home, f"shard {step.home} is no other shard")
    newest = step.version == known.table.version
    before = known.previous if newest else known.table
    after = known.table if newest else None
    names = [node.key.node_id for node in step.nodes] + [node_id for node_id, _ in step.staged]
    for node_id in names:
        if before is not None and before.home(step.pipeline, node_id) != home:
            raise _refused(step, home, f"it is not the home of node {node_id!r}")
        if after is not None and after.home(step.pipeline, node_id) != step.home:
            raise _refused(step, home, f"shard {step.home} is not the home of node {node_id!r}")
    for node in step.nodes:
        for what, number in (
            ("incarnation", node.key.incarnation),
            ("tick", node.durable),
            ("tick", node.previous_node_time),
        ):
            _check_number(step, home, what, number)


def _check_left(
    known: Membership, step: steps.DepartureSummarized | steps.ShardLeft, home: int
) -> None:
    if home == known.sequencer or home in known.table.owning:
        raise _refused(
            step, home, f"it is the sequencer, or owns slots by version {known.table.version}"
        )
    if not known.knows(step.heir):
        raise _refused(step, home, f"shard {step.heir} is to have its ledgers, and never was one")
    for other, number in step.applied if isinstance(step, steps.ShardLeft) else ():
        if not known.knows(other):
            raise _refused(step, home, f"it has heard of shard {other}, which never was one")
        _check_number(step, home, f"entry of shard {other}", number)


def _check_loss(
    known: Membership, step: losses.LossDeclared | losses.LossHeard | losses.ShardLost, home: int
) -> None:
    if home in step.lost or [*step.lost] != sorted({*step.lost}) or not step.lost:
        raise _refused(step, home, f"lost are shards {[*step.lost]}, each once, ascending")
    if not isinstance(step, losses.ShardLost):
        return
    left = step.shards
    if left is None or not known.settles(step):
        return
    if home not in left.members or not {*left.members} <= known.members - {*step.lost}:
        raise _refused(step, home, f"members are {sorted(known.members)}, lost {[*step.lost]}")
    if left.table.version <= known.table.version or not {*left.table.owning} <= {*left.members}:
        raise _refused(
            step, home, f"version {known.table.version} is in force, and those left own all slots"
        )
    _check_number(step, home, "next incarnation", left.next_incarnation)
    for other, number in (*left.former, *left.heard):
        _check_number(step, home, f"entry of shard {other}", number)


def _check_version(
    known: Membership, step: steps.MembershipStep, home: int, version: int, ahead: tuple[int, ...]
) -> None:
    newest = known.table.version
    if version < 1 or version - newest not in ahead:
        raise _refused(step, home, f"it is of version {version}, and the table is of {newest}")


def _check_number(step: steps.MembershipStep, home: int, what: str, number: int) -> None:
    if not 0 <= number <= MAX_NUMBER:
        raise _refused(step, home, f"{what} {number} is not within 0 and {MAX_NUMBER}")


def _refused(step: steps.MembershipStep, home: int, why: str) -> Refused:
    what = type(step).__name__
    shard = getattr(step, "shard", None)
    said = what if shard is None else f"{what} of shard {shard}"
    return Refused(
        RefusalCode.INVALID,
        f"a frame of shard {home} has {said}, which cannot be: {why}; is that process of another version, "
        "or was it started with other settings?",
    )
