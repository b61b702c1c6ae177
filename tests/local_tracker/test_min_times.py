"""What a local tracker has heard of min times, for the workers of its host."""

from __future__ import annotations

import pytest

from local_tracker.agent.uplink import MinTimes
from local_tracker.worker.handle import Relayed
from tracker.errors import HandOverError


def test_min_times_are_whole_when_those_of_the_beginning_are_whatever_has_come_since() -> None:
    heard = MinTimes(2)
    for segment, slot in ((0, 5), (2, 7), (3, 7)):
        heard.put(segment, slot)
    with pytest.raises(HandOverError, match="has not been heard"):
        heard.get(0, 0, 0)
    heard.put(None, 5)
    heard.put(1, 6)
    assert heard.get(0, 0, 0) == Relayed(5, (5, 6, 7, 7), 5)
