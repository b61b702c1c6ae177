"""`make check`: which checks a run takes, how it judges each, and what it keeps of it."""

from __future__ import annotations

import argparse
import os
import runpy
import select
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from scripts.check import __main__ as program
from scripts.check import running
from scripts.check.record import BESIDE_THE_CODE, Record, Result, Status, commit
from scripts.check.registry import (
    Check,
    Form,
    UnknownWord,
    quick,
    read_checks,
    sabotaged,
    whole,
)
from scripts.check.showing import cut, page_rows, written
from scripts.summary import ROOT
from tests.waits import HANG_S

CHECKS = read_checks()
ONE = Check(
    "one", "", "one", "--few", options={"N": "--items"}, sabotages=("early",), finds=("false",)
)
TWO = Check("two", "", "two", "")
FAKES = {"one": ONE, "two": TWO}
CODE = "abc1234"


def result(form: Form, status: Status = Status.OK, commit: str = CODE) -> Result:
    return Result(form.check.name, form.name, status, f"{form.check.name}: {status}", 1.0, commit)


class Runner:
    """Runs nothing; remembers what it was asked for."""

    def __init__(self, **statuses: Status) -> None:
        self.statuses, self.ran = statuses, list[tuple[str, str]]()

    def __call__(self, form: Form, needs: running.Needs) -> Result:
        self.ran.append((form.check.name, form.name))
        return result(form, self.statuses.get(form.check.name, Status.OK))


def names(forms: Sequence[Form]) -> list[tuple[str, str]]:
    return [(form.check.name, form.name) for form in forms]


@pytest.mark.parametrize(
    ("words", "arguments", "expected"),
    [
        ([], [], [("one", "quick"), ("two", "quick")]),
        (["all"], [], [("one", "whole"), ("two", "whole")]),
        (["two", "one"], [], [("one", "whole"), ("two", "whole")]),
        (["one", "N=5"], [], [("one", "N=5")]),
        (["one"], ["--only", "a b"], [("one", "ARGS=--only 'a b'")]),
        (["SABOTAGE=all"], [], [("one", "SABOTAGE=early")]),
        (["two", "SABOTAGE=all"], [], []),
    ],
)
def test_words_choose_checks_and_forms(
    words: list[str], arguments: list[str], expected: list[tuple[str, str]]
) -> None:
    assert names(program.chosen(FAKES, words, arguments)) == expected


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["three"], "no check 'three'; there are: one, two"),
        (["one", "SECONDS=5"], "one takes no SECONDS; it takes N, SABOTAGE"),
        (["one", "SABOTAGE=double"], "one has no sabotage 'double'; there are: early"),
        (["two", "SABOTAGE=early"], "two has no sabotage 'early'; there are: none"),
        (["one", "two", "N=5"], "variables and arguments are for one check alone"),
    ],
)
def test_unknown_words_are_refused(words: list[str], said: str) -> None:
    with pytest.raises(UnknownWord, match=said):
        program.chosen(FAKES, words, [])


def test_variables_stand_for_options_of_the_check() -> None:
    assert whole(ONE, {"N": "5", "SABOTAGE": "early"}, ("-x",)).arguments == (
        "--items", "5", "--sabotage", "early", "-x",
    )  # fmt: skip
    assert quick(ONE).arguments == ("--few",)


def read(path: Path) -> Record:
    """The record of a run, and one beside the code that nothing else writes."""
    return Record.read(path, path.with_name("recorded.json"))


def test_a_run_goes_on_where_it_was(tmp_path: Path) -> None:
    path, forms = tmp_path / "check.json", [quick(ONE), quick(TWO)]
    first = Runner(two=Status.FAILED)
    program.run_all(forms, read(path), running.Needs(), CODE, first)
    second = Runner()
    results = program.run_all(forms, read(path), running.Needs(), CODE, second)
    assert first.ran == [("one", "quick"), ("two", "quick")]
    assert second.ran == [("two", "quick")]
    assert program.summary(results, CODE)[1]


def test_two_runs_beside_each_other_keep_what_both_have_found(tmp_path: Path) -> None:
    path = tmp_path / "check.json"
    mine, other = read(path), read(path)
    mine.add(result(quick(ONE)))
    other.add(result(quick(TWO)))
    assert set(read(path).results) == {("one", "quick"), ("two", "quick")}


def test_what_is_recorded_beside_the_code_is_not_run_again_elsewhere(tmp_path: Path) -> None:
    record = read(tmp_path / "check.json")
    record.add(result(quick(ONE)))
    record.add(result(quick(TWO)))
    record.keep(["one"])
    (tmp_path / "check.json").unlink()
    runner = Runner()
    program.run_all(
        [quick(ONE), quick(TWO)], read(tmp_path / "check.json"), running.Needs(), CODE, runner
    )
    assert runner.ran == [("two", "quick")]


