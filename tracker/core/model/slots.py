"""Global time: moments rounded down to slots, and sums of slots that saturate instead of wrapping.

A slot is `floor(unix time / slack)`, an int64. Min times are *exclusive*: a min time `t` says that
everything labelled with a slot below `t` is completely processed.
"""

from __future__ import annotations

FOREVER = 2**63 - 1
"""The min time of what is complete: no slot is left that could still hold an item."""

LOWEST_SLOT = -(2**63)
"""The smallest slot that can be written down; a pipeline may begin there."""

HIGHEST_SLOT = FOREVER - 1
"""The largest slot that an item may be labelled with, so that its min time can pass it."""

DEFAULT_SLACK_NS = 10_000_000
"""10 ms: how far the clocks of a pipeline's fronts may differ, unless it says otherwise."""


def slot_of(unix_ns: int, slack_ns: int) -> int:
    """The slot of a moment: `unix_ns` in nanoseconds since 1970 (negative before), rounded down."""
    return unix_ns // slack_ns


def slot_start_ns(slot: int, slack_ns: int) -> int:
    """The first nanosecond since 1970 that belongs to `slot`; the moment a min time reads as."""
    return slot * slack_ns


def add_delay(slot: int, delay: int) -> int:
    """`slot + delay` slots (delay >= 0), with overflow meaning forever (rule 7). A delay that is forever itself, that of no
    way, leads nowhere from slots below zero either."""
    return FOREVER if delay == FOREVER or slot >= FOREVER - delay else slot + delay


def subtract_delay(slot: int, delay: int) -> int:
    """`slot - delay` slots (delay >= 0), not below the lowest slot; forever stays so (rule 8)."""
    if slot == FOREVER:
        return FOREVER
    return max(LOWEST_SLOT, slot - delay)
