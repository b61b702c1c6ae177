"""Drives one `Process`: events in, effects out, records to the store in group commits.

Everything runs in one asyncio loop but the writes, which a single thread makes: while one commit is
on its way, what comes meanwhile gathers and goes with the next; in a busy process it gathers longer. A
write that fails is tried again, with nothing acknowledged in between; an owner that has been replaced, or
a state machine that raises, stops the process, since only recovery from the store is sure to be right
then.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import deque
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, islice, takewhile
from typing import Any, Protocol

import structlog

from tracker.core import log as m
from tracker.core.insight.explain import StoreState
from tracker.core.log.records import level_raised_by
from tracker.core.log.sizes import record_bytes
from tracker.core.log.steps import MembershipStep
from tracker.core.model import PipelineSpec, Refusal, RefusalCode, Refused
from tracker.core.model.routing import RoutingTable
from tracker.core.process import LogLost, Process, ProcessConfig
from tracker.core.process.snapshot import ProcessSnapshot
from tracker.service import failpoints
from tracker.service.failpoints import failpoint
from tracker.service.leasing import LeaseKeeper
from tracker.service.log_length import (
    SNAPSHOT_AFTER_DELETION_S,
    SNAPSHOT_AFTER_RECORDS,
    LogLength,
)
from tracker.service.pacing import Pace
from tracker.service.stats import Stats
from tracker.service.store_thread import StoreThread
from tracker.service.tasks import end
from tracker.store import Fenced, LogShortened, Store, StoreDamaged, StoreError
from tracker.wire.storage import (
    record_from_bytes,
    record_to_bytes,
    snapshot_from_bytes,
    snapshot_to_bytes,
)

log = structlog.get_logger(__name__)

MAX_RECORDS_PER_COMMIT = 20_000
MAX_BYTES_PER_COMMIT = 64 * 1024 * 1024
"""Of several records. A Redis server ends the connection by which more than a gibibyte comes at once, and does so at each
attempt."""
MAX_TAKE_UP_S = 2.0
"""How long a call waits, while shards change, until its node can be taken up; then it is refused, and the
node asks again."""
RETRY_FIRST_S = 0.1
RETRY_MOST_S = 1.0
WRITE_LATE_S = 0.02
"""How long a record that nobody waits for is left to go with others. A process whose nodes go on has another group
commit by then."""
FLUSH_AT_STOP_S = 10.0
"""How long a process that stops waits for its last commit; a store that fails cannot hold it."""


class Session(Protocol):
    """A node's stream of ticks, which hears what becomes of them."""

    def attached(self, last_number: int) -> None: ...
    def ended(self, refusal: Refusal) -> None: ...
    def durable(self, number: int) -> None: ...
    def refused(self, number: int, refusal: Refusal) -> None: ...
    def granted(self, grant: m.Grant) -> None: ...
    def changed(self, spec: PipelineSpec) -> None: ...


@dataclass(slots=True)
class Hooks:
    """Where the effects go that are not the engine's own."""

    send: Callable[[int, m.Frame], None]
    announced: Callable[[m.Announced], None]
    changed: Callable[[PipelineSpec], None]
    ended: Callable[[m.PipelineEnded], None]
    units_arrived: Callable[[m.UnitsArrived], None]
    members_changed: Callable[[m.MembersChanged], None]
    left: Callable[[], None]
    stopped: Callable[[BaseException], None]


