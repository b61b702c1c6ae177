"""Who begins in a later generation, while a member of before still runs, or one of this generation was evicted."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

import tracker
from fronts.groups import FileGroup
from fronts.renames import Renames
from tests.fronts.support import consume, file_front, new_reader, reached
from tests.fronts.test_group_restarted import FIRST, SPEC, Group
from tests.waits import HANG_S, until
from tracker.core.model import SilentFront
from tracker.core.model.units import file_name


def test_what_a_member_of_before_that_has_not_ended_published_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was busy when its pipeline was restarted, and had not looked whether its front runs."""
    busy, go_on = threading.Event(), threading.Event()
    looks = Renames.look

    def look(share: Renames, stopping: threading.Event) -> None:
        if busy.is_set() and "/a." in share.name:
            go_on.wait()
        looks(share, stopping)

    monkeypatch.setattr(Renames, "look", look)
    with tracker.embedded() as embedded:
        embedded.register(SPEC)
        group = Group(embedded, tmp_path)
        first = group.member("a").start()
        group.put(FIRST)
        busy.set()
        with embedded.admin() as admin:
            until(lambda: admin.pipeline("p").state.segments[0].min_time == FIRST)
            assert admin.restart("p", 0, FIRST) == (1, FIRST)
        group.slot = FIRST + 100
        threading.Timer(1.0, go_on.set).start()
        try:
            with group.member("b"):
                until(lambda: first.failure is not None)
                with embedded.subscriber("p") as subscriber:
                    assert not subscriber.wait_until(
                        FIRST + 1, timeout_s=0.5
                    )  # expires: nobody has read it
                consume(new_reader(embedded), group.files()[0])
                reached(embedded, group.slot)
        finally:
            go_on.set()


@pytest.mark.parametrize("restarted", [False, True])
def test_who_begins_goes_on_without_what_an_evicted_member_published(
    tmp_path: Path, restarted: bool
) -> None:
    """A member was killed behind its rename, and evicted when nobody else of the group was there."""
    spec = replace(SPEC, silent_front=SilentFront.EVICT, evict_after_ms=1_000)
    with tracker.embedded() as embedded:
        embedded.register(spec)
        group = Group(embedded, tmp_path)
        other = file_front(
            embedded, tmp_path / "other", clock=lambda: group.slot * SPEC.slack_ns
        ).start()
        if restarted:
            other.close()
            with embedded.admin() as admin:
                assert admin.restart("p", 0, FIRST - 10) == (1, FIRST - 10)
            other = file_front(
                embedded, tmp_path / "other", clock=lambda: group.slot * SPEC.slack_ns
            ).start()
        group.slot = FIRST
        first = group.member("a").start()
        killed(first)
        (tmp_path / "out" / file_name(FIRST, first.name, 0, "json")).write_text("{}")
        group.slot = FIRST + 100
        with embedded.subscriber("p") as subscriber:
            assert subscriber.wait_until(group.slot, timeout_s=HANG_S), "it is evicted"
        with group.member("b") as second:
            group.put(FIRST + 200)
            until(lambda: second.taken == 1 or second.failure)
            assert second.failure is None
        other.close()


def killed(member: FileGroup) -> None:
    """Its process ends: nothing is committed, nobody leaves, and its lock is free."""
    member._rounds.stop()  # noqa: SLF001
    member._share.end(failed=True)  # noqa: SLF001
