"""Names of open units come, are found, and go; none stays for ever."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tracker.core.model import Unit
from tracker.core.shard.names import UnitNames


def test_a_unit_is_found_until_it_is_consumed() -> None:
    names = UnitNames()
    names.add("file:///a", 7)
    assert names.slot("file:///a") == 7
    names.remove("file:///a")
    assert names.slot("file:///a") is None
    assert len(names) == 0


def test_a_name_that_arrives_after_its_consumption_goes_when_min_time_passes_its_slot() -> None:
    names = UnitNames()
    names.remove("file:///a")
    names.add("file:///a", 7)
    names.forget_below(7)
    assert names.slot("file:///a") == 7
    names.forget_below(8)
    assert len(names) == 0


@given(
    st.lists(st.tuples(st.sampled_from("arf"), st.integers(0, 20), st.integers(-5, 5)), max_size=60)
)
def test_names_are_those_of_a_plain_dictionary(steps: list[tuple[str, int, int]]) -> None:
    names, plain = UnitNames(), dict[str, int]()
    for what, which, slot in steps:
        if what == "a":
            names.add(str(which), slot)
            plain[str(which)] = slot
        elif what == "r":
            names.remove(str(which))
            plain.pop(str(which), None)
        else:
            names.forget_below(slot)
            plain = {name: kept for name, kept in plain.items() if kept >= slot}
        assert {u.name: u.slot for u in names.units(3)} == plain
        assert all(unit == Unit(3, unit.name, unit.slot) for unit in names.units(3))
