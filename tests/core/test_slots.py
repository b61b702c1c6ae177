"""Moments become slots by rounding down, and sums of slots saturate instead of wrapping."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tracker.core.model.slots import (
    DEFAULT_SLACK_NS,
    FOREVER,
    HIGHEST_SLOT,
    LOWEST_SLOT,
    add_delay,
    slot_of,
    slot_start_ns,
    subtract_delay,
)

moments = st.integers(min_value=-(2**63), max_value=2**63 - 1)
slots = st.integers(min_value=LOWEST_SLOT, max_value=FOREVER)
delays = st.integers(min_value=0, max_value=FOREVER)


@given(moments, st.integers(min_value=1, max_value=10**18))
def test_a_slot_holds_its_moments_rounded_down(moment: int, slack_ns: int) -> None:
    slot = slot_of(moment, slack_ns)
    assert slot_start_ns(slot, slack_ns) <= moment < slot_start_ns(slot + 1, slack_ns)


def test_moments_before_1970_round_down_too() -> None:
    assert slot_of(-1, DEFAULT_SLACK_NS) == -1
    assert slot_of(0, DEFAULT_SLACK_NS) == 0
    assert slot_of(-DEFAULT_SLACK_NS, DEFAULT_SLACK_NS) == -1
    assert slot_of(-DEFAULT_SLACK_NS - 1, DEFAULT_SLACK_NS) == -2
    assert slot_of(DEFAULT_SLACK_NS - 1, DEFAULT_SLACK_NS) == 0


@given(moments, moments, st.integers(min_value=1, max_value=10**18))
def test_later_moments_never_get_lower_slots(a: int, b: int, slack_ns: int) -> None:
    assert slot_of(min(a, b), slack_ns) <= slot_of(max(a, b), slack_ns)


@given(slots, delays)
def test_adding_a_delay_saturates_at_forever(slot: int, delay: int) -> None:
    assert add_delay(slot, delay) == min(FOREVER, slot + delay)


@given(slots, delays)
def test_subtracting_a_delay_stops_at_the_lowest_slot(slot: int, delay: int) -> None:
    expected = FOREVER if slot == FOREVER else max(LOWEST_SLOT, slot - delay)
    assert subtract_delay(slot, delay) == expected


def test_an_items_slot_can_be_passed_by_min_time() -> None:
    assert HIGHEST_SLOT + 1 == FOREVER == 2**63 - 1
    assert LOWEST_SLOT == -(2**63)
