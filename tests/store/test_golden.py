"""What is stored stays readable, and says what it said: the bytes of every kind, as they were."""

from __future__ import annotations

import pytest

from tests.store.golden import Golden, golden, kinds, missing, read, said, written

PINNED = [
    pytest.param(kind, each, id=f"{kind} {number}")
    for kind, pinned in golden().items()
    for number, each in enumerate(pinned)
]


@pytest.mark.parametrize(("kind", "pinned"), PINNED)
def test_stored_bytes_say_what_they_said(kind: str, pinned: Golden) -> None:
    assert said(read(kind, bytes.fromhex(pinned.stored))) == pinned.says


@pytest.mark.parametrize(("kind", "pinned"), PINNED)
def test_what_they_say_is_still_stored_so(kind: str, pinned: Golden) -> None:
    data = bytes.fromhex(pinned.stored)
    assert written(kind, read(kind, data)) == data


def test_everything_that_is_stored_is_pinned() -> None:
    assert not missing(golden()), "python -m tests.store.golden adds what is new"
    assert golden().keys() == kinds().keys()
