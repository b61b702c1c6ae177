"""What is shipped: the wheel, built from the sdist alone, has all that runs, and says what it is."""

from __future__ import annotations

import tarfile
import zipfile
from collections.abc import Iterator
from email import message_from_string
from pathlib import Path

import pytest
import trove_classifiers

from scripts.summary import ROOT
from tests.docs.test_lock_file import PROJECT
from tests.install.__main__ import FLOORS, ROWS, VARIED
from tests.install.environments import build

PACKAGES = {
    "lowmark": ROOT,
    "tracker": ROOT,
    "local_tracker": ROOT,
    "fronts": ROOT,
    "acker": ROOT / "proto",
}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    directory = tmp_path_factory.mktemp("dist")
    build(directory)
    yield directory


def _wheel(built: Path) -> zipfile.ZipFile:
    (wheel,) = built.glob("*.whl")
    return zipfile.ZipFile(wheel)


def test_the_wheel_has_every_file_of_every_package_and_nothing_else(built: Path) -> None:
    shipped = {name for name in _wheel(built).namelist() if ".dist-info/" not in name}
    ours = {
        str(path.relative_to(root))
        for package, root in PACKAGES.items()
        for path in (root / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert shipped == ours
    assert any(name.endswith("query_delta.py.template") for name in shipped)


def test_the_sdist_has_what_builds_and_explains_it(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "pyproject.toml",
        "README.md",
        "CHANGELOG.md",
        "LICENSE",
        "docs/spark.md",
        "Makefile",
    } <= names


def test_it_says_what_it_is(built: Path) -> None:
    with _wheel(built) as wheel:
        (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        told = message_from_string(wheel.read(name).decode())
    assert told["Name"] == "lowmark" and told["License-Expression"] == "Apache-2.0"
    assert set(told.get_all("Classifier") or []) <= trove_classifiers.classifiers
    assert "watermark" in told["Keywords"] and told["License-File"] == "LICENSE"


def test_the_changes_name_this_version() -> None:
    version = PROJECT["project"]["version"]
    assert f"\n## {version}" in (ROOT / "CHANGELOG.md").read_text()


def test_the_matrix_tries_the_floors_and_what_is_locked() -> None:
    floors = dict(text.split(">=") for text in PROJECT["project"]["dependencies"])
    assert {name: getattr(FLOORS, name) for name in VARIED} == {
        name: floor if floor.count(".") == 2 else f"{floor}.0" for name, floor in floors.items()
    }
    lock = (ROOT / "requirements.lock").read_text()
    assert any(all(f"\n{pin} " in f"\n{lock}" for pin in row.pins) for row in ROWS)
