"""The barrier: what was committed out of order comes out in order, once, when it is complete."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from tests.consumers.barrier import feeding
from tests.consumers.barrier.feeding import SEGMENT, SPEC, Feeder, barrier, in_order, row
from tests.waits import HANG_S, until
from tracker.client import Admin, FencedError, LowmarkError, NodeClient
from tracker.client.embedded import EmbeddedTracker
from tracker.consumers import reorder
from tracker.consumers.barrier import rows as barrier_rows
from tracker.consumers.barrier import taking
from tracker.consumers.barrier.barrier import Barrier, late_rows
from tracker.consumers.barrier.ledger import Ledger, Unit
from tracker.consumers.barrier.sink import Position
from tracker.consumers.barrier.sqlite import SqliteSink, ordered_rows
from tracker.consumers.barrier.taking import Taker
from tracker.consumers.reorder import Released, ReorderBuffer
from tracker.core.model import Heartbeat, PipelineSpec, RefusalCode, TickContent
from tracker.core.model.units import unit_name
from tracker.errors import Code, LateError, RefusedError, StateError, UnavailableError


def sink_in(directory: Path) -> SqliteSink:
    return SqliteSink(directory / "sink.db")


def out(directory: Path) -> list[tuple[int, str]]:
    """What is in the sink, in its order."""
    return [(each.slot, each.key) for each in ordered_rows(directory / "sink.db", "b")]


def feed(feeder: Feeder, slots: int = 6) -> None:
    """A file a slot, out of order, whose rows have times of their own at that slot or later."""
    rng = random.Random(7)
    order = list(range(1, slots + 1))
    rng.shuffle(order)
    for slot in order:
        rows = [row(slot + rng.randrange(3), f"k{rng.randrange(4)}", n=i) for i in range(5)]
        feeder.file(f"part-{slot}.json", slot, rows)


def test_rows_come_in_order_when_they_are_complete_and_not_before(
    running: EmbeddedTracker, feeder: Feeder, tmp_path: Path
) -> None:
    feed(feeder)
    with barrier(running.target, feeder, sink_in(tmp_path), tmp_path / "state") as one:
        feeder.promise(4)
        until(lambda: one.run(0.02) or one.min_time == 4)
        until(lambda: one.run(0.02) or not one.step())
        assert out(tmp_path) == [place for place in in_order(feeder.rows) if place[0] < 4]
        feeder.leave()
        assert one.run(HANG_S), "the segment is complete"
        assert one.counts.released == one.counts.rows == len(feeder.rows) == 30
        assert (one.counts.units, one.counts.waiting, one.counts.late) == (6, 0, 0)
    assert out(tmp_path) == in_order(feeder.rows)


def test_rows_of_one_slot_and_key_are_not_merged_and_are_ordered_by_where_they_come_from(
    running: EmbeddedTracker, feeder: Feeder, tmp_path: Path
) -> None:
    units = [
        feeder.file(f"{name}.json", 1, [row(1, "same", n=f"{name}{i}") for i in range(3)])
        for name in ("a", "b", "c")
    ]
    with barrier(running.target, feeder, sink_in(tmp_path), tmp_path / "state") as one:
        feeder.leave()
        assert one.run(HANG_S)
    found = [json.loads(each.payload)["n"] for each in ordered_rows(tmp_path / "sink.db", "b")]
    by_value = sorted(units, key=lambda name: Unit(name, 0, 0).origin)
    names = [unit.rpartition("/")[2][0] for unit in by_value]
    assert found == [f"{name}{i}" for name in names for i in range(3)]


class Killed(BaseException):
    """Stands for the end of the process: nothing catches it, and what was not durable is gone."""


POINTS: dict[str, tuple[Any, str]] = {
    "found": (Ledger, "found"),
    "resolved": (Ledger, "resolved"),
    "part": (Ledger, "add"),
    "whole": (Ledger, "whole"),
    "consumed": (Taker, "_consume"),
    "settled": (Ledger, "consumed"),
    "written": (SqliteSink, "write"),
    "released": (ReorderBuffer, "_drop_through"),
    "opened": (SqliteSink, "open"),
    "buffer put right": (ReorderBuffer, "written"),
}


@pytest.mark.parametrize("behind", [False, True], ids=["before", "behind"])
@pytest.mark.parametrize("point", POINTS)
def test_killed_at_any_step_it_neither_loses_nor_doubles_nor_reorders(
    running: EmbeddedTracker, feeder: Feeder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    point: str, behind: bool,
) -> None:  # fmt: skip
    monkeypatch.setattr(reorder, "RELEASE_ITEMS", 4)
    monkeypatch.setattr(barrier_rows, "CHUNK_ROWS", 2)
    owner, method = POINTS[point]
    original, left = getattr(owner, method), [0]

    def dies(*args: Any, **options: Any) -> Any:
        left[0] -= 1
        if left[0] == 0 and not behind:
            raise Killed
        result = original(*args, **options)
        if left[0] == 0:
            raise Killed
        return result

    monkeypatch.setattr(owner, method, dies)
    feed(feeder)
    feeder.leave()
    kills, finished = 0, False
    for after in (1, 2, 3, 1, 0):
        left[0] = after
        try:
            with barrier(running.target, feeder, sink_in(tmp_path), tmp_path / "state") as one:
                finished = one.run(HANG_S)
        except Killed:
            kills += 1
    assert finished and kills >= 1
    assert out(tmp_path) == in_order(feeder.rows)
    with Admin(running.target) as admin:
        assert admin.pipeline(SPEC.name).state.late_items == 0


def test_what_is_full_leaves_units_where_they_are_but_for_those_that_min_time_waits_for(
    running: EmbeddedTracker, feeder: Feeder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(barrier_rows, "CHUNK_ROWS", 2)
    for slot in (5, 6, 7, 8):
        feeder.file(f"{slot}.json", slot, [row(slot, f"k{i}") for i in range(3)])
    with barrier(running.target, feeder, sink_in(tmp_path), tmp_path / "state", max_rows=5) as one:
        until(lambda: one.run(0.02) or one.counts.rows == 5)
        until(lambda: one.run(0.02) or _explained(running, "room: 5 rows"))
        assert one.counts.rows == 5, "the others are still open, and hold min time"
        feeder.file("3.json", 3, [row(3, f"k{i}") for i in range(4)])
        feeder.promise(4)
        until(lambda: one.run(0.02) or len(out(tmp_path)) == 4)
        feeder.leave()
        assert one.run(HANG_S)
    assert out(tmp_path) == in_order(feeder.rows)


def test_beyond_its_reserve_it_ends_and_says_what_to_do(
    running: EmbeddedTracker, feeder: Feeder, tmp_path: Path
) -> None:
    feeder.file("1.json", 1, [row(9, f"k{i}") for i in range(11)])
    feeder.promise(1)
    with (
        pytest.raises(UnavailableError, match="would hold 11 items, the limit max_items is 10"),
        barrier(running.target, feeder, sink_in(tmp_path), tmp_path / "state", max_rows=5) as one,
    ):  # fmt: skip
        one.run(HANG_S)


def test_late_rows_are_refused_or_kept_beside_and_counted(
    running: EmbeddedTracker, feeder: Feeder, tmp_path: Path
) -> None:
    """A row below its file's own slot may come when that time was released already."""
    feeder.file("5.json", 5, [row(5, "fine"), row(2, "late"), row(6, "fine")])
    feeder.leave()
    with (
        pytest.raises(LateError, match=r"1 rows of .*5\.json are late, such as 'late' at slot 2"),
        barrier(running.target, feeder, sink_in(tmp_path), tmp_path / "state") as one,
    ):
        one.run(HANG_S)
    with barrier(
        running.target, feeder, sink_in(tmp_path), tmp_path / "state", late_beside=True
    ) as one:
        assert one.run(HANG_S)
        assert (one.counts.rows, one.counts.released, one.counts.late) == (3, 2, 1)
    assert out(tmp_path) == [(5, "fine"), (6, "fine")]
    (late,) = late_rows(tmp_path / "state", drop=True)
    assert (late.slot, late.key, late.ordinal) == (2, "late", 1)
    assert late_rows(tmp_path / "state") == []


