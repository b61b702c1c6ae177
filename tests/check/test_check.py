"""The checker accepts a run that keeps every promise, and names each kind of violation."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.check.graph import distances
from tests.check.history import FOREVER, MalformedHistory, history_of
from tests.check.rules import violations
from tests.check.sound import (
    Line,
    absorbed,
    consumed,
    created,
    emitted,
    final,
    heard,
    line,
    sound_run,
    tick,
)
from tests.waits import HANG_S


def check(lines: list[Line]) -> list[str]:
    return violations(history_of(enumerate(lines, 1)))


def kinds(lines: list[Line]) -> set[str]:
    return {violation.split(":")[0] for violation in check(lines)}


def without(kind: str, **values: object) -> list[Line]:
    """The sound run without the lines of a kind that have these values; there must be some."""
    lines = sound_run()
    kept = [
        line
        for line in lines
        if line["kind"] != kind or any(line[name] != value for name, value in values.items())
    ]
    assert len(kept) < len(lines)
    return kept


def changed(kind: str, where: dict[str, object], **changes: object) -> list[Line]:
    """The sound run with changes to the only line of a kind that has the values of `where`."""
    lines = sound_run()
    found = [
        line
        for line in lines
        if line["kind"] == kind and all(line[name] == value for name, value in where.items())
    ]
    assert len(found) == 1
    found[0].update(changes)
    return lines


def test_a_sound_run_breaks_nothing() -> None:
    assert check(sound_run()) == []


def test_lines_may_come_in_any_order() -> None:
    assert check(sound_run()[::-1]) == []


FALSE_COMPLETIONS = {
    "an item of the segment itself is in flight": heard(19, "read", 6),
    "an item that will appear is not created yet": heard(9, "read", 6),
    "an item of the segment before can still reach it": heard(9, "sum", 7),
    "its child is in flight": heard(39, "sum", 7),
    "the whole pipeline is said to be further than one segment": heard(43, None, 8),
    "everything is said to be complete before the last item": heard(49, None, FOREVER),
}


@pytest.mark.parametrize("early", FALSE_COMPLETIONS.values(), ids=FALSE_COMPLETIONS)
def test_an_announcement_too_soon_is_a_false_completion(early: Line) -> None:
    found = [v for v in check([*sound_run(), early]) if v.startswith("false completion")]
    assert len(found) == 1


def test_the_announcement_of_the_slot_itself_is_exclusive() -> None:
    assert "false completion" not in kinds([*sound_run(), heard(19, "read", 5)])


def test_a_delay_lets_the_next_segment_be_further() -> None:
    assert "false completion" not in kinds([*sound_run(), heard(9, "sum", 6)])
    undelayed = sound_run()
    undelayed[0]["edges"] = [["read", "sum", 0]]
    assert "false completion" in kinds(undelayed)


def test_an_item_that_is_never_processed_makes_every_later_announcement_false() -> None:
    found = check(without("consumed", item="a'"))
    assert any(repr("a'") in v for v in found if v.startswith("false completion"))
    assert any(v.startswith("lost completion: item") for v in found)


# --- a pipeline that changes ----------------------------------------------------------------------


def grown(*more: Line) -> list[Line]:
    """The sound run, whose pipeline had no edge when it began; at 15 it was asked to have it, which was answered at 25,
    when `sum` had been announced up to 6."""
    lines = [*sound_run(), *more]
    lines[0]["edges"] = []
    change = line("changed", 25, asked_ns=15, segments=["read", "sum"], edges=[["read", "sum", 1]],
                  min_times={"read": 5, "sum": 6})  # fmt: skip
    return [*lines, change]


UNDER_CHANGE = {
    "a new edge does not count while the change is under way": (heard(19, "sum", 6), False),
    "a new edge counts from the answer on": (heard(29, "sum", 7), True),
    "what was announced before is heard again": (heard(29, "sum", 6), False),
    "an item in the segment itself counts always": (heard(24, "sum", 7), True),
}


@pytest.mark.parametrize(("said", "is_false"), UNDER_CHANGE.values(), ids=UNDER_CHANGE)
def test_a_new_edge_counts_for_what_is_announced_since(said: Line, *, is_false: bool) -> None:
    assert ("false completion" in kinds(grown(said))) == is_false


@pytest.mark.parametrize(("asked_ns", "is_false"), [(25, False), (30, True)])
def test_an_edge_that_is_gone_counts_until_it_is_asked_for(
    asked_ns: int, *, is_false: bool
) -> None:
    items = ("created", "consumed")
    kept = [each for each in sound_run() if each["kind"] not in items or each["segment"] == "read"]
    gone = line("changed", 35, asked_ns=asked_ns, segments=["read", "sum"], edges=[], min_times={})
    # The item of slot 6 in `read` is in flight until 30, and could reach `sum` in slot 7.
    assert ("false completion" in kinds([*kept, heard(29, "sum", 8), gone])) == is_false


# --- what is only in a query's state --------------------------------------------------------------


def in_state(*until: Line) -> list[Line]:
    """The sound run, in which row `r` of slot 6 is in the state of the query that creates in `sum`."""
    return [*sound_run(), absorbed(20, "sum", 6, "r"), *until]


def test_what_came_out_of_state_before_min_time_passed_it_is_sound() -> None:
    assert check(in_state(emitted(41, "sum", "r"))) == []


def test_min_time_must_not_pass_what_is_only_in_state() -> None:
    late = [v for v in check(in_state(emitted(43, "sum", "r"))) if v.startswith("false completion")]
    assert len(late) == 1 and "heard 7 for segment 'sum'" in late[0] and "'r'" in late[0]


def test_what_stays_in_state_must_be_expected_to() -> None:
    assert kinds(in_state()) == {"false completion", "lost completion"}
    held = [line for line in in_state() if line["kind"] not in ("heard", "expected", "final")]
    end = {"min_time": FOREVER, "open_slots": 0, "open_items": 0}
    holds = {"min_time": 6, "open_slots": 1, "open_items": 1}
    hold = {**tick(32, "query", 3), "holds": [["state", "sum", 6]]}
    nodes = {"F": 2, "query": 3, "total": 2}
    heard_of = [heard(61, "read", FOREVER), heard(61, "sum", 6), heard(61, None, 6)]
    last = final(70, segments={"read": end, "sum": holds}, nodes=nodes)
    told = {"kind": "expected", "at_ns": 70, "min_times": {"read": FOREVER, "sum": 6}}
    assert check([*held, hold, *heard_of, last, told]) == []
    let_go = {**tick(33, "query#2", 4), "holds": [["state", "sum", FOREVER]]}
    assert kinds([*held, hold, let_go, *heard_of, last, told]) == {"counted wrongly"}


def test_rows_in_state_are_of_segments_that_there_are() -> None:
    with pytest.raises(MalformedHistory, match="elsewhere"):
        check([*sound_run(), absorbed(20, "elsewhere", 6, "r")])


def test_what_a_subscriber_hears_must_not_go_back() -> None:
    assert kinds([*sound_run(), heard(62, "read", 6)]) == {"regress", "lost completion"}


def test_subscribers_are_judged_apart() -> None:
    other = {**heard(5, "read", 5), "subscriber": "late"}
    end = [
        {**heard(65, segment, FOREVER), "subscriber": "late"} for segment in ("read", "sum", None)
    ]
    assert check([*sound_run(), other, *end]) == []
    assert kinds([*sound_run(), other]) == {"lost completion"}


def test_a_subscriber_that_never_hears_the_end_lost_it() -> None:
    assert kinds(without("heard", segment="sum", min_time=FOREVER)) == {"lost completion"}


def test_a_process_that_ends_below_what_was_expected_lost_completion() -> None:
    stuck = {"min_time": 7, "open_slots": 1, "open_items": 1}
    done = {"min_time": FOREVER, "open_slots": 0, "open_items": 0}
    lines = without("final")
    found = kinds([*lines, final(70, segments={"read": done, "sum": stuck})])
    assert found == {"lost completion", "open cells", "counted wrongly"}


@pytest.mark.parametrize("kind", ["final", "expected"])
def test_a_history_that_just_ends_lost_completion(kind: str) -> None:
    assert kinds(without(kind)) == {"lost completion"}


@pytest.mark.parametrize("left", ["open_slots", "open_items"])
def test_what_is_left_in_a_segment_is_named(left: str) -> None:
    end = {"min_time": FOREVER, "open_slots": 0, "open_items": 0}
    lines = [*without("final"), final(70, segments={"read": end, "sum": {**end, left: 2}})]
    (found,) = [violation for violation in check(lines) if violation.startswith("open cells")]
    assert "'sum'" in found and "2" in found


def test_what_was_to_stay_incomplete_may_be_open() -> None:
    """Item b' is in flight when the run ends, as was expected of it."""
    done = {"min_time": FOREVER, "open_slots": 0, "open_items": 0}
    stuck = {"min_time": 7, "open_slots": 1, "open_items": 1}
    lines = [
        line
        for line in sound_run()
        if line["kind"] not in ("final", "expected")
        and (line["kind"], line.get("node"), line.get("number")) != ("tick", "total", 2)
        and (line["kind"], line.get("item")) != ("consumed", "b'")
        and (line.get("segment"), line.get("min_time")) not in (("sum", FOREVER), (None, FOREVER))
    ]
    end = {"kind": "expected", "at_ns": 70, "min_times": {"read": FOREVER, "sum": 7}}
    assert check([*lines, final(70, segments={"read": done, "sum": stuck}), end]) == []


