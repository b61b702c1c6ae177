"""The directory: which pipeline belongs to which group (docs/groups.md).

It is kept by the group DIRECTORY_GROUP, at all of its shards. A placement is decided by the shard that registers the
name, so that a name has one at a time; each has a version of its own, larger than all that the name had before. A group
that acts by a placement says its version: whatever was decided since makes it void.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from tracker.core.admission.confirmations import Confirmations
from tracker.core.log import GroupKnown, KnowGroup, Placed, PlacePipeline, RegisterPipeline
from tracker.core.log.journal import Journal
from tracker.core.membership.step_checks import MAX_NUMBER
from tracker.core.model import RefusalCode, Refused
from tracker.core.model import durable as d
from tracker.core.model.levels import MOVES
from tracker.core.model.placements import (
    DIRECTORY_GROUP,
    MAX_GROUPS,
    NOWHERE,
    Group,
    Placement,
)
from tracker.core.pipeline.homes import Homes
from tracker.core.pipeline.pipelines import Pipelines

MAX_PLACEMENTS = 100_000
"""Names that belong to groups. No more are given out while so many do."""
_MAX_ADDRESSES = 64
_MAX_ADDRESS_CHARACTERS = 300


@dataclass(eq=False)
class Directory:
    """Where names belong, as far as is durable here. A pipeline of the directory's own group needs no placement before it has
    moved for the first time."""

    _journal: Journal
    _pipelines: Pipelines
    _homes: Homes
    _confirmations: Confirmations
    placements: dict[str, Placement] = d.survives(d.values("pipeline"), init=False)
    groups: dict[int, Group] = d.survives(d.values("group"), init=False)
    last_placement: int = d.survives(default=0)
    """The largest version that any placement had."""
    given_back_before: int = d.survives(default=0)
    """The largest generation that ended a pipeline, in whichever group, whose name was given back."""

    def __post_init__(self) -> None:
        self.placements, self.groups = {}, {}

    # --- what is asked ----------------------------------------------------------------------------

    def place(self, event: PlacePipeline) -> None:
        """Decides where a name belongs; raises Refused, changing nothing."""
        self._homes.need_registrar(event.pipeline, "placed by", moves=True)
        # Where a name was recorded before, all had reported that they record by that level, and none falls.
        if not self.last_placement:
            self._homes.need_level(MOVES, f"where pipeline {event.pipeline!r} belongs")
        if not NOWHERE <= event.group < MAX_GROUPS or (event.expected is None and event.group < 0):
            raise Refused(
                RefusalCode.INVALID,
                f"pipeline {event.pipeline!r} is to be placed in group {event.group}; groups are 0 to {MAX_GROUPS - 1}",
            )
        if not 0 <= event.ended <= MAX_NUMBER // 2:
            raise Refused(
                RefusalCode.INVALID,
                f"pipeline {event.pipeline!r} cannot have ended by generation {event.ended}; the largest is {MAX_NUMBER // 2}",
            )
        known = self.newest(event.pipeline)
        placement = self._decided(event, known)
        if placement is not None:
            self._journal.append_home(Placed(placement))
        self._confirmations.answer(event.request, placement or known)

    def _decided(self, event: PlacePipeline, known: Placement | None) -> Placement | None:
        """The placement that there is to be, or None where the one that is there stays."""
        name, version = event.pipeline, self._next_version()
        if event.expected is None:
            if known is not None and known.group != event.group:
                return None
            self._check_seen(event, 0 if known is None else known.version)
            if known is None and self._is_cordoned(event.group):
                raise Refused(
                    RefusalCode.NOT_READY,
                    f"pipeline {name!r} is not placed in group {event.group}, which is cordoned by now; ask again",
                )
            if known is None and len(self.placements) >= MAX_PLACEMENTS:
                raise Refused(
                    RefusalCode.FULL,
                    f"pipeline {name!r} cannot be placed: {len(self.placements)} are, the limit is {MAX_PLACEMENTS}; delete "
                    "pipelines that are over",
                )
            if known is None:
                above = max(self._given_back_before(), self._pipelines.last_generation(name))
                return Placement(name, event.group, version, version, above)
            return replace(known, version=version)
        if known is None:
            raise Refused(
                RefusalCode.UNKNOWN_PIPELINE,
                f"pipeline {name!r} belongs to no group, so its placement {event.expected} cannot be replaced",
            )
        if known.version != event.expected:
            return None
        above = max(known.above, event.ended)
        # Who began the move had not heard that the group is cordoned: the pipeline stays.
        group = known.group if self._is_cordoned(event.group) else event.group
        return Placement(name, group, version, known.version, above)

    @staticmethod
    def _check_seen(event: PlacePipeline, version: int) -> None:
        """Raises Refused where what a claim was made by is over. A pipeline may be there by what came since, and by that its name is
        given back, and it moves."""
        if event.seen not in (None, version):
            raise Refused(
                RefusalCode.NOT_READY,
                f"pipeline {event.pipeline!r} is claimed by placement {event.seen}, and its placement is {version} by now (0: it "
                "has none); ask again",
            )

    def _is_cordoned(self, group: int) -> bool:
        known = self.groups.get(group)
        return known is not None and known.cordoned

    def know(self, event: KnowGroup) -> None:
        """Records what a group is, where that is new; raises Refused, changing nothing. Where it is reached, a group says of itself,
        and whether it is cordoned, people do: neither undoes what the other has said meanwhile."""
        group = event.group
        self._homes.need_level(MOVES, f"group {group.group}")
        lengths = [len(address) for address in group.addresses]
        if (
            not 0 <= group.group < MAX_GROUPS
            or len(lengths) > _MAX_ADDRESSES
            or not all(0 < length <= _MAX_ADDRESS_CHARACTERS for length in lengths)
        ):
            raise Refused(
                RefusalCode.INVALID,
                f"group {group.group} with {len(lengths)} addresses: groups are 0 to {MAX_GROUPS - 1}, with at most "
                f"{_MAX_ADDRESSES} addresses of 1 to {_MAX_ADDRESS_CHARACTERS} characters",
            )
        pending = [
            entry.group
            for entry in self._journal.pending_entries()
            if isinstance(entry, GroupKnown) and entry.group.group == group.group
        ]
        known = pending[0] if pending else self.groups.get(group.group)
        if known is None and not group.addresses:
            raise Refused(
                RefusalCode.INVALID,
                f"there is no group {group.group}; the groups are {sorted(self.groups)}",
            )
        if known is not None:
            group = (
                replace(group, cordoned=known.cordoned)
                if group.addresses
                else replace(known, cordoned=group.cordoned)
            )
        if group != known:
            self._journal.append_home(GroupKnown(group))
        self._confirmations.answer(event.request, None)

    def registering(self, event: RegisterPipeline) -> tuple[RegisterPipeline, Placement | None]:
        """What is registered here, with the version of its placement, if it has one, and that placement where it is to be logged
        before; raises Refused(CONFLICT) where the name belongs to another group, and Refused(NOT_READY) where that placement may
        be void by now, or another shard decides on it."""
        name, before = event.spec.name, self._pipelines.placed_before
        self._homes.need_registrar(name, "registered with")
        claimed = None
        known = self._pending(name) or self.placements.get(name)
        is_new = name not in self._pipelines and name not in self._pipelines.registering
        if known is None and 0 < event.placed <= before and name not in self._pipelines:
            raise Refused(
                RefusalCode.NOT_READY,
                f"pipeline {name!r} is not registered by placement {event.placed}: one that was here by placement {before} has "
                "ended since, so that it may belong elsewhere by now; ask again",
            )
        if known is not None and known.group not in (DIRECTORY_GROUP, NOWHERE):
            raise Refused(
                RefusalCode.CONFLICT,
                f"pipeline {known.pipeline!r} belongs to group {known.group}; register it there",
            )
        # Whoever deleted the one before may give the name back by its placement yet; and what is left in another group of one
        # that had the name, and none or the first placement, must not be taken for a part of this one.
        is_claimed = known is not None and event.placed == known.version
        if is_new and not is_claimed and not event.check_only and self._next_version() > 1:
            claim = PlacePipeline(event.request, name, DIRECTORY_GROUP)
            free = known is None or known.group == NOWHERE
            known = claimed = self._decided(claim, None if free else known)
            assert known is not None, "the name is free, or this group's"
        if known is None:
            return replace(event, above=max(event.above, self._given_back_before())), None
        return replace(event, placed=known.version, above=known.above), claimed

    # --- what there is ----------------------------------------------------------------------------

    def placement(self, pipeline: str) -> Placement | None:
        """Where a name belongs, durably and for all; raises Refused(NOT_HOME or NOT_READY) where another shard decides on it, and
        while some shard may not know: what is done by it must not be forgotten with this shard."""
        self._homes.need_registrar(pipeline, "placed by", moves=True)
        self._homes.need_all_heard(f"where pipeline {pipeline!r} belongs")
        if self._confirmations.is_being_told(pipeline):
            raise Refused(
                RefusalCode.NOT_READY,
                f"where pipeline {pipeline!r} belongs has been decided anew, and not every shard has heard of it; ask again",
            )
        known, here = self.placements.get(pipeline), self._pipelines.get(pipeline)
        if known is None and here is not None:
            return Placement(pipeline, DIRECTORY_GROUP, here.placed)
        return None if known is None or known.group == NOWHERE else known

    def newest(self, pipeline: str) -> Placement | None:
        """Where a name belongs, durably or not; None if it is free."""
        known = self._pending(pipeline) or self.placements.get(pipeline)
        if known is not None:
            return None if known.group == NOWHERE else known
        here = self._pipelines.get(pipeline)
        if here is not None:
            return Placement(pipeline, DIRECTORY_GROUP, here.placed)
        if pipeline in self._pipelines.registering:
            return Placement(pipeline, DIRECTORY_GROUP, 0)
        return None

    def _pending(self, pipeline: str) -> Placement | None:
        return next((each for each in self._decided_now() if each.pipeline == pipeline), None)

    def _decided_now(self) -> Iterator[Placement]:
        """Placements that are not durable yet, the newest first."""
        entries = self._journal.pending_entries()
        return (entry.placement for entry in entries if isinstance(entry, Placed))

    def _next_version(self) -> int:
        return max([self.last_placement, *(each.version for each in self._decided_now())]) + 1

    def _given_back_before(self) -> int:
        pending = [each.above for each in self._decided_now() if each.group == NOWHERE]
        return max([self.given_back_before, *pending])

    # --- applying entries -------------------------------------------------------------------------

    def apply(self, entry: Placed | GroupKnown) -> None:
        """What was decided takes effect."""
        if isinstance(entry, GroupKnown):
            self.groups[entry.group.group] = entry.group
            return
        self._place(entry.placement)

    def let_go(self, pipeline: str) -> None:
        """Of a pipeline that has gone by now it need not be known any more that its name was given back."""
        known = self.placements.get(pipeline)
        if known is not None and known.group == NOWHERE and pipeline not in self._pipelines:
            del self.placements[pipeline]

    def take(self, placed: Iterable[Placement]) -> None:
        """What those that are left know together, where others are lost: what is older here was decided by one of these."""
        for placement in placed:
            known = self.placements.get(placement.pipeline)
            if known is None or known.version < placement.version:
                self._place(placement)

    def _place(self, placement: Placement) -> None:
        self.last_placement = max(self.last_placement, placement.version)
        if placement.group == NOWHERE:
            self.given_back_before = max(self.given_back_before, placement.above)
        # Of a pipeline that is here, and has gone, it has to be known that it does not belong here any more.
        if placement.group == NOWHERE and placement.pipeline not in self._pipelines:
            self.placements.pop(placement.pipeline, None)
        else:
            self.placements[placement.pipeline] = placement
