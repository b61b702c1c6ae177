"""A release: what it refuses, that it changes all or nothing, and that whoever builds it again gets the same bytes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from scripts.artifacts import (
    CHART,
    SUMS,
    CannotBuildError,
    StepFailed,
    build_chart,
    build_image,
    write_sums,
)
from scripts.release import PLACES, ReleaseRefused, Repository, check, dated, set_version, tag
from scripts.summary import ROOT
from tests.waits import HANG_S, PROGRAM_S
from tracker import __version__

VERSION = "9.8.7"
CHANGES = f"# Changes\n\n## {VERSION}, not released yet\n\n- A thing.\n\n## 9.8.6, 2020-01-01\n\n- Another.\n"
NEEDED = (
    "lowmark", "tracker", "local_tracker", "fronts", "proto", "helm", "scripts", "docs/kubernetes.md", "pyproject.toml",
    "README.md", "LICENSE", ".gitignore",
)  # fmt: skip
"""What a release is made of; tests and pages only take time. `tests/dev/test_package.py` builds with them."""
LONG_AGO = "@1600000000 +0000"
"""2020-09-13, when the last commit of each repository here was made."""


def commit_all(repository: Repository) -> None:
    for words in (["init", "--quiet"], ["config", "user.name", "Somebody"], ["add", "--all"]):
        repository.git(*words)
    repository.git("config", "user.email", "somebody@lowmark.example")
    dates = {"GIT_AUTHOR_DATE": LONG_AGO, "GIT_COMMITTER_DATE": LONG_AGO}
    repository.git("commit", "--quiet", "--message", "All that there is", **dates)


@pytest.fixture
def small(tmp_path: Path) -> Repository:
    """A repository with no more than what names the version."""
    for name in {name for name, _ in PLACES}:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "CHANGELOG.md").write_text(CHANGES)
    repository = Repository(tmp_path)
    commit_all(repository)
    return repository


@dataclass(frozen=True)
class Run:
    """One run of the command: its exit status, what it printed, where its artifacts are, and their sums."""

    status: int
    printed: str
    directory: Path

    @property
    def sums(self) -> str:
        return (self.directory / SUMS).read_text()


def run(root: Path, directory: Path, *options: str, umask: int = 0o022, **variables: str) -> Run:
    done = subprocess.run(
        [sys.executable, "-m", "scripts.release", VERSION, "--out", str(directory), *options],
        cwd=root, env={**os.environ, **variables}, umask=umask, capture_output=True, text=True, check=False,
        timeout=PROGRAM_S,
    )  # fmt: skip
    return Run(done.returncode, done.stdout + done.stderr, directory)


@dataclass(frozen=True)
class Releases:
    """A version that is tried, released, and built again, elsewhere and by others, at the released commit."""

    repository: Repository
    before: str
    after_trial: tuple[str | None, list[str]]
    trial: Run
    real: Run
    again: Run


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> Releases:
    pytest.importorskip("helm_python", reason="Helm's engine has no wheel for this machine")
    place = tmp_path_factory.mktemp("release")
    repository = Repository(place / "tree")
    listed = Repository(ROOT).git(
        "ls-files", "-z", "--cached", "--others", "--exclude-standard", *NEEDED
    )
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (repository.root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, repository.root / name)
    (repository.root / "CHANGELOG.md").write_text(CHANGES)
    commit_all(repository)
    before = repository.commit_of("HEAD")
    assert before is not None
    trial = run(repository.root, place / "trial", "--dry-run")
    after_trial = (repository.commit_of("HEAD"), repository.unsaved())
    elsewhere = {"TZ": "Asia/Tokyo", "PYTHONHASHSEED": "3", "LC_ALL": "C", "SOURCE_DATE_EPOCH": "1"}
    real = run(repository.root, place / "real", umask=0o077, **elsewhere)
    repository.git("clone", "--quiet", str(repository.root), str(place / "clone"))
    again = run(place / "clone", place / "again", "--dry-run")
    return Releases(repository, before, after_trial, trial, real, again)


def test_a_dry_run_builds_and_changes_nothing(releases: Releases) -> None:
    assert releases.trial.status == 0, releases.trial.printed
    assert releases.after_trial == (releases.before, [])
    built = {line.split()[1] for line in releases.trial.sums.splitlines()}
    assert built >= {
        f"lowmark-{VERSION}-py3-none-any.whl",
        f"lowmark-{VERSION}.tar.gz",
        f"lowmark-{VERSION}.tgz",
    }
    assert built | {SUMS} == {path.name for path in releases.trial.directory.iterdir()}


def test_builds_are_equal_to_the_byte_and_at_the_released_commit_too(releases: Releases) -> None:
    """In other directories, another time zone, under another umask and hash seed: what is compared is bytes."""
    assert [releases.real.status, releases.again.status] == [0, 0], releases.again.printed
    # An image has what Debian has that day.
    same = [line for line in releases.trial.sums.splitlines() if "-image-" not in line]
    assert len(same) == 3
    for other in (releases.real, releases.again):
        assert [line for line in other.sums.splitlines() if "-image-" not in line] == same


def test_a_release_is_a_commit_with_a_tag_the_version_and_a_date(releases: Releases) -> None:
    repository = releases.repository
    assert repository.commit_of(f"v{VERSION}") == repository.commit_of("HEAD") != releases.before
    assert repository.commit_of("HEAD~1") == releases.before
    assert repository.unsaved() == []
    for name, line in PLACES:
        found = re.search(line, (repository.root / name).read_text(), re.MULTILINE)
        assert found is not None and found[1] == VERSION, name
    changes = (repository.root / "CHANGELOG.md").read_text()
    assert changes == CHANGES.replace("not released yet", "2020-09-13")


def test_artifacts_name_the_version_and_have_one_time(releases: Releases) -> None:
    for name in (f"lowmark-{VERSION}.tar.gz", f"lowmark-{VERSION}.tgz"):
        with tarfile.open(releases.trial.directory / name) as archive:
            assert {entry.mtime for entry in archive} == {1600000000}, name
            assert {(entry.uid, entry.gid, entry.uname) for entry in archive} == {(0, 0, "")}, name


def test_the_sums_are_what_sha256sum_checks(releases: Releases) -> None:
    command = ["sha256sum", "--check", "--strict", SUMS]
    done = subprocess.run(
        command, cwd=releases.trial.directory, check=False, capture_output=True, timeout=HANG_S
    )
    assert done.returncode == 0, done.stdout


def test_what_was_not_built_is_said_and_why(releases: Releases) -> None:
    report = json.loads((releases.repository.root / "build" / "release.json").read_text())
    has_image = any("-image-" in name for name in report["sums"])
    assert has_image != bool(report["without_image"])
    assert has_image or f"no image was built: {report['without_image']}" in releases.real.printed


def test_helm_takes_the_chart_as_it_takes_its_own(releases: Releases, tmp_path: Path) -> None:
    helm = pytest.importorskip("helm_python")
    ours = releases.trial.directory / f"lowmark-{VERSION}.tgz"
    theirs = Path(helm.package(releases.repository.root / CHART, destination=tmp_path))

    def contents(path: Path) -> dict[str, bytes]:
        with tarfile.open(path) as archive:
            return {
                name: file.read()
                for name in archive.getnames()
                if (file := archive.extractfile(name))
            }

    assert contents(ours) == contents(theirs)
    with helm.Chart.load(ours) as chart:
        assert (chart.name, chart.version) == ("lowmark", VERSION)


def test_another_time_gives_other_bytes(tmp_path: Path) -> None:
    """Else two builds would be equal whatever was done for it."""
    pytest.importorskip("helm_python", reason="Helm's engine has no wheel for this machine")
    sums: list[dict[str, str]] = []
    for epoch in (1600000000, 1600000001, 1600000001):
        directory = tmp_path / str(len(sums))
        directory.mkdir()
        sums.append(write_sums(directory, [build_chart(ROOT, directory, epoch)]))
    assert sums[0] != sums[1] == sums[2]


def edit(name: str, text: str) -> Callable[[Repository], object]:
    def change(repository: Repository) -> None:
        (repository.root / name).write_text(text)
        repository.git("commit", "--quiet", "--all", "--message", "An edit")

    return change


def leave(*names: str) -> Callable[[Repository], object]:
    return lambda repository: [(repository.root / name).write_text("") for name in names]


REFUSED: list[tuple[Callable[[Repository], Any], str, str]] = [
    (lambda r: None, "1.2", "'1.2' is no version: it is three numbers, such as 1.2.0"),
    (lambda r: None, "v9.8.7", "'v9.8.7' is no version"),
    (lambda r: None, "9.8.7rc1", "'9.8.7rc1' is no version"),
    (lambda r: None, "9.8.07", "'9.8.07' is no version"),
    (leave("new.py"), VERSION, "not committed: new.py; a release is a commit"),
    (leave("tracker/__init__.py"), VERSION, "not committed: tracker/__init__.py"),
    (leave(*"abcdefg"), VERSION, "not committed: a, b, c, d, e and 2 more; a release"),
    (lambda r: tag(r, VERSION), VERSION, "9.8.7 was released, v9.8.7 is commit "),
    (lambda r: None, "9.8.6", "CHANGELOG.md begins with '9.8.7, not released yet', not with 9.8.6"),
    (edit("CHANGELOG.md", "# Changes\n"), VERSION, "CHANGELOG.md begins with 'no section'"),
    (
        edit("CHANGELOG.md", CHANGES.replace("- A thing.\n", "")), VERSION,
        "the section of 9.8.7 in CHANGELOG.md has no entry",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("spoil", "version", "why"), REFUSED, ids=[why for *_, why in REFUSED])
def test_what_cannot_be_released_is_refused(
    small: Repository, spoil: Callable[[Repository], object], version: str, why: str
) -> None:
    spoil(small)
    with pytest.raises(ReleaseRefused, match=re.escape(why)):
        check(small, version, dry_run=False)


def test_a_released_version_is_tried_again_at_its_commit_alone(small: Repository) -> None:
    check(small, VERSION, dry_run=True)
    tag(small, VERSION)
    check(small, VERSION, dry_run=True)
    edit("docs/kubernetes.md", "Another text.\n")(small)
    with pytest.raises(ReleaseRefused, match="a version is released once"):
        check(small, VERSION, dry_run=True)


def test_a_commit_that_has_the_version_is_tagged_itself(small: Repository) -> None:
    set_version(small.root, VERSION, 1600000000)
    small.git("commit", "--quiet", "--all", "--message", "By hand")
    before = small.commit_of("HEAD")
    tag(small, VERSION)
    assert small.commit_of(f"v{VERSION}") == small.commit_of("HEAD") == before


def test_a_place_without_the_version_is_refused_before_anything_is_written(
    small: Repository,
) -> None:
    edit("docs/kubernetes.md", "No command.\n")(small)
    with pytest.raises(ReleaseRefused, match=r"docs/kubernetes\.md has no line like"):
        set_version(small.root, VERSION, 0)
    assert small.unsaved() == []


def test_a_date_that_is_there_stays() -> None:
    once = dated(CHANGES, VERSION, 0)
    assert "## 9.8.7, 1970-01-01\n" in once
    assert dated(once, VERSION, 1600000000) == once


def test_every_place_names_the_version_of_the_package() -> None:
    for name, line in PLACES:
        assert re.findall(line, (ROOT / name).read_text(), re.MULTILINE) == [__version__], name


DOCKER = """#!/bin/sh
echo "$*" >>"$0.log"
case "$1" in
version) [ -z "$AWAY" ] && echo amd64 ;;
image) echo an image >"$4" ;;
esac
"""


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program of this name, alone on the PATH: what it is asked stands in a log beside it."""
    program = tmp_path / "bin" / "docker"
    program.parent.mkdir()
    program.write_text(DOCKER)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    return program


def test_an_engine_builds_the_image_of_the_tree_and_saves_it(docker: Path, tmp_path: Path) -> None:
    image = build_image(ROOT, tmp_path, VERSION)
    assert image.name == f"lowmark-{VERSION}-image-amd64.tar"
    assert image.read_text() == "an image\n"
    assert docker.with_name("docker.log").read_text().splitlines()[1:] == [
        f"build --quiet --tag lowmark:{VERSION} .",
        f"image save --output {image} lowmark:{VERSION}",
    ]


def test_without_an_engine_there_is_no_image(
    docker: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWAY", "1")
    with pytest.raises(CannotBuildError, match="no engine answers: docker version"):
        build_image(ROOT, tmp_path, VERSION)
    docker.unlink()
    with pytest.raises(CannotBuildError, match="no docker is on the PATH"):
        build_image(ROOT, tmp_path, VERSION)


def test_a_chart_that_helm_refuses_ends_the_release(tmp_path: Path) -> None:
    pytest.importorskip("helm_python", reason="Helm's engine has no wheel for this machine")
    (tmp_path / CHART).mkdir(parents=True)
    with pytest.raises(StepFailed, match=r"Helm does not pack helm/lowmark"):
        build_chart(tmp_path, tmp_path, 0)
