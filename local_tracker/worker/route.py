"""The way from this thread to the local tracker: settings, task and handle in one place."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace

from local_tracker.worker import settings as settings_module
from local_tracker.worker.handle import Handle
from local_tracker.worker.protocol import HandedOver
from local_tracker.worker.settings import EAGER, OFF, TRANSACTIONAL, Settings, require
from local_tracker.worker.starting import endpoint_of, ensure_started
from local_tracker.worker.task import SparkTask, TaskAttempt, current_task
from tracker.core.model import Cells, HoldMove, StagedContribution
from tracker.errors import Code, InvalidError

_MAX_HANDLES = 64
"""Handles that one thread keeps; a worker serves one application, so there are few."""


class _Handles(threading.local):
    """This thread's handles by settings. A forked child makes its own."""

    def __init__(self) -> None:
        self.by_settings: dict[Settings, Handle] = {}
        self.pid = os.getpid()


_handles = _Handles()


@dataclass(frozen=True, slots=True)
class Route:
    """A handle, and the task attempt that acks count for; `task` is None where steps are eager."""

    handle: Handle
    node_id: str
    task: TaskAttempt | None

    def segment_number(self, name: str) -> int:
        return self.handle.segment_number(name)

    def hand_over(
        self, operator: str, created: Cells, consumed: Cells, holds: tuple[HoldMove, ...] = ()
    ) -> None:
        """Hands over what an operator did; returns when it is durable. Raises HandOverError. In a
        task attempt also where that is nothing: the partition was seen whole."""
        if self.task is not None:
            task = self.task
            contribution = StagedContribution(
                task.query, task.run, task.batch, task.execution,
                operator, task.stage, task.partition, task.attempt,
                created, consumed,
            )  # fmt: skip
            self.handle.stage(self.node_id, [HandedOver(uuid.uuid4().hex, contribution)])
        elif len(created) or len(consumed) or holds:
            what = f"the acks of operator {operator!r}"
            self.handle.step(created, consumed, what=what, holds=holds)


def current() -> Route | None:
    """The way for the acks of the running code; None if they are turned off. Raises InvalidError if
    they have nowhere to go."""
    task = current_task()
    settings = settings_module.load(None if task is None else task.local_property)
    if settings.mode == OFF:
        return None
    settings = replace(settings, mode=_mode(settings, task))
    attempt = task.attempt if task is not None and settings.mode == TRANSACTIONAL else None
    return Route(_handle(settings), settings.node_id, attempt)


def relayed(properties: Mapping[str, str]) -> Handle:
    """The local tracker of this host, for code that asks it for min time and acknowledges nothing, such
    as a Spark driver's; properties: those that a task of the query would have. Raises InvalidError."""
    settings = settings_module.load(properties.get)
    return _handle(replace(settings, mode=settings.mode or TRANSACTIONAL))


def _mode(settings: Settings, task: SparkTask | None) -> str:
    in_batch = task is not None and task.attempt is not None
    if settings.mode == TRANSACTIONAL and not in_batch:
        raise InvalidError(
            "mode is transactional, but this code does not run in a micro-batch of a tracked query, "
            "which its acks could be committed with; set LOWMARK_MODE=eager, or off",
            Code.INVALID_SETTINGS,
        )
    if settings.mode:
        return settings.mode
    if task is not None and not in_batch:
        raise InvalidError(
            "this Spark job is not a micro-batch of a tracked query: Spark may run its tasks again, "
            "and nothing says when they count; start a query with tracked.start(...), or set "
            "lowmark.mode to eager (each step counts at once) or off (acks go nowhere)",
            Code.INVALID_SETTINGS,
        )
    return TRANSACTIONAL if in_batch else EAGER


def _handle(settings: Settings) -> Handle:
    require(settings, "pipeline", "node_id", *(() if settings.socket else ("target",)))
    kept = _handles.by_settings
    if _handles.pid != os.getpid():
        kept.clear()
        _handles.pid = os.getpid()
    handle = kept.get(settings)
    if handle is None:
        if len(kept) >= _MAX_HANDLES:
            kept.pop(next(iter(kept))).close()
        where = endpoint_of(settings)
        handle = kept[settings] = (
            Handle(where.socket, settings.pipeline, settings.deadline_s)
            if settings.socket
            else Handle(
                f"unix:{where.socket}", settings.pipeline, settings.deadline_s,
                start=lambda deadline: ensure_started(settings, where, deadline),
            )
        )  # fmt: skip
    return handle
