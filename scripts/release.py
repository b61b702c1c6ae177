"""A release: its version and date set, its artifacts built, its commit tagged.

    python -m scripts.release VERSION [--dry-run] [--out DIRECTORY]

The artifacts (`scripts/artifacts.py`) are built from the last commit with the version set at each of `PLACES` and the
date in CHANGELOG.md. Then that change is committed, where there is any, and the commit is tagged `vVERSION`; nothing is pushed or
published. A dry run builds the same and changes nothing; at a released commit it builds what was released.

A release has the date of the commit that it is made from, not of the day on which it is made: whoever repeats it
gets the same bytes.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from scripts.artifacts import (
    BUILD_S,
    CannotBuildError,
    StepFailed,
    build_chart,
    build_image,
    build_python,
    call,
    write_sums,
)
from scripts.summary import ROOT, finish

PLACES = (
    ("tracker/__init__.py", r'^__version__ = "(.+)"$'),
    ("helm/lowmark/Chart.yaml", r"^version: (.+)$"),
    ("helm/lowmark/Chart.yaml", r'^appVersion: "(.+)"$'),
    ("docs/kubernetes.md", r"^docker build --tag \S+/lowmark:(\S+) \.$"),
)
"""Files that name the version, and by which line. The package's own is the first, and pyproject.toml reads it there."""
CHANGES = "CHANGELOG.md"
UNDATED = "not released yet"
MAX_SHOWN_FILES = 5
"""So many files that are not committed are named; the rest is counted."""


class ReleaseRefused(Exception):
    """This cannot be released as it is; says why, and what to do. Nothing has changed."""