def test_a_record_of_checks_is_no_change_of_the_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*words: str) -> str:
        command = ["git", "-c", "user.name=n", "-c", "user.email=e", *words]
        return subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=HANG_S
        ).stdout.strip()

    def committed(path: Path) -> str:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{path.exists()}")
        git("add", "-A")
        git("commit", "-qm", "why")
        return git("rev-parse", "--short", "HEAD")

    beside = [tmp_path / path.relative_to(ROOT) for path in BESIDE_THE_CODE]
    monkeypatch.setattr("scripts.check.record.ROOT", tmp_path)
    monkeypatch.setattr("scripts.check.record.BESIDE_THE_CODE", beside)
    git("init", "-q")
    first = committed(tmp_path / "code.py")
    for path in beside:
        committed(path)
        path.write_text("more")
    assert commit() == first
    assert committed(tmp_path / "other.py") == commit() != first
    (tmp_path / "other.py").write_text("more")
    assert commit().endswith("+")


@pytest.mark.parametrize("code", ["def5678", f"{CODE}+"])
def test_what_was_green_on_other_code_is_run_again(code: str, tmp_path: Path) -> None:
    record = Record(tmp_path / "check.json")
    record.add(result(quick(ONE)))
    record.add(result(quick(TWO), commit=f"{CODE}+"))
    runner = Runner()
    program.run_all([quick(ONE), quick(TWO)], record, running.Needs(), code, runner)
    assert runner.ran == [("one", "quick"), ("two", "quick")]


def test_what_failed_the_last_time_goes_first(tmp_path: Path) -> None:
    record = Record(tmp_path / "check.json")
    record.add(result(quick(TWO), Status.BROKEN))
    runner = Runner()
    program.run_all([quick(ONE), quick(TWO)], record, running.Needs(), CODE, runner)
    assert runner.ran == [("two", "quick"), ("one", "quick")]


@pytest.mark.parametrize(
    ("statuses", "ok"),
    [
        ([Status.OK, Status.OK], True),
        ([Status.OK, Status.SKIPPED], True),
        ([Status.SKIPPED, Status.SKIPPED], False),
        ([Status.OK, Status.FAILED], False),
        ([Status.OK, Status.BROKEN], False),
    ],
)
def test_all_is_well_if_something_ran_and_nothing_failed(statuses: list[Status], ok: bool) -> None:
    results = [result(quick(ONE), status) for status in statuses]
    line, well = program.summary(results, CODE)
    assert well == ok and line.startswith(f"check: {'OK' if ok else 'FAILED'} checks=2 ")


def test_code_that_changed_meanwhile_is_no_commit_of_which_all_was_green() -> None:
    line, well = program.summary([result(quick(ONE), commit=f"{CODE}..def5678")], CODE)
    assert not well and line.endswith("moved_meanwhile=true")


@pytest.mark.parametrize(
    ("exit_code", "last", "status"),
    [
        (0, "one: OK items=3", Status.OK),
        (1, "one: FAILED false=1", Status.FAILED),
        (1, "one: SKIPPED there is no such server", Status.SKIPPED),
        (1, "one: OK items=3", Status.BROKEN),
        (0, "one: FAILED false=1", Status.BROKEN),
        (1, "ZeroDivisionError: division by zero", Status.BROKEN),
        (-9, "", Status.BROKEN),
        (None, "one: OK items=3", Status.BROKEN),
    ],
)
def test_a_check_is_judged_by_its_summary_and_its_exit_code(
    exit_code: int | None, last: str, status: Status
) -> None:
    assert running.judged(whole(ONE, {}), exit_code, ["begins", last])[0] is status


def test_what_is_kept_of_a_last_word_names_no_place_on_the_machine() -> None:
    said = '{"store": "sqlite:/var/tmp/a-run/store", "at": "http://one.example/a/b"}'
    line = running.judged(whole(ONE, {}), -15, [said])[1]
    assert line.endswith(': {"store": "sqlite:store", "at": "http://one.example/a/b"}')