def test_files_that_nobody_has_told_the_tracker_of_are_waited_for_and_named(
    running: EmbeddedTracker, feeder: Feeder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taking, "UNRESOLVED_AFTER_S", 0.0)
    feeder.written("stray.json", [row(1, "k")])
    with barrier(running.target, feeder, sink_in(tmp_path), tmp_path / "state") as one:
        until(lambda: one.run(0.02) or _explained(running, "files that no tick has created, such as stray.json"))  # fmt: skip
        assert one.counts.units == 0
        feeder.created("stray.json", 1)
        feeder.leave()
        assert one.run(HANG_S)
        one.step()
    assert out(tmp_path) == [(1, "k")]


def _explained(running: EmbeddedTracker, text: str) -> bool:
    with Admin(running.target) as admin:
        found = admin.explain(SPEC.name, SEGMENT)
    return text in repr(found)


def test_rows_of_the_programs_own_are_taken_once_however_often_they_are_said(
    running: EmbeddedTracker, feeder: Feeder, tmp_path: Path
) -> None:
    items = [(3, f"k{i}", b"{}") for i in range(4)]
    with Barrier(running.target, SPEC.name, SEGMENT, "b", sink_in(tmp_path), tmp_path / "s") as one:
        name = unit_name(str(feeder.directory / "polled-1"))
        with pytest.raises(LowmarkError, match="is not open in segment 'deliver': commit the tick"):
            one.add(name, items)
        feeder.created("polled-1", 3)
        assert one.add(name, items)
        assert not one.add(name, items)
        feeder.leave()
        assert one.run(HANG_S)
        assert not one.add(name, items)
    assert out(tmp_path) == [(3, f"k{i}") for i in range(4)]


