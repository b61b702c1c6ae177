"""A program outside of the repository is type-checked against the wheel, by what the wheel holds alone."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from scripts.site_pages import FACE
from tests.docs.pages import ROOT
from tests.waits import HANG_S

GOOD = """
from collections.abc import Iterator
from concurrent.futures import Future
from datetime import datetime
from pathlib import Path
from typing import assert_type

from lowmark import (
    Admin, AsyncSubscriber, Credentials, FileFront, Outcome, PipelineSpec, Runs, SecureTarget,
    Subscriber, Update, Waited, acks, embedded, slot_of, wait_complete,
)
from lowmark.barrier import ReorderBuffer
from lowmark.errors import RefusedError
from lowmark.nodes import Cells, Heartbeat, NodeClient, TickContent, root_value
from lowmark.periods import signing


def orders() -> int | None:
    with embedded() as tracker:
        tracker.register(PipelineSpec("orders", ("ship",), fronts=("shop",)))
        with tracker.node("orders", "shop") as shop:
            order = Cells.of([(0, 5, root_value("shop", 0, 0), 1)])
            assert_type(shop.commit(TickContent(created=order)), Future[int])
        return tracker.subscriber("orders").min_time()


def report(target: str, until: datetime) -> str:
    waited = assert_type(wait_complete(target, "orders", until, "ship", timeout_s=60), Waited)
    return waited.why if waited.outcome is Outcome.HELD else ""


def label(target: str, directory: Path) -> None:
    with FileFront(target, "orders", "shop", "ship", directory, format="json") as front:
        front.write([{"n": 1}])


async def follow(target: str) -> None:
    async with AsyncSubscriber(SecureTarget(target, Credentials(ca="ca.pem")), "orders") as progress:
        async for update in progress.updates():
            assert_type(update, Update)


@acks.operator("ship")
def ship(rows: Iterator[int]) -> Iterator[int]:
    for row in rows:
        acks.consume("ship", slot_of(row, 10), row)
        yield row


assert_type(signing.new_secret(), str)
"""

BAD = """
from lowmark import Subscriber, acks
from lowmark.nodes import TickContent
from lowmark import no_such_name

progress = Subscriber("127.0.0.1:7070")
TickContent(creates=())
text: str = acks.min_time()
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the wheel alone, which is made as it would be published."""
    dist = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", dist],
        cwd=ROOT, check=True, capture_output=True, timeout=HANG_S,
    )  # fmt: skip
    home = tmp_path_factory.mktemp("environment")
    venv.create(home, with_pip=False)
    places = {"base": str(home), "platbase": str(home)}
    packages = Path(sysconfig.get_path("purelib", "venv", places))
    with zipfile.ZipFile(next(dist.glob("*.whl"))) as wheel:
        wheel.extractall(packages)
    return Path(sysconfig.get_path("scripts", "venv", places)) / "python"


def _names() -> list[str]:
    """All that is public, each where it is."""
    modules = ["lowmark", *(f"lowmark.{name}" for name in FACE if name)]
    return [f"{m}.{name}" for m in modules for name in importlib.import_module(m).__all__]


@pytest.fixture(scope="module")
def checked(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What mypy says of each program, line by line. It reads the packages once for all of them, and none that they need:
    with those it would take five times as long, and find no more."""
    directory = tmp_path_factory.mktemp("programs")
    imports = sorted({f"import {name.rpartition('.')[0]}" for name in _names()})
    shown = [*imports, *(f"reveal_type({name})" for name in _names())]
    programs = {"good.py": GOOD, "bad.py": BAD, "names.py": "\n".join(shown)}
    for name, text in programs.items():
        (directory / name).write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--no-error-summary",
         f"--cache-dir={os.devnull}", f"--python-executable={installed}", *programs],
        cwd=directory, check=False, capture_output=True, text=True, timeout=HANG_S,
    )  # fmt: skip
    assert not done.stderr, done.stderr
    found = done.stdout.splitlines()
    return {name: [line for line in found if line.startswith(f"{name}:")] for name in programs}


def test_the_wheel_is_what_runs_there(installed: Path, tmp_path: Path) -> None:
    program = "import lowmark, acker; from lowmark.nodes import Cells; print(lowmark.__file__)"
    # What it needs comes from the environment of the tests.
    needed = {"PYTHONPATH": sysconfig.get_path("purelib")}
    done = subprocess.run(
        [installed, "-c", program],
        env=needed, cwd=tmp_path, check=True, capture_output=True, text=True, timeout=HANG_S,
    )  # fmt: skip
    assert Path(done.stdout.strip()).is_relative_to(installed.parents[1])


def test_a_right_program_passes_in_strict_mode(checked: dict[str, list[str]]) -> None:
    assert checked["good.py"] == []


def test_wrong_uses_are_found(checked: dict[str, list[str]]) -> None:
    errors = [line for line in checked["bad.py"] if ": error:" in line]
    assert [line.rpartition("[")[2].rstrip("]") for line in errors] == [
        "attr-defined", "call-arg", "call-arg", "assignment",
    ]  # fmt: skip


def test_no_name_is_of_any_type(checked: dict[str, list[str]]) -> None:
    """A re-export that a type checker can't follow would let everything pass."""
    assert len(checked["names.py"]) == len(_names())
    for name, line in zip(_names(), checked["names.py"], strict=True):
        assert 'note: Revealed type is "' in line, line
        assert 'is "Any"' not in line, name
