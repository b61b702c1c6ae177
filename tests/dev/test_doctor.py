"""`lowmark doctor`: what would not work is found, with why and what to do, and nothing is changed by looking."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import tracker
from examples.children import free_ports
from tests.cluster.network import NOBODY
from tracker import __version__
from tracker.cli.app import app
from tracker.client import Admin, RoutingInfo
from tracker.client.embedded import EmbeddedTracker
from tracker.dev.doctor import missing

OLD_JAVA = """#!/bin/sh
echo 'openjdk version "1.8.0_392"' >&2
"""
MUTE_JAVA = "#!/bin/sh\nexit 0\n"


@pytest.fixture
def running() -> Iterator[EmbeddedTracker]:
    with tracker.embedded() as embedded:
        yield embedded


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory to look at, and ports that are free."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOWMARK_SERVE_LISTEN", f"127.0.0.1:{free_ports(1)}")
    monkeypatch.setenv("LOWMARK_SERVE_DASHBOARD_LISTEN", f"127.0.0.1:{free_ports(1)}")
    return tmp_path


def examined(target: str, **environment: str) -> tuple[dict[str, dict[str, Any]], int]:
    """Findings by what they are of, and the exit status."""
    result = CliRunner().invoke(app, ["--target", target, "doctor", "--json"], env=environment)
    said = json.loads(result.stdout)
    assert said["ok"] == (result.exit_code == 0)
    return {each["what"]: each for each in said["findings"]}, result.exit_code


def test_where_all_works_nothing_is_wrong_and_nothing_is_changed(
    running: EmbeddedTracker, here: Path
) -> None:
    found, status = examined(running.target)
    assert status == 0
    assert {each["state"] for each in found.values()} <= {"ok", "note"}
    for what in ("lowmark", "PySpark", "Java", "store", "TLS of clients", "TLS of lowmark serve"):
        assert (found[what]["state"], found[what]["advice"]) == ("ok", ""), found[what]
    assert found["tracker"]["found"] == (f"1 shards at {running.target}, of release {__version__}")
    assert not list(here.iterdir())


def test_a_tracker_of_which_a_shard_is_away_does_not_work(
    running: EmbeddedTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    routing = Admin.routing

    def one_away(admin: Admin) -> RoutingInfo:
        found = routing(admin)
        gone = [replace(s, state=replace(s.state, connected=False)) for s in found.shards]
        return replace(found, shards=tuple(gone))

    monkeypatch.setattr(Admin, "routing", one_away)
    found, status = examined(running.target)
    assert status == 1 and found["tracker"]["state"] == "wrong"
    assert "of which 0 are away, and min time stands" in found["tracker"]["found"]


def test_without_a_tracker_the_ports_of_one_are_looked_at(here: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        found, status = examined(NOBODY, LOWMARK_SERVE_LISTEN=address)
    assert status == 1
    assert found["tracker"]["state"] == "wrong" and "lowmark dev" in found["tracker"]["advice"]
    assert found["port of the tracker"]["found"] == f"{address}: Address already in use"
    assert found["port of the dashboard"]["state"] == "ok"


@pytest.mark.parametrize(
    ("variable", "value", "what", "why"),
    [
        ("JAVA_HOME", "none", "Java", "JAVA_HOME is none, which has no bin/java"),
        ("JAVA_HOME", "old", "Java", "old/bin/java is 8, the least is 17"),
        ("JAVA_HOME", "mute", "Java", "mute/bin/java does not tell its version"),
        ("PATH", "none", "Java", "there is none on PATH"),
        ("SPARK_HOME", "other", "SPARK_HOME", "other has Spark 3.3.1, PySpark is"),
        ("SPARK_HOME", "none", "SPARK_HOME", "none has Spark not at all"),
        ("LOWMARK_STORE", "sqlite:file/below", "store", "file cannot be written"),
        ("LOWMARK_STORE", "sqlight:data", "store", "sqlight:data"),
        ("LOWMARK_STORE", "redis://127.0.0.1:1", "store", "Connection refused"),
        ("LOWMARK_TLS_CA", "none.pem", "TLS of clients", "the CA cannot be read from none.pem"),
        ("LOWMARK_SERVE_TLS_CERT", "none.pem", "TLS of lowmark serve", "go together"),
    ],
)
def test_what_would_not_work_is_named_with_what_to_do(
    running: EmbeddedTracker, here: Path, variable: str, value: str, what: str, why: str
) -> None:
    for name, script in (("old", OLD_JAVA), ("mute", MUTE_JAVA)):
        java = here / name / "bin" / "java"
        java.parent.mkdir(parents=True)
        java.write_text(script)
        java.chmod(0o755)
    (here / "other" / "jars").mkdir(parents=True)
    (here / "other" / "jars" / "spark-core_2.12-3.3.1.jar").touch()
    (here / "file").touch()
    environment = {"JAVA_HOME": "", "SPARK_HOME": "", variable: value}
    found, status = examined(running.target, **environment)
    assert status == 1
    assert found[what]["state"] == "wrong" and found[what]["advice"]
    assert why in found[what]["found"]


def test_a_password_is_not_shown(running: EmbeddedTracker) -> None:
    result = CliRunner().invoke(
        app, ["doctor", "-t", running.target], env={"LOWMARK_STORE": "redis://me:hush@127.0.0.1:1"}
    )
    assert result.exit_code == 1 and "hush" not in result.output and "redis://me:" in result.output


def test_packages_are_missing_by_the_extra_that_brings_them() -> None:
    said = [
        "numpy>=1.26",
        "no-such-one>=1; extra == 'kafka'",
        'nor-this; extra == "server"',
        "or-that",
    ]
    assert missing(said) == {"kafka": ["no-such-one"], "server": ["nor-this"], "": ["or-that"]}
