"""Programs beside the tests: nothing of them is left, whatever they have started."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.schedulers.running import Programs, RunFailed
from tests.waits import HANG_S

STARTS_ONE = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1_000)"], start_new_session=True)
print(child.pid, flush=True)
time.sleep(1_000)
"""
"""A program with a child in a session of its own, whose number it prints."""


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    return Programs(tmp_path, os.environ)


def _child(programs: Programs) -> int:
    programs.start("parent", [sys.executable, "-c", STARTS_ONE])
    programs.wait_for("its child", lambda: programs.tail("parent").endswith("\n"), HANG_S)
    return int(programs.tail("parent"))


def test_what_a_killed_program_had_started_is_gone_too(programs: Programs) -> None:
    child = _child(programs)
    assert os.getpgid(child) == child
    programs.kill("parent")
    programs.wait_for("the end of the child", lambda: _gone(child), HANG_S)


def test_nothing_is_left_behind_the_block(programs: Programs) -> None:
    with programs:
        child = _child(programs)
    programs.wait_for("the end of the child", lambda: _gone(child), HANG_S)


def _gone(pid: int) -> bool:
    """Whether a process has ended; init may not have asked for its status yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_a_program_that_ends_before_what_is_awaited_is_a_fault(programs: Programs) -> None:
    with programs:
        programs.start("short", ["sh", "-c", "echo no more; exit 3"])
        with pytest.raises(RunFailed, match="short ended with 3 before the end of days: no more"):
            programs.wait_for("the end of days", lambda: False, HANG_S)


def test_a_call_says_its_status_and_what_it_alone_has_said(programs: Programs) -> None:
    assert programs.call("said", ["sh", "-c", "echo one; exit 1"], HANG_S) == (1, "one\n")
    assert programs.call("said", ["sh", "-c", "echo two >&2"], HANG_S) == (0, "two\n")


def test_a_program_that_does_not_end_in_time_is_a_fault(programs: Programs) -> None:
    with programs:
        programs.start("long", [sys.executable, "-c", "import time; time.sleep(1_000)"])
        with pytest.raises(RunFailed, match="long did not end within 0 s"):
            programs.ended("long", 0.0)
