"""Fronts that share work in an object store: members come, leave and are killed; each file and each offset is
labelled once, and min time is right all along."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import tracker
from fronts import members
from fronts.members import StoredMembership
from local_tracker.spark.formats.ranges import PublishedRanges
from tests.cluster.children import Running, discard, now_slot
from tests.files.s3 import s3_bucket
from tests.processes.group_member import GROUP
from tests.waits import HANG_S, until
from tracker import EmbeddedTracker
from tracker.core.model import Cells, PipelineSpec, TickContent, Unit
from tracker.core.model.ack_values import range_value, unit_value
from tracker.core.model.units import parse_file_name, unit_name
from tracker.files import STORES, child


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    with s3_bucket() as bucket:
        yield bucket


@pytest.fixture
def embedded() -> Iterator[EmbeddedTracker]:
    with tracker.embedded() as embedded:
        embedded.register(PipelineSpec("p", ("in",), start_slot=now_slot(), open=True))
        yield embedded


class Inbox:
    """A directory of a store in which files appear, the labelled one, the members by name, each a process, and
    a reader."""

    def __init__(self, embedded: EmbeddedTracker, bucket: str, path: Path) -> None:
        self.embedded, self.path = embedded, path
        self.source, self.labelled = f"{bucket}/{path.name}/in", f"{bucket}/{path.name}/labelled"
        self.files = STORES.files(bucket)
        self.members: dict[str, Running] = {}
        self.put = 0
        self.read: dict[str, int] = {}

    def come(self, name: str) -> None:
        self.members[name] = member = Running(
            "tests.processes.group_member", self.embedded.target, "p", name, self.source,
            self.labelled, "0", errors=self.path / f"{name}.log",
        )  # fmt: skip
        member.start()
        member.until_says("started")

    def put_files(self, count: int) -> None:
        for _ in range(count):
            self.files.create(child(self.source, f"{self.put}.json"), str(self.put).encode())
            self.put += 1

    def waiting(self) -> list[str]:
        return [name for name in self.files.names(self.source) if name[0] not in "._"]

    def consume(self) -> None:
        with self.embedded.node("p", f"reader-{len(self.read)}") as reader:
            reader.join(HANG_S)
            for name in self.files.names(self.labelled):
                labels, where = parse_file_name(name), child(self.labelled, name)
                if labels is None or name in self.read:
                    continue
                unit = unit_name(where)
                content = TickContent(
                    consumed=Cells.of([(0, labels.slot, unit_value(unit), 1)]),
                    units_consumed=(Unit(0, unit, labels.slot),),
                )
                reader.commit(content, HANG_S)
                self.read[name] = int(self.files.read_whole(where, 100) or b"-1")
            reader.flush(HANG_S)


@pytest.fixture
def inbox(embedded: EmbeddedTracker, bucket: str, tmp_path: Path) -> Iterator[Inbox]:
    inbox = Inbox(embedded, bucket, tmp_path)
    yield inbox
    discard(inbox.members.values())


def test_members_take_turns_and_each_file_is_published_once(inbox: Inbox) -> None:
    inbox.come("a")
    inbox.come("b")
    inbox.put_files(12)
    until(lambda: len(inbox.waiting()) < 8, "one of them takes files")
    inbox.members.pop("a").kill()
    killed_at = now_slot()
    inbox.put_files(6)
    until(lambda: not inbox.waiting(), "the other one goes on with the group's front")
    inbox.consume()
    assert sorted(inbox.read.values()) == list(range(18))
    with inbox.embedded.subscriber("p") as subscriber:
        assert subscriber.wait_until(killed_at + 1, timeout_s=HANG_S), "nobody waits for the dead"
    inbox.come("c")
    last = inbox.members.pop("b")
    last.tell("finish")
    last.ends_well()
    inbox.put_files(3)
    until(lambda: not inbox.waiting(), "the one that stood by takes its turn")
    inbox.consume()
    assert sorted(inbox.read.values()) == list(range(21))
    with inbox.embedded.admin() as admin:
        until(lambda: not admin.pipeline("p").state.segments[0].open_items, "all is read")
        state = admin.pipeline("p").state
        assert [front.front for front in state.fronts] == [GROUP] and state.late_items == 0


def test_members_share_partitions_whose_journals_are_in_a_store(
    embedded: EmbeddedTracker, bucket: str, tmp_path: Path
) -> None:
    journals, ends_file = f"{bucket}/{tmp_path.name}/journals", tmp_path / "ends.json"
    ends = {f"orders/{number}": 10 for number in range(3)}

    def write_ends() -> None:
        hidden = tmp_path / "ends.tmp"
        hidden.write_text(json.dumps(ends))
        os.replace(hidden, ends_file)

    def come(name: str) -> Running:
        member = Running(
            "tests.processes.partition_member", embedded.target, "p", name, journals,
            str(ends_file), errors=tmp_path / f"{name}.err",
        )  # fmt: skip
        running.append(member)
        member.start()
        member.until(lambda line: line == "started")
        return member

    def labelled() -> dict[str, int]:
        reader = PublishedRanges(*(f"{journals}/orders%252F{n}.ranges" for n in range(3)))
        return {p: sum(e - b for b, e, _ in reader.slots(p, 0, end)) for p, end in ends.items()}

    def is_labelled() -> bool:
        try:
            return labelled() == ends
        except Exception as error:
            if "UnavailableError" in repr(error):
                return False
            raise

    running: list[Running] = []
    write_ends()
    try:
        first = come("a")
        until(is_labelled, "the first one labels all")
        come("b")
        first.kill()
        ends.update(dict.fromkeys(ends, 25))
        write_ends()
        until(is_labelled, "the other one goes on from the journals")
    finally:
        discard(running)
    reader = PublishedRanges(*(f"{journals}/orders%252F{n}.ranges" for n in range(3)))
    with embedded.node("p", "reader") as node:
        node.join(HANG_S)
        rows = [
            (0, slot, range_value(partition, begin, end), end - begin)
            for partition in ends
            for begin, end, slot in reader.slots(partition, 0, 25)
            if slot is not None
        ]
        node.commit(TickContent(consumed=Cells.of(rows))).result(HANG_S)
    with embedded.admin() as admin:
        assert admin.pipeline("p").state.segments[0].open_items == 0


def test_a_member_of_which_nothing_new_is_seen_is_gone(bucket: str) -> None:
    """By the clock of whoever looks, in its own time."""
    now = 0.0
    files, directory = STORES.files(bucket), f"{bucket}/members"
    one, other, killed = (
        StoredMembership(files, directory, name, lambda: now) for name in ("a/1", "b", "c")
    )
    for each in (one, other, killed):
        each.join()
    assert one.members() == ["a/1", "b", "c"]
    before = sum(files.requests.counted().values())
    assert one.members() == ["a/1", "b", "c"]
    assert sum(files.requests.counted().values()) == before, "not at each look"
    for _ in range(5):
        now += members.RENEWED_EVERY_S
        before = sum(files.requests.counted().values())
        other.members()
        assert sum(files.requests.counted().values()) - before <= 3 + 1
        found = one.members()
    assert found == ["a/1", "b"]
    other.leave()
    now += members.RENEWED_EVERY_S
    assert one.members() == ["a/1"]
    assert len(files.names(directory)) == 1, "who is gone leaves nothing behind"
