"""Situations in which min time stands, each planted on a running tracker, with what is to blame.

Nodes that are killed or paused are processes of their own; so is a store. Each situation yields while
it holds. `docs/explain.md` lists them all.
"""

from __future__ import annotations

import json
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import tracker
from tests.client.support import done
from tests.cluster.children import Running
from tests.cluster.redis_server import RedisServer
from tests.waits import HANG_S, until
from tracker.client import Admin, NodeClient, RefusedError
from tracker.client.embedded import EmbeddedTracker
from tracker.client.state_names import name_of
from tracker.core.insight.diagnosis import CauseKind
from tracker.core.model import (
    Cells,
    Edge,
    Heartbeat,
    PipelineSpec,
    SilentFront,
    StagedContribution,
    TickContent,
)
from tracker.core.model.waits import WaitCause, WaitKind

SPEC = PipelineSpec("p", ("parse", "sum"), (Edge("parse", "sum"),), fronts=("jfk",))
SHORT_MS = 300
"""After this silence a node is taken to be stuck."""
Says = dict[str, Any]
"""What the first cause must say beside its kind."""
STRAY = "1 file that no tick has created: stray.csv"
LONG_MS = 3_600_000
"""Never, in a test."""


@dataclass
class World:
    """A tracker, and who takes part; all are ended with it."""

    tracker: EmbeddedTracker
    directory: Path
    stack: ExitStack
    redis: RedisServer | None = None
    silent_after_ms: int = LONG_MS
    expected: Says = field(default_factory=dict)

    def node(self, node_id: str, kind: str = "other") -> NodeClient:
        node = self.tracker.node("p", node_id, kind)
        node.join(HANG_S)
        return node

    def front(self, promise: int = 20, slots: tuple[int, ...] = (3, 4)) -> NodeClient:
        """Front jfk, with an item at each of the slots, promising nothing below `promise`."""
        node = self.node("airport", "front")
        node.join_front("jfk", "parse", HANG_S)
        for slot in slots:
            done(node.commit(TickContent(created=cells(0, slot))))
        self.promise(node, promise)
        return node

    def promise(self, node: NodeClient, slot: int, front: str = "jfk") -> None:
        done(node.commit(TickContent(heartbeats=(Heartbeat(front, slot),))))

    def reader(self, kind: str = "query", slot: int = 3) -> NodeClient:
        """Node etl, which has consumed the item at slot 3 and created none."""
        node = self.node("etl", kind)
        done(node.commit(TickContent(consumed=cells(0, slot))))
        return node

    def process(self, node_id: str, kind: str) -> Running:
        """A node in a process of its own, joined."""
        process = Running(
            "tests.explain.node", self.tracker.target, "p", node_id, kind,
            errors=self.directory / f"{node_id}.log",
        )  # fmt: skip
        self.stack.callback(process.discard)
        process.start()
        process.until_line(0)
        return process

    def front_process(self) -> Running:
        process = self.process("airport", "front")
        tell(process, "front", "jfk", "parse")
        tell(process, "promise", "jfk", 20)
        return process


def tell(process: Running, *command: object) -> None:
    """Returns when it is durable."""
    place = len(process.lines)
    process.tell(json.dumps(command))
    process.until_line(place)


def cells(segment: int, slot: int) -> Cells:
    """One item of a segment at a slot."""
    return Cells.of([(segment, slot, 1000 * (segment + 1) + slot, 1)])


@contextmanager
def world(
    spec: PipelineSpec = SPEC, *, shards: int = 1, with_redis: bool = False
) -> Iterator[World]:
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        redis, store = None, "memory:"
        if with_redis:
            redis = RedisServer(directory / "redis").start()
            stack.callback(redis.discard)
            store = f"{redis.url}?timeout_ms=500"
        running = stack.enter_context(tracker.embedded(shards, store, block_slots=1))
        running.register(spec)
        yield World(running, directory, stack, redis)


