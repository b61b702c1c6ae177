"""The published acceptance rule announces a slot that still has an item; the cut rule does not."""

from __future__ import annotations

import pytest

from tests.simulation.cut_rules import (
    RULES,
    CutRule,
    PublishedRule,
    ToyShard,
    ToyTick,
    random_schedule,
)

SCHEDULES = 1500


def test_the_published_rule_announces_a_slot_that_still_has_an_item() -> None:
    """One item moves from slot 0 to slot 1; the two slots belong to two shards.

    front:   F1 creates the item at slot 0; F2 promises to label nothing below slot 2.
    mover:   M1 consumes the item at slot 0 and creates its child at slot 1, in one tick.
    other:   O1 has nothing to do with it.
    """
    item, child = 0xA11CE, 0xB0B
    f1, f2 = ToyTick("front", 1, ((0, item),)), ToyTick("front", 2, (), promise=2)
    m1 = ToyTick("mover", 1, ((0, item), (1, child)))
    o1 = ToyTick("other", 1)

    nodes = ["front", "mover", "other"]
    even = ToyShard(0, 2, nodes, ["front"])  # keeps slot 0
    odd = ToyShard(1, 2, nodes, ["front"])  # keeps slot 1
    published, cut = PublishedRule(2), CutRule(2)

    def apply(shard: ToyShard, tick: ToyTick) -> None:
        report = shard.apply(tick)
        published.hear(shard.number, report)
        cut.hear(shard.number, report)

    # Both shards hear of the item and of the promise. The odd shard holds nothing and says "nothing
    # below 2", which is accepted at (M0, O0). The even shard shows the item: slot 0 is open.
    for tick in (f1, f2):
        apply(even, tick)
        apply(odd, tick)
    assert published.announced == 0
    assert cut.announced == 0

    # The odd shard hears of the other node, then of the move: at (M1, O1) it shows the child. This
    # vector has to wait, since the even shard has heard of neither.
    apply(odd, o1)
    apply(odd, m1)
    assert odd.cells == {1: child}

    # Now the even shard hears of the move: at (M1, O0) the item is gone from slot 0, and it says
    # "nothing below 2". The least vector is (M1, O0), so this is accepted. What the odd shard says
    # at (M1, O1) is still not at or below that, and its word from (M0, O0) stands.
    apply(even, m1)
    assert even.cells == {}

    # The even shard was accepted after the move and the odd one before it: nobody shows the item.
    assert published.announced == 2, "the published rule says that slots 0 and 1 are done"
    assert odd.cells == {1: child}, "and slot 1 has an item"

    # The cut rule takes the odd shard at (M1, O0) too. What it applied beyond that, O1, touched no
    # slot, and what it holds below that is what it holds now: the child. Slot 1 is open.
    assert cut.announced == 1


@pytest.mark.parametrize("rule", sorted(RULES))
def test_random_schedules_refute_the_published_rule_alone(rule: str) -> None:
    false = [seed for seed in range(SCHEDULES) if random_schedule(seed, rule)]
    if rule == "published":
        assert false, f"no false completion in {SCHEDULES} schedules: the toy has lost its teeth"
    else:
        assert not false, f"the cut rule announced too much: random_schedule({false[0]}, 'cut')"


def test_the_cut_rule_announces_what_the_promise_allows() -> None:
    """A rule that never says anything would never be wrong."""
    shard, rule = ToyShard(0, 1, ["front"], ["front"]), CutRule(1)
    for number, promise in enumerate((1, 2, 5), start=1):
        rule.hear(0, shard.apply(ToyTick("front", number, (), promise)))
        assert rule.announced == promise