@dataclass(frozen=True)
class Repository:
    """A working tree, by git's own commands."""

    root: Path

    def git(self, *words: str, **variables: str) -> str:
        """What a command of git prints, without the last line's end. Raises StepFailed."""
        environment = {**os.environ, **variables}
        return call(["git", *words], self.root, BUILD_S, environment).rstrip("\n")

    def commit_of(self, name: str) -> str | None:
        """The commit that a name stands for; None where it stands for nothing."""
        try:
            return self.git("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
        except StepFailed:
            return None

    def epoch(self) -> int:
        """When the last commit was made, in Unix seconds."""
        return int(self.git("show", "--no-patch", "--format=%ct", "HEAD"))

    def export(self, directory: Path) -> None:
        """Writes the files of the last commit, and nothing else that lies in the tree, into an empty directory."""
        archive = directory.with_suffix(".tar")
        self.git("archive", "--output", str(archive), "HEAD")
        directory.mkdir()
        call(["tar", "--extract", "--file", str(archive), "--directory", "."], directory, BUILD_S)

    def unsaved(self) -> list[str]:
        """Files that the last commit does not have as they are."""
        return self.git("status", "--porcelain").splitlines()


def check(repository: Repository, version: str, *, dry_run: bool) -> None:
    """Raises ReleaseRefused unless the last commit can be released as this version."""
    if not re.fullmatch(r"(0|[1-9]\d*)(\.(0|[1-9]\d*)){2}", version):
        raise ReleaseRefused(f"{version!r} is no version: it is three numbers, such as 1.2.0")
    if unsaved := repository.unsaved():
        more = len(unsaved) - MAX_SHOWN_FILES
        shown = ", ".join(line[3:] for line in unsaved[:MAX_SHOWN_FILES])
        rest = f" and {more} more" if more > 0 else ""
        raise ReleaseRefused(
            f"not committed: {shown}{rest}; a release is a commit: commit, or stash"
        )
    tagged = repository.commit_of(f"refs/tags/v{version}")
    if tagged and not (dry_run and tagged == repository.commit_of("HEAD")):
        raise ReleaseRefused(
            f"{version} was released, v{version} is commit {tagged[:12]}: a version is released once. Take the "
            "next one, or build it again by --dry-run at that commit"
        )
    dated((repository.root / CHANGES).read_text(), version, 0)


def dated(changes: str, version: str, epoch: int) -> str:
    """CHANGELOG.md with the date of a release in the heading of its section, unless it has one. Raises
    ReleaseRefused where that is not the first section, or has no entry."""
    heading, *rest = re.split(r"^## ", changes, flags=re.MULTILINE)
    name, _, body = rest[0].partition("\n") if rest else ("", "", "")
    if name.partition(", ")[0] != version:
        raise ReleaseRefused(
            f"{CHANGES} begins with {name or 'no section'!r}, not with {version}: write its section, '## {version}, {UNDATED}'"
        )
    if not re.search(r"^- \S", body, re.MULTILINE):
        raise ReleaseRefused(f"the section of {version} in {CHANGES} has no entry: '- What is new'")
    date = datetime.fromtimestamp(epoch, UTC).date().isoformat()
    first = f"{name.replace(UNDATED, date)}\n{body}"
    return "## ".join([heading, first, *rest[1:]])


def set_version(root: Path, version: str, epoch: int) -> list[str]:
    """Writes version and date into a tree; returns the names of files that this has changed. Raises ReleaseRefused where one
    of `PLACES` has no such line."""
    before = {name: (root / name).read_text() for name in {CHANGES, *dict(PLACES)}}
    after = {**before, CHANGES: dated(before[CHANGES], version, epoch)}
    for name, line in PLACES:
        found = re.search(line, after[name], re.MULTILINE)
        if found is None:
            raise ReleaseRefused(f"{name} has no line like {line}: it names the version")
        after[name] = after[name][: found.start(1)] + version + after[name][found.end(1) :]
    changed = sorted(name for name in after if after[name] != before[name])
    for name in changed:
        (root / name).write_text(after[name])
    return changed


def build(repository: Repository, version: str, directory: Path) -> tuple[dict[str, str], str]:
    """Builds all artifacts into a directory; returns their SHA-256 by file name, and why there is no image, if there
    is none. Raises ReleaseRefused, StepFailed, CannotBuildError."""
    epoch = repository.epoch()
    with tempfile.TemporaryDirectory(prefix="lowmark-release-") as place:
        source, work = Path(place) / "source", Path(place) / "built"
        repository.export(source)
        set_version(source, version, epoch)
        python = build_python(source, work, epoch)
        built = [python.sdist, python.wheel, build_chart(source, work, epoch)]
        without_image = ""
        try:
            built.append(build_image(source, work, version))
        except CannotBuildError as error:
            without_image = str(error)
        directory.mkdir(parents=True, exist_ok=True)
        shipped = [Path(shutil.copyfile(path, directory / path.name)) for path in built]
    return write_sums(directory, shipped), without_image


def tag(repository: Repository, version: str) -> None:
    """Commits the version, where it was another one, with the date of the commit before; and tags the commit."""
    epoch = repository.epoch()
    if changed := set_version(repository.root, version, epoch):
        date = f"@{epoch} +0000"
        repository.git(
            "commit", "--quiet", "--message", f"Release {version}", "--", *changed,
            GIT_AUTHOR_DATE=date, GIT_COMMITTER_DATE=date,
        )  # fmt: skip
    repository.git("tag", "--annotate", "--message", f"Lowmark {version}", f"v{version}")


def release(root: Path, version: str, directory: Path, *, dry_run: bool) -> dict[str, object]:
    """Returns what is there to know of a release. Raises ReleaseRefused, StepFailed, CannotBuildError."""
    repository = Repository(root)
    check(repository, version, dry_run=dry_run)
    sums, without_image = build(repository, version, directory)
    if not dry_run:
        tag(repository, version)
    return {
        "version": version, "commit": repository.commit_of("HEAD"), "tagged": not dry_run,
        "sums": sums, "without_image": without_image,
    }  # fmt: skip


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.release", description=__doc__)
    parser.add_argument("version", help="three numbers: 1.2.0")
    parser.add_argument("--dry-run", action="store_true", help="build, and change nothing else")
    parser.add_argument(
        "--out", type=Path, help="a directory for the artifacts; dist/VERSION if not given"
    )
    given = parser.parse_args(arguments)
    directory = (given.out or ROOT / "dist" / given.version).absolute()
    try:
        details = release(ROOT, given.version, directory, dry_run=given.dry_run)
    except (ReleaseRefused, StepFailed, CannotBuildError, subprocess.TimeoutExpired) as error:
        print(f"release: {error}", flush=True)
        return finish("release", ok=False, shown={}, details={"wrong": str(error)})
    sums = details.pop("sums")
    assert isinstance(sums, dict)
    for name, digest in sums.items():
        print(f"{digest}  {name}")
    if details["without_image"]:
        print(f"release: no image was built: {details['without_image']}")
    shown = {"version": given.version, "artifacts": len(sums), "tagged": details["tagged"]}
    return finish("release", ok=True, shown=shown, details={**details, "sums": sums})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
