"""The durable record: whatever was written is read again, wherever the process ended."""

from __future__ import annotations

import errno
import os
import struct
import zlib
from pathlib import Path

import pytest

from local_tracker.agent import spool as spool_module
from local_tracker.agent.spool import LastStep, Spool
from local_tracker.core.window import Step
from local_tracker.worker.protocol import Promise
from tests.local_tracker.fakes import one_cell
from tracker.core.model import Heartbeat, HoldMove
from tracker.core.model.slots import FOREVER
from tracker.errors import HandOverError


def step(sender: str, number: int) -> Step:
    return Step(
        sender, number, one_cell(0, number, 7), one_cell(1, -number, 8, 2), (Heartbeat("f", 3),)
    )


def said(spool: Spool) -> object:
    """All that a spool knows, as plain values."""
    pending = {
        number: [
            (s.sender, s.number, s.created.rows(), s.consumed.rows(), s.heartbeats) for s in steps
        ]
        for number, steps in spool.pending.items()
    }
    return pending, dict(spool.senders), spool.last_number, spool.identity


def write(spool: Spool) -> list[object]:
    """Everything that a spool records; returns what it knew after each record."""
    known = [said(spool)]
    spool.flush(1, (step("v", 1), step("w", 4)))
    known.append(said(spool))
    spool.done(1)
    known.append(said(spool))
    spool.flush(2, (step("v", 2), step("w", 5)))
    known.append(said(spool))
    spool.split(2)
    known.append(said(spool))
    spool.done(3)
    known.append(said(spool))
    spool.done(4, ("refused.below_min_time", "too late"))
    known.append(said(spool))
    spool.flush(5, (step("v", 3), step("x", 1)))
    known.append(said(spool))
    spool.flush(5, (step("y", 6),), "above")
    known.append(said(spool))
    spool.split(5)
    known.append(said(spool))
    for number in (6, 7, 8):
        spool.done(number)
        known.append(said(spool))
    return known


def reopened(spool: Spool, path: Path) -> Spool:
    """What the next process finds."""
    spool.close()
    return Spool(f"{path}/s")


def test_a_new_process_knows_what_the_old_one_wrote(tmp_path: Path) -> None:
    spool = Spool(f"{tmp_path}/s")
    assert spool.fresh
    spool.flush(1, (step("v", 1),))
    spool.flush(2, (step("v", 2), step("w", 5)))
    spool.done(1)
    before = said(spool)
    again = reopened(spool, tmp_path)
    assert not again.fresh
    assert said(again) == before
    assert list(again.pending) == [2]
    again.close()


def test_a_spool_without_even_its_name_knows_nothing(tmp_path: Path) -> None:
    """Its process was killed before it had written it, or somebody has emptied it."""
    path = tmp_path / "s"
    spool = Spool(str(path))
    name = spool.identity
    spool.close()
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        cut = Spool(str(path))
        assert cut.fresh
        assert cut.identity != name
        cut.close()


def test_what_a_flush_was_sent_to_is_kept_with_it(tmp_path: Path) -> None:
    spool = Spool(f"{tmp_path}/s")
    spool.flush(1, (step("v", 1),), "above")
    spool.flush(2, (step("v", 2), step("w", 1)), "another")
    spool.split(2)
    spool.done(1)
    for _ in range(2):
        assert spool.above == {3: "another", 4: "another"}
        spool.close()
        spool = Spool(f"{tmp_path}/s")
    spool.close()


def test_what_a_step_holds_is_kept_with_it(tmp_path: Path) -> None:
    spool = Spool(f"{tmp_path}/s")
    moves = (HoldMove("job 7", 1, 6), HoldMove("job 8", 0, FOREVER))
    spool.flush(1, (Step("v", 1, holds=moves), step("w", 4)))
    spool = reopened(spool, tmp_path)
    assert [each.holds for each in spool.pending[1]] == [moves, ()]
    spool.close()


def test_of_which_joining_a_promise_is_is_kept_with_it(tmp_path: Path) -> None:
    spool = Spool(f"{tmp_path}/s")
    promises = (Promise("f", 7, 3, 12), Heartbeat("g", 8))
    spool.flush(1, (Step("v", 1, heartbeats=promises),))
    spool = reopened(spool, tmp_path)
    assert [each.heartbeats for each in spool.pending[1]] == [promises]
    spool.close()


@pytest.mark.parametrize("rewritten", [False, True], ids=["as written", "written anew"])
def test_more_of_a_flush_that_is_recorded_ahead_belongs_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rewritten: bool
) -> None:
    spool = Spool(f"{tmp_path}/s")
    spool.flush(1, (step("v", 1), step("w", 4)), "above")
    if rewritten:
        monkeypatch.setattr(spool_module, "MAX_FILE_BYTES", 0)
    spool.flush(1, (step("x", 2),), "another")
    before = said(spool)
    spool = reopened(spool, tmp_path)
    assert said(spool) == before
    assert [(s.sender, s.number) for s in spool.pending[1]] == [("v", 1), ("w", 4), ("x", 2)]
    assert spool.above == {1: "another"}, (
        "it has not gone anywhere before its last step was recorded"
    )
    spool.close()


def test_a_split_flush_becomes_one_flush_for_each_step(tmp_path: Path) -> None:
    spool = Spool(f"{tmp_path}/s")
    write(spool)
    assert not spool.pending
    assert spool.last_number == 8
    assert spool.senders == {
        "v": LastStep(3, True),
        "w": LastStep(5, True, ("refused.below_min_time", "too late")),
        "x": LastStep(1, True),
        "y": LastStep(6, True),
    }
    spool.close()


