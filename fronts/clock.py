"""Watching a front's clock: labels never go backwards, whatever it does, but someone should know.

Labels of several fronts are in order as long as their clocks differ by less than the slack. A front
sees two signs that its own does not: readings that step back, and readings that run off from a clock
that nobody sets. A third is a grant ahead of it: others have promised slots that it has not reached.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

NO_READING_NS = -(2**63)
"""What the clock of a front reads that takes its time from the records, before it has seen one."""


class ClockFault(Enum):
    """What a clock did."""

    STEPPED_BACK = "stepped back"
    RAN_OFF = "ran off from a steady clock"
    BEHIND = "is behind the other fronts"


@dataclass(frozen=True, slots=True)
class ClockReport:
    """A fault that is larger than the slack, and at least twice what was reported of its kind.

    amount_ns: by how much; signed where a clock ran off (positive: it is fast).
    """

    fault: ClockFault
    amount_ns: int
    slack_ns: int

    def __str__(self) -> str:
        return (
            f"the clock {self.fault.value} by {self.amount_ns / 1e6:g} ms, which is not within the "
            f"slack of {self.slack_ns / 1e6:g} ms: labels go on, but not in the order of other fronts"
        )


class ClockWatch:
    """Measures one clock; readings are nanoseconds."""

    def __init__(self, slack_ns: int) -> None:
        self._slack_ns = slack_ns
        self._highest_ns: int | None = None
        self._offset_ns: int | None = None
        self._reported_ns: dict[ClockFault, int] = {}
        self.measured_ns: dict[ClockFault, int] = dict.fromkeys(ClockFault, 0)
        """The largest amount of each fault so far, within the slack or not; signed as reported."""

    def read(self, clock_ns: int, steady_ns: int | None = None) -> list[ClockReport]:
        """The clock read `clock_ns`, at the same moment a steady clock (of any origin) `steady_ns`."""
        faults = []
        highest_ns = clock_ns if self._highest_ns is None else max(clock_ns, self._highest_ns)
        self._highest_ns = highest_ns
        if clock_ns < highest_ns:
            faults.append((ClockFault.STEPPED_BACK, highest_ns - clock_ns))
        if steady_ns is not None:
            if self._offset_ns is None:
                self._offset_ns = clock_ns - steady_ns
            faults.append((ClockFault.RAN_OFF, clock_ns - steady_ns - self._offset_ns))
        return self._measure(faults)

    def read_array(self, clock_ns: NDArray[np.int64]) -> list[ClockReport]:
        """The clock gave these readings, at least one, in their order."""
        first = int(clock_ns[0])
        before = max(first, first if self._highest_ns is None else self._highest_ns)
        highest = np.maximum.accumulate(np.maximum(clock_ns, min(before, 2**63 - 1)))
        # As unsigned words, differences of int64 are right even where they do not fit one.
        at = int((highest - clock_ns).view(np.uint64).argmax())
        reports = self.read(int(highest[at])) + self.read(int(clock_ns[at]))
        return reports + self.read(int(highest[-1]))

    def granted(self, clock_ns: int, granted_ns: int) -> list[ClockReport]:
        """The front may label from the moment `granted_ns` on, and its clock reads `clock_ns`."""
        if clock_ns == NO_READING_NS:
            return []
        return self._measure([(ClockFault.BEHIND, granted_ns - clock_ns)])

    def _measure(self, faults: list[tuple[ClockFault, int]]) -> list[ClockReport]:
        reports = []
        for fault, amount_ns in faults:
            if fault is ClockFault.BEHIND and amount_ns <= 0:
                continue
            if abs(amount_ns) > abs(self.measured_ns[fault]):
                self.measured_ns[fault] = amount_ns
            if abs(amount_ns) >= max(self._slack_ns, 2 * self._reported_ns.get(fault, 0)):
                self._reported_ns[fault] = abs(amount_ns)
                reports.append(ClockReport(fault, amount_ns, self._slack_ns))
        return reports
