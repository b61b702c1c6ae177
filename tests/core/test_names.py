"""Names of open units come, are found, and go; none stays for ever."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.core.driver import Cluster
from tracker.core.model import PipelineSpec, Unit
from tracker.core.shard.names import UnitNames


def test_a_unit_is_found_until_it_is_consumed() -> None:
    names = UnitNames()
    names.add("file:///a", 7)
    assert names.slot("file:///a") == 7
    names.remove("file:///a", 7)
    assert names.slot("file:///a") is None
    assert len(names) == 0


def test_a_name_that_arrives_after_its_consumption_goes_when_min_time_passes_its_slot() -> None:
    names = UnitNames()
    names.remove("file:///a", 7)
    names.add("file:///a", 7)
    names.forget_below(7)
    assert names.slot("file:///a") == 7
    names.forget_below(8)
    assert len(names) == 0


def test_a_unit_is_not_let_go_of_by_the_consumption_of_one_that_had_its_name_before() -> None:
    """A file is consumed, and written anew under its name, at a later slot. The two nodes have two homes, and the shard that keeps the
    names hears of the consumption last. The next reader asks for the slot of the file until it is told."""
    cluster = Cluster(3)
    spec = PipelineSpec("p", ("files",), fronts=("other",), open=True)
    cluster.register(spec)
    keeper = cluster.routing.names_keeper("p", 0)
    first, second = sorted({0, 1, 2} - {keeper})
    writer = cluster.node(spec, next(cluster.ids_at(first)))
    reader = cluster.node(spec, next(cluster.ids_at(second)))
    writer.join_front("other")
    writer.commit(created=[(0, 5, 55)], units_created=[Unit(0, "latest", 5)])
    cluster.held = {(second, keeper)}
    reader.begin(consumed=[(0, 5, 55)], units_consumed=[Unit(0, "latest", 5)])
    cluster.settle()
    writer.commit(created=[(0, 9, 99)], units_created=[Unit(0, "latest", 9)])
    cluster.reconnect()
    cluster.settle()
    assert cluster.processes[keeper].resolve_units("p", 0, ["latest"]) == [9]
    reader.commit(consumed=[(0, 9, 99)], units_consumed=[Unit(0, "latest", 9)])
    cluster.settle()
    assert cluster.processes[keeper].resolve_units("p", 0, ["latest"]) == [None]


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
            of = slot if slot % 2 else None
            names.remove(str(which), of)
            if of in (None, plain.get(str(which))):
                plain.pop(str(which), None)
        else:
            names.forget_below(slot)
            plain = {name: kept for name, kept in plain.items() if kept >= slot}
        open_units = names.lowest(3, len(names))
        assert {u.name: u.slot for u in open_units} == plain
        assert all(unit == Unit(3, unit.name, unit.slot) for unit in open_units)
