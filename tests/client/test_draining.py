"""`lowmark groups drain` leaves nothing behind that it could have found (docs/groups.md)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tracker.cli.groups import _emptied
from tracker.client import RefusedError, UnavailableError
from tracker.core.model import Refusal, RefusalCode


class Groups:
    """Groups 0 and 1, as an operator sees them; a pipeline may be registered as another one moves."""

    def __init__(self, **lives: int) -> None:
        self.lives = lives
        self.silent_groups: dict[int, str] = {}
        self.known = (0, 1)
        self.arriving: tuple[str, ...] = ()
        """On their way to group 1: it lists each when it was asked about it once more."""
        self.coming: list[str] = []
        self.staying: set[str] = set()
        self.asked: list[str] = []

    def pipelines(self) -> list[Any]:
        spec = SimpleNamespace
        return [SimpleNamespace(spec=spec(name=n), group=g) for n, g in self.lives.items()]

    def groups(self) -> list[Any]:
        named = {"cordoned": False, "silent": "", "pipelines": 0}
        ways = {0: (), 1: self.arriving}
        return [SimpleNamespace(group=n, arriving=ways[n], **named) for n in self.known]

    def move(self, name: str, group: int) -> None:
        self.asked.append(name)
        self.arriving = tuple(each for each in self.arriving if each != name)
        if self.coming:
            self.lives[self.coming.pop()] = 1
        if name in self.staying:
            raise RefusedError(Refusal(RefusalCode.CONFLICT, "it stands"))
        self.lives[name] = group


def test_what_is_registered_as_a_group_is_drained_moves_too() -> None:
    """It was placed there just before the group was cordoned, and the group is taken away behind this."""
    groups: Any = Groups(a=1, b=0, c=1)
    groups.coming = ["late"]
    moved, stayed = _emptied(groups, 1)
    assert (moved, stayed) == (["a", "c", "late"], {})
    assert {*groups.lives.values()} == {0}


def test_what_cannot_move_is_named_and_asked_for_once() -> None:
    groups: Any = Groups(a=1, c=1)
    groups.staying = {"a"}
    moved, stayed = _emptied(groups, 1)
    assert moved == ["c"] and [*stayed] == ["a"]
    assert groups.asked == ["a", "c"]


def test_what_was_on_its_way_there_moves_on() -> None:
    """The directory had turned, so that it belongs to the group, whose processes do not list it yet."""
    groups: Any = Groups(a=0)
    groups.arriving = ("late",)
    moved, stayed = _emptied(groups, 1)
    assert (moved, stayed) == (["late"], {})


def test_a_group_of_which_nobody_has_heard_is_not_taken_for_empty() -> None:
    """A process that was just started does not know the other groups before the directory has answered it."""
    groups: Any = Groups(a=0)
    groups.known = (0,)
    with pytest.raises(UnavailableError, match="not drained"):
        _emptied(groups, 1)