@dataclass(frozen=True)
class Situation:
    """What is planted, in the words of docs/explain.md, and the kind of the cause that is named."""

    words: str
    kind: CauseKind
    plant: Callable[[], AbstractContextManager[World]]


SITUATIONS: dict[str, Situation] = {}


def situation(
    words: str, kind: CauseKind, *, silent_after_ms: int = LONG_MS, **made_of: Any
) -> Callable[[Callable[[World], Says]], Any]:
    """Registers what a function plants in a world that is made of this, under its name."""

    def register(plant: Callable[[World], Says]) -> Any:
        @contextmanager
        def planted() -> Iterator[World]:
            with world(**made_of) as here:
                here.silent_after_ms, here.expected = silent_after_ms, plant(here)
                yield here

        SITUATIONS[plant.__name__] = Situation(words, kind, planted)
        return plant

    return register


# --- fronts ---------------------------------------------------------------------------------------


@situation("a declared front was never started", CauseKind.FRONT_MISSING)
def front_missing(here: World) -> Says:
    return {"front": "jfk"}


@situation("the process of a front was killed", CauseKind.FRONT_GONE)
def front_killed(here: World) -> Says:
    here.front_process().kill()
    return {"front": "jfk", "node_id": "airport", "slot": 20}


@situation(
    "the process of a front was stopped by a signal; its connection stays",
    CauseKind.FRONT_SILENT,
    silent_after_ms=SHORT_MS,
)
def front_paused(here: World) -> Says:
    process = here.front_process()
    os.kill(process.pid, signal.SIGSTOP)
    return {"front": "jfk", "node_id": "airport", "slot": 20}


@situation(
    "two fronts; one is at work and has promised less than the other",
    CauseKind.FRONT_WAITS,
    spec=replace(SPEC, fronts=("jfk", "ewr")),
)
def front_behind(here: World) -> Says:
    for name, slot in (("jfk", 20), ("ewr", 90)):
        node = here.node(f"airport-{name}", "front")
        node.join_front(name, "parse", HANG_S)
        here.promise(node, slot, name)
    return {"front": "jfk", "node_id": "airport-jfk", "slot": 20}


@situation(
    "a front labels beyond the horizon, and is refused",
    CauseKind.NODE_REFUSED,
    spec=replace(SPEC, horizon_slots=100),
)
def front_refused(here: World) -> Says:
    front = here.node("airport", "front")
    front.join_front("jfk", "parse", HANG_S)
    here.promise(front, 20)
    try:
        done(front.commit(TickContent(created=cells(0, 5_000))))
    except RefusedError:
        pass
    return {"front": "jfk", "node_id": "airport", "slot": 20}


@situation(
    "the last front was evicted: the pipeline is not complete by that",
    CauseKind.FRONT_EVICTED,
    spec=replace(SPEC, silent_front=SilentFront.EVICT, evict_after_ms=SHORT_MS),
)
def last_front_evicted(here: World) -> Says:
    here.front_process().kill()
    return {"front": "jfk", "node_id": "airport"}


@situation(
    "a silent front was evicted, and the pipeline is declared open: it waits for the next one",
    CauseKind.KEPT_OPEN,
    spec=replace(SPEC, open=True, silent_front=SilentFront.EVICT, evict_after_ms=SHORT_MS),
)
def front_evicted(here: World) -> Says:
    here.front_process().kill()
    return {"detail": "airport was evicted"}


# --- those who consume ----------------------------------------------------------------------------


@situation(
    "a query runs, has read a file that no tick has created, and says so", CauseKind.NODE_WAITS
)
def query_waits(here: World) -> Says:
    here.front()
    query = here.node("etl", "query")
    query.report_waits([WaitCause(WaitKind.UNKNOWN_ITEMS, STRAY, query.segment("parse"), 7)])
    return {
        "node_id": "etl",
        "segment": "parse",
        "slot": 3,
        "wait": "unknown_items",
        "batch": 7,
        "detail": STRAY,
    }


