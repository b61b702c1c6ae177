"""A field is declared once: snapshots hold it, recovery gives it back, newcomers are sent what is for all."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, fields
from typing import Any

import pytest

from tracker.core.model.durable import (
    ITEMS,
    KEYS,
    SEQUENCE,
    SORTED,
    Snapshot,
    declarations,
    follows,
    forgotten,
    form,
    part,
    restore,
    saved,
    snapshot_of,
    survives,
    values,
)


@dataclass
class Thing:
    name: str
    size: int


@dataclass
class Inner:
    seen: dict[str, None] = survives(KEYS, dict)
    counts: dict[str, int] = survives({"inner_counts": ITEMS}, dict, own=True)


@dataclass
class Outer:
    limit: int = survives(default=3)
    queue: deque[int] = survives(SEQUENCE, lambda: deque([9]))
    numbers: set[int] = survives(SORTED, set, own=True)
    things: dict[str, Thing] = survives(values("name"), dict)
    pair: list[int] = survives(
        {
            "left": form(int, lambda pair: pair[0], lambda pair, value: [value, *pair[1:]]),
            "right": form(int, lambda pair: pair[1], lambda pair, value: [pair[0], value]),
        },
        lambda: [0, 0],
    )
    inner: Inner = part(Inner)
    total: int = follows("`things`", default=0)
    asked: bool = forgotten("whoever asked asks again", default=False)

    def derive(self) -> None:
        self.total = sum(thing.size for thing in self.things.values())


@dataclass(frozen=True, slots=True)
@snapshot_of(Outer)
class OuterSnapshot(Snapshot):
    """What is durable of one."""

    beside: str


def lived() -> Outer:
    outer = Outer(limit=7, asked=True, total=5, pair=[1, 2])
    outer.queue.extend([1, 2])
    outer.numbers |= {5, 4}
    outer.things["a"] = Thing("a", 5)
    outer.inner.seen["x"] = None
    outer.inner.counts["x"] = 1
    return outer


def test_a_snapshot_has_a_field_for_all_that_survives_of_a_component_and_its_parts() -> None:
    assert {each.name: each.type for each in fields(OuterSnapshot)} == {
        "beside": "str", "limit": int, "queue": tuple[int, ...], "numbers": tuple[int, ...],
        "things": tuple[Thing, ...], "left": int, "right": int, "seen": tuple[str, ...],
        "inner_counts": tuple[tuple[str, int], ...],
    }  # fmt: skip


def test_what_comes_back_is_what_was_there_but_what_is_forgotten() -> None:
    before, after = lived(), Outer()
    restore(after, OuterSnapshot(beside="", **saved(before)))
    before.asked = False
    assert after == before, "also what follows"


def test_what_was_saved_is_not_changed_by_what_happens_later() -> None:
    outer = lived()
    snapshot = OuterSnapshot(beside="", **saved(outer))
    outer.things["a"].size = 8
    outer.queue.clear()
    after = Outer()
    restore(after, snapshot)
    after.things["a"].size = 9
    assert snapshot.things == (Thing("a", 5),)
    assert snapshot.queue == (9, 1, 2)


def test_a_newcomer_is_not_sent_what_is_of_one_shard_alone() -> None:
    everything, sent = saved(lived()), saved(lived(), for_newcomer=True)
    assert everything.keys() - sent.keys() == {"numbers", "inner_counts"}


def test_what_an_older_store_does_not_say_stays_as_it_begins() -> None:
    after = Outer()
    said: dict[str, Any] = {"beside": "", "limit": 3, "left": 0, "right": 0}
    restore(after, OuterSnapshot(**said))
    assert after == Outer()


@pytest.mark.parametrize(
    ("name", "forms", "ahead", "is_forgotten"),
    [
        ("pair", {"left", "right"}, False, False),
        ("total", set(), False, False),
        ("asked", set(), False, True),
    ],
)
def test_what_is_said_of_a_field(
    name: str, forms: set[str], ahead: bool, is_forgotten: bool
) -> None:
    said = declarations(Outer)[name]
    assert ({*said.forms}, said.ahead, said.is_forgotten) == (forms, ahead, is_forgotten)
