"""The campaign of `make fuzz`, short: what it looks at, and that it finds what is planted."""

from __future__ import annotations

import random

import pytest

from acker.v1 import types_pb2 as pb
from tests.fuzz.campaign import EXAMPLES, REQUESTS_PER_WORLD, SABOTAGES, Found, world
from tests.fuzz.mangling import Told, mangled
from tests.fuzz.test_grpc import SERVED
from tests.fuzz.wired import SPEC
from tracker.core.model import Refused
from tracker.wire.explanations import query_from_pb

WORLDS = 60


def test_every_method_of_every_service_is_asked() -> None:
    assert set(EXAMPLES) == {method.name for method in SERVED.values()}


def test_every_request_is_answered_or_refused_whole_and_no_frame_ends_a_process() -> None:
    found = Found()
    for seed in range(WORLDS):
        world(found, random.Random(seed), REQUESTS_PER_WORLD)
    assert found.restarts >= WORLDS
    asked = {outcome.partition(" ")[0] for outcome in found.outcomes}
    assert asked == set(EXAMPLES), "each method is asked"


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


def test_a_strip_of_more_slots_than_a_message_can_say_is_refused() -> None:
    """World 52 of the campaign found it: its answer had a bin that no message holds."""
    request = EXAMPLES["ExplainPipeline"][0]
    query = type(request)(pipeline="p", from_slot=-(2**63) + 1, to_slot=500, strip_bins=1)
    with pytest.raises(Refused, match="the most is"):
        query_from_pb(query, SPEC)
    query.from_slot = 0
    assert query_from_pb(query, SPEC).to_slot == 500
