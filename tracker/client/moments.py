"""Moments and durations as people write them: `2013-01-01T09:00`, `now`, `slot:123`, `time:12`, `10ms`."""

from __future__ import annotations

import re
import time
from datetime import datetime
from fractions import Fraction

from tracker.client.updates import unix_ns
from tracker.core.model.slots import HIGHEST_SLOT, LOWEST_SLOT

NOW = "now"
_UNITS_NS = {
    "ns": 1,
    "us": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
    "d": 86_400 * 10**9,
}
_MOST_NS = 2**63 - 1


def parse_duration_ns(value: object) -> int:
    """`10ms`, `1.5h`, `30s` as nanoseconds; raises ValueError."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ns|us|ms|s|m|h|d)\s*", str(value))
    if not match:
        raise ValueError(
            f"{value!r} is not a duration; write a number and ns, us, ms, s, m, h or d"
        )
    nanoseconds = Fraction(match[1]) * _UNITS_NS[match[2]]
    if nanoseconds > _MOST_NS:
        raise ValueError(f"{value!r} is longer than can be counted, {_MOST_NS} ns")
    return round(nanoseconds)


def parse_moment_ns(text: str) -> int:
    """An ISO date or time (UTC unless it has an offset), or `now`, as nanoseconds since 1970. Raises
    ValueError."""
    if text.strip() == NOW:
        return time.time_ns()
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(
            f"{text!r} is not a moment; write an ISO date or time such as 2013-01-01T09:00 (UTC "
            "unless it has an offset), now, slot:N or time:N"
        ) from None
    return unix_ns(moment)


def parse_slot(text: str, slack_ns: int, rounds: int, *, up: bool = False) -> int:
    """A moment, `slot:N`, or `time:N` (round 0 of a time), as a slot of `slack_ns` nanoseconds, of which each
    time has `rounds`. A moment within a time is rounded down to it, or `up`: the min time by which
    everything before the moment is complete. Raises ValueError."""
    match = re.fullmatch(r"(slot|time):\s*(-?\d+)", text.strip())
    if match:
        slot = int(match[2]) * (rounds if match[1] == "time" else 1)
    else:
        moment_ns, time_ns = parse_moment_ns(text), slack_ns * rounds
        slot = (-(-moment_ns // time_ns) if up else moment_ns // time_ns) * rounds
    if not LOWEST_SLOT <= slot <= HIGHEST_SLOT:
        raise ValueError(f"{text!r} is slot {slot}; slots are {LOWEST_SLOT} to {HIGHEST_SLOT}")
    return slot