@pytest.mark.parametrize("times", [0, 2], ids=["lost", "doubled"])
def test_a_run_that_was_given_up_still_shows_a_tick_that_is_not_counted_once(times: int) -> None:
    """Item b' is in flight when the run ends, and the tracker counts it `times` times."""
    lines = [
        line
        for line in sound_run()
        if line["kind"] != "final"
        and (line["kind"], line.get("item")) != ("consumed", "b'")
        and (line["kind"], line.get("node"), line.get("number")) != ("tick", "total", 2)
    ]
    done = {"min_time": FOREVER, "open_slots": 0, "open_items": 0}
    stuck = {"min_time": 7, "open_slots": 1, "open_items": times}
    found = check([*lines, final(70, segments={"read": done, "sum": stuck})])
    (wrong,) = [violation for violation in found if violation.startswith("counted wrongly")]
    assert f"counts {times} open items" in wrong and "say 1" in wrong


def test_consumption_below_min_time_is_named() -> None:
    assert kinds([*without("final"), final(70, late_items=3)]) == {"late"}


def test_an_acknowledged_tick_that_a_process_has_not_applied_is_lost() -> None:
    nodes = {"F": 1, "query": 2, "total": 2}
    found = check([*without("final"), final(70, nodes=nodes)])
    assert len(found) == 1
    assert found[0].startswith("tick lost") and "'F'" in found[0]


