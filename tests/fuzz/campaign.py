"""Mangled requests by the hundred thousand, to every RPC, those of other processes too.

    python -m tests.fuzz.campaign [--requests 500000] [--seed 0] [--sabotage crash|partial]

Each is handled by the servicers of a tracker of two shards, whose frames and records go through bytes; nothing
goes through sockets. Each call ends with an answer or with a status of docs/errors.md; what is refused, and what
only asks, has left all that the processes have as it was; after every world of requests each process is sound, and
comes back from its log and from its snapshot. One world follows from its number alone: --seed N --requests 1 makes
the first of it again. With --sabotage a fault is planted in the servicers, and the whole must fail.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import sys
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import structlog
from google.protobuf.message import DecodeError

from acker.v1 import node_service_pb2 as node_pb
from acker.v1 import peer_service_pb2 as peer_pb
from acker.v1 import pipeline_service_pb2 as pipeline_pb
from acker.v1 import types_pb2 as pb
from scripts.summary import finish
from tests.fuzz.mangling import mangled
from tests.fuzz.requests import CHANGING, FRAMES, FROM, METHODS
from tests.fuzz.test_ticks import TICKS
from tests.fuzz.wired import SPEC, CallEnded, Context, Peer, Services, Wired, called, stream
from tracker.core.log import JoinNode
from tracker.core.process import LogLost

REQUESTS_PER_WORLD = 40
MAX_SHOWN = 10
ENOUGH_FAILURES = 20
SABOTAGES = ("crash", "partial")
_ATTACH = node_pb.CommitTicksRequest(
    attach=node_pb.Attach(pipeline="p", key=pb.NodeKey(node_id="w", incarnation=2))
)
_TICK = [
    node_pb.CommitTicksRequest(tick=node_pb.NumberedTick(number=2, content=content))
    for content in TICKS
]
EXAMPLES: dict[str, list[Any]] = {
    **{method: [request] for method, request in METHODS.items()},
    "CommitTicks": [_ATTACH, *_TICK],
    "JoinShard": [peer_pb.JoinShardRequest(address="127.0.0.1:9")],
    "Bootstrap": [peer_pb.BootstrapRequest(shard=2)],
    "StandBy": [peer_pb.StandByRequest(address="127.0.0.1:9", speaks=2, release="9.9")],
    "RescaleShards": [pipeline_pb.RescaleShardsRequest(shards=1, wait_ms=0)],
    "FinishUpgrade": [pipeline_pb.FinishUpgradeRequest(level=2)],
    "DeclareLost": [pipeline_pb.DeclareLostRequest(shards=[1], wait_ms=0)],
    "Exchange": FRAMES,
}
"""By RPC what is sent when nothing is mangled."""
OF_THE_SET = ("JoinShard", "RescaleShards", "FinishUpgrade", "DeclareLost")
"""They change which shards there are: in one world of four, so that the others get further."""
MAY_CHANGE = {*CHANGING, "CommitTicks", *OF_THE_SET}
WAITING = {"ResolveUnits", "WaitUntil", "Subscribe"}
STREAMS = {"Subscribe", "CommitTicks"}


@dataclass
class Found:
    """What became of all requests. outcomes: by RPC and status; failures: what must not be."""

    outcomes: Counter[str] = field(default_factory=Counter)
    worlds: int = 0
    restarts: int = 0
    failures: list[str] = field(default_factory=list)

    @property
    def requests(self) -> int:
        return self.outcomes.total()

    def failed(self, where: str) -> None:
        """Notes what has just been raised."""
        text = traceback.format_exc(limit=-6)
        self.failures.append(f"{where}: {text}")
        if len(self.failures) <= MAX_SHOWN:
            print(f"fuzz: {where}:\n{text}", file=sys.stderr, flush=True)


class Asked:
    """A tracker of two shards, whose servicers are asked."""

    def __init__(self, found: Found, choose: random.Random, sabotage: str) -> None:
        self._found, self._choose, self._sabotage = found, choose, sabotage
        self.cluster = Wired()
        home = self.cluster.routing.home("p", "w")
        self.cluster.node(SPEC, "w").commit(created=[(1, 30, 5), (0, 31, 6)])
        self.services = Services(self.cluster, home)
        self._home = home
        self._state, self._joining = self.cluster.state(), self._joining_now()
        self._methods = [name for name in EXAMPLES if name != "Exchange"]
        if choose.randrange(4):
            self._methods = [name for name in self._methods if name not in OF_THE_SET]

    def run(self, count: int) -> None:
        with asyncio.Runner() as runner:
            for _ in range(count):
                self.ask(runner)
        self.cluster.check()
        self._found.restarts += 2 * len(self.cluster.processes)

    def ask(self, runner: Any) -> None:
        """One request."""
        method = self._choose.choice(self._methods)
        kind = type(EXAMPLES[method][0])
        try:
            messages = [
                kind.FromString(mangled(self._choose, self._choose.choice(EXAMPLES[method])))
                for _ in range(1 if method not in STREAMS else self._choose.randrange(1, 3))
            ]
        except DecodeError:
            self._found.outcomes[f"{method} no message"] += 1  # gRPC itself refuses it
            return
        self._crash()
        answer = called(self._call(method, messages), method in WAITING, runner)
        self.cluster.settle()
        refused = isinstance(answer, CallEnded)
        outcome = (
            answer.refusal.code if isinstance(answer, CallEnded) and answer.refusal else "answered"
        )
        self._found.outcomes[f"{method} {outcome}"] += 1
        if refused and self._sabotage == "partial" and self._choose.randrange(50) == 0:
            self.cluster.ask(self._home, JoinNode, "p", f"stray-{self._found.requests}", "other")
        state, joining = self.cluster.state(), self._joining_now()
        # A stream's first ticks may have been taken before what ends it.
        if method not in MAY_CHANGE or (refused and method not in STREAMS):
            # Another process at the address of one that joins is refused until the number of that one is given up.
            gives_up = method == "JoinShard" and joining < self._joining
            assert state == self._state or gives_up, (
                f"{method} was {outcome}, and has changed something"
            )
        self._state, self._joining = state, joining

    def _joining_now(self) -> set[int]:
        """The shards that have a number and have not joined yet."""
        return {*self.cluster.processes[0].membership.joining}

    def _crash(self) -> None:
        if self._sabotage == "crash" and self._choose.randrange(500) == 0:
            raise ZeroDivisionError("planted")

    def _call(self, method: str, messages: list[Any]) -> Any:
        services = self.services
        for servicer in (services.nodes, services.pipelines, services.progress):
            if hasattr(servicer.servicer, method):
                break
        else:
            servicer = services.peers
        if method == "CommitTicks":
            messages = [_ATTACH, *messages]
        given = stream(messages) if method in STREAMS else messages[0]
        return getattr(servicer, method)(given, Context())


def heard(found: Found, choose: random.Random, count: int) -> None:
    """A process to which another one, or somebody in its name, says so many frames: first what it would, then
    what was mangled. One that is refused has changed nothing, which `Peer` holds."""
    peer = Peer(FROM, believed=True)
    first = choose.randrange(len(FRAMES))
    for frame in FRAMES[:first]:
        peer.hear_message(frame)
    try:
        for _ in range(count):
            try:
                data = mangled(choose, choose.choice(FRAMES))
                message = peer_pb.ExchangeRequest.FromString(data)
            except DecodeError:
                found.outcomes["Exchange no message"] += 1
                continue
            taken = peer.hear_message(message)
            found.outcomes[f"Exchange {'taken' if taken else 'invalid'}"] += 1
            peer.settle()
        peer.check_receiver()
        found.restarts += 1
    except LogLost as lost:
        # The one reason for which a process stops by what another one says.
        assert "acknowledged entries were lost" in str(lost)
        found.outcomes["Exchange log lost"] += 1


def world(found: Found, choose: random.Random, count: int, sabotage: str = "") -> None:
    """One of them, with so many requests. Raises what must not be raised."""
    found.worlds += 1
    if choose.randrange(6) == 0:
        heard(found, choose, count)
    else:
        Asked(found, choose, sabotage).run(count)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.campaign")
    parser.add_argument("--requests", type=int, default=500_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sabotage", choices=SABOTAGES, default="")
    given = parser.parse_args(arguments)
    logging.disable(logging.ERROR)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    found, begun, seed, shown = Found(), time.monotonic(), given.seed, 0
    while found.requests < given.requests and len(found.failures) < ENOUGH_FAILURES:
        try:
            count = min(REQUESTS_PER_WORLD, given.requests - found.requests)
            world(found, random.Random(seed), count, given.sabotage)
        except Exception:
            found.failed(f"world {seed}")
        seed += 1
        if found.requests // 50_000 > shown:
            shown = found.requests // 50_000
            print(f"fuzz: {found.requests} requests", flush=True)
    by_method: dict[str, dict[str, int]] = {}
    for name, number in sorted(found.outcomes.items()):
        method, _, outcome = name.partition(" ")
        by_method.setdefault(method, {})[outcome] = number
    never = sorted(set(EXAMPLES) - set(by_method))
    seconds = round(time.monotonic() - begun)
    shown_last = {
        "requests": found.requests, "methods": len(by_method), "worlds": found.worlds,
        "restarts": found.restarts, "failures": len(found.failures), "seed": given.seed,
        "seconds": seconds,
    }  # fmt: skip
    # Few requests do not reach every RPC.
    ok = not found.failures and (given.requests < 10_000 or not never)
    details = {"by_method": by_method, "never": never, "failed": found.failures}
    return finish("fuzz", ok=ok, shown=shown_last, details=details)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