class Engine:
    """One shard's process, its store, and the loop between them."""

    def __init__(
        self,
        shard: int,
        routing: RoutingTable,
        store: Store,
        epoch: int,
        hooks: Hooks,
        config: ProcessConfig | None = None,
        lease_ms: int = 0,
        snapshot_after_records: int = SNAPSHOT_AFTER_RECORDS,
    ) -> None:
        """`epoch`: of the owner of the store, which this process is; its lease of `lease_ms` is
        renewed as long as it runs (0: it has none)."""
        self.store = store
        self.hooks = hooks
        self.epoch = epoch
        self.stats = Stats()
        self._lease_ms = lease_ms
        self._keeper = (
            LeaseKeeper(store, epoch, lease_ms, self._lease_ended, self.stats) if lease_ms else None
        )
        self._log_length = LogLength(snapshot_after_records)
        self._doubting: asyncio.Task[None] | None = None
        self.process = Process(shard, routing, self.epoch, config)
        self._sessions: dict[Hashable, Session] = {}
        self._answers: dict[Hashable, asyncio.Future[Any]] = {}
        self._unwritten: deque[tuple[int, m.Record]] = deque()
        self._changed: deque[tuple[int, PipelineSpec]] = deque()
        """Pipelines as they are judged here from a record on that is not durable, by its position."""
        self._store_thread = StoreThread("lowmark-store")
        self._pace = Pace()
        self._writing: asyncio.Task[None] | None = None
        self._writing_late: asyncio.TimerHandle | None = None
        self._awaited = 0
        """Position of the last record that somebody waits for; those behind it may be left a while."""
        self._has_committed = asyncio.Event()
        """Set, and replaced, with each group commit. One that is set and stays: the process stops."""
        self._room = asyncio.Event()
        self._room_to_write = asyncio.Event()
        self._takes_up = asyncio.Event()
        self._write_began_ns: int | None = None
        self._store_error = ""
        self._wake: asyncio.TimerHandle | None = None
        self._stopped = False
        self._loop = asyncio.get_running_loop()

    async def start(self) -> None:
        """Recovers from the store. Raises StoreError if that cannot be read, LogLost if records are
        missing from it."""
        if self._keeper is not None:
            await asyncio.to_thread(self._keeper.start)
        snapshot, records, level = await self._store_thread.call(self._load)
        self._log_length.wrote(len(records), 0)
        known = level if records else 0
        self._carry_out(self.process.recover(snapshot, records, time.monotonic_ns(), known))
        if self.process.membership.level < self.process.speaks:
            log.info(
                "upgrade_not_finished",
                shard=self.process.shard,
                level=self.process.membership.level,
                speaks=self.process.speaks,
                advice="the release before can take this one's place again, until lowmark shards --finish-upgrade",
            )
        if any(_deletes(record) for _, record in records):
            self._want_snapshot()
        if snapshot is None and not records:
            await self._write_snapshot()  # so that the store knows with how many shards it began
        log.info("recovered", shard=self.process.shard, epoch=self.epoch, records=len(records))

    def _load(self) -> tuple[ProcessSnapshot | None, list[tuple[int, m.Record]], int]:
        """The snapshot, the records after it, and the feature level that it takes to read them."""
        stored = self.store.load(self.epoch)
        at = "snapshot"
        try:
            snapshot = snapshot_from_bytes(stored.snapshot[1]) if stored.snapshot else None
            records = []
            for position, data in stored.records:
                at = f"record {position}"
                records.append((position, record_from_bytes(data)))
        except Refused as refused:
            raise StoreError(
                f"{at} of shard {self.process.shard} is damaged: {refused}; restore the store from a "
                "backup"
            ) from refused
        return snapshot, records, stored.format

    def _lease_ended(self, error: BaseException) -> None:
        """Stops the process; called in the keeper's thread."""
        with suppress(RuntimeError):  # the loop is gone, and with it all that could go wrong
            self._loop.call_soon_threadsafe(self.fail, error)

    @property
    def lease_left_s(self) -> float | None:
        """For how long it is certain that nobody else owns the shard; None without a lease."""
        return None if self._keeper is None else self._keeper.left_s

    def check_lease(self) -> None:
        """Raises Refused(NOT_READY) while another process may own the shard. Anybody may report what is
        durable; but that nothing more is, only the owner knows."""
        if self._keeper is not None and not self._keeper.held:
            raise Refused(
                RefusalCode.NOT_READY,
                f"shard {self.process.shard} has not renewed its lease, and may have another owner "
                "by now; ask another process, or again",
            )

    def _doubt(self, error: LogLost) -> None:
        """Another shard knows more of this one's log than there is here. Either that was lost, or
        this process has been replaced and has not heard of it: the store knows."""
        self._stopped = True
        self.dismiss()

        async def find_out() -> None:
            why: BaseException | None = None
            while why is None:
                try:
                    await asyncio.to_thread(self.store.renew, self.epoch, self._lease_ms)
                    why = error
                except (Fenced, LogShortened, StoreDamaged) as certain:
                    why = certain
                except StoreError as unknown:
                    log.warning("owner_unknown", shard=self.process.shard, reason=str(unknown))
                    await asyncio.sleep(RETRY_MOST_S)
            self._stopped = False
            self.fail(why)

        self._doubting = self._loop.create_task(find_out())

    # --- events -----------------------------------------------------------------------------------

    def post(self, event: m.Event) -> None:
        """Hands the process an event, and carries out what it answers."""
        if self._stopped:
            return
        try:
            if isinstance(event, m.Committed):
                failpoint("apply-before")
            effects = self.process.handle(event, time.monotonic_ns(), time.time_ns() // 10**6)
            if isinstance(event, m.Committed):
                failpoint("apply-after")
        except LogLost as error:
            self._doubt(error)
            return
        except Exception as error:
            self.fail(error)
            return
        self._carry_out(effects)

    async def ask(self, event: Any) -> Any:
        """Posts an event that has a request; returns the answer. Raises Refused. What has to wait because
        shards are changing is asked for again when they have."""
        answer = await self._ask(event)
        waits = isinstance(answer, Refusal) and answer.code is RefusalCode.NOT_READY
        if waits and not self._takes_up.is_set():
            await self.taken_up()
            answer = await self._ask(event)
        if isinstance(answer, Refusal):
            raise _refused(answer)
        return answer

    @property
    def elsewhere(self) -> int:
        """The shard to ask when this process stops: the sequencer, which leaves last; -1, any other, if it is this one."""
        sequencer = self.process.membership.sequencer
        return -1 if sequencer == self.process.shard else sequencer

    @property
    def _stopping(self) -> Refusal:
        return Refusal(
            RefusalCode.NOT_READY,
            f"shard {self.process.shard} stops; ask it again when it is back, or another",
            self.elsewhere,
        )

    async def _ask(self, event: Any) -> Any:
        if self._stopped:
            raise _refused(self._stopping)
        future = self._loop.create_future()
        self._answers[event.request] = future
        try:
            self.post(event)
            return await future
        finally:
            self._answers.pop(event.request, None)

    async def taken_up(self) -> None:
        """Returns when nodes that are at home here may be taken up, or after a while: no sooner could one
        go on that has come because shards are changing."""
        if not self._takes_up.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(MAX_TAKE_UP_S):
                    await self._takes_up.wait()

    async def room(self) -> None:
        """Returns when more ticks may be posted: back-pressure for nodes, while the store or another
        shard is behind."""
        if not self._room.is_set():
            await self._room.wait()

    async def room_to_write(self) -> None:
        """Returns when more frames may be posted: back-pressure for other shards, while the store is
        behind. What other shards confirm must get through even when they are behind."""
        await self._room_to_write.wait()

    def add_session(self, name: Hashable, session: Session) -> None:
        self._sessions[name] = session

    def remove_session(self, name: Hashable) -> None:
        if self._sessions.pop(name, None) is not None:
            self.post(m.DetachSession(name))

    def fail(self, error: BaseException) -> None:
        """Stops for good: what was not durable is forgotten, as in a crash."""
        if not self._stopped:
            self._stopped = True
            log.error("stopped", shard=self.process.shard, reason=str(error), exc_info=error)
            self.dismiss()
            self.hooks.stopped(error)

    def dismiss(self) -> None:
        """Tells sessions and whoever waits for an answer that this process stops."""
        self._takes_up.set()
        self._has_committed.set()
        for session in list(self._sessions.values()):
            session.ended(self._stopping)
        for future in self._answers.values():
            if not future.done():
                future.set_result(self._stopping)

    # --- effects ----------------------------------------------------------------------------------

    def _carry_out(self, effects: list[m.Effect]) -> None:
        # Subscribers first: streams are written in the order in which they are woken.
        for effect in effects:
            if isinstance(effect, m.Announced):
                failpoint("announce-before")
                self.hooks.announced(effect)
        for effect in effects:
            match effect:
                case m.Append(position, record, can_wait):
                    self._unwritten.append((position, record))
                    if not can_wait:
                        self._awaited = position
                    failpoint("append")
                    if (spec := _judged_from(record)) is not None:
                        self._changed.append((position, spec))
                    if failpoints.watches_steps and _is_step(record):
                        failpoint("step-append")
                case m.TicksDurable(session, number):
                    failpoint("acknowledge-before")
                    if (known := self._sessions.get(session)) is not None:
                        known.durable(number)
                case m.Send(shard, frame):
                    self.hooks.send(shard, frame)
                case m.WakeAt(now_ns):
                    self._wake_at(now_ns)
                case m.Answer(request, result):
                    future = self._answers.get(request)
                    if future is not None and not future.done():
                        future.set_result(result)
                case m.UnitsArrived():
                    self.hooks.units_arrived(effect)
                case m.PipelineEnded():
                    self.hooks.ended(effect)
                    self._want_snapshot()
                case m.MembersChanged():
                    self.hooks.members_changed(effect)
                case m.LeftTracker():
                    self.hooks.left()
                case m.SessionAttached() | m.SessionRefused() | m.TickRefused() | m.FrontGranted():
                    self._tell_session(effect)
        self._write_in_time()
        self._set_room()

    def _tell_session(
        self, effect: m.SessionAttached | m.SessionRefused | m.TickRefused | m.FrontGranted
    ) -> None:
        if (session := self._sessions.get(effect.session)) is None:
            return
        match effect:
            case m.SessionAttached():
                session.attached(effect.last_number)
            case m.SessionRefused():
                session.ended(effect.refusal)
            case m.TickRefused():
                session.refused(effect.number, effect.refusal)
            case m.FrontGranted():
                session.granted(effect.grant)

    def _tell_changed(self, position: int) -> None:
        """Nodes and subscribers hear what a pipeline has become, once it is durable that it is judged so here."""
        while self._changed and self._changed[0][0] <= position:
            _, spec = self._changed.popleft()
            for session in self._sessions.values():
                session.changed(spec)
            self.hooks.changed(spec)

    def _set_room(self) -> None:
        _set(self._room_to_write, not self.process.is_behind)
        _set(self._takes_up, self.process.takes_up_nodes)
        _set(self._room, self.process.takes_ticks)

    def _wake_at(self, now_ns: int) -> None:
        if self._wake is not None:
            self._wake.cancel()
        delay_s = max(0, now_ns - time.monotonic_ns()) / 1e9
        self._wake = self._loop.call_later(delay_s, self.post, m.Wake())

    # --- group commit -----------------------------------------------------------------------------

    @property
    def _is_awaited(self) -> bool:
        """Whether somebody waits for what is not written."""
        return bool(self._unwritten) and self._unwritten[0][0] <= self._awaited

    def _write_in_time(self) -> None:
        """Begins to write what somebody waits for; anything else a little later."""
        if not self._unwritten or self._writing is not None or self._stopped:
            return
        if self._is_awaited:
            self._writing = self._loop.create_task(self._write_all())
        elif self._writing_late is None:
            self._writing_late = self._loop.call_later(WRITE_LATE_S, self._write_now)

    def _write_now(self) -> None:
        """Begins to write all that is appended by now."""
        if self._writing_late is not None:
            self._writing_late.cancel()
            self._writing_late = None
        self._awaited = max(self._awaited, self.process.position)
        self._write_in_time()

    async def written(self) -> None:
        """Returns when all that is appended by now is durable. Raises Refused(NOT_READY) where the process stops before."""
        position = self.process.position
        self._write_now()
        while self.process.committed < position:
            if self._stopped or self._has_committed.is_set():
                raise _refused(self._stopping)
            await self._has_committed.wait()

    async def _write_all(self) -> None:
        """Writes until nothing is left that anybody waits for: one call of the store for all that has gathered."""
        try:
            while self._is_awaited and not self._stopped:
                if pause_s := self._pace.pause_s():
                    await asyncio.sleep(pause_s)
                batch = self._next_batch()
                await self._write(batch)
                if not self._stopped:
                    self.post(m.Committed(batch[-1][0]))
                    self._tell_changed(batch[-1][0])
                    self._has_committed.set()
                    self._has_committed = asyncio.Event()
                    await self._snapshot_if_due()
            await self._snapshot_if_due()
        except Exception as error:
            self.fail(error)
        finally:
            self._writing = None
        self._write_in_time()

    def _next_batch(self) -> list[tuple[int, m.Record]]:
        """What one call of the store takes of what has gathered: one record at least."""
        unwritten = self._unwritten
        count = min(len(unwritten), MAX_RECORDS_PER_COMMIT)
        if self.process.backlog_bytes > MAX_BYTES_PER_COMMIT:  # rarely: each is looked at then
            sizes = accumulate(record_bytes(record) for _, record in islice(unwritten, count))
            count = max(1, sum(1 for _ in takewhile(MAX_BYTES_PER_COMMIT.__ge__, sizes)))
        return [unwritten.popleft() for _ in range(count)]

    @property
    def store_state(self) -> StoreState:
        """How long the write under way has lasted, and why its last attempt failed, if it did."""
        if self._write_began_ns is None:
            return StoreState()
        waiting_ms = (time.monotonic_ns() - self._write_began_ns) // 1_000_000
        return StoreState(waiting_ms, self._store_error)

    async def _write(self, batch: list[tuple[int, m.Record]]) -> None:
        delay_s = RETRY_FIRST_S
        self._write_began_ns = time.monotonic_ns()
        while not self._stopped:
            start = time.monotonic()
            try:
                size = await self._store_thread.call(partial(self._commit, batch))
            except (Fenced, LogShortened, StoreDamaged):
                raise
            except StoreError as error:
                self._store_error = str(error)
                self.stats.store_failures["commit"] += 1
                log.error("store_write_failed", reason=str(error), retry_in_s=delay_s)
                await asyncio.sleep(delay_s)
                delay_s = min(2 * delay_s, RETRY_MOST_S)
            else:
                self._write_began_ns, self._store_error = None, ""
                self.stats.commits.observe(time.monotonic() - start)
                self.stats.committed_records += len(batch)
                self.stats.committed_bytes += size
                self._log_length.wrote(len(batch), size)
                return

    def _commit(self, batch: list[tuple[int, m.Record]]) -> int:
        encoded = [(position, record_to_bytes(record)) for position, record in batch]
        raised = max(level_raised_by(record) for _, record in batch)
        failpoint("sync-before")
        self.store.commit(self.epoch, encoded, max(raised, self.process.membership.level))
        failpoint("sync-after")
        return sum(len(data) for _, data in encoded)

    def _want_snapshot(self) -> None:
        """What is kept of a deleted pipeline goes with a snapshot, soon."""
        self._log_length.want_snapshot(self._loop.time())
        self._loop.call_later(SNAPSHOT_AFTER_DELETION_S, self._snapshot_in_time)

    def _snapshot_in_time(self) -> None:
        """Begins to write a snapshot if one is due, though nobody waits for a record."""
        if self._writing is None and not self._stopped:
            self._writing = self._loop.create_task(self._write_all())

    async def _snapshot_if_due(self) -> None:
        if not self._stopped and self._log_length.is_due(self._loop.time()):
            await self.write_snapshot()

    async def write_snapshot(self) -> None:
        """Writes a snapshot, and lets the store drop the records that it stands for; or goes on without."""
        is_wanted = self._log_length.is_wanted
        try:
            await self._write_snapshot()
        except (Fenced, LogShortened, StoreDamaged):
            raise
        except StoreError as error:
            self.stats.store_failures["snapshot"] += 1
            log.error("snapshot_failed", reason=str(error))
            if is_wanted:  # else another one is due when the log has grown again
                self._want_snapshot()

    async def _write_snapshot(self) -> None:
        """Raises StoreError."""
        self._log_length.begin()
        snapshot, level = self.process.snapshot(), self.process.membership.level

        def write() -> None:
            data = snapshot_to_bytes(snapshot)
            self._log_length.wrote_snapshot(len(data))
            failpoint("snapshot-before")
            self.store.write_snapshot(self.epoch, snapshot.position, data, level)
            failpoint("snapshot-after")

        await self._store_thread.call(write)
        self.stats.snapshots += 1

    async def stop(self, *, release: bool = True) -> None:
        """Writes what has gathered, ends the lease (unless as in a crash), and closes the store."""
        self._awaited = sys.maxsize  # also what is still to come
        self._write_in_time()
        if self._writing is not None and not self._stopped:
            await asyncio.wait([self._writing], timeout=FLUSH_AT_STOP_S)
            if self._writing is not None:
                log.error("not_flushed", shard=self.process.shard, waited_s=FLUSH_AT_STOP_S)
        self._stopped = True
        for timer in (self._wake, self._writing_late):
            if timer is not None:
                timer.cancel()
        await end(self._writing, self._doubting)
        if self._keeper is not None:
            await asyncio.to_thread(partial(self._keeper.stop, release=release))
        await self._store_thread.call(self.store.close)
        self._store_thread.end()


def _refused(refusal: Refusal) -> Refused:
    return Refused.of(refusal)


def _judged_from(record: m.Record) -> PipelineSpec | None:
    """What a pipeline has become whose ticks are judged so from this record on; None if it is none of these."""
    if not isinstance(record, m.HomeEntry) or not isinstance(record.entry, m.PipelineChanged):
        return None
    return record.entry.spec if record.entry.activated else None


def _is_step(record: m.Record) -> bool:
    return isinstance(record, m.HomeEntry) and isinstance(record.entry, MembershipStep)


def _deletes(record: m.Record) -> bool:
    """Whether a pipeline was deleted by it, here or elsewhere."""
    match record:
        case m.HomeEntry():
            return isinstance(record.entry, m.PipelineDeleted)
        case m.ReceivedEntries():
            return any(isinstance(entry, m.PipelineDeleted) for entry in record.entries)
    return False


def _set(event: asyncio.Event, value: bool) -> None:
    (event.set if value else event.clear)()
