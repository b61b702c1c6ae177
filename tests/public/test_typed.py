"""A program outside of the repository is type-checked against the wheel, by what the wheel holds alone."""

from __future__ import annotations

import importlib
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from scripts.site_pages import FACE
from tests.docs.pages import ROOT
from tests.waits import HANG_S

PACKAGES = ("lowmark", "tracker", "local_tracker", "fronts", "acker")

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
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the wheel and the source distribution, as they would be published."""
    target = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-t", "sdist", "-d", target],
        cwd=ROOT, check=True, capture_output=True, timeout=HANG_S,
    )  # fmt: skip
    return target


@pytest.fixture(scope="module")
def installed(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the wheel; what it needs comes from that of the tests."""
    home = tmp_path_factory.mktemp("environment")
    venv.create(home, with_pip=False)
    places = {"base": str(home), "platbase": str(home)}
    packages = Path(sysconfig.get_path("purelib", "venv", places))
    with zipfile.ZipFile(next(dist.glob("*.whl"))) as wheel:
        wheel.extractall(packages)
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return Path(sysconfig.get_path("scripts", "venv", places)) / "python"


def _checked(installed: Path, directory: Path, program: str) -> list[str]:
    """What mypy says of a program, line by line; what it finds out of the packages, once for all programs."""
    (directory / "program.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--no-error-summary",
         f"--cache-dir={installed.parents[1] / 'mypy'}", f"--python-executable={installed}", "program.py"],
        cwd=directory, check=False, capture_output=True, text=True, timeout=HANG_S,
    )  # fmt: skip
    assert not done.stderr, done.stderr
    return done.stdout.splitlines()


def test_every_package_says_that_it_is_typed(dist: Path) -> None:
    with zipfile.ZipFile(next(dist.glob("*.whl"))) as wheel:
        in_wheel = set(wheel.namelist())
    with tarfile.open(next(dist.glob("*.tar.gz"))) as source:
        in_source = {name.partition("/")[2].removeprefix("proto/") for name in source.getnames()}
    for package in PACKAGES:
        assert f"{package}/py.typed" in in_wheel & in_source, package
    stubs = {name for name in in_wheel if name.endswith(".pyi")}
    assert "acker/v1/node_service_pb2.pyi" in stubs & in_source


def test_the_wheel_is_what_runs_there(installed: Path, tmp_path: Path) -> None:
    program = "import lowmark, acker; from lowmark.nodes import Cells; print(lowmark.__file__)"
    done = subprocess.run(
        [installed, "-c", program],
        cwd=tmp_path, check=True, capture_output=True, text=True, timeout=HANG_S,
    )  # fmt: skip
    assert Path(done.stdout.strip()).is_relative_to(installed.parents[1])


def test_a_right_program_passes_in_strict_mode(installed: Path, tmp_path: Path) -> None:
    assert _checked(installed, tmp_path, GOOD) == []


def test_wrong_uses_are_found(installed: Path, tmp_path: Path) -> None:
    found = _checked(installed, tmp_path, BAD)
    assert [line.rpartition("[")[2].rstrip("]") for line in found if ": error:" in line] == [
        "attr-defined", "call-arg", "call-arg", "assignment",
    ]  # fmt: skip


def test_no_name_is_of_any_type(installed: Path, tmp_path: Path) -> None:
    """A re-export that a type checker can't follow would let everything pass."""
    modules = ["lowmark", *(f"lowmark.{name}" for name in FACE if name)]
    names = [f"{m}.{name}" for m in modules for name in importlib.import_module(m).__all__]
    program = [*(f"import {module}" for module in modules), *(f"reveal_type({n})" for n in names)]
    found = _checked(installed, tmp_path, "\n".join(program))
    assert len(found) == len(names)
    for name, line in zip(names, found, strict=True):
        assert 'note: Revealed type is "' in line, line
        assert 'is "Any"' not in line, name
