"""A siege: a crowd at one process, and beside it a front and a subscriber that must be served."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from tests.cluster.children import Running
from tests.cluster.tracker import Tracker
from tests.service.scraping import Samples, samples_of, text_of, text_when, value
from tests.siege.crowd import BUSY, QUIET, Tally
from tests.waits import HANG_S
from tracker.client import NodeClient, Subscriber
from tracker.core.model import Cells, Edge, Heartbeat, PipelineSpec, TickContent
from tracker.wire.grpc_options import HANDSHAKE_TIMEOUT_MS


@dataclass(frozen=True)
class Outcome:
    """What the others saw meanwhile. Times in milliseconds, from the commit of a step to min time at the
    subscriber; alone: before the crowd came."""

    rounds: int
    alone_p50_ms: float
    besieged_p50_ms: float
    besieged_p99_ms: float
    memory_mib: float
    streams: int
    tally: Tally
    restarted: bool
    refused: int


class Siege:
    """One process, and those who use it properly."""

    def __init__(self, directory: Path) -> None:
        self._tracker = Tracker(directory, metrics=True, options=("--set", "log_level=error"))
        self.target, self.metrics = self._tracker.target, self._tracker.shards[0].metrics
        self._slot = 0

    def run(self, *, subscribers: int, deaf: int, slow: int, rounds: int, patient: bool) -> Outcome:
        """Besieges the process; returns when all rounds are over, and, if patient, connections that come
        to nothing must have been closed."""
        self._tracker.start()
        crowd = Running(
            "tests.siege.crowd", self.target, "--subscribers", str(subscribers),
            "--deaf", str(deaf), "--slow", str(slow), errors=self._tracker.directory / "crowd.log",
        )  # fmt: skip
        try:
            register_both(self._tracker)
            with (
                NodeClient(self.target, BUSY, "front") as node,
                Subscriber(self.target, BUSY) as subscriber,
            ):
                node.join(HANG_S)
                node.join_front("front", "a", HANG_S)
                alone = self._rounds(node, subscriber, rounds)
                before = samples_of(text_of(self.metrics))
                crowd.start()
                crowd.until_line(0)
                gathered = monotonic()
                besieged = self._rounds(node, subscriber, rounds)
                while patient and monotonic() - gathered < 1.5 * HANDSHAKE_TIMEOUT_MS / 1000:
                    besieged += self._rounds(node, subscriber, rounds)
                after = samples_of(
                    text_when(self.metrics, lambda s: refused_ticks(s) > 0 and streams(s) > 0)
                )
            crowd.tell("it is over")
            tally = Tally(**json.loads(crowd.until_line(1)))
            crowd.end()
        finally:
            crowd.discard()
            self._tracker.close()
        return outcome(alone, besieged, before, after, tally)

    def _rounds(self, node: NodeClient, subscriber: Subscriber, rounds: int) -> list[float]:
        """Commits steps, one after the other, each heard of by the subscriber before the next."""
        times = steps(node, subscriber, self._slot, rounds)
        self._slot += rounds
        return times


def register_both(tracker: Tracker) -> None:
    """The pipeline in which things happen, and the quiet one."""
    for name in (BUSY, QUIET):
        tracker.register(PipelineSpec(name, ("a", "b"), (Edge("a", "b"),), fronts=("front",)))


def steps(node: NodeClient, subscriber: Subscriber, after: int, rounds: int) -> list[float]:
    """Commits steps at the slots behind one, each heard of by the subscriber before the next; how long each
    took to be heard of, in milliseconds."""
    times = []
    for slot in range(after + 1, after + rounds + 1):
        item = Cells.of([(0, slot, slot, 1)])
        node.commit(TickContent(created=item)).result(HANG_S)
        began = monotonic()
        node.commit(TickContent(consumed=item, heartbeats=(Heartbeat("front", slot + 1),)))
        assert subscriber.wait_until(slot + 1, timeout_s=HANG_S), "nobody was served"
        times.append(1_000 * (monotonic() - began))
    return times


def refused_ticks(samples: Samples) -> float:
    return value(samples, "lowmark_ticks_refused_total", pipeline=BUSY, reason="unknown_front") or 0


def streams(samples: Samples) -> float:
    return value(samples, "lowmark_subscriber_streams") or 0


def outcome(
    alone: list[float], besieged: list[float], before: Samples, after: Samples, tally: Tally
) -> Outcome:
    started = "lowmark_process_start_time_seconds"
    return Outcome(
        rounds=len(besieged),
        alone_p50_ms=round(percentile(alone, 50), 1),
        besieged_p50_ms=round(percentile(besieged, 50), 1),
        besieged_p99_ms=round(percentile(besieged, 99), 1),
        memory_mib=round((value(after, "lowmark_process_resident_memory_bytes") or 0) / 2**20, 1),
        streams=int(streams(after)),
        tally=tally,
        restarted=value(before, started) != value(after, started),
        refused=int(refused_ticks(after)),
    )


def percentile(times: list[float], percent: int) -> float:
    return sorted(times)[min(len(times) - 1, len(times) * percent // 100)]


def failures(found: Outcome, *, subscribers: int, slow_closed: int) -> list[str]:
    """What did not hold."""
    said = []
    if found.restarted:
        said.append("the process started anew")
    if found.streams < subscribers:
        said.append(f"{found.streams} streams are there, of {subscribers} idle subscribers")
    if found.tally.idle_ended:
        said.append(f"{found.tally.idle_ended} idle subscribers were cut off")
    if found.tally.slow_closed < slow_closed:
        said.append(f"{found.tally.slow_closed} slow connections were closed, not {slow_closed}")
    if not found.refused or not found.tally.refusals:
        said.append("no bad tick was refused")
    return said
