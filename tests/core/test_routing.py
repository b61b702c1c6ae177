"""Every slot has one owner, every node one home, and both are the same wherever they are looked up."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker.core.model.routing import RoutingRule, RoutingTable
from tracker.core.model.slots import HIGHEST_SLOT, LOWEST_SLOT

slots = st.integers(min_value=LOWEST_SLOT, max_value=HIGHEST_SLOT)

TABLE = RoutingTable(
    [
        RoutingRule(LOWEST_SLOT, 64, (0, 1, 2)),
        RoutingRule(1000, 16, (0, 1, 2, 3)),
        RoutingRule(5000, 16, (1, 3)),
    ]
)


@given(st.lists(slots | st.integers(min_value=-200, max_value=6000), max_size=30))
def test_arrays_are_dealt_as_single_slots_are(some: list[int]) -> None:
    for table in (TABLE, RoutingTable.uniform(3)):
        owners = table.owners(np.array(some, np.int64))
        assert owners.tolist() == [table.owner(slot) for slot in some]
        assert owners.dtype == np.int32


@given(st.integers(min_value=-200, max_value=6000), st.integers(0, 80))
def test_what_lies_in_one_block_has_one_owner(lowest: int, width: int) -> None:
    for table in (TABLE, RoutingTable.uniform(3)):
        owners = {table.owner(slot) for slot in range(lowest, lowest + width + 1)}
        owner = table.owner_of_all(lowest, lowest + width)
        assert owner is None or owners == {owner}
        assert owner is not None or width > 0
    assert RoutingTable.uniform(3).owner_of_all(64, 127) == 1


def test_neighbouring_slots_stay_together_and_blocks_go_round() -> None:
    table = RoutingTable.uniform(3, block_slots=64)
    assert [table.owner(slot) for slot in (0, 63, 64, 128, 191, 192)] == [0, 0, 1, 2, 2, 0]
    assert [table.owner(slot) for slot in (-1, -64, -65)] == [2, 2, 1]


def test_an_entry_holds_from_its_first_slot_on() -> None:
    assert TABLE.owner(999) == (999 // 64) % 3
    assert TABLE.owner(1000) == (1000 // 16) % 4
    assert {TABLE.owner(slot) for slot in range(5000, 6000)} == {1, 3}
    assert TABLE.shards == (0, 1, 2, 3)


def test_the_limits_of_time_have_owners() -> None:
    for table in (TABLE, RoutingTable.uniform(4)):
        for slot in (LOWEST_SLOT, HIGHEST_SLOT):
            assert table.owner(slot) in table.shards
            assert table.owners(np.array([slot]))[0] == table.owner(slot)


def test_homes_are_spread_and_pipelines_apart() -> None:
    table = RoutingTable.uniform(4)
    homes = [table.home("p", f"node-{n}") for n in range(400)]
    assert all(homes.count(shard) > 50 for shard in range(4))
    assert homes != [table.home("q", f"node-{n}") for n in range(400)]


def test_a_shard_more_moves_only_the_homes_that_it_takes() -> None:
    three, four = RoutingTable.uniform(3), RoutingTable.uniform(4)
    for n in range(400):
        before, after = three.home("p", str(n)), four.home("p", str(n))
        assert after in (before, 3)


@pytest.mark.parametrize(
    "entries",
    [
        [],
        [RoutingRule(0, 64, (0,))],
        [RoutingRule(LOWEST_SLOT, 64, (0,)), RoutingRule(LOWEST_SLOT, 64, (1,))],
        [RoutingRule(LOWEST_SLOT, 0, (0,))],
        [RoutingRule(LOWEST_SLOT, 64, ())],
    ],
)
def test_a_table_that_leaves_slots_without_an_owner_is_refused(entries: list[RoutingRule]) -> None:
    with pytest.raises(ValueError, match="routing entr"):
        RoutingTable(entries)
