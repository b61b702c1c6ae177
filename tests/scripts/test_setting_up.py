"""Setting up on machines that lack something: what is installed, and what people are told to run."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from scripts.summary import ROOT
from tests.waits import HANG_S

TOOLS = ("bash", "dirname", "cmp", "sed", "head", "cp", "env")


class Machine:
    """A machine with a few tools, and programs that the test makes up."""

    def __init__(self, root: Path) -> None:
        self.bin = root / "bin"
        self.project = root / "project"
        (self.project / "scripts").mkdir(parents=True)
        self.bin.mkdir()
        for name in ("bootstrap", "ensure-java", "ensure-chromium", "ensure-maven"):
            shutil.copy(ROOT / "scripts" / name, self.project / "scripts" / name)
        for name in ("requirements.lock", "pyproject.toml"):
            (self.project / name).write_text("")
        for tool in TOOLS:
            found = shutil.which(tool)
            assert found is not None
            (self.bin / tool).symlink_to(found)

    def program(self, name: str, script: str) -> None:
        """Puts a shell script on the PATH."""
        path = self.bin / name
        path.write_text(f"#!/usr/bin/env bash\n{script}\n")
        path.chmod(0o755)

    def run(self, script: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.project / "scripts" / script],
            env={"PATH": str(self.bin), **environment},
            capture_output=True,
            text=True,
            timeout=HANG_S,
            check=False,
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


NO_PYTHON = {"PYTHON": "no-such-python"}
JAVA_17 = """echo 'openjdk version "17.0.15" 2025-04-15' >&2"""
JAVA_8 = """echo 'openjdk version "1.8.0_412"' >&2"""


@pytest.mark.parametrize(
    ("script", "there", "line"),
    [
        ("bootstrap", {}, "no Python >= 3.11 with venv found; run: sudo apt-get install -y python3 python3-venv"),
        ("ensure-java", {"java": JAVA_8}, "Spark needs Java 17; run: sudo apt-get install -y openjdk-17-jre-headless"),
        ("ensure-chromium", {}, "the dashboard's tests need Chromium; run: sudo apt-get install -y chromium fonts-dejavu-core"),
        ("ensure-maven", {"mvn": "exit 1"}, "the connectors' jars need Maven; run: sudo apt-get install -y maven"),
    ],
)  # fmt: skip
def test_without_root_one_line_says_how_to_get_it(
    machine: Machine, script: str, there: dict[str, str], line: str
) -> None:
    for name, text in {**there, "id": "echo 1000", "apt-get": "exit 99"}.items():
        machine.program(name, text)
    done = machine.run(script, **NO_PYTHON)
    assert done.returncode == 1
    assert done.stderr.strip().splitlines() == [f"{script}: {line}"]


@pytest.mark.parametrize(
    ("script", "variable", "works"),
    [("ensure-chromium", "CHROMIUM", "exit 99"), ("ensure-maven", "MVN", "exit 0")],
)
def test_it_may_be_named(machine: Machine, script: str, variable: str, works: str) -> None:
    machine.program("other", works)
    assert machine.run(script, **{variable: str(machine.bin / "other")}).returncode == 0


def test_a_python_without_venv_asks_for_its_own_package(machine: Machine) -> None:
    # New enough, but neither venv nor ensurepip can be imported.
    machine.program(
        "bare-python", 'case "$2" in *venv*) exit 1;; *version_info\\[:2\\]*) echo 3.12;; esac'
    )
    machine.program("id", "echo 1000")
    machine.program("apt-get", "exit 99")
    done = machine.run("bootstrap", PYTHON="bare-python")
    assert done.returncode == 1
    assert "sudo apt-get install -y python3-venv python3.12-venv" in done.stderr


def test_without_apt_one_line_says_what_is_missing(machine: Machine) -> None:
    done = machine.run("bootstrap", **NO_PYTHON)
    assert done.returncode == 1
    assert "set PYTHON=" in done.stderr


def test_root_installs_python_and_says_so_if_that_was_not_enough(machine: Machine) -> None:
    calls = machine.project / "calls"
    machine.program("id", "echo 0")
    machine.program("apt-get", f'echo "$*" >> {calls}')
    done = machine.run("bootstrap", **NO_PYTHON)
    assert done.returncode == 1
    assert "still no Python" in done.stderr
    assert [line.split()[-1] for line in calls.read_text().splitlines()] == [
        "-qq", "python3", "python3-venv",
    ]  # fmt: skip


def test_an_environment_made_from_the_same_files_is_left_alone(machine: Machine) -> None:
    venv = machine.project / ".venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").symlink_to(shutil.which("true") or "")
    shutil.copy(machine.project / "requirements.lock", venv / "installed.lock")
    shutil.copy(machine.project / "pyproject.toml", venv / "installed.toml")
    assert machine.run("bootstrap", **NO_PYTHON).returncode == 0
    (machine.project / "requirements.lock").write_text("changed==1.0\n")
    assert machine.run("bootstrap", **NO_PYTHON).returncode != 0


def test_java_17_is_enough(machine: Machine) -> None:
    machine.program("java", JAVA_17)
    assert machine.run("ensure-java").returncode == 0


def test_java_home_goes_before_the_path(machine: Machine) -> None:
    machine.program("java", JAVA_8)
    home = machine.project / "jdk"
    (home / "bin").mkdir(parents=True)
    machine.program("java17", JAVA_17)
    (machine.bin / "java17").rename(home / "bin" / "java")
    assert machine.run("ensure-java", JAVA_HOME=str(home)).returncode == 0


def test_root_installs_the_first_java_that_the_distribution_has(machine: Machine) -> None:
    new_java = machine.bin / "java"
    machine.program("id", "echo 0")
    machine.program("spare", JAVA_17)
    machine.program(
        "apt-get",
        f'case "$*" in *openjdk-21*) cp {machine.bin / "spare"} {new_java};; *17*) exit 100;; esac',
    )
    done = machine.run("ensure-java")
    assert done.returncode == 0, done.stderr
    assert "installing openjdk-21-jre-headless" in done.stderr


@pytest.mark.parametrize("name", ["chromium-headless-shell", "chromium", "google-chrome"])
def test_any_chromium_on_the_path_is_enough(machine: Machine, name: str) -> None:
    machine.program(name, "exit 99")
    assert machine.run("ensure-chromium").returncode == 0


def test_root_installs_the_chromium_that_the_distribution_has(machine: Machine) -> None:
    machine.program("id", "echo 0")
    machine.program(
        "apt-get",
        f'case "$*" in *headless-shell*) exit 100;; *" chromium "*) touch {machine.bin}/chromium;'
        f" chmod +x {machine.bin}/chromium;; esac",
    )
    for tool in ("touch", "chmod"):
        (machine.bin / tool).symlink_to(shutil.which(tool) or "")
    done = machine.run("ensure-chromium")
    assert done.returncode == 0, done.stderr
    assert "installing chromium" in done.stderr