Answer = Callable[[int], tuple[bool, bool]]
"""By the number of a call: whether it gets to the sink, and whether its answer comes back."""


@pytest.mark.parametrize(
    ("method", "answer", "least"),
    [
        # The answer to a write may be lost, before or behind it: only the sink knows.
        ("write", lambda call: (call % 3 != 1, call % 3 == 0), 7),
        ("open", lambda call: (call > 2, call > 2), 3),
    ],
)
def test_a_sink_that_is_away_is_waited_for(
    running: EmbeddedTracker, feeder: Feeder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    method: str, answer: Answer, least: int,
) -> None:  # fmt: skip
    monkeypatch.setattr(reorder, "RELEASE_ITEMS", 4)
    calls = _answers(monkeypatch, method, answer)
    feed(feeder)
    feeder.leave()
    with barrier(running.target, feeder, sink_in(tmp_path), tmp_path / "state") as one:
        assert one.run(HANG_S)
    assert out(tmp_path) == in_order(feeder.rows) and calls[0] >= least


def test_that_its_sink_is_away_is_explained(
    running: EmbeddedTracker, feeder: Feeder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    back = [False]
    _answers(monkeypatch, "open", lambda call: (back[0], back[0]))
    feed(feeder)
    feeder.leave()
    with barrier(running.target, feeder, sink_in(tmp_path), tmp_path / "state") as one:
        until(lambda: one.run(0.02) or _explained(running, "its sink: no answer"))
        assert one.counts.released == 0
        back[0] = True
        assert one.run(HANG_S)
    assert out(tmp_path) == in_order(feeder.rows)


def _answers(monkeypatch: pytest.MonkeyPatch, method: str, answer: Answer) -> list[int]:
    """Has a method of the sink answer so; returns how often it was called."""
    original, calls = getattr(SqliteSink, method), [0]

    def unsure(sink: SqliteSink, *args: Any) -> Any:
        calls[0] += 1
        arrives, answered = answer(calls[0])
        found = original(sink, *args) if arrives else None
        if not answered:
            raise UnavailableError("no answer", Code.UNAVAILABLE_SINK)
        return found

    monkeypatch.setattr(SqliteSink, method, unsure)
    return calls


def test_a_second_barrier_of_the_name_ends_the_first(
    running: EmbeddedTracker, feeder: Feeder, tmp_path: Path
) -> None:
    with barrier(running.target, feeder, sink_in(tmp_path), tmp_path / "one") as one:
        with barrier(running.target, feeder, sink_in(tmp_path), tmp_path / "two") as other:
            feed(feeder)
            feeder.leave()
            with pytest.raises(FencedError):
                one.run(HANG_S)
            assert other.run(HANG_S)
        assert out(tmp_path) == in_order(feeder.rows)


def test_a_second_barrier_that_is_refused_has_not_ended_the_first(
    running: EmbeddedTracker, feeder: Feeder, tmp_path: Path
) -> None:
    of_another = SqliteSink(tmp_path / "other.db")
    of_another.open("b", "another buffer")
    of_another.write([Released(0, 1, "k", b"{}")], Position("another buffer", 1, 1, "k"))
    of_another.close()
    with barrier(running.target, feeder, sink_in(tmp_path), tmp_path / "one") as one:

        def has_taken_all() -> bool:
            one.step()
            with NodeClient(running.target, SPEC.name, "barrier-b") as node:
                return any(batch.id == 6 for batch in node.check_join(HANG_S).last_batches)

        with pytest.raises(StateError, match="its positions mean other rows"):
            barrier(running.target, feeder, of_another, tmp_path / "two").__enter__()
        feed(feeder)
        until(has_taken_all)
        with pytest.raises(StateError, match="rows of the others were in a newer buffer"):
            barrier(running.target, feeder, sink_in(tmp_path), tmp_path / "three").__enter__()
        feeder.leave()
        assert one.run(HANG_S)
    assert out(tmp_path) == in_order(feeder.rows)


def test_another_state_than_the_trackers_or_the_sinks_is_refused(
    running: EmbeddedTracker, feeder: Feeder, tmp_path: Path
) -> None:
    feed(feeder)
    feeder.leave()
    with barrier(running.target, feeder, sink_in(tmp_path), tmp_path / "state") as one:
        assert one.run(HANG_S)
    with pytest.raises(
        StateError, match=r"the tracker has 6 units as taken .* has 0: rows of the others"
    ):
        barrier(running.target, feeder, sink_in(tmp_path), tmp_path / "new").__enter__()  # fmt: skip
    with pytest.raises(StateError, match=r"has no row of barrier 'b', and .* has let go of 30"):
        barrier(running.target, feeder, SqliteSink(tmp_path / "empty.db"), tmp_path / "state").__enter__()  # fmt: skip
    with pytest.raises(StateError, match="is the buffer of barrier 'b' of segment 'deliver'"):
        Barrier(running.target, SPEC.name, SEGMENT, "c", sink_in(tmp_path), tmp_path / "state").__enter__()  # fmt: skip
    with pytest.raises(StateError, match="another process"):
        first = barrier(running.target, feeder, sink_in(tmp_path), tmp_path / "state")
        with first:
            barrier(running.target, feeder, sink_in(tmp_path), tmp_path / "state").__enter__()


def test_a_pipeline_that_was_restarted_is_told_again_what_was_taken_before(
    running: EmbeddedTracker, feeder: Feeder, tmp_path: Path
) -> None:
    """Who feeds it creates in the new generation all from its first slot on, so the barrier has to consume that again,
    though the rows are in its buffer or in the sink; else min time stands at them for ever."""
    feed(feeder)
    feeder.promise(4)
    with barrier(running.target, feeder, sink_in(tmp_path), tmp_path / "state") as one:
        until(lambda: one.run(0.02) or (one.counts.units == 6 and len(out(tmp_path)) > 0))
    running.admin().restart(SPEC.name, 0)
    with NodeClient(running.target, SPEC.name, "feeder") as feeder.node:
        from_slot = feeder.node.join(HANG_S).replay_from
        feeder.node.join_front("front", SEGMENT, HANG_S)
        for slot in range(from_slot, 7):
            feeder.created(f"part-{slot}.json", slot)
        feeder.file("more.json", 8, [row(8, "more")])
        feeder.leave()
        with barrier(running.target, feeder, sink_in(tmp_path), tmp_path / "state") as one:
            until(lambda: one.run(0.02) or one.min_time > 8)
            assert one.run(HANG_S)
    assert out(tmp_path) == in_order(feeder.rows)
    with Admin(running.target) as admin:
        assert admin.pipeline(SPEC.name).state.late_items == 0


def test_who_hears_of_a_restart_by_what_is_announced_first_writes_nothing_by_that(
    running: EmbeddedTracker, feeder: Feeder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was taken before is not created again yet. The node hears of it later, from another process."""
    feeder.file("a.json", 5, [row(5, "a")])
    with barrier(running.target, feeder, sink_in(tmp_path), tmp_path / "state") as one:
        feeder.promise(4)
        until(lambda: one.run(0.02) or (one.min_time == 4 and one.counts.units == 1))
        one._taker.settle(HANG_S)  # noqa: SLF001 - a tick under way would be refused by the restart
        monkeypatch.setattr(NodeClient, "failure", None)
        running.admin().restart(SPEC.name, 0)
        with NodeClient(running.target, SPEC.name, "feeder") as feeder.node:
            feeder.node.join(HANG_S)
            feeder.node.join_front("front", SEGMENT, HANG_S)
            feeder.promise(10)
            with pytest.raises(FencedError, match="barrier 'b' has not joined it; start it again"):
                one.run(HANG_S)
        assert one.counts.released == 0


def test_rows_that_wait_in_a_segment_that_had_come_further_than_the_pipeline_outlive_a_restart(
    running: EmbeddedTracker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the tracker says of the segment is of the generation before then: it is no word that nobody makes again what waits."""
    two = replace(SPEC, name="two", segments=(SEGMENT, "other"), fronts=("front", "slow"))
    monkeypatch.setattr(feeding, "SPEC", two)
    name = feeding.SPEC.name
    running.register(feeding.SPEC)
    with Feeder(running.target, tmp_path / "out") as feeder, running.node(name, "slow") as slow:
        slow.join(HANG_S)
        slow.join_front("slow", "other", HANG_S)
        slow.commit(TickContent(heartbeats=(Heartbeat("slow", 2),))).result(HANG_S)
        feeder.file("a.json", 5, [row(5, "a")])
        feeder.file("b.json", 7, [row(7, "b")])
        with monkeypatch.context() as patch:
            patch.setattr(
                SqliteSink,
                "take",
                Mock(side_effect=UnavailableError("it is down", Code.UNAVAILABLE_SINK)),
            )
            with barrier(running.target, feeder, sink_in(tmp_path), tmp_path / "state") as one:
                feeder.promise(10)
                until(lambda: one.run(0.02) or (one.min_time == 10 and one.counts.units == 2))
                assert one.counts.waiting == 2
    running.admin().restart(name, 0)
    with barrier(running.target, feeder, sink_in(tmp_path), tmp_path / "state") as one:
        until(lambda: one.run(0.02) or one.min_time == 10)
        with (
            NodeClient(running.target, name, "feeder") as feeder.node,
            running.node(name, "slow") as slow,
        ):
            feeder.node.join(HANG_S)
            feeder.node.join_front("front", SEGMENT, HANG_S)
            feeder.created("a.json", 5)
            feeder.created("b.json", 7)
            feeder.leave()
            slow.join(HANG_S)
            slow.join_front("slow", "other", HANG_S)
            slow.leave_front("slow").result(HANG_S)
            assert one.run(HANG_S)
    assert out(tmp_path) == in_order(feeder.rows)


def test_rows_that_come_in_other_files_after_a_restart_are_written_once(
    running: EmbeddedTracker, feeder: Feeder, tmp_path: Path
) -> None:
    """A Spark query begins on an empty checkpoint, so its files have new names. What waited of the old ones goes: of one that
    was taken, of one that was taken in part; but not of one of before the new generation, whose rows nobody makes again."""
    feeder.file("kept.json", 3, [row(6, "kept")])
    feeder.file("old.json", 5, [row(5, "a"), row(7, "b")])
    feeder.file("partly.json", 5, [row(6, "c"), row(7, "d")])
    feeder.promise(4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(barrier_rows, "CHUNK_ROWS", 1)
        with barrier(running.target, feeder, sink_in(tmp_path), tmp_path / "state") as one:
            until(lambda: one.counts.rows == 4 or not [one.step()])
            assert (one.counts.units, one.counts.waiting) == (2, 4)
            until(lambda: one.min_time == 4)
    made, feeder.rows = feeder.rows, []
    running.admin().restart(SPEC.name, 0)
    with NodeClient(running.target, SPEC.name, "feeder") as feeder.node:
        feeder.node.join(HANG_S)
        feeder.node.join_front("front", SEGMENT, HANG_S)
        feeder.file("new.json", 5, made[1:])
        feeder.leave()
        with barrier(running.target, feeder, sink_in(tmp_path), tmp_path / "state") as one:
            assert one.run(HANG_S)
    assert out(tmp_path) == in_order(made)


def test_a_pipeline_that_was_deleted_and_registered_again_is_told_again_as_well(
    running: EmbeddedTracker, feeder: Feeder, tmp_path: Path
) -> None:
    """The tracker knows nothing of the barrier, which was told to go on by removing what it had recorded of it."""
    feeder.file("a.json", 5, [row(5, "a")])
    with barrier(running.target, feeder, sink_in(tmp_path), tmp_path / "state") as one:
        until(lambda: one.run(0.02) or one.counts.units == 1)
        feeder.promise(6)
        until(lambda: one.run(0.02) or one.min_time == 6)
    with Admin(running.target) as admin:
        admin.delete(SPEC.name, 0, drop_open=True)
        until(lambda: _registered(admin))
    (tmp_path / "state" / "known").unlink()
    with NodeClient(running.target, SPEC.name, "feeder") as feeder.node:
        feeder.node.join(HANG_S)
        feeder.node.join_front("front", SEGMENT, HANG_S)
        feeder.created("a.json", 5)
        feeder.leave()
        with barrier(running.target, feeder, sink_in(tmp_path), tmp_path / "state") as one:
            assert one.run(HANG_S)
    assert out(tmp_path) == [(5, "a")]


def test_what_waits_for_a_pipeline_that_was_deleted_is_not_complete_in_another_one_of_its_name(
    running: EmbeddedTracker, feeder: Feeder, tmp_path: Path
) -> None:
    """A row waits that others may yet come before; the pipeline is deleted, and the next one begins behind it."""
    feeder.file("a.json", 5, [row(8, "waits")])
    with barrier(running.target, feeder, sink_in(tmp_path), tmp_path / "state") as one:
        until(lambda: one.run(0.02) or one.counts.units == 1)
    with Admin(running.target) as admin:
        admin.delete(SPEC.name, 0, drop_open=True)
        until(lambda: _registered(admin, replace(SPEC, start_slot=100)))
        for _ in range(2):
            with pytest.raises(RefusedError, match="another one has its name"):
                barrier(running.target, feeder, sink_in(tmp_path), tmp_path / "state").__enter__()
        assert not admin.nodes(SPEC.name).nodes, "it has not joined"
    assert out(tmp_path) == []


def _registered(admin: Admin, spec: PipelineSpec = SPEC) -> bool:
    """The name is free when no shard can log anything of the pipeline any more."""
    try:
        admin.register(spec)
    except RefusedError as error:
        assert error.refusal.code is RefusalCode.NOT_READY
        return False
    return True