@pytest.mark.parametrize(
    ("exit_code", "last", "status"),
    [
        (1, "one: FAILED items=3 false=2", Status.OK),
        (0, "one: OK items=3 false=0", Status.FAILED),
        (1, "one: FAILED items=3 false=0", Status.BROKEN),
        (1, "one: FAILED problem='the tracker did not start'", Status.BROKEN),
        (1, "ZeroDivisionError: division by zero", Status.BROKEN),
        (1, "one: SKIPPED there is no such server", Status.SKIPPED),
    ],
)
def test_a_sabotage_counts_if_the_checks_own_judge_finds_it(
    exit_code: int, last: str, status: Status
) -> None:
    (form,) = sabotaged(ONE)
    assert running.judged(form, exit_code, [last])[0] is status


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A check that can be run: its lines are written by the test."""
    monkeypatch.setattr(running, "LOGS", tmp_path / "logs")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path / "one.py"


def test_a_check_runs_with_its_arguments(module: Path) -> None:
    module.write_text("import sys; print('one: OK', 'arguments=' + ','.join(sys.argv[1:]))")
    done = running.run(quick(ONE), running.Needs())
    assert (done.status, done.line) == (Status.OK, "one: OK arguments=--few")


@pytest.mark.parametrize("session_of_its_own", [False, True])
def test_what_a_check_has_started_ends_with_it(
    module: Path, tmp_path: Path, session_of_its_own: bool
) -> None:
    module.write_text(
        textwrap.dedent(f"""
        import pathlib, subprocess
        child = subprocess.Popen(["sleep", "3600"], start_new_session={session_of_its_own})
        pathlib.Path({str(tmp_path / "child")!r}).write_text(str(child.pid))
        print("one: OK")
        """)
    )
    assert running.run(quick(ONE), running.Needs()).status is Status.OK
    with suppress(ProcessLookupError):  # it has gone, or will have gone
        select.select([os.pidfd_open(int((tmp_path / "child").read_text()))], [], [])


def test_a_check_that_hangs_is_ended(module: Path) -> None:
    module.write_text("import time; time.sleep(3600)")
    done = running.run(quick(ONE), running.Needs(), most_s=0.0)
    assert (done.status, done.line) == (Status.BROKEN, "it did not end in its time")


def test_what_a_machine_lacks_is_a_reason_to_skip(tmp_path: Path) -> None:
    script = tmp_path / "ensure-gold"
    script.write_text("#!/bin/sh\necho trying >&2\necho there is no gold here >&2\nexit 1\n")
    script.chmod(0o755)
    (tmp_path / "ensure-silver").symlink_to("/bin/true")
    needs = running.Needs(tmp_path)
    needing = quick(Check("one", "", "one", "", needs=("silver", "gold")))
    done = running.run(needing, needs)
    assert (done.status, done.line) == (Status.SKIPPED, "there is no gold here")
    assert not needs.why_not(quick(Check("one", "", "one", "", wants=("gold",))))


def test_the_page_has_whole_runs_before_quick_ones_and_counts_sabotages(tmp_path: Path) -> None:
    record = Record(tmp_path / "check.json")
    for form in (quick(ONE), whole(ONE, {}), *sabotaged(ONE)):
        record.add(result(form))
    rows = page_rows(FAKES, record)[2:]
    assert rows == [
        f"| `one` | whole | **OK** `OK` | 1 | `{CODE}` | 1 of 1 |",
        "| `two` | | not recorded | | | none there |",
    ]
    page = (ROOT / "docs" / "verification.md").read_text()
    assert rows[1] in written(page, rows)


def test_a_long_summary_keeps_both_ends() -> None:
    shown = cut("items=3 " + "x=1 " * 100 + "false=0", 60)
    assert len(shown) <= 60 and shown.startswith("items=3") and shown.endswith("false=0")


def test_make_knows_every_check_and_no_other() -> None:
    makefile = subprocess.run(
        ["make", "--no-print-directory", "-pn", "help"],
        cwd=ROOT, capture_output=True, text=True, check=True, timeout=HANG_S,
    ).stdout  # fmt: skip
    (declared,) = (line for line in makefile.splitlines() if line.startswith("CHECKS := "))
    assert declared.removeprefix("CHECKS := ").split() == list(CHECKS)


@pytest.mark.parametrize("check", CHECKS.values(), ids=list(CHECKS))
def test_every_check_is_there_with_what_its_row_names(check: Check) -> None:
    assert (ROOT / check.module.replace(".", "/")).is_dir() or (
        ROOT / f"{check.module.replace('.', '/')}.py"
    ).is_file()
    for program_name in (*check.needs, *check.wants):
        assert (ROOT / "scripts" / f"ensure-{program_name}").is_file()
    assert bool(check.sabotages) == bool(check.finds)


class Parsed(Exception):
    """A command line has been read without an error."""


@pytest.mark.parametrize("name", [name for name in CHECKS if name != "docs"])  # which takes none
def test_the_command_line_of_every_check_takes_its_options(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = CHECKS[name]
    read = argparse.ArgumentParser.parse_args

    def parse(parser: argparse.ArgumentParser, given: list[str] | None = None) -> None:
        read(parser, given)
        raise Parsed

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setenv("LOWMARK_ELASTIC", "1")
    variables = [{word: "1:2" if word == "SEEDS" else "1"} for word in check.options]
    for form in (quick(check), *sabotaged(check), *(whole(check, each) for each in variables)):
        monkeypatch.setattr(sys, "argv", [check.module, *form.arguments])
        with pytest.raises(Parsed):
            runpy.run_module(check.module, run_name="__main__", alter_sys=False)
