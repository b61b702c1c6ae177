"""`lowmark groups drain` leaves nothing behind that it could have found (docs/groups.md)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tracker.cli.groups import _emptied
from tracker.client import RefusedError
from tracker.core.model import Refusal, RefusalCode


class Groups:
    """Groups 0 and 1, as an operator sees them; a pipeline may be registered as another one moves."""

    def __init__(self, **lives: int) -> None:
        self.lives = lives
        self.silent_groups: dict[int, str] = {}
        self.coming: list[str] = []
        self.staying: set[str] = set()
        self.asked: list[str] = []

    def pipelines(self) -> list[Any]:
        spec = SimpleNamespace
        return [SimpleNamespace(spec=spec(name=n), group=g) for n, g in self.lives.items()]

    def groups(self) -> list[Any]:
        named = {"cordoned": False, "silent": "", "pipelines": 0}
        return [SimpleNamespace(group=group, **named) for group in (0, 1)]

    def move(self, name: str, group: int) -> None:
        self.asked.append(name)
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