def test_a_record_cut_off_anywhere_is_as_if_it_had_not_been_begun(tmp_path: Path) -> None:
    path = tmp_path / "s"
    spool = Spool(str(path))
    known = write(spool)
    spool.close()
    whole = path.read_bytes()
    seen = []
    for length in range(len(whole) + 1):
        path.write_bytes(whole[:length])
        cut = Spool(str(path))
        found = said(cut)
        cut.close()
        if length >= len(whole) or found in known:
            seen.append(known.index(found))
        else:
            # Not even the first record, the name of the spool, is there.
            assert found[:3] == ({}, {}, 0)  # type: ignore[index]
    assert seen == sorted(seen), "more of the file never says less"
    assert set(seen) == set(range(len(known)))


def test_a_tail_of_zeros_is_cut_off(tmp_path: Path) -> None:
    """A machine that lost power may have made the file longer, and not have written into it."""
    path = tmp_path / "s"
    spool = Spool(str(path))
    known = write(spool)
    spool.close()
    path.write_bytes(path.read_bytes() + bytes(100))
    again = Spool(str(path))
    assert said(again) == known[-1]
    again.close()


def test_it_does_not_grow_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_module, "MAX_FILE_BYTES", 10_000)
    path = tmp_path / "s"
    spool = Spool(str(path))
    for number in range(1, 1001):
        spool.flush(number, (step("v", number),))
        spool.done(number)
    assert path.stat().st_size < 11_000
    before = said(spool)
    spool.close()
    again = Spool(str(path))
    assert said(again) == before
    again.close()


def test_the_longest_silent_senders_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool_module, "MAX_SENDERS", 2)
    spool = Spool(f"{tmp_path}/s")
    for number, sender in enumerate(["u", "v", "u", "w"], 1):
        spool.flush(number, (step(sender, number),))
        spool.done(number)
    assert list(spool.senders) == ["u", "w"]
    spool.close()


def test_who_waits_for_what_became_of_a_step_is_not_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many have handed one over while the tracker is away: each may come again, and is not to count twice."""
    monkeypatch.setattr(spool_module, "MAX_SENDERS", 2)
    spool = Spool(str(tmp_path / "spool"))
    spool.flush(1, (step("settled", 1),))
    spool.done(1)
    spool.flush(2, tuple(step(f"w{n}", 1) for n in range(4)))
    assert [*spool.senders] == ["w0", "w1", "w2", "w3"]
    spool.close()
    spool = Spool(str(tmp_path / "spool"))
    assert [*spool.senders] == ["w0", "w1", "w2", "w3"]
    spool.done(2)
    spool.flush(3, (step("w4", 1),))
    assert [*spool.senders] == ["w3", "w4"]
    spool.close()


def test_a_full_disk_is_said_and_what_was_written_before_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = Spool(f"{tmp_path}/s")
    spool.flush(1, (step("v", 1),))
    before = said(spool)
    write = os.write

    def half_of_it(descriptor: int, data: bytes) -> int:
        write(descriptor, data[: len(data) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(os, "write", half_of_it)
        with pytest.raises(HandOverError, match=r"/s cannot be written .*make room") as refused:
            spool.flush(2, (step("v", 2),))
    assert refused.value.code == "refused.full"
    again = reopened(spool, tmp_path)
    assert said(again) == before, "the half that was written is cut off"
    again.close()


def test_a_record_that_could_not_be_synced_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its worker is told that it was not taken, and may do the step again under another number."""
    spool = Spool(f"{tmp_path}/s")
    before = said(spool)

    def broken(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as worn_out:
        worn_out.setattr(os, "fdatasync", broken)
        with pytest.raises(HandOverError) as refused:
            spool.flush(1, (step("v", 1),))
        assert refused.value.code == "refused.full"
        worn_out.setattr(os, "ftruncate", broken)
        with pytest.raises(HandOverError) as unknown:
            spool.flush(1, (step("v", 1),))
        assert unknown.value.code == "hand_over.unknown_outcome"
    again = reopened(spool, tmp_path)
    assert said(again) != before, (
        "nobody could take it back, and nobody was told that it was not taken"
    )
    again.close()


def test_it_belongs_to_one_process(tmp_path: Path) -> None:
    spool = Spool(f"{tmp_path}/s")
    with pytest.raises(HandOverError, match="another local tracker uses the spool"):
        Spool(f"{tmp_path}/s")
    spool.close()


@pytest.mark.parametrize("header", [b"[" * 100_000, b'{"a":' * 100_000, b"nay", b"[]", b"7"])
def test_a_record_that_is_whole_and_cannot_be_read_is_named(tmp_path: Path, header: bytes) -> None:
    """As whoever may write to the file can make it: the checksums are right."""
    spool = Spool(f"{tmp_path}/s")
    spool.flush(1, (step("v", 1),))
    spool.close()
    lengths = struct.pack(">III", len(header), 0, zlib.crc32(header))
    before = (tmp_path / "s").read_bytes()
    after = before + lengths + struct.pack(">I", zlib.crc32(lengths)) + header
    (tmp_path / "s").write_bytes(after)
    with pytest.raises(HandOverError, match=r"damaged at byte|cannot read") as refused:
        Spool(f"{tmp_path}/s")
    assert refused.value.code == "refused.invalid"
    assert (tmp_path / "s").read_bytes() == after, "nothing of it is changed"
