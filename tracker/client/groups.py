"""The groups of a deployment, and moving a pipeline from one to another."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from acker.v1 import group_service_pb2 as group_pb
from tracker.core.model import Refusal, RefusalCode
from tracker.errors import RefusedError, UnavailableError

ASK_MS = 2_000
"""How long one call waits for the end of a move; then it is asked again. Well below what a call may take, or whoever asks
hears that nobody answers, of a process that is about to say how far it is."""


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """A group, and what it has to do. addresses: host:port of its processes; cordoned: it is given no new pipelines; silent: why
    it does not answer, or is not known whole; ticks_per_s, open_cells, memory_bytes: of all of its shards that have answered;
    leaving: pipelines on their way to other groups; arriving: those on their way here."""

    group: int
    addresses: tuple[str, ...]
    cordoned: bool
    silent: str
    shards: int
    pipelines: int
    ticks_per_s: float
    open_cells: int
    memory_bytes: int
    leaving: tuple[str, ...]
    arriving: tuple[str, ...]


def group_info(state: group_pb.GroupState) -> GroupInfo:
    return GroupInfo(
        state.group.group, tuple(state.group.addresses), state.group.cordoned, state.silent, state.shards,
        state.pipelines, state.ticks_per_s, state.open_cells, state.memory_bytes, tuple(state.leaving),
        tuple(state.arriving),
    )  # fmt: skip


def move(call: Callable[..., Any], pipeline: str, group: int, timeout_s: float) -> None:
    """As `Admin.move`; call: makes a call of the service of groups."""
    deadline = time.monotonic() + timeout_s
    while True:
        left_s = max(0.0, deadline - time.monotonic())
        wait_ms = min(ASK_MS, int(left_s * 1_000))
        request = group_pb.MovePipelineRequest(pipeline=pipeline, group=group, wait_ms=wait_ms)
        answer = call(lambda stub: stub.MovePipeline, request)
        if answer.over:
            break
        if not left_s:
            raise UnavailableError(
                f"pipeline {pipeline!r} is on its way to group {group}, and was not there within {timeout_s:g} s; it goes on by itself"
            )
    if answer.group != group or answer.given_up:
        why = answer.given_up or f"it is in group {answer.group}"
        message = f"pipeline {pipeline!r} was not moved to group {group}: {why}"
        raise RefusedError(Refusal(RefusalCode.CONFLICT, message))
