"""Rounds: several slots to each time, so that what goes round a loop has a slot of its own each time round.

A pipeline with R rounds packs the pair (time, round) into the slot time * R + round, an int64 like any other: slots
stay totally ordered, first by time, then by round. A slot is as wide as the pipeline's `slack_ns`, so R of them
make one time; every conversion between slots and moments stays as it is, and with one round a slot is a time.
Only fronts know the difference: what comes in from outside comes in at round 0 (`whole`, `next_whole`).
"""

from __future__ import annotations

from dataclasses import dataclass

from tracker.core.model.slots import FOREVER, HIGHEST_SLOT, LOWEST_SLOT, add_delay

MAX_ROUNDS = 65_536
"""Of one time."""


class RoundsExceededError(ValueError):
    """An item would go round a loop more often than its pipeline has rounds; it would be taken for one of the
    next time."""


@dataclass(frozen=True, slots=True)
class Rounds:
    """The rounds of one pipeline. per_time: how many each time has, 1 to MAX_ROUNDS."""

    per_time: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.per_time <= MAX_ROUNDS:
            raise ValueError(f"a time has {self.per_time} rounds; it may have 1 to {MAX_ROUNDS}")

    def slot(self, time: int, number: int = 0) -> int:
        """The slot of round `number` (from 0) of a time. Raises RoundsExceededError for a round that there is
        not, ValueError beyond the slots that there are."""
        if not 0 <= number < self.per_time:
            raise RoundsExceededError(
                f"time {time} has no round {number}: its rounds are 0 to {self.per_time - 1}; register the "
                "pipeline with more rounds, or end the loop earlier"
            )
        slot = time * self.per_time + number
        if not LOWEST_SLOT <= slot <= HIGHEST_SLOT:
            raise ValueError(
                f"round {number} of time {time} is slot {slot}; slots are {LOWEST_SLOT} to {HIGHEST_SLOT}"
            )
        return slot

    def split(self, slot: int) -> tuple[int, int]:
        """The time and the round that a slot stands for."""
        return divmod(slot, self.per_time)

    def next_round(self, slot: int) -> int:
        """The slot of what an item at `slot` becomes when it goes round once more. Raises RoundsExceededError
        in the last round."""
        time, number = self.split(slot)
        return self.slot(time, number + 1)

    def whole(self, slot: int) -> int:
        """Round 0 of a slot's time: the highest whole time that is at most `slot`; of slots that lie below all
        whole times, the lowest of these."""
        return max(slot // self.per_time, -(-LOWEST_SLOT // self.per_time)) * self.per_time

    def next_whole(self, slot: int) -> int:
        """The lowest whole time that is at least `slot`; FOREVER beyond the last one that there is."""
        found = -(-slot // self.per_time) * self.per_time
        return found if found <= HIGHEST_SLOT else FOREVER

    def over(self, time: int, number: int | None = None) -> int:
        """The min time from which on round `number` of a time is over, and with it everything before; None:
        all of the time is over. Raises as `slot`."""
        last = self.per_time - 1 if number is None else number
        return add_delay(self.slot(time, last), 1)

    def raised_by(self, delay: int) -> int:
        """By how many rounds an edge of a delay, in slots, raises what goes along it; 0 where it adds whole
        times, or nothing."""
        return delay if delay < self.per_time else 0

    def text(self, slot: int) -> str:
        """A slot for people: `slot 5`, and `time 2, round 1` where times have rounds."""
        if self.per_time == 1 or slot in (FOREVER, LOWEST_SLOT):
            return f"slot {slot}"
        time, number = self.split(slot)
        return f"time {time}, round {number}"
