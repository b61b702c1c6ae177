"""The lock file is all that an installation needs, and says nothing of where it was made."""

from __future__ import annotations

import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.docs.pages import ROOT

LOCK = (ROOT / "requirements.lock").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PYTHONS = ("3.11", "3.12", "3.13")
SYSTEMS = ("linux", "darwin")
ELSEWHERE = {"airflow", "dagster"}
"""Extras of schedulers, which have environments and locks of their own."""


def _locked(lock: str = LOCK) -> list[Requirement]:
    joined = lock.replace("\\\n", " ")
    return [Requirement(line.split(" --hash=")[0].strip()) for line in joined.splitlines() if line]


def _wanted() -> list[Requirement]:
    project = PROJECT["project"]
    extras = project["optional-dependencies"].items()
    lists = [
        project["dependencies"], *(texts for name, texts in extras if name not in ELSEWHERE)
    ]  # fmt: skip
    return [Requirement(text) for texts in lists for text in texts]


def test_it_satisfies_every_requirement_of_every_extra_on_every_platform() -> None:
    for python in PYTHONS:
        for system in SYSTEMS:
            environment = {
                "python_version": python,
                "python_full_version": f"{python}.0",
                "sys_platform": system,
            }
            pins = {
                canonicalize_name(pin.name): pin
                for pin in _locked()
                if pin.marker is None or pin.marker.evaluate(environment)
            }
            for wanted in _wanted():
                pin = pins[canonicalize_name(wanted.name)]
                (version,) = [spec.version for spec in pin.specifier]
                assert Version(version) in wanted.specifier, f"{pin} is locked, {wanted} is asked"


@pytest.mark.parametrize("extra", sorted(ELSEWHERE))
def test_a_scheduler_is_locked_in_a_file_of_its_own(extra: str) -> None:
    own = (ROOT / "tests" / "schedulers" / "locks" / f"{extra}.lock").read_text()
    pins = {canonicalize_name(pin.name): pin for pin in _locked(own)}
    here = {canonicalize_name(pin.name) for pin in _locked()}
    for text in PROJECT["project"]["optional-dependencies"][extra]:
        wanted = Requirement(text)
        (version,) = [spec.version for spec in pins[canonicalize_name(wanted.name)].specifier]
        assert Version(version) in wanted.specifier
        assert canonicalize_name(wanted.name) not in here


def test_every_pin_is_exact_and_has_hashes() -> None:
    for entry in re.split(r"\n(?=\w)", LOCK.strip()):
        assert re.match(r"[\w.-]+==[\w.!+-]+ ", entry), entry.splitlines()[0]
        assert "--hash=sha256:" in entry, entry.splitlines()[0]


def test_it_names_no_index_and_no_place() -> None:
    assert not re.search(r"https?:|file:|--index|--find-links|--extra|^#", LOCK, re.MULTILINE)


@pytest.mark.parametrize(
    ("package", "stub", "mark"),
    [
        ("protobuf", "types_pb2.py", r"Protobuf Python Version: ([\d.]+)"),
        ("grpcio", "node_service_pb2_grpc.py", r"GRPC_GENERATED_VERSION = '([\d.]+)'"),
    ],
)
def test_generated_stubs_run_with_the_oldest_allowed_runtime(
    package: str, stub: str, mark: str
) -> None:
    found = re.search(mark, (ROOT / "proto" / "acker" / "v1" / stub).read_text())
    assert found is not None
    (wanted,) = [requirement for requirement in _wanted() if requirement.name == package]
    (oldest,) = [Version(s.version) for s in wanted.specifier if s.operator == ">="]
    assert oldest >= Version(found[1])