@situation("a query runs, and says that what it would commit is refused", CauseKind.NODE_REFUSED)
def query_says_that_it_is_refused(here: World) -> Says:
    here.front()
    query = here.reader("query")
    query.report_waits([WaitCause(WaitKind.REFUSED, "100000 contributions are staged")])
    return {"node_id": "etl", "slot": 4, "detail": "100000 contributions are staged"}


@situation(
    "a worker that has never consumed is refused",
    CauseKind.NODE_REFUSED,
    spec=replace(SPEC, horizon_slots=100),
)
def first_tick_refused(here: World) -> Says:
    here.front()
    worker = here.node("etl", "local-tracker")
    try:
        done(worker.commit(TickContent(consumed=cells(0, 3), created=cells(1, 5_000))))
    except RefusedError:
        pass
    return {"node_id": "etl", "segment": "parse", "slot": 3}


@situation("a query that reads the segment has ended", CauseKind.NODE_GONE)
def query_stopped(here: World) -> Says:
    here.front()
    here.reader("query").close()
    return {"node_id": "etl", "node_kind": "query", "segment": "parse", "slot": 4}


@situation(
    "a query is connected and commits nothing", CauseKind.NODE_SILENT, silent_after_ms=SHORT_MS
)
def query_hangs(here: World) -> Says:
    here.front()
    here.reader("query")
    return {"node_id": "etl", "segment": "parse", "slot": 4}


@situation("a query is at work on the items", CauseKind.AT_WORK)
def query_works(here: World) -> Says:
    here.front()
    here.reader("query")
    return {"node_id": "etl", "segment": "parse", "slot": 4}


@situation("an eager local tracker was killed, and its spool is gone", CauseKind.NODE_GONE)
def local_tracker_killed(here: World) -> Says:
    here.front()
    process = here.process("host-7", "local-tracker")
    tell(process, "consume", "parse", 3, 1003)
    process.kill()
    return {"node_id": "host-7", "node_kind": "local-tracker", "slot": 4}


@situation(
    "the tasks of a batch have run, and its query was killed before it committed",
    CauseKind.BATCH_STAGED,
)
def batch_staged(here: World) -> Says:
    here.front()
    query = here.reader("query")
    part = StagedContribution(
        "sums", "run", 7, 0, "map", 0, 0, 0, created=Cells.empty(), consumed=cells(0, 4)
    )
    query.stage([part], timeout_s=HANG_S)
    query.close()
    return {"query": "sums", "batch": 7, "node_id": "etl", "slot": 4}


@situation("a worker was retired; what it had taken is waited for", CauseKind.NODE_CLOSED)
def worker_retired(here: World) -> Says:
    here.front()
    here.reader("local-tracker").close()
    here.tracker.admin().retire("p", "etl")
    return {"node_id": "etl", "detail": "retired", "segment": "parse", "slot": 4}


@situation("a node holds time for what it has taken in and not put out", CauseKind.NODE_HOLDS)
def node_holds(here: World) -> Says:
    here.front()
    holding(here)
    return {"node_id": "etl", "detail": "state", "segment": "parse", "slot": 3}


@situation("rows in the state of a query are not emitted yet", CauseKind.NODE_HOLDS)
def state_holds(here: World) -> Says:
    here.front()
    name = name_of(0, 1_792_000_000_000)
    holding(here, name)
    return {"node_id": "etl", "detail": name, "segment": "parse", "slot": 3}


@situation("a node that held time was retired", CauseKind.HOLDER_GONE)
def holder_retired(here: World) -> Says:
    here.front()
    holding(here)
    here.tracker.admin().retire("p", "etl")
    return {"node_id": "etl", "detail": "state", "segment": "parse", "slot": 3}


def holding(here: World, name: str = "state") -> None:
    """A worker has taken the first item, and holds its time."""
    worker = here.node("etl", "local-tracker")
    worker.hold("parse", 3, name, content=TickContent(consumed=cells(0, 3)))