def test_a_tick_that_is_acknowledged_twice_is_counted_twice() -> None:
    again = tick(14, "F", 2)
    assert kinds([*sound_run(), again]) == {"counted twice"}


SPOILED: dict[str, tuple[Callable[[], list[Line]], set[str]]] = {
    "a tick that creates is missing": (
        lambda: without("tick", node="F", number=1),
        {"counted wrongly"},
    ),
    "a tick that consumes is missing": (
        lambda: without("tick", node="total", number=2),
        {"counted wrongly"},
    ),
    "a tick says another slot than the item's": (
        lambda: changed("tick", {"node": "F", "number": 1}, created=[["read", 6, 1]]),
        {"counted wrongly"},
    ),
    "a tick says another number of items": (
        lambda: changed("tick", {"node": "query", "number": 2}, consumed=[["read", 6, 2]]),
        {"counted wrongly"},
    ),
    "an item is consumed and was never created": (
        lambda: [*sound_run(), consumed(15, "read", "ghost")],
        {"counted wrongly"},
    ),
    "an item is created twice": (
        lambda: [*sound_run(), created(15, "read", 5, "a")],
        {"counted twice", "counted wrongly"},
    ),
    "an item is consumed twice": (
        lambda: [*sound_run(), consumed(15, "read", "a")],
        {"counted twice", "counted wrongly"},
    ),
}


@pytest.mark.parametrize("name", SPOILED)
def test_items_and_ticks_must_agree(name: str) -> None:
    spoil, expected = SPOILED[name]
    assert kinds(spoil()) == expected


@pytest.mark.parametrize("kind", ["tick", "created", "heard"])
def test_a_run_in_which_nothing_happened_proves_nothing(kind: str) -> None:
    assert "nothing to check" in kinds(without(kind))


@pytest.mark.parametrize(
    ("lines", "named"),
    [
        ([], "header"),
        ([*sound_run(), {"kind": "rumour", "at_ns": 1}], "rumour"),
        ([*sound_run(), {"kind": "consumed", "at_ns": 1}], "segment"),
        ([*sound_run(), heard(2, "elsewhere", 1)], "elsewhere"),
    ],
)
def test_what_is_no_history_is_refused(lines: list[Line], named: str) -> None:
    with pytest.raises(MalformedHistory, match=named):
        check(lines)


def test_the_shortest_way_counts_also_around_a_cycle() -> None:
    edges = [("a", "b", 3), ("a", "c", 1), ("c", "b", 1), ("b", "a", 0), ("b", "x", 0)]
    way = distances(["a", "b", "c", "x"], edges)
    assert way["a", "b"] == 2
    assert way["a", "a"] == 0
    assert way["c", "a"] == 1
    assert way["c", "x"] == 1
    assert ("x", "a") not in way


def run_check(path: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.check", str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=HANG_S)


@pytest.mark.parametrize(
    ("lines", "exit_code", "last"),
    [
        (sound_run(), 0, "check: OK"),
        ([*sound_run(), heard(19, "read", 6)], 1, "check: FAILED violations="),
        ([], 2, "check: FAILED"),
    ],
    ids=["sound", "broken", "no history"],
)
def test_the_program_says_so_in_its_last_line_and_exit_code(
    tmp_path: Path, lines: list[Line], exit_code: int, last: str
) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = run_check(path)
    assert done.returncode == exit_code, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith(last)
