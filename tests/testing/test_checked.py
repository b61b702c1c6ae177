"""What `lowmark query check` says of what it has found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fronts.files import SLOT_COLUMN
from tests.waits import HANG_S
from tracker.cli.query_check import report
from tracker.testing.asserting import Differences, assert_complete
from tracker.testing.checking import Checked, Fed, Found, _moments, _rows_in, _World, sample_rows
from tracker.testing.hand import HandFront
from tracker.testing.moments import Moment
from tracker.testing.program import Running

WANTED = ["a", "b", "c"]


def found(rows: list[str], *killed: Moment, early: int = 0) -> Found:
    return Found(tuple(Moment), list(killed), Differences.between(WANTED, rows), early)


def checked(one: Found, *alone: Found, is_tracked: bool = True) -> Checked:
    return Checked("query.py", 4, 3, is_tracked, one, alone)


def test_a_query_that_keeps_all_is_said_in_a_line_and_what_was_not_caught_in_others() -> None:
    assert list(report(checked(found(WANTED, *Moment)))) == [
        "query.py: 3 rows of 4; killed 6 times: 0 lost, 0 doubled, 0 not expected, 0 early"
    ]
    few = checked(found(WANTED, *list(Moment)[1:]), is_tracked=False)
    assert few.ok and list(report(few))[1:] == [
        "  tasks: no driver was caught there",
        "  it is not tracked, so nothing is known of too early",
    ]


def test_each_moment_by_itself_is_said_where_something_is_wrong() -> None:
    bad = checked(
        found(["a", "a", "c"], *Moment, early=1),
        found(["a", "a", "b", "c"], Moment.COMMIT),
        found(["a", "c"], Moment.TICK, early=1),
    )
    assert not bad.ok
    assert list(report(bad)) == [
        "query.py: 3 rows of 4; killed 6 times: 1 lost, 1 doubled, 0 not expected, 1 early",
        '  killed at commit: of 3 rows 1 doubled: "a"; 0 early',
        '  killed at tick: of 3 rows 1 lost: "b"; 1 early',
    ]


@pytest.mark.parametrize(
    "one",
    [
        found(WANTED),
        found(WANTED, Moment.TICK, early=1),
        found([*WANTED, "d"], Moment.TICK),
        found(WANTED[1:], Moment.TICK),
    ],
    ids=["nobody was killed", "early", "not expected", "lost"],
)
def test_what_is_no_success(one: Found) -> None:
    assert not checked(one).ok


def test_what_comes_out_is_early_where_the_last_query_has_passed_it(tmp_path: Path) -> None:
    """And not while the last of several has not come so far."""
    (tmp_path / "pipeline.yaml").write_text(
        "{name: orders, segments: [price, store], edges: [price -> store], fronts: [shop]}"
    )
    rows = [{"amount": 1, SLOT_COLUMN: 7}, {"twice": 2, SLOT_COLUMN: 7}]
    with _World(tmp_path / "query.py") as world:
        target, query = vars(world)["_tracker"].target, {"checkpoint": "none"}
        segments = frozenset(("price", "store"))
        fed = Fed(query, Path("in"), world.spec, "price", True, segments)
        vars(world).update(_fed=fed, _folder=world.root / "in", _front=Nothing())
        (out := world.root / "priced").mkdir()
        (out / "1.json").write_text(json.dumps(rows[0]))
        with HandFront(target, "orders", "shop", "price") as shop:
            item = shop.let_in(7)
            shop.promise(8)
            item.move_to("store")
            assert_complete(target, "orders", 8, "price", timeout_s=HANG_S)
            assert world.early(rows) == 0
            item.done()
            assert_complete(target, "orders", 8, timeout_s=HANG_S)
            assert world.early(rows) == 1


def test_a_file_that_is_named_twice_has_its_rows_once(tmp_path: Path) -> None:
    """Where the first batch has published nothing, all files may have been there before the batches that are known."""
    (tmp_path / "1.json").write_text(json.dumps({"row": 1}))
    (batches := tmp_path / "_lowmark" / "price").mkdir(parents=True)
    (batches / "00000001.json").write_text(
        json.dumps({"files": [["w", "1.json"]], "slot": 7, "offsets": "", "run": "", "attempt": ""})
    )
    assert list(_rows_in(tmp_path)) == [{"row": 1}]


def test_a_row_ends_where_spark_ends_it(tmp_path: Path) -> None:
    rows = [{"said": "one\u2028and\x85the same"}, {"said": "another"}]
    text = "\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    (tmp_path / "1.json").write_text(text + "\n")
    (tmp_path / "2.json").touch()
    assert list(_rows_in(tmp_path)) == sample_rows(tmp_path / "1.json") == rows


def test_fronts_that_have_rules_of_their_own_may_be_checked(tmp_path: Path) -> None:
    (tmp_path / "pipeline.yaml").write_text(
        "{name: orders, segments: [price], "
        "fronts: [shop, {name: other, silent_front: evict, evict_after: 1h}]}"
    )
    with _World(tmp_path / "query.py") as world:
        assert world.spec is not None and world.spec.fronts == ("shop",)


def test_a_program_may_end_by_an_exit_of_its_own(tmp_path: Path) -> None:
    """Whether it has come to its moment is said by who runs it."""
    program = tmp_path / "query.py"
    program.write_text("import sys\nsys.exit(0)\n")
    Running(tmp_path / "report.json", Moment.COMMIT).run(str(program))
    program.write_text("import sys\nsys.exit('it cannot be')\n")
    with pytest.raises(SystemExit, match="it cannot be"):
        Running(tmp_path / "report.json", Moment.COMMIT).run(str(program))


def test_files_of_a_partition_are_seen_whatever_its_column_is_called(tmp_path: Path) -> None:
    for folder in ("_hour=7", "_temporary", ".staged=1"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "1.json").write_text(json.dumps({"row": 1}))
    assert list(_rows_in(tmp_path)) == [{"row": 1, "_hour": "7"}]


def test_a_driver_is_killed_before_its_sink_commits_where_that_does() -> None:
    def moments(*, is_committed: bool) -> tuple[Moment, ...]:
        return _moments(Fed({"out": ""}, Path(), None, is_committed=is_committed))

    assert moments(is_committed=True) == (Moment.TASKS, Moment.SINK, Moment.COMMIT)
    assert moments(is_committed=False) == (Moment.TASKS, Moment.COMMIT)


class Nothing:
    """A front that has published nothing."""

    def published(self) -> list[object]:
        return []
