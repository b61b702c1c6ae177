"""python -m tests.core.chained_losses FROM:TO: shards lost one after the other, amid all else, by seeded schedules.

Four to six processes, driven by hand, with links that are held back, commits that wait, shards that come and go, and up to all but
one that are lost, also before the others have gone on without the one before. Then all calms down, an operator declares what is still
missed, and judged is: nothing goes back and nothing is announced early (`Judged`), each process keeps its invariants, and all go on
alike (`Chain.goes_on`). Prints the seeds that fail, and how.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from tests import inside
from tests.core.driver import HandNode
from tests.core.judged import Broken, Feeder
from tests.core.schedules import CONFIG, Schedule
from tracker.core.log import DeclareLost, Event, PeerDisconnected, RegisterPipeline, RestartPipeline
from tracker.core.model import Refusal
from tracker.core.model.slots import FOREVER
from tracker.core.process import Process


class Chain(Schedule):
    """One schedule."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.dead: set[int] = set()

    def lose(self) -> None:
        there = [s for s, p in self.cluster.processes.items() if s in p.membership.members]
        if len(there) <= 2:
            return
        shard = self.random.choice(sorted(there))
        self.end(shard)
        self.cluster.stored.pop(shard, None)
        self.cluster.snapshots.pop(shard, None)
        self.dead.add(shard)
        self.declare()

    def end(self, shard: int) -> None:
        self.cluster.crash(shard)
        for other in self.cluster.processes:
            self.cluster.handle(other, PeerDisconnected(shard))

    def declare(self) -> None:
        dead = sorted(self.dead)
        if dead:
            some = dead if self.random.random() < 0.5 else [self.random.choice(dead)]
            self.declares(lambda _: some, self.random.random() < 0.7)

    def declares(self, lost: Callable[[int], list[int]], write_off: bool) -> None:
        """An operator asks one after the other, until one takes it."""
        for shard in self.alive():
            if some := lost(shard):
                answers = self.ask(shard, DeclareLost, tuple(some), write_off, 1_000)
                if not answers or not isinstance(answers[0], Refusal):
                    return

    def is_missed(self, shard: int) -> list[int]:
        """The dead that a process still reckons with."""
        known = self.cluster.processes[shard].membership
        reckons = known.members | {*(known.loss.lost if known.loss else ())}
        return sorted(self.dead & reckons)

    # --- and all goes on --------------------------------------------------------------------------

    def run(self) -> None:
        for _ in range(self.random.randrange(5, 35)):
            self.random.choice(self.amid)()
            self.go(self.random.choice([0, 0, 1, 2, 4]))
        self.lose()
        late = self.amid + [self.lose] * 3 + [self.declare] * 3
        for _ in range(self.random.randrange(5, 45)):
            self.random.choice(late)()
            self.go(self.random.choice([0, 0, 1, 2, 4, 8]))
        self.calm()
        self.goes_on()

    def calm(self) -> None:
        """Nothing is held back any more, nobody dies, and what is dead is declared lost. Who was taken for lost hears that it is."""
        cluster = self.cluster
        cluster.held.clear()
        for _ in range(5):
            cluster.pass_time(CONFIG.retransmit_ms + 1)
            self.go(1)
            self.declares(self.is_missed, True)
            cluster.pass_time(CONFIG.retransmit_ms)
            gone_on = [
                p.membership for p in cluster.processes.values() if p.membership.loss is None
            ]
            for shard in self.alive():
                if any(known.is_lost(shard) for known in gone_on):
                    self.end(shard)
        for _ in range(
            2
        ):  # until newcomers that nobody has begun are given up, and who leaves has left
            cluster.pass_time(CONFIG.join_timeout_ms + 100)
            self.go(1)

    def goes_on(self) -> None:
        """All that are left know the same shards and pipelines, have all of each other's logs, and each pipeline goes on."""
        processes = self.cluster.processes
        for process in processes.values():
            process.validate()
        self.alike("loss", lambda p: p.membership.loss)
        (members,) = self.alike("members", lambda p: tuple(sorted(p.membership.members)))
        if not {*members} <= processes.keys():
            raise Broken(f"members are {members}, and {self.alive()} live")
        for name in self.alike("pipelines", lambda p: tuple(sorted(inside.pipelines(p)))).pop():
            self.alike(name, partial(self.known, name))
        for shard, process in processes.items():
            for other, link in process.links.items():
                behind = other in processes and link.confirmed < inside.home_last(process)
                if link.awaits or behind:
                    raise Broken(f"shard {shard} awaits {other}, or that one has not all of it")
        self.go_on()

    def alike(self, what: str, of: Callable[[Process], Any]) -> set[Any]:
        said = {shard: of(process) for shard, process in self.cluster.processes.items()}
        if len({*map(repr, said.values())}) != 1:
            raise Broken(f"{what} differ: {said}")
        return {*said.values()}

    @staticmethod
    def known(name: str, process: Process) -> tuple[Any, ...]:
        pipeline = inside.pipeline(process, name)
        held = pipeline.held is None
        return pipeline.generation, pipeline.changes, pipeline.spec, held, pipeline.registered

    def settled(self, asked: list[list[Any]]) -> None:
        """All that was asked is answered within half a second, and nothing refused."""
        self.cluster.pass_time(500)
        for request, *what in asked:
            answers = self.cluster.answers(request)
            if not answers or isinstance(answers[0], Refusal):
                raise Broken(f"{what} is answered by {answers}")

    def go_on(self) -> None:
        """Each pipeline begins anew, unless it is complete: a front labels, its item holds min time, and is consumed."""
        cluster = self.cluster
        missing = [
            n for n in self.specs if n not in inside.pipelines(cluster.processes[min(self.alive())])
        ]
        self.settled(
            [self.ask_registrar(name, RegisterPipeline, self.specs[name]) for name in missing]
        )
        names = [
            n for n in self.specs if all(p.min_time < FOREVER // 2 for p in cluster.pipelines(n))
        ]
        for _ in range(2):
            self.settled([self.restart_anew(name) for name in names])
        slots = {name: self.last_front(name) for name in names}
        for node, slot in slots.values():
            node.begin(created=[(0, slot, 99)])
            node.begin(heartbeats={"g": slot + 50})
        self.stands({name: slot for name, (_, slot) in slots.items()})
        for node, slot in slots.values():
            node.begin(consumed=[(0, slot, 99)])
        self.stands({name: slot + 50 for name, (_, slot) in slots.items()})

    def ask_registrar(self, name: str, make: Callable[..., Event], *arguments: Any) -> list[Any]:
        request = f"asked {next(self.numbers)}"
        self.cluster.handle(self.cluster.routing.registrar(name), make(request, *arguments))
        return [request, make, name, arguments]

    def restart_anew(self, name: str) -> list[Any]:
        registrar = self.cluster.processes[self.cluster.routing.registrar(name)]
        pipeline = inside.pipeline(registrar, name)
        unknown = pipeline.held is not None and pipeline.held.from_slot is None
        slot = pipeline.registered.start_slot + 5_000 if unknown else None
        return self.ask_registrar(name, RestartPipeline, name, pipeline.generation, slot, 0)

    def last_front(self, name: str) -> tuple[HandNode, int]:
        pipeline = self.cluster.pipelines(name)[0]
        node = self.cluster.node(pipeline.spec, f"last {name}", "front")
        self.cluster.feeders[node.session] = Feeder(node, (name, pipeline.generation))
        node.begin(joins={"g": 0})
        self.cluster.pass_time(50)
        if not node.grants:
            raise Broken(f"the last front of {name} is granted nothing")
        return node, node.grants[-1].slot

    def stands(self, slots: dict[str, int]) -> None:
        self.cluster.pass_time(50)
        for name, slot in slots.items():
            said = {p.pipeline_min_time(name) for p in self.cluster.processes.values()}
            if said != {slot}:
                raise Broken(f"min time of {name} is {said}, not {slot}")


def failing(seeds: range) -> Iterator[tuple[int, str]]:
    """The seeds whose schedules break something, and what."""
    for seed in seeds:
        try:
            Chain(seed).run()
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            yield (
                seed,
                f"{type(error).__name__} {str(error)[:300]} ({where.name}, line {where.lineno})",
            )


def main(seeds: str) -> int:
    first, last = map(int, seeds.split(":"))
    found = 0
    for seed, why in failing(range(first, last)):
        print(f"seed {seed}: {why}", flush=True)
        found += 1
    print(f"chained losses: {last - first} schedules, {found} failed")
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
