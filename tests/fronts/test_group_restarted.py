"""A group whose members have left in order, and whose pipeline was restarted: what they had published from its first slot on
is committed anew by who begins next, before it promises anything."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import tracker
from fronts.files import FileFront, PublishedFile
from fronts.front import FrontOptions
from fronts.groups import FileGroup
from tests.fronts.support import consume, new_reader, reached
from tests.waits import until
from tracker import EmbeddedTracker
from tracker.core.model import PipelineSpec
from tracker.core.model.units import parse_file_name
from tracker.errors import StateError

SPEC = PipelineSpec("p", ("in",), open=True, slack_ns=1_000)
FIRST = 1_020


class Group:
    """What stands in the directories of one."""

    def __init__(self, embedded: EmbeddedTracker, path: Path) -> None:
        self.embedded, self.path, self.slot = embedded, path, 1_000

    def member(self, name: str) -> FileGroup:
        options = FrontOptions(
            member=name, poll_interval_ms=2, heartbeat_interval_ms=2,
            clock=lambda: self.slot * SPEC.slack_ns,
        )  # fmt: skip
        return FileGroup(
            self.embedded.target, "p", "g", "in", self.path / "in", self.path / "out", options=options
        )  # fmt: skip

    def put(self, slot: int) -> None:
        """Whoever takes part takes it, under this slot."""
        self.slot = slot
        (self.path / "beside").write_text("{}")
        os.rename(self.path / "beside", self.path / f"in/{slot}.json")
        until(lambda: not list((self.path / "in").iterdir()), "it is taken")

    def files(self) -> list[PublishedFile]:
        """By their slots."""
        found = [(parse_file_name(name), name) for name in os.listdir(self.path / "out")]
        return sorted(
            (
                PublishedFile(f"{self.path}/out/{name}", file.slot, file.batch)
                for file, name in found
                if file is not None
            ),
            key=lambda file: file.slot,
        )

    def locks(self, suffix: str) -> list[Path]:
        return list((self.path / "out/.g").glob(f".*{suffix}"))


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    """Three members have published a file each, the first and the last slot by the first, and are gone in order; the pipeline
    begins anew at the second slot."""
    with tracker.embedded(shards=2) as embedded:
        embedded.register(SPEC)
        group = Group(embedded, tmp_path)
        first = group.member("a").start()
        group.put(FIRST - 10)
        consume(new_reader(embedded), group.files()[0])
        reached(embedded, FIRST - 10)
        second = group.member("b").start()
        first.close()
        group.put(FIRST)
        third = group.member("c").start()
        second.close()
        group.put(FIRST + 10)
        third.close()
        with embedded.admin() as admin:
            assert admin.restart("p", 0, FIRST) == (1, FIRST)
        group.slot = FIRST + 100
        yield group


def all_is_waited_for(group: Group) -> None:
    """Min time passes what was published from the first slot on when it is consumed, and not before."""
    reader = new_reader(group.embedded)
    for file in group.files():
        if file.slot >= FIRST:
            reached(group.embedded, file.slot)
            consume(reader, file)
    reached(group.embedded, group.slot)
    with group.embedded.admin() as admin:
        assert admin.pipeline("p").state.late_items == 0


def test_what_members_that_have_left_published_is_waited_for(group: Group) -> None:
    with group.member("d"):
        all_is_waited_for(group)


def test_it_is_created_once_however_many_begin(group: Group) -> None:
    with ThreadPoolExecutor() as pool:
        members = list(pool.map(lambda name: group.member(name).start(), "def"))
    all_is_waited_for(group)
    for member in members:
        member.close()
    with group.member("g"):
        group.slot += 1
        reached(group.embedded, group.slot)  # created again, it would be open


def test_who_ends_while_it_looks_back_is_followed_by_the_next(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has begun, and committed anew what one of two had published. Min time waits."""
    left: list[FileFront] = []

    def leave(front: FileFront) -> None:
        if left:
            raise StateError("ends here")
        left.append(front)
        leaves(front)

    leaves = FileFront.leave
    monkeypatch.setattr(FileFront, "leave", leave)
    with pytest.raises(StateError, match="ends here"):
        group.member("d").start()
    monkeypatch.undo()
    reached(group.embedded, FIRST)
    with group.member("e"):
        all_is_waited_for(group)


def test_a_note_of_who_has_left_goes_with_what_it_published(group: Group) -> None:
    assert len(group.locks(".left")) == 3 and not group.locks(".lock")
    with group.member("d"):
        assert len(group.locks(".left")) == 2, "of the first one all is complete"
        all_is_waited_for(group)
    for file in group.files():
        file.path.unlink()
    with group.member("e"):
        assert not group.locks(".left")
    assert not group.locks(".left") and not group.locks(".known")
