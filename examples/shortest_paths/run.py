"""Runs tracker, front and workers, kills some of these, and puts the results together."""

from __future__ import annotations

import queue
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from examples.children import Child, Said, free_ports
from examples.shortest_paths.graph import UNREACHED, Graph, Numbers, random_graph
from examples.shortest_paths.pipeline import FRONT, NAME, ROUNDS, SEGMENT, SPEC, Mail, value
from lowmark import Admin, Subscriber
from lowmark.nodes import Cells, Heartbeat, NodeClient, TickContent

WAIT_S = 300.0


@dataclass(frozen=True)
class Size:
    """kills: which worker is killed, and when min time has come to which (time, round)."""

    vertices: int
    edges: int
    searches: int
    workers: int
    kills: tuple[tuple[int, tuple[int, int]], ...]


FULL = Size(20_000, 60_000, 6, 4, ((1, (0, 9)), (3, (2, 20)), (0, (4, 1))))


class ExampleFailed(Exception):
    """The pipeline was not complete in time."""


@dataclass
class Ran:
    """What came of it. found: by time the distances of all vertices."""

    graph: Graph
    starts: list[int]
    kills: int = 0
    rounds: dict[int, int] = field(default_factory=dict)
    """By time the last round that min time stood at."""
    found: list[Numbers] = field(default_factory=list)


def run(root: Path, size: Size, *, early: bool = False) -> Ran:
    """Runs all of it below an empty directory. early: workers wait for no round. Raises ExampleFailed."""
    graph = random_graph(size.vertices, size.edges)
    graph.save(root / "graph.npz")
    ran = Ran(graph, [size.vertices * n // size.searches for n in range(size.searches)])
    target = f"127.0.0.1:{free_ports(1)}"
    said: queue.Queue[Said] = queue.Queue()
    serve = ["tracker.cli", "serve", "--listen", target, "--store", f"sqlite:{root / 'store'}"]
    children = [Child("tracker", serve, root, said)]

    def start(worker: int) -> Child:
        words = [target, str(root), str(worker), str(size.workers), *(["--early"] if early else [])]
        name = f"worker-{worker}-{len(children)}"
        children.append(Child(name, ["examples.shortest_paths.worker", *words], root, said))
        return children[-1]

    try:
        with Admin(target, WAIT_S) as admin:
            admin.register(SPEC)
        mail = Mail(root, size.workers)
        workers = [start(worker) for worker in range(size.workers)]
        _ask(target, mail, ran.starts)
        with Subscriber(target, NAME) as subscriber:
            for worker, (time, number) in () if early else size.kills:
                if not subscriber.wait_until(ROUNDS.slot(time, number), SEGMENT, WAIT_S):
                    raise ExampleFailed(f"round {number} of time {time} was not reached")
                workers[worker].process.kill()
                workers[worker].process.wait()
                workers[worker] = start(worker)
                ran.kills += 1
            if not subscriber.wait_until(ROUNDS.slot(size.searches), SEGMENT, WAIT_S):
                raise ExampleFailed(f"not complete; min time is {subscriber.min_time(SEGMENT)}")
            for child in workers:
                child.process.wait(WAIT_S)
    finally:
        for child in reversed(children):
            child.stop()
    for time in range(size.searches):
        put_together(root, ran, time, size.workers)
    return ran


def _ask(target: str, mail: Mail, starts: list[int]) -> None:
    """The front: all requests at once, each a time; then no more."""
    with NodeClient(target, NAME, "asker") as node:
        node.join()
        node.join_front(FRONT, SEGMENT, WAIT_S)
        for time, start in enumerate(starts):
            slot = ROUNDS.slot(time)
            (message,) = mail.send(slot, "request", np.array([start], np.int64))
            created = Cells.of([(0, slot, value(message), 1)])
            node.commit(TickContent(created=created)).result(WAIT_S)
        last = ROUNDS.slot(len(starts))
        node.commit(TickContent(heartbeats=(Heartbeat(FRONT, last),))).result(WAIT_S)
        node.leave_front(FRONT).result(WAIT_S)


def put_together(root: Path, ran: Ran, time: int, workers: int) -> None:
    """The last thing that each worker knew of a search."""
    found = np.full(ran.graph.vertices, UNREACHED, np.int64)
    last = 0
    for worker in range(workers):
        # One that was killed behind its tick has left what it knew before.
        rounds = {
            int(path.name.split("-")[1]): path
            for path in (root / "states" / str(worker)).glob(f"{time}-*")
        }
        if rounds:
            newest = max(rounds)
            found[worker::workers] = np.frombuffer(rounds[newest].read_bytes(), "<i8")
            last = max(last, newest)
    ran.found.append(found)
    ran.rounds[time] = last
