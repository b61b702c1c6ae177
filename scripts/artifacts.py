"""What is shipped, each built from a source tree into a directory: sdist, wheel, chart, image, and SHA256SUMS of all.

The same tree and the same time give the same bytes of sdist, wheel and chart, by one Python with the packages of
requirements.lock. An image has what Debian has fixed by the day on which it is built.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

CHART = Path("helm") / "lowmark"
SUMS = "SHA256SUMS"
BUILD_S, IMAGE_S = 600.0, 3600.0
"""Far more than each step takes; what hangs ends then, as StepFailed."""


class StepFailed(Exception):
    """A program that was a step of a build has failed; says which, and what it printed."""


class CannotBuildError(Exception):
    """This machine lacks what builds one of the artifacts; says what."""


@dataclass(frozen=True)
class Built:
    """A wheel, the sdist that it was built from, and that sdist unpacked."""

    wheel: Path
    sdist: Path
    source: Path


def build_python(source: Path, directory: Path, epoch: int) -> Built:
    """Builds the sdist of a tree, and the wheel from what is in it alone: what the sdist lacks, the wheel does too. epoch: Unix
    seconds, the time of all files within. directory: empty before, or not there. Raises StepFailed."""
    sdist = _hatchling("sdist", source, directory, epoch)
    shutil.unpack_archive(sdist, directory / "unpacked", filter="data")
    (unpacked,) = (directory / "unpacked").iterdir()
    return Built(build_wheel(unpacked, directory, epoch), sdist, unpacked)


def build_wheel(source: Path, directory: Path, epoch: int) -> Path:
    """Builds the wheel of a tree, or of an unpacked sdist: they are equal. Raises StepFailed."""
    return _hatchling("wheel", source, directory, epoch)


def build_chart(source: Path, directory: Path, epoch: int) -> Path:
    """Packs the chart of a tree. Helm chooses and checks what is in it, and gives it the time of this moment; here it is packed
    again in one order, with one time and one owner. Raises StepFailed, CannotBuildError."""
    try:
        import helm_python
    except ImportError as error:
        raise CannotBuildError("Helm's engine (helm-python-sdk) has no wheel for it") from error
    with tempfile.TemporaryDirectory(prefix="lowmark-chart-") as place:
        try:
            by_helm = Path(helm_python.package(source / CHART, destination=place))
        except helm_python.HelmError as error:
            raise StepFailed(f"Helm does not pack {CHART}: {error}") from error
        chart = directory / by_helm.name
        with tarfile.open(by_helm) as archive:
            names = sorted(archive.getnames())
            files = {name: archive.extractfile(name) for name in names}
            contents = {name: file.read() for name, file in files.items() if file}
    with (
        chart.open("wb") as file,
        gzip.GzipFile("", "wb", fileobj=file, mtime=epoch) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive,
    ):
        for name, content in contents.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime = len(content), epoch
            archive.addfile(entry, io.BytesIO(content))
    return chart


def build_image(source: Path, directory: Path, version: str) -> Path:
    """Builds the image of a tree, for the engine's own kind of machine, as `lowmark:VERSION`, and saves it. Raises StepFailed,
    CannotBuildError."""
    if shutil.which("docker") is None:
        raise CannotBuildError("no docker is on the PATH")
    try:
        machine = call(["docker", "version", "--format", "{{.Server.Arch}}"], source, BUILD_S)
    except StepFailed as error:
        raise CannotBuildError(f"no engine answers: {error}") from error
    tag = f"lowmark:{version}"
    image = directory / f"lowmark-{version}-image-{machine.strip()}.tar"
    call(["docker", "build", "--quiet", "--tag", tag, "."], source, IMAGE_S)
    call(["docker", "image", "save", "--output", str(image), tag], source, IMAGE_S)
    return image


def write_sums(directory: Path, built: Sequence[Path]) -> dict[str, str]:
    """Writes what `sha256sum --check SHA256SUMS` reads in that directory; returns it: file name to hex digest."""
    sums: dict[str, str] = {}
    for path in sorted(built):
        with path.open("rb") as file:  # an image is larger than what one would hold in memory
            sums[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    lines = [f"{digest}  {name}\n" for name, digest in sums.items()]
    (directory / SUMS).write_text("".join(lines))
    return sums


def call(
    command: Sequence[str],
    directory: Path,
    timeout_s: float,
    variables: Mapping[str, str] | None = None,
) -> str:
    """Runs a program to its end; returns what it printed. variables: its environment; this process's if none. Raises
    StepFailed where it fails, and TimeoutExpired."""
    done = subprocess.run(
        command, cwd=directory, env=variables, capture_output=True, text=True, timeout=timeout_s, check=False,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip()[-3000:]
        raise StepFailed(f"{' '.join(command)} ended with {done.returncode}: {said}")
    return done.stdout


def _hatchling(target: str, source: Path, directory: Path, epoch: int) -> Path:
    """directory: without another file of this kind."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(directory)]
    call(command, source, BUILD_S, {**os.environ, "SOURCE_DATE_EPOCH": str(epoch)})
    (built,) = directory.glob("*.tar.gz" if target == "sdist" else "*.whl")
    return built
