"""What must hold in every run, whatever happens; each violation is a `Failure` that says its kind."""

from __future__ import annotations

from tests.simulation.oracle import frontier
from tests.simulation.world import World
from tracker.core.process import Process
from tracker.core.slots import FOREVER


class Failure(AssertionError):
    """A promise was broken. `kind`: false, lost, regressed, or broken (an invariant of the core)."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind


class AnnouncementChecker:
    """Hears every announcement of every process on one pipeline (promises 1 and 4)."""

    def __init__(self, world: World, shards: int) -> None:
        self.world = world
        segments = len(world.spec.segments)
        self.by_process = [[world.spec.start_slot] * segments for _ in range(shards)]
        """The last word of each process, kept over its restarts."""
        self.highest = [world.spec.start_slot] * segments
        self.count = 0
        self._checked_version = -1
        self._raised = False

    def hear(self, shard: int, min_times: list[tuple[int, int]]) -> None:
        """A process says min times, by segment number: it announces them, or answers with them."""
        said = self.by_process[shard]
        for segment, min_time in min_times:
            if min_time < said[segment]:
                raise Failure(
                    "regressed",
                    f"shard {shard} said {said[segment]} for segment {segment}, now {min_time}",
                )
            said[segment] = min_time
            if min_time > self.highest[segment]:
                self.highest[segment] = min_time
                self._raised = True

    def check(self) -> None:
        """Nothing announced lies beyond the truth; cheap where neither has changed."""
        if not self._raised and self._checked_version == self.world.version:
            return
        self._raised, self._checked_version = False, self.world.version
        truth = frontier(self.world)
        for segment, (said, true) in enumerate(zip(self.highest, truth, strict=True)):
            if said > true:
                raise Failure(
                    "false",
                    f"min time {said} is announced for segment {segment}, and slot {true} "
                    "still has an item or can get one",
                )


class SubscriberChecker:
    """One subscriber, moving between processes: what one connection says never goes back."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.heard: dict[int, int] = {}
        self.best: dict[int, int] = {}

    def connect(self, min_times: tuple[int, ...]) -> None:
        """A new connection: the current values come first."""
        self.heard = {}
        self.hear(list(enumerate(min_times)))

    def hear(self, min_times: list[tuple[int, int]]) -> None:
        for segment, min_time in min_times:
            before = self.heard.get(segment)
            if before is not None and min_time < before:
                raise Failure(
                    "regressed",
                    f"a subscriber heard {before} for segment {segment}, then {min_time}",
                )
            self.heard[segment] = min_time
            self.best[segment] = max(min_time, self.best.get(segment, min_time))


def has_arrived(world: World, process: Process) -> bool:
    """Whether a process says the final min times (promise 2). In an open pipeline a segment that
    nothing can reach any more holds where it is."""
    said = process.min_times(world.spec.name)
    return all(
        min_time == true or (true == FOREVER and world.spec.open and min_time != FOREVER)
        for min_time, true in zip(said, frontier(world), strict=True)
    )


def what_is_left(world: World, process: Process, now_ns: int) -> list[str]:
    """What a process still holds though everything is processed; nothing, in the end."""
    pipeline = process.describe(world.spec.name, now_ns)
    left = [f"{s} is open" for s in pipeline.segments if s.open_slots or s.open_items]
    left += [f"{s} lags behind" for s in process.describe_shards() if s.entries_behind]
    if pipeline.late_items:
        left.append(f"{pipeline.late_items} items are in the late ledger, and none was late")
    return left
