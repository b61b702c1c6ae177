"""A group of a topic that has lost what was acknowledged says so, and promises nothing any more, as a front does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fronts.test_kafka import Kafka, group_of
from tests.waits import until
from tracker.errors import TrackingError


def test_an_end_that_moves_back_ends_a_group(tmp_path: Path) -> None:
    """Else it goes on once as many records are there again: those that were written anew have offsets that count as read."""
    kafka = Kafka(tmp_path)
    kafka.topic.now = {0: 5}
    group = group_of(kafka).start()
    kafka.tracker.wait(lambda: kafka.tracker.created)
    kafka.topic.now = {0: 4}
    until(lambda: group.failure)
    with pytest.raises(TrackingError, match=r"'orders/0' ends at offset 4, and ended at 5 before"):
        group.close()
    assert not kafka.tracker.left
