"""Fronts that share a directory: members come, leave and are killed; each file is published once, and
min time is right all along."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import tracker
from fronts.front import FrontOptions
from fronts.groups import FileGroup
from fronts.members import meant_for
from fronts.renames import Renames
from tests.cluster.children import now_slot
from tests.processes.group_member import GROUP
from tests.processes.shared import SharedDirectory
from tests.waits import HANG_S, until
from tracker import EmbeddedTracker
from tracker.core.model import PipelineSpec
from tracker.core.model.slots import FOREVER
from tracker.core.model.units import parse_file_name
from tracker.errors import UnavailableError


class Shared(SharedDirectory):
    """At an embedded tracker."""

    def __init__(self, embedded: EmbeddedTracker, path: Path) -> None:
        super().__init__(embedded.target, "p", path, anyone_after_ms=600_000)
        self.embedded = embedded


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Shared]:
    start = now_slot()
    with tracker.embedded(shards=2) as embedded:
        embedded.register(PipelineSpec("p", ("in",), start_slot=start, open=True))
        shared = Shared(embedded, tmp_path)
        yield shared
        shared.close()


def test_members_come_leave_and_are_killed_and_each_file_is_published_once(shared: Shared) -> None:
    shared.come("a")
    shared.come("b")
    shared.put_files(40)
    until(lambda: len(shared.waiting()) < 20, "both take files")
    shared.kill("a")
    killed_at = now_slot()
    shared.come("c")
    shared.put_files(40)
    until(lambda: not shared.waiting(), "those that are left take all")
    shared.leave("b")
    shared.put_files(20)
    until(lambda: not shared.waiting(), "the last one takes all")
    subscriber = shared.embedded.subscriber("p")
    # Nothing has been read: whatever became of the members, min time stands at the first file.
    first = min(
        file.slot for name in os.listdir(shared.labelled) if (file := parse_file_name(name))
    )
    assert subscriber.wait_until(first, timeout_s=HANG_S)
    assert subscriber.min_time() == first
    shared.consume()
    shared.flush()
    assert sorted(shared.read.values()) == list(range(100))
    later = now_slot() + 1
    assert later > killed_at
    assert subscriber.wait_until(later, timeout_s=HANG_S), "nobody waits for the dead"
    shared.leave("c")
    with shared.embedded.admin() as admin:
        until(lambda: not admin.pipeline("p").state.fronts, "its front has left")
        state = admin.pipeline("p").state
    assert state.segments[0].open_items == 0 and state.late_items == 0
    assert not list((shared.labelled / f".{GROUP}").glob(".*.lock")), "who has left has no lock"


def test_a_member_that_died_after_it_published_is_committed_for(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has moved files, and its tick was never made."""
    member = FileGroup(
        shared.embedded.target,
        "p",
        GROUP,
        "in",
        shared.source,
        shared.labelled,
        options=FrontOptions(member="a", poll_interval_ms=10),
    ).start(HANG_S)
    # As if the process were gone: nothing reaches the tracker any more, and then the lock is free.
    killed = threading.Event()
    share = renames(member)
    monkeypatch.setattr(share._front.front._node, "commit", lambda content: NeverDone(killed))
    shared.put_files(3)
    until(lambda: not shared.waiting(), "it publishes")
    member._rounds.stop()
    share._front._release()
    shared.come("b")
    subscriber = shared.embedded.subscriber("p")
    first = min(
        file.slot for name in os.listdir(shared.labelled) if (file := parse_file_name(name))
    )
    until(lambda: not held_by(shared, member.name), "the other one leaves for it")
    assert subscriber.min_time() <= first, "its files hold min time"
    shared.consume()
    shared.flush()
    later = now_slot() + 1
    assert subscriber.wait_until(later, timeout_s=HANG_S)
    killed.set()
    share._front.front.close(timeout_s=0)


def renames(member: FileGroup) -> Renames:
    assert isinstance(member._share, Renames)
    return member._share


class NeverDone:
    """A tick that nobody takes."""

    def __init__(self, killed: threading.Event) -> None:
        self._killed = killed

    def result(self, timeout_s: float | None = None) -> int:
        self._killed.wait(HANG_S)
        raise UnavailableError("nobody answers")


def held_by(shared: Shared, name: str) -> bool:
    with shared.embedded.admin() as admin:
        return any(front.front == name for front in admin.pipeline("p").state.fronts)


def test_only_files_of_those_who_come_or_go_change_hands() -> None:
    files = [f"{number}.json" for number in range(1000)]
    before = {file: meant_for(file, ["a", "b", "c"]) for file in files}
    joined = {file: meant_for(file, ["a", "b", "c", "d"]) for file in files}
    left = {file: meant_for(file, ["a", "c"]) for file in files}
    assert all(joined[file] in (before[file], "d") for file in files)
    assert all(left[file] == before[file] for file in files if before[file] != "b")
    assert {200 < list(before.values()).count(member) < 470 for member in "abc"} == {True}


def test_two_members_that_take_one_file_do_not_both_get_it(shared: Shared) -> None:
    shared.put_files(1)
    members = [
        FileGroup(shared.embedded.target, "p", GROUP, "in", shared.source, shared.labelled, options=FrontOptions(member=name, poll_interval_ms=600_000)).start(HANG_S)
        for name in ("a", "b")
    ]  # fmt: skip
    taken = [renames(member)._take(shared.source / "0.json") for member in members]
    assert [file is None for file in taken] == [False, True]
    shared.consume()
    shared.flush()
    for member in members:
        member.close()
    assert shared.embedded.subscriber("p").min_time() != FOREVER, "it stays open for more"
