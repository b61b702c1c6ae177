"""Writers of a sink, each killed: python -m tests.consumers.barrier.killed KIND WHERE MOMENT KILLS

Each is a fork of this process, which has loaded what they need. MOMENT: `any`, somewhere while it works, or `steps`,
behind each call of each step of its kind's in turn. A line is printed for each: the position that the writer was last
told to have reached.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.consumers.barrier.conformance import BARRIER, BUFFER, ROWS_A_BATCH, batch
from tests.consumers.barrier.places import SINKS

PRODUCER_STEPS = {
    "init_transactions": 1, "begin_transaction": 4, "produce": 20, "commit_transaction": 4,
}  # fmt: skip
TABLE_STEPS = {
    "create": 1, "transaction_version": 5, "create_write_transaction": 1, "write_deltalake": 4,
}  # fmt: skip
"""How often each is called at least until the fourth write is done; the first of them open the sink."""


class Die:
    """Kills this process behind the call that it is the turn of."""

    def __init__(self, calls: int) -> None:
        self._left = calls

    def behind(self, step: Callable[..., Any]) -> Callable[..., Any]:
        def stepped(*args: Any, **options: Any) -> Any:
            result = step(*args, **options)
            self._left -= 1
            if self._left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return stepped


def plant_kafka(step: str, die: Die) -> None:
    import confluent_kafka

    fatal = {step: die.behind(getattr(confluent_kafka.Producer, step))}
    confluent_kafka.Producer = type("Producer", (confluent_kafka.Producer,), fatal)


def plant_delta(step: str, die: Die) -> None:
    import deltalake

    owner = deltalake if hasattr(deltalake, step) else deltalake.DeltaTable
    setattr(owner, step, die.behind(getattr(owner, step)))


@dataclass(frozen=True)
class Steps:
    """modules: loaded before the first fork, and nothing of them used; plant: has a step die."""

    modules: tuple[str, ...]
    calls: Mapping[str, int] = field(default_factory=dict)
    plant: Callable[[str, Die], None] | None = None

    @property
    def ends(self) -> list[tuple[str, int]]:
        """Behind what a writer may die: a step, and which of its calls."""
        return [(step, call + 1) for step, calls in self.calls.items() for call in range(calls)]


SEED = 19
STEPS = {
    "sqlite": Steps(("tracker.consumers.barrier.sqlite",)),
    "postgres": Steps(("psycopg", "tracker.consumers.barrier.postgres")),
    "kafka": Steps(
        ("confluent_kafka.admin", "tracker.consumers.barrier.kafka"), PRODUCER_STEPS, plant_kafka
    ),
    "delta": Steps(
        ("deltalake", "pyarrow", "tracker.consumers.barrier.delta"), TABLE_STEPS, plant_delta
    ),
}


def write(kind: str, where: str, told: int) -> None:
    """Until it dies. told: where the position goes, whenever the sink has said one."""
    sink = SINKS[kind](json.loads(where))
    held = sink.open(BARRIER, BUFFER)
    at = 0 if held is None else held.next
    while True:
        os.pwrite(told, f"{at:12d}".encode(), 0)
        rows, position = batch(at)
        sink.write(rows, position)
        at = position.next


def killed_anywhere(child: int, told: int, rng: random.Random) -> None:
    """Somewhere within the next one or two writes behind one of the first, whatever they take here."""
    begun, writes = reached(told), rng.randrange(1, 4)
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if reached(told) >= begun + writes * ROWS_A_BATCH:
            time.sleep(rng.random() * 0.02)  # paces: the kill
            os.kill(child, signal.SIGKILL)
            break
        time.sleep(0.001)  # paces: its looks


def reached(told: int) -> int:
    return int(os.pread(told, 12, 0))


def main(kind: str, where: str, moment: str, kills: str) -> None:
    steps, rng = STEPS[kind], random.Random(SEED)
    for module in steps.modules:
        importlib.import_module(module)
    told = os.memfd_create("told")
    os.pwrite(told, f"{0:12d}".encode(), 0)
    for number in range(int(kills)):
        step, call = ("", 0) if moment == "any" else steps.ends[number % len(steps.ends)]
        child = os.fork()
        if child == 0:
            try:
                if steps.plant is not None and step:
                    steps.plant(step, Die(call))
                write(kind, where, told)
            finally:
                traceback.print_exc()
                os._exit(1)
        if not step:
            killed_anywhere(child, told, rng)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status), f"the writer that was to die {step} has ended"
        print(reached(told), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
