"""A wait that goes on while its pipeline is deleted, and another one gets its name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.client.support import TWO_SEGMENTS, delete
from tests.waits import HANG_S
from tracker import EmbeddedTracker
from tracker.client import Admin, RefusedError
from tracker.client.waiting import Outcome, generation_of, wait_complete, wait_complete_async
from tracker.core.model import RefusalCode

SLOT = 100


def gets_another(running: EmbeddedTracker) -> None:
    """Nothing of the pipeline was complete; the one that has its name now begins later."""
    delete(running)
    running.register(replace(TWO_SEGMENTS, start_slot=10 * SLOT))


def test_who_has_waited_in_vain_waits_for_no_other_pipeline_of_the_name(
    running: EmbeddedTracker,
) -> None:
    subscriber = running.subscriber("two")
    assert not subscriber.wait_until(SLOT, timeout_s=0.1)  # expires: nothing is complete
    gets_another(running)
    with pytest.raises(RefusedError, match="another one has its name") as refused:
        subscriber.wait_until(SLOT, timeout_s=HANG_S)
    assert refused.value.refusal.code is RefusalCode.UNKNOWN_PIPELINE


def test_a_wait_that_looks_who_is_silent_between_its_calls_takes_no_other_pipeline_for_its_own(
    running: EmbeddedTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is deleted while the wait looks, or while nobody answers it."""
    shards, done = Admin.shards, list[bool]()

    def looks(self: Admin) -> Any:
        if not done:
            done.append(True)
            gets_another(running)
        return shards(self)

    monkeypatch.setattr(Admin, "shards", looks)
    with pytest.raises(RefusedError, match="another one has its name"):
        wait_complete(running.target, "two", SLOT, timeout_s=HANG_S)
    assert done


async def test_a_wait_that_another_process_goes_on_with_takes_no_other_pipeline_for_its_own(
    running: EmbeddedTracker,
) -> None:
    """Airflow's triggerer was started again after the pipeline was deleted."""
    generation = generation_of(running.target, "two")
    assert generation is not None
    gets_another(running)
    with pytest.raises(RefusedError, match="another one has its name"):
        wait_complete(running.target, "two", SLOT, timeout_s=HANG_S, heard_generation=generation)
    with pytest.raises(RefusedError, match="another one has its name"):
        await wait_complete_async(
            running.target, "two", SLOT, timeout_s=HANG_S, heard_generation=generation
        )
    assert (await wait_complete_async(running.target, "two", SLOT)).outcome is Outcome.REACHED


def test_of_which_pipeline_nobody_can_say_anything_the_wait_says_what_is_wrong(
    running: EmbeddedTracker,
) -> None:
    assert generation_of(running.target, "nothing") is None
