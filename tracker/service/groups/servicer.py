"""GroupService: what people and other groups ask of a process about groups."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from weakref import WeakValueDictionary

from acker.v1 import group_service_pb2 as pb
from tracker.core import log as m
from tracker.core.model import Refusal, RefusalCode, Refused
from tracker.core.model.placements import DIRECTORY_GROUP, NOWHERE, Group, Placement
from tracker.core.moving.driver import AWAY, FOR_NOW, Ask, Piece, Where
from tracker.core.moving.parts import in_pieces
from tracker.core.pipeline.snapshot import PipelineSnapshot
from tracker.service.engine import Engine
from tracker.service.failpoints import failpoint
from tracker.service.groups.deployment import Deployment
from tracker.service.groups.load import Load
from tracker.service.groups.mover import Mover
from tracker.service.rpc.access import Peers, caller_knows
from tracker.service.rpc.errors import Context
from tracker.wire.groups import PIECE_WANTED, answer_to_pb, event_from_pb
from tracker.wire.placements import GROUP
from tracker.wire.refusals import invalid

MAX_MOVE_WAIT_MS = 60_000
"""How long a move is waited for by one call."""
MAX_PARTS = 4
"""Parts of pipelines that go which are kept ready at a time, those asked for last."""
PLACE_TIMEOUT_S = 2.0
"""How long the directory may take: who registers asks again, and hears what it waits for."""
LOAD_TIMEOUT_S = 0.8
"""How long a shard may take to say what it has to do: a list of groups is there within a second."""


class GroupServicer:
    """Serves GroupService: of the directory, of the own group, and of the own shard."""

    def __init__(self, engine: Engine, deployment: Deployment, mover: Mover, peers: Peers) -> None:
        self._engine, self._deployment, self._mover, self._peers = engine, deployment, mover, peers
        self._load = Load(engine)
        self._claiming: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._parts: OrderedDict[tuple[str, int], tuple[list[PipelineSnapshot], int]] = (
            OrderedDict()
        )

    @property
    def group(self) -> int:
        """The number of the own group."""
        return self._deployment.group

    # --- for people -------------------------------------------------------------------------------

    async def ListGroups(
        self, request: pb.ListGroupsRequest, context: Context
    ) -> pb.ListGroupsResponse:
        groups = {**self._deployment.groups}
        groups.setdefault(
            self._deployment.group,
            Group(self._deployment.group, self._deployment.targets(self._deployment.group)),
        )
        known = [groups[number] for number in sorted(groups)]
        if request.brief:
            return pb.ListGroupsResponse(
                groups=[pb.GroupState(group=GROUP.to_pb(each)) for each in known]
            )
        states = await asyncio.gather(*map(self._state, known))
        for state in states:
            for names in (state.leaving, state.arriving):
                known_to_caller = [name for name in names if caller_knows(name)]
                del names[:]
                names.extend(known_to_caller)
        return pb.ListGroupsResponse(groups=states)

    async def _state(self, group: Group) -> pb.GroupState:
        """A group as its shards describe it, added up."""
        state = pb.GroupState(group=GROUP.to_pb(group))
        ask = self._deployment.say
        answer = await ask(group.group, pb.AskRequest(members=pb.NothingAsked()), LOAD_TIMEOUT_S)
        if not isinstance(answer, pb.AskResponse):
            away = f"group {group.group} does not answer"
            state.silent = away if answer is AWAY else answer.message
            return state
        shards = [*answer.members.shards]
        asked = (
            ask(group.group, pb.AskRequest(shard=shard, load=pb.NothingAsked()), LOAD_TIMEOUT_S)
            for shard in shards
        )
        for shard, loaded in zip(shards, await asyncio.gather(*asked), strict=True):
            if not isinstance(loaded, pb.AskResponse):
                state.silent = f"shard {shard} of group {group.group} does not answer"
                continue
            load = loaded.load
            state.shards += 1
            state.pipelines = max(state.pipelines, load.pipelines)
            state.ticks_per_s += load.ticks_per_s
            state.open_cells += load.open_cells
            state.memory_bytes += load.memory_bytes
            state.leaving.extend(name for name in load.leaving if name not in state.leaving)
            state.arriving.extend(name for name in load.arriving if name not in state.arriving)
        return state

    async def MovePipeline(
        self, request: pb.MovePipelineRequest, context: Context
    ) -> pb.MovePipelineResponse:
        if not 0 <= request.wait_ms <= MAX_MOVE_WAIT_MS:
            raise invalid(f"wait_ms is {request.wait_ms}; it lies within 0 and {MAX_MOVE_WAIT_MS}")
        process, deployment, name = self._engine.process, self._deployment, request.pipeline
        process.spec(name)  # raises where it lives elsewhere
        moving = process.membership.moving.get(name)
        if moving is None and request.group == deployment.group:
            return pb.MovePipelineResponse(over=True, group=deployment.group)
        if moving is None:
            await self._check_takes_part(name, request.group)
        placed = process.placed(name) if moving is None else moving.version
        await self._engine.ask(m.MovePipeline(object(), name, placed, request.group))
        move = process.membership.moving.get(name)
        if move is not None:
            await asyncio.wait(
                (asyncio.ensure_future(self._mover.over(move.number)),),
                timeout=request.wait_ms / 1000,
            )
        over = name not in process.membership.moving
        why = "" if move is None else self._mover.given_up.get(move.number, "")
        here = name in {spec.name for spec in process.pipelines()} and over
        group = deployment.group if here else request.group
        return pb.MovePipelineResponse(over=over, group=group, given_up=why if over else "")

    async def _check_takes_part(self, name: str, group: int) -> None:
        """Raises Refused where a group cannot take a pipeline, or where a shard of it, of the own group or of the directory's does not
        answer: from when a move begins until the directory has decided on it, nothing is taken of the pipeline."""
        deployment = self._deployment
        known = deployment.groups.get(group)
        if known is None or known.cordoned:  # as it was a moment ago
            known = (await deployment.look(PLACE_TIMEOUT_S)).get(group)
            if not deployment.directory_answers:
                _raise(AWAY, f"pipeline {name!r} does not move")
        if known is None:
            there = sorted(deployment.groups) or "none beside this one"
            raise Refused(
                RefusalCode.INVALID,
                f"pipeline {name!r} cannot move to group {group}: there is none, the groups are {there}",
            )
        if known.cordoned:
            raise Refused(
                RefusalCode.CONFLICT,
                f"pipeline {name!r} cannot move to group {group}: that is cordoned; lowmark groups cordon {group} --undo",
            )
        where = pb.AskRequest(where=pb.PipelineAsked(pipeline=name))
        _raise(
            await deployment.say(DIRECTORY_GROUP, where, PLACE_TIMEOUT_S),
            f"pipeline {name!r} does not move",
        )
        taking_part = [
            each
            for each in deployment.groups.values()
            if each.group in (group, deployment.group, DIRECTORY_GROUP)
        ]
        for state in await asyncio.gather(*map(self._state, taking_part)):
            if state.silent:
                raise Refused(
                    RefusalCode.NOT_READY,
                    f"pipeline {name!r} does not move: {state.silent}; ask again when that is back, or name another group",
                )

    async def CordonGroup(
        self, request: pb.CordonGroupRequest, context: Context
    ) -> pb.CordonGroupResponse:
        wanted = Group(request.group, (), request.cordoned)
        answer = await self._deployment.ask(Ask(DIRECTORY_GROUP, wanted))
        _raise(answer, "cordoned")
        await self._deployment.look()
        return pb.CordonGroupResponse()

    def elsewhere(self) -> list[str]:
        """As `Groups.elsewhere`."""
        return self._deployment.elsewhere()

    def address(self, group: int) -> str:
        """As `Groups.address`."""
        return self._deployment.address(group)

    # --- placing ----------------------------------------------------------------------------------

    @asynccontextmanager
    async def placing(
        self, name: str, asked: int | None, *, check_only: bool
    ) -> AsyncIterator[Placement | None]:
        """As `Groups.placing`. One at a time claims a name here: who gives it back takes it from nobody."""
        process = self._engine.process
        if check_only or process.has_heard_of(name):
            yield await self._place(name, asked, check_only=check_only)
            return
        async with self._claiming.setdefault(name, asyncio.Lock()):
            placement = await self._place(name, asked, check_only=False)
            try:
                yield placement
            except Refused as refused:
                is_final = refused.refusal.code not in FOR_NOW
                is_here = process.has_heard_of(name) or not process.decides_on(name)
                if placement is not None and is_final and not is_here:
                    ended = process.last_generation(name)
                    await self.give_back(name, placement.version, ended)
                raise

    async def _place(self, name: str, asked: int | None, *, check_only: bool) -> Placement | None:
        """The placement by which a new pipeline may be registered here; raises Refused, with where to register it instead if that
        is another group."""
        deployment, process = self._deployment, self._engine.process
        if deployment.is_alone:
            return None
        if deployment.group == DIRECTORY_GROUP and process.has_heard_of(name):
            return None  # the directory is asked as it is registered
        if placed := process.placed(name):
            return Placement(name, deployment.group, placed)
        if process.routing.registrar(name) != process.shard:
            return None  # it is refused here, with the shard that decides
        if not deployment.directory_answers:
            _raise(AWAY, f"pipeline {name!r} is not registered")
        placement = await deployment.ask(Ask(DIRECTORY_GROUP, Where(name)), PLACE_TIMEOUT_S)
        if placement is not None and not isinstance(placement, Placement):
            _raise(placement, f"pipeline {name!r} is not registered")
        process.check_claims(name)
        if placed := process.placed(name):
            return Placement(name, deployment.group, placed)  # it has come meanwhile
        group = await self._choose(asked) if placement is None else placement.group
        # What belongs to another group already is not claimed once more: whoever moves it goes by the placement that there is.
        if not check_only and (placement is None or group == deployment.group):
            seen = 0 if placement is None else placement.version
            event = m.PlacePipeline(None, name, group, seen=seen)
            placement = await deployment.ask(Ask(DIRECTORY_GROUP, event), PLACE_TIMEOUT_S)
            if not isinstance(placement, Placement):
                _raise(placement, f"pipeline {name!r} is not registered")
            group = placement.group
        if group != deployment.group:
            raise Refused.of(
                Refusal(
                    RefusalCode.NOT_HOME,
                    f"pipeline {name!r} belongs to group {group}",
                    address=deployment.address(group),
                )
            )
        return placement

    async def give_back(self, name: str, placed: int, ended: int) -> None:
        """As `Groups.give_back`; where the directory does not answer the name stays with this group, which is no harm."""
        event = m.PlacePipeline(None, name, NOWHERE, placed, ended)
        await self._deployment.ask(Ask(DIRECTORY_GROUP, event), PLACE_TIMEOUT_S)

    async def _choose(self, asked: int | None) -> int:
        """The group for a new pipeline: as asked for, or the one that has the least to do of those that are not cordoned."""
        groups = await self._deployment.look()
        if asked is not None:
            if asked not in groups:
                raise Refused(
                    RefusalCode.INVALID,
                    f"there is no group {asked}; the groups are {sorted(groups)}",
                )
            if groups[asked].cordoned:
                raise Refused(
                    RefusalCode.CONFLICT,
                    f"group {asked} is cordoned, and given no new pipelines; name another one, or: lowmark groups cordon {asked} "
                    "--undo",
                )
            return asked
        open_groups = [group for group in groups.values() if not group.cordoned]
        states = await asyncio.gather(*map(self._state, open_groups))
        answered = [state for state in states if not state.silent]
        if not answered:
            raise Refused(
                RefusalCode.NOT_READY,
                "no group that is not cordoned answers; ask again, or ask for one of them",
            )
        least = min(
            answered,
            key=lambda s: (
                s.ticks_per_s // 100,
                s.open_cells // 10_000,
                s.pipelines,
                s.group.group,
            ),
        )
        return least.group.group

    # --- between groups ---------------------------------------------------------------------------

    async def Ask(self, request: pb.AskRequest, context: Context) -> pb.AskResponse:
        try:
            answer = await self._peers.serve(context, "Ask", self._answer(request))
        except Refused as refused:
            # What this group knows is asked for: who asks is not to be sent where a pipeline is now.
            refused.refusal = replace(refused.refusal, pipeline="")
            raise
        failpoint(f"answer-{request.WhichOneof('what')}")
        return answer

    async def _answer(self, request: pb.AskRequest) -> pb.AskResponse:
        process = self._engine.process
        if request.HasField("group") and request.group != self.group:
            raise Refused(
                RefusalCode.NOT_READY,
                f"this is a process of group {self.group}, and group {request.group} is asked, which is reached elsewhere by now",
            )
        if request.HasField("shard") and request.shard != process.shard:
            raise Refused(
                RefusalCode.NOT_HOME, f"this is shard {process.shard}", home=request.shard
            )
        self._engine.check_lease()
        match request.WhichOneof("what"):
            case "where":
                self._need_directory()
                known = process.placement(request.where.pipeline)
                return pb.AskResponse() if known is None else answer_to_pb(known)
            case "groups":
                self._need_directory()
                return pb.AskResponse(groups=pb.GroupsKnown(groups=self._known_groups()))
            case "known":
                self._need_directory()
                await self._engine.ask(m.KnowGroup(object(), GROUP.from_pb(request.known)))
                return answer_to_pb(True)
            case "lives":
                name = request.lives.pipeline
                return answer_to_pb(process.has_heard_of(name) or name in process.membership.moving)
            case "members":
                members = sorted(process.membership.members)
                return pb.AskResponse(members=pb.ShardNumbers(shards=members))
            case "load":
                return pb.AskResponse(load=self._load.state())
            case "piece":
                return answer_to_pb(self._piece(request.piece))
            case "place":
                self._need_directory()
        return answer_to_pb(await self._engine.ask(event_from_pb(request)))

    def _need_directory(self) -> None:
        if self._deployment.group != DIRECTORY_GROUP:
            raise Refused(
                RefusalCode.INVALID,
                f"this is a process of group {self._deployment.group}; the directory is kept by group {DIRECTORY_GROUP}: name "
                "processes of that by LOWMARK_SERVE_DIRECTORY",
            )

    def _known_groups(self) -> list[Any]:
        return [GROUP.to_pb(each) for _, each in sorted(self._engine.process.groups.items())]

    def _piece(self, asked: pb.PieceAsked) -> Piece:
        """A piece of this shard's part, which changes no more once it is at rest."""
        wanted, process = PIECE_WANTED.from_pb(asked), self._engine.process
        key = wanted.pipeline, wanted.version
        process.need_at_rest(*key)
        if key not in self._parts:
            part, given = process.part(*key)
            self._parts[key] = [*in_pieces(part)], given
            while len(self._parts) > MAX_PARTS:
                self._parts.popitem(last=False)
        pieces, given = self._parts[key]
        if not 0 <= wanted.number < len(pieces):
            raise invalid(
                f"pipeline {wanted.pipeline!r} has {len(pieces)} pieces, not {wanted.number}"
            )
        return Piece(pieces[wanted.number], len(pieces), given, process.membership.level)


def _raise(answer: Any, what: str) -> None:
    """Raises Refused for an answer that is none."""
    if isinstance(answer, Refusal):
        raise Refused.of(answer)
    if answer is AWAY:
        raise Refused(
            RefusalCode.NOT_READY,
            f"{what}: the directory does not answer, which group {DIRECTORY_GROUP} keeps; what is registered goes on, ask again when "
            "that is back",
        )
