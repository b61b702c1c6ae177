"""What is shipped: the wheel, built from the sdist alone, has all that runs, and says what it is."""

from __future__ import annotations

import sys
import tarfile
import zipfile
from email import message_from_string
from pathlib import Path

import pytest
import trove_classifiers

from scripts.artifacts import Built, build_wheel
from scripts.summary import ROOT
from tests.docs.test_lock_file import PROJECT
from tests.install.__main__ import FLOORS, ROWS, VARIED
from tests.install.environments import EPOCH, build, lent
from tests.waits import PROGRAM_S
from tracker import __version__

PACKAGES = {
    "lowmark": ROOT,
    "tracker": ROOT,
    "local_tracker": ROOT,
    "fronts": ROOT,
    "acker": ROOT / "proto",
}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(tmp_path_factory.mktemp("dist"))


def test_the_wheel_has_every_file_of_every_package_and_nothing_else(built: Built) -> None:
    shipped = {
        name for name in zipfile.ZipFile(built.wheel).namelist() if ".dist-info/" not in name
    }
    ours = {
        str(path.relative_to(root))
        for package, root in PACKAGES.items()
        for path in (root / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert shipped == ours
    assert any(name.endswith("query_delta.py.template") for name in shipped)


def test_the_sdist_has_what_builds_and_explains_it(built: Built) -> None:
    with tarfile.open(built.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE", "CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md",
        "docs/spark.md", "Makefile", "helm/lowmark/Chart.yaml", "Dockerfile", "image.lock", "proto/acker/v1/types_pb2.py",
    } <= names  # fmt: skip


def test_the_wheel_of_the_sdist_is_that_of_the_tree(built: Built, tmp_path: Path) -> None:
    of_tree = build_wheel(ROOT, tmp_path, EPOCH)
    assert of_tree.name == built.wheel.name
    assert of_tree.read_bytes() == built.wheel.read_bytes()


def test_pip_installs_the_sdist_with_all_that_the_wheel_has(built: Built, tmp_path: Path) -> None:
    """Here with the packages of this environment; `make install-matrix` has nothing but registries."""
    environment = lent(tmp_path)
    pip = [sys.executable, "-m", "pip", "--python", str(environment.python), "install", "--quiet"]
    alone = ["--force-reinstall", "--no-index", "--no-deps", "--no-build-isolation", "--no-compile"]
    environment.run([*pip, *alone, str(built.sdist)], PROGRAM_S)
    (packages,) = environment.home.glob("lib/python*/site-packages")
    shipped = zipfile.ZipFile(built.wheel).namelist()
    assert [name for name in shipped if not (packages / name).is_file()] == []
    lowmark = environment.home / "bin" / "lowmark"
    assert environment.run([str(lowmark), "--version"], PROGRAM_S).strip() == __version__
    where = (
        "import acker.v1.types_pb2, lowmark; print(acker.v1.types_pb2.__file__, lowmark.__file__)"
    )
    for file in environment.run([str(environment.python), "-c", where], PROGRAM_S).split():
        assert Path(file).is_relative_to(packages)


def test_it_says_what_it_is(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as wheel:
        (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        told = message_from_string(wheel.read(name).decode())
    assert told["Name"] == "lowmark" and told["License-Expression"] == "Apache-2.0"
    assert told["Version"] == __version__
    assert set(told.get_all("Classifier") or []) <= trove_classifiers.classifiers
    assert "watermark" in told["Keywords"] and told["License-File"] == "LICENSE"


def test_the_changes_name_this_version() -> None:
    assert f"\n## {__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_the_matrix_tries_the_floors_and_what_is_locked() -> None:
    floors = dict(text.split(">=") for text in PROJECT["project"]["dependencies"])
    assert {name: getattr(FLOORS, name) for name in VARIED} == {
        name: floor if floor.count(".") == 2 else f"{floor}.0" for name, floor in floors.items()
    }
    lock = (ROOT / "requirements.lock").read_text()
    assert any(all(f"\n{pin} " in f"\n{lock}" for pin in row.pins) for row in ROWS)
