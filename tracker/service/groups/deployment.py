"""The other groups, as one process knows them: who they are, how they are asked, and where a pipeline lives.

The directory says which groups there are, and where a name belongs. Where a pipeline *lives*, each group knows by itself: so it
is found while the directory is away.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import grpc
import structlog

from acker.v1 import group_service_pb2 as pb
from acker.v1 import group_service_pb2_grpc as group_grpc
from tracker.client.connection import AsyncConnection, SecureTarget
from tracker.client.credentials import Credentials
from tracker.core.model import Refusal, RefusalCode, Refused
from tracker.core.model.placements import DIRECTORY_GROUP, Group, Placement
from tracker.core.moving.driver import AWAY, Ask, Where
from tracker.errors import LowmarkError, RefusedError
from tracker.service.engine import Engine
from tracker.service.failpoints import failpoint
from tracker.service.tasks import end
from tracker.wire.groups import answer_from_pb, ask_to_pb

log = structlog.get_logger(__name__)

ASK_TIMEOUT_S = 5.0
"""How long another group may take to answer one question."""
LOCATE_TIMEOUT_S = 1.0
"""... and whether a pipeline lives there."""
LOOK_INTERVAL_S = 1.0
"""How often a process looks which groups there are."""
MAX_LOCATED = 10_000
"""Pipelines of other groups that a process remembers the group of, those asked for last."""


class _Located:
    """Where one pipeline was found last, and who asks for it: one at a time, and for all who came before he began."""

    def __init__(self) -> None:
        self.group: int | None = None
        """None where it was in none."""
        self.refusal: Refusal | None = None
        """Why that is not known, if it is not."""
        self.asking = asyncio.Lock()
        self.begun = self.answered = 0
        """How often it was asked, and the last question that was answered."""


class Deployment:
    """The groups beside the one that this process is of. Without a directory there are none."""

    def __init__(
        self,
        group: int,
        directory: tuple[str, ...],
        engine: Engine,
        addresses: Mapping[int, str],
        credentials: Credentials,
    ) -> None:
        """directory: host:port of processes of the directory's group, as they are reached; empty in that group itself.
        addresses: of the own group's shards."""
        self.group, self.engine = group, engine
        self._directory, self._addresses, self._credentials = directory, addresses, credentials
        self._connections: dict[int, tuple[tuple[str, ...], AsyncConnection]] = {}
        self._closing: set[asyncio.Future[None]] = set()
        """Connections to where a group was reached before."""
        self._heard: dict[int, Group] = {}
        """What the directory has said last, where that is another group."""
        self.directory_answers = True
        """Whether the directory has answered when it was asked last."""
        self._located: OrderedDict[str, _Located] = OrderedDict()
        self._looking: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._looking = asyncio.get_running_loop().create_task(self._look())

    async def stop(self) -> None:
        await end(self._looking, *self._closing)
        await asyncio.gather(*(each.close() for _, each in self._connections.values()))
        self._connections.clear()

    # --- who there is -----------------------------------------------------------------------------

    async def _look(self) -> None:
        """Makes the own group known, where this process leads it, and looks which others there are."""
        while True:
            try:
                if self.engine.process.membership.sequencer == self.engine.process.shard:
                    await self._make_known()
                await self.look()
            except Exception:
                log.exception("groups_not_known")
            await asyncio.sleep(LOOK_INTERVAL_S)

    @property
    def groups(self) -> Mapping[int, Group]:
        """All of them, also the own one, as they were heard of last. Every shard of the directory's group knows them by itself."""
        return self.engine.process.groups if self.group == DIRECTORY_GROUP else self._heard

    async def look(self, timeout_s: float = ASK_TIMEOUT_S) -> Mapping[int, Group]:
        """All groups, as the directory knows them now; as it did before, where it does not answer."""
        if self.group != DIRECTORY_GROUP:
            found = await self.ask(Ask(DIRECTORY_GROUP, None), timeout_s)
            self.directory_answers = isinstance(found, tuple)
            if isinstance(found, tuple):
                self._heard = {each.group: each for each in found}
        return self.groups

    async def _make_known(self) -> None:
        """Tells the directory where the own group is reached, where that is new. A tracker by itself is no group: it becomes one
        when another comes."""
        addresses = self.targets(self.group)
        known = self.groups.get(self.group)
        if known is not None and known.addresses == addresses:
            return
        if self.group == DIRECTORY_GROUP and not self.engine.process.groups:
            return
        await self.ask(Ask(DIRECTORY_GROUP, Group(self.group, addresses)))

    @property
    def others(self) -> list[int]:
        """The numbers of the other groups."""
        return sorted(self.groups.keys() - {self.group})

    @property
    def is_alone(self) -> bool:
        """Whether no other group is known, or could be."""
        return not self._directory and not self.others

    def targets(self, group: int) -> tuple[str, ...]:
        """Where a group is reached; nothing where that is not known."""
        if group == self.group:
            return tuple(sorted({*self._addresses.values()}))
        if group == DIRECTORY_GROUP and self._directory:
            return self._directory
        known = self.groups.get(group)
        return () if known is None else known.addresses

    def elsewhere(self) -> list[str]:
        """Where processes of the other groups are reached."""
        return [address for group in self.others for address in self.targets(group)]

    def reached(self) -> list[str]:
        """Where processes of any group are reached: who speaks from there may speak for a group."""
        known = [address for each in self.groups.values() for address in each.addresses]
        return [*self._addresses.values(), *self._directory, *known]

    # --- asking -----------------------------------------------------------------------------------

    async def ask(self, ask: Ask, timeout_s: float = ASK_TIMEOUT_S) -> Any:
        """What the driver of a move asks, and what it is told. what: None for the groups that there are."""
        what = ask.what
        request = (
            pb.AskRequest(groups=pb.NothingAsked()) if what is None else ask_to_pb(what, ask.shard)
        )
        response = await self.say(ask.group, request, timeout_s)
        return answer_from_pb(response) if isinstance(response, pb.AskResponse) else response

    async def say(
        self, group: int, request: pb.AskRequest, timeout_s: float = ASK_TIMEOUT_S
    ) -> Any:
        """A response, a `Refusal`, or AWAY."""
        connection = self._connection(group)
        if connection is None:
            return AWAY
        request.group = group
        failpoint(f"ask-{request.WhichOneof('what')}")
        try:
            answer, _ = await connection.ask(
                lambda channel: group_grpc.GroupServiceStub(channel).Ask,
                request, timeout_s, timeout_s, retry_not_ready=False,
            )  # fmt: skip
            return answer
        except RefusedError as refused:
            return refused.refusal
        except (LowmarkError, grpc.RpcError):
            return AWAY

    def _connection(self, group: int) -> AsyncConnection | None:
        targets = self.targets(group)
        known = self._connections.get(group)
        if known is not None and known[0] == targets:
            return known[1]
        if not targets:
            return None
        if known is not None:
            # Whoever waits for an answer there is not to be taken for one who was cancelled himself.
            closing = asyncio.ensure_future(known[1].close(2 * ASK_TIMEOUT_S))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
        made = AsyncConnection(SecureTarget(targets, self._credentials))
        made.of_one_group = True
        self._connections[group] = targets, made
        return made

    # --- where pipelines live ---------------------------------------------------------------------

    async def locate(self, pipeline: str) -> str:
        """host:port of a process of the group in which a pipeline lives that is not here; nothing where it lives nowhere. Raises
        Refused(NOT_READY) where nobody who knows answers: that is no reason to give it up."""
        if self.is_alone:
            return ""
        known = self._located.setdefault(pipeline, _Located())
        self._located.move_to_end(pipeline)
        if len(self._located) > MAX_LOCATED:
            self._located.popitem(last=False)
        before = known.begun
        async with known.asking:
            if known.answered <= before:  # else it was asked and answered since
                known.begun = number = known.begun + 1
                try:
                    known.group, known.refusal = await self._found(known.group, pipeline), None
                except Refused as refused:
                    known.group, known.refusal = None, refused.refusal
                known.answered = number
        if known.refusal is not None:
            raise Refused.of(known.refusal)
        return "" if known.group is None else self.address(known.group)

    async def _found(self, before: int | None, pipeline: str) -> int | None:
        """The group in which it lives; it may have moved since it was in the one before."""
        if before is not None and await self._lives(before, pipeline) is not None:
            return before
        return await self._find(pipeline)

    def address(self, group: int) -> str:
        """One of its processes; nothing where none is known."""
        targets = self.targets(group)
        return targets[int(time.monotonic()) % len(targets)] if targets else ""

    async def _find(self, pipeline: str) -> int | None:
        """The first group that has it. Where none says so, it may be on its way, or in one that does not answer: the directory knows
        what lives nowhere."""
        others = self.others or ([DIRECTORY_GROUP] if self.group != DIRECTORY_GROUP else [])
        asking = [asyncio.ensure_future(self._lives(group, pipeline)) for group in others]
        try:
            for answer in asyncio.as_completed(asking):
                if (group := await answer) is not None:
                    return group
        finally:
            for asked in asking:
                asked.cancel()
        placement = await self.ask(Ask(DIRECTORY_GROUP, Where(pipeline)), LOCATE_TIMEOUT_S)
        if placement is None:
            return None
        group = placement.group if isinstance(placement, Placement) else self.group
        if group != self.group and not self.targets(group):
            await self.look()
        if group == self.group or not self.targets(group):
            raise Refused(
                RefusalCode.NOT_READY,
                f"pipeline {pipeline!r} is in no group that answers, and the directory, which group {DIRECTORY_GROUP} keeps, does "
                "not say where it is; ask again",
            )
        return group

    async def _lives(self, group: int, pipeline: str) -> int | None:
        request = pb.AskRequest(lives=pb.PipelineAsked(pipeline=pipeline))
        answer = await self.say(group, request, LOCATE_TIMEOUT_S)
        return group if isinstance(answer, pb.AskResponse) and answer.said.yes else None

    def forget(self, pipeline: str) -> None:
        """What was known of where it lives may be so no more."""
        self._located.pop(pipeline, None)
