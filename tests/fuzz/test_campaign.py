"""The campaign of `make fuzz`, short: what it looks at, and that it finds what is planted."""

from __future__ import annotations

import random

import pytest

from acker.v1 import types_pb2 as pb
from tests.fuzz.campaign import EXAMPLES, SABOTAGES, Found, world
from tests.fuzz.mangling import Told, mangled
from tests.fuzz.test_grpc import SERVED


def test_every_method_of_every_service_is_asked() -> None:
    assert set(EXAMPLES) == {method.name for method in SERVED.values()}


def test_a_world_follows_from_its_number() -> None:
    one, other = Found(), Found()
    for found in (one, other):
        for seed in range(8):
            world(found, random.Random(seed), 10)
    assert one.outcomes == other.outcomes and one.requests == 80
    assert one.restarts > 0


@pytest.mark.parametrize("sabotage", SABOTAGES)
def test_what_is_planted_is_found(sabotage: str) -> None:
    with pytest.raises((AssertionError, ZeroDivisionError)):
        for seed in range(100):
            world(Found(), random.Random(seed), 40, sabotage)


def test_bytes_choose_what_is_mangled_and_none_choose_the_first() -> None:
    message = pb.Refusal(code="invalid", message="no")
    made = {mangled(Told(bytes((way, 1, 0, 3))), message) for way in range(256)}
    assert len(made) > 1
    assert mangled(Told(b""), message) == mangled(Told(b"\0" * 99), message)
