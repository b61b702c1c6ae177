"""What passes ends no member of a group, and one file that cannot be taken keeps no other; a run that has ended is not taken for one
that has nothing to do."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tracker
from fronts.front import FrontOptions
from fronts.groups import FileGroup, PartitionGroup
from fronts.members import held_locks
from fronts.places import StoredPlace
from fronts.turns import Turns
from tests.waits import until
from tracker import EmbeddedTracker
from tracker.core.model import PipelineSpec
from tracker.core.model.units import LabelledFile
from tracker.errors import Code, NotPublishedError, TrackingError
from tracker.files import AwayError
from tracker.files.local import sync


@pytest.fixture
def embedded() -> Iterator[EmbeddedTracker]:
    with tracker.embedded() as embedded:
        embedded.register(PipelineSpec("p", ("in",), open=True))
        yield embedded


def member_of(embedded: EmbeddedTracker, path: Path) -> FileGroup:
    options = FrontOptions(poll_interval_ms=2, heartbeat_interval_ms=5)
    return FileGroup(
        embedded.target, "p", "g", "in", path / "in", path / "out", options=options
    ).start()


def put(path: Path, name: str) -> None:
    (path / "beside").write_text("{}")
    os.rename(path / "beside", path / "in" / name)


def test_a_disk_that_cannot_be_read_for_a_moment_ends_no_member(
    embedded: EmbeddedTracker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with member_of(embedded, tmp_path) as group:
        asked: list[str] = []

        def failing(name: str, real: Any) -> Any:
            def call(*arguments: Any, **more: Any) -> Any:
                asked.append(name)
                if asked.count(name) < 3:
                    raise OSError(5, "Input/output error")
                return real(*arguments, **more)

            return call

        monkeypatch.setattr("fronts.renames.os.scandir", failing("scandir", os.scandir))
        monkeypatch.setattr("fronts.renames.held_locks", failing("locks", held_locks))
        monkeypatch.setattr("fronts.places.sync", failing("sync", sync))
        put(tmp_path, "a.json")
        until(lambda: group.taken == 1 or group.failure)
        assert group.failure is None
        assert {name: asked.count(name) >= 3 for name in set(asked)} == {
            "scandir": True, "locks": True, "sync": True
        }  # fmt: skip


def test_a_file_that_cannot_be_taken_keeps_no_other(
    embedded: EmbeddedTracker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its name would be too long with a label, say: each member ended by it, one after the other."""
    with member_of(embedded, tmp_path) as group:
        put(tmp_path, "a." + "x" * 230)
        put(tmp_path, "b.json")
        until(lambda: group.taken == 1 or group.failure)
        until(lambda: "cannot take" in caplog.text)
        put(tmp_path, "c.json")
        until(lambda: group.taken == 2 or group.failure)
        assert group.failure is None
    assert caplog.text.count("cannot take") == 1, "that is said once"


class AwayFront:
    """A front in a store that is away when it first looks for a file."""

    def __init__(self) -> None:
        self.front, self.asked = self, 0
        self.failure: TrackingError | None = None

    def start(self, timeout_s: float, lock_timeout_s: float) -> None: ...

    def check_running(self) -> None:
        if self.failure is not None:
            raise self.failure

    def take(self, path: str) -> Any:
        self.asked += 1
        if self.asked == 1:
            away = AwayError("it is away")
            raise OSError(str(away)) from away
        return object()

    def close(self) -> None: ...


def test_a_store_that_is_away_for_a_moment_ends_no_turn(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    front: Any = AwayFront()
    turns = Turns(str(tmp_path), lambda: front, "m", "group 'g': member 'm'")
    turns.begin()
    turns.look(threading.Event())
    turns.look(threading.Event())
    assert turns.taken == 1


def test_a_turn_whose_front_has_ended_is_over_though_there_is_no_file(tmp_path: Path) -> None:
    front: Any = AwayFront()
    turns = Turns(str(tmp_path), lambda: front, "m", "group 'g': member 'm'")
    turns.begin()
    front.failure = TrackingError("it was evicted", Code.TRACKING_FRONT)
    turns.look(threading.Event())
    assert not turns.members, "it is begun anew at the next look"


def test_what_a_store_answers_is_the_cause_of_what_was_not_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = StoredPlace(str(tmp_path), "f")

    def away(where: str) -> None:
        raise AwayError("it is away")

    monkeypatch.setattr(place._files, "size", away)  # noqa: SLF001
    labelled = LabelledFile(1, "f", 0, "json")
    with pytest.raises(NotPublishedError) as raised:
        place.take(str(tmp_path / "in/a"), labelled, "name", 0.0)
    assert isinstance(raised.value.__cause__, OSError)
    assert isinstance(raised.value.__cause__.__cause__, AwayError)


def test_a_quiet_partition_whose_front_was_evicted_is_started_again(
    embedded: EmbeddedTracker, tmp_path: Path
) -> None:
    """Nothing new is written there, so nothing was published, and nobody noticed: min time waited for its place."""
    options = FrontOptions(member="m", poll_interval_ms=2, heartbeat_interval_ms=5)
    with PartitionGroup(
        embedded.target, "p", "g", "in", tmp_path,
        partitions=lambda: ["a"], ends=lambda names: dict.fromkeys(names, 3), options=options,
    ) as group, embedded.admin() as admin:  # fmt: skip
        until(lambda: group.held == ["a"])
        until(lambda: admin.pipeline("p").state.fronts)
        admin.retire("p", "g/a")
        until(lambda: admin.pipeline("p").state.fronts or group.failure)
        assert group.failure is None


def test_a_member_whose_front_was_evicted_says_so_though_there_is_no_file(
    embedded: EmbeddedTracker, tmp_path: Path
) -> None:
    group = member_of(embedded, tmp_path)
    with embedded.admin() as admin:
        admin.retire("p", group.name)
    until(lambda: group.failure)
    with pytest.raises(TrackingError, match="fenced"):
        group.close()