@situation(
    "two read a segment; one has died with what it took, the other goes on",
    CauseKind.NODE_GONE,
    silent_after_ms=SHORT_MS,
)
def one_of_two_workers_died(here: World) -> Says:
    here.front()
    here.reader().close()
    other = here.node("other", "local-tracker")
    # Its step and what it created are one tick: min time has no time to pass the latter.
    done(other.commit(TickContent(consumed=cells(0, 4), created=cells(0, 5))))
    return {"node_id": "etl", "slot": 5}


@situation(
    "a segment is declared, items are created in it, and no query reads it", CauseKind.NO_READER
)
def nobody_reads(here: World) -> Says:
    here.front()
    query = here.reader("query")
    done(query.commit(TickContent(consumed=cells(0, 4), created=cells(1, 4))))
    return {"segment": "sum", "slot": 4}


@situation("a query has joined late, and has not begun to read", CauseKind.NO_READER)
def late_reader(here: World) -> Says:
    here.front()
    here.node("late", "query")
    return {"segment": "parse", "slot": 3, "detail": "joined, and has consumed nothing: late"}


@situation(
    "items go round in a cycle, and never leave it",
    CauseKind.GOES_ROUND,
    spec=replace(SPEC, edges=(Edge("parse", "sum"), Edge("sum", "parse"))),
)
def cycle(here: World) -> Says:
    here.front()
    worker = here.reader("local-tracker")
    done(worker.commit(TickContent(consumed=cells(0, 4), created=cells(1, 4))))
    done(worker.commit(TickContent(consumed=cells(1, 4), created=cells(0, 4))))
    return {"node_id": "etl", "segments": ["parse", "sum"], "slot": 4}


# --- restarts -------------------------------------------------------------------------------------


@situation("a pipeline was restarted, and its front has not come back", CauseKind.AWAITS_REPLAY)
def restarted_front(here: World) -> Says:
    here.front()
    here.tracker.admin().restart("p", 0)
    return {"front": "jfk"}


@situation("a pipeline was restarted, and only its front has come back", CauseKind.AWAITS_REPLAY)
def restarted_reader(here: World) -> Says:
    here.front().close()
    here.reader("query").close()
    here.tracker.admin().restart("p", 0)
    here.front(slots=(6,))
    return {"segment": "parse", "slot": 6}


# --- the tracker ----------------------------------------------------------------------------------


@situation("the process of a shard has died", CauseKind.SHARD_DOWN, shards=3)
def shard_down(here: World) -> Says:
    here.front()
    here.reader("query")
    here.tracker.kill_shard(1)
    return {"shards": [1]}


@situation(
    "the process of a shard lives, and reaches no other one", CauseKind.SHARD_CUT_OFF, shards=3
)
def shard_cut_off(here: World) -> Says:
    front = here.front(slots=())
    _until_all_have_heard_of_it(here.tracker)
    _cut_links(here.tracker, 2)
    here.promise(front, 30)
    return {"shards": [2]}


@situation(
    "the store is paused: writes begin and do not end", CauseKind.STORE_AWAY, with_redis=True
)
def store_away(here: World) -> Says:
    front = here.front()
    assert here.redis is not None
    redis = here.redis
    redis.pause()
    here.stack.callback(redis.go_on)
    front.commit(TickContent(heartbeats=(Heartbeat("jfk", 30),)))
    return {"shards": [0]}


def _until_all_have_heard_of_it(running: EmbeddedTracker) -> None:
    """The node knows that every shard has its front; each process hears that a little later."""
    for address in running.addresses:
        with Admin(address) as admin:
            until(lambda: all(front.settled for front in admin.pipeline("p").state.fronts))


def _cut_links(running: EmbeddedTracker, shard: int) -> None:
    """Ends the links to and from a shard, as a broken network does; nobody dials again."""

    async def cut() -> None:
        for number, server in running.servers.items():
            for other, link in server.parts.peers.items():
                if shard in (number, other):
                    await link.stop()

    running.run(cut())
