"""The settings of `lowmark serve`: options before the environment before a file, and handed on whole."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from typer.testing import CliRunner, Result

from examples.children import free_ports
from tests.cluster.children import Running
from tests.cluster.tracker import asked
from tests.waits import until
from tracker.cli.app import app
from tracker.cli.common import EXIT_REFUSED
from tracker.client.settings import MAX_FILE_CHARACTERS
from tracker.errors import InvalidError
from tracker.service.settings import (
    TYPED,
    ServeSettings,
    read_settings,
    variable_of,
)
from tracker.service.supervisor import LEFT

WRONG_USAGE = 2

OTHERS: dict[str, Any] = {
    "store": "redis://me:s3cret@r.example:6379", "join_timeout_ms": 700, "rescale_margin_ms": 70,
    "lease_ms": 900, "snapshot_after_records": 500, "block_slots": 32, "tls_cert": "c.pem",
    "tls_key": "k.pem", "tls_ca": "a.pem", "tokens": "t.yaml", "max_subscribers": 5,
    "max_streams_per_client": 6, "max_calls_per_s": 7, "max_ticks_per_s": 8,
    "max_connection_age_ms": 9, "log_level": "warning",
    "log_json": True, "group": 3, "directory": "z:1",
}  # fmt: skip
"""Of what all processes of one command share: a value that is not the default."""


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for field in ServeSettings.model_fields:
        monkeypatch.delenv(variable_of(field), raising=False)


def serve(*words: str, **said: Any) -> Result:
    return CliRunner().invoke(app, ["serve", *words], **said)


def shown(*words: str) -> dict[str, Any]:
    """The settings that count."""
    result = serve(*words, "--show-config")
    assert result.exit_code == 0, result.output
    found = yaml.safe_load(result.stdout)
    assert isinstance(found, dict)
    return found


def refused(*words: str) -> str:
    """What is said of settings that cannot be, in one line."""
    result = serve(*words)
    assert result.exit_code == WRONG_USAGE, result.output
    return " ".join(result.stderr.replace("│", " ").split())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "lowmark.yaml"
    path.write_text("lease_ms: 1000\nblock_slots: 16\nmax_subscribers: 10\n")
    return path


def test_the_options_are_what_one_types_by_hand() -> None:
    command: Any = typer.main.get_command(app)
    taken = [word for each in command.commands["serve"].params for word in each.opts]
    typed = [f"--{field.replace('_', '-')}" for field in TYPED]
    assert taken == ["--config", "--set", "--show-config", *typed]
    assert set(TYPED) < set(ServeSettings.model_fields)


def test_options_count_before_words_and_the_environment_and_those_before_the_file(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOWMARK_SERVE_LEASE_MS", "2000")
    monkeypatch.setenv("LOWMARK_SERVE_BLOCK_SLOTS", "32")
    monkeypatch.setenv("LOWMARK_SERVE_STANDBY", "")
    found = shown(
        "--config",
        str(file),
        "--set",
        "lease_ms=4000",
        "--set",
        "store=memory:",
        "--store",
        "sqlite:here",
    )
    names = ("lease_ms", "block_slots", "max_subscribers", "shards", "store", "standby")
    assert [found[name] for name in names] == [4000, 32, 10, 1, "sqlite:here", False]
    monkeypatch.setenv("LOWMARK_SERVE_CONFIG", str(file))
    assert shown()["max_subscribers"] == 10


def test_a_client_and_a_process_have_certificates_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LOWMARK_TLS_CA", "ca-of-the-client.pem")
    monkeypatch.setenv("LOWMARK_STORE", "memory:")
    found = shown()
    assert (found["tls_ca"], found["store"]) == ("", "memory:")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("lease: 5", "lease: there is no such setting; there are listen, store, shards,"),
        ("lease-ms: 5000", "lease-ms: there is no such setting"),
        ("lease_ms: 5", "lease_ms: Input should be greater than or equal to 200 (it says 5)"),
        (
            "lease_ms: long\nshards: 65",
            "less than or equal to 64 (it says 65); lease_ms: Input should be a valid integer",
        ),
        ("log_level: loud", "log_level: Input should be 'debug', 'info', 'warning' or 'error'"),
        ("peers: [a:1, 2]\nshard: 0", "peers: Input should be a valid string"),
        ("[lease_ms, 5]", "must hold one mapping of settings"),
        ("lease_ms: [", "is not YAML"),
        ("lease_ms: !!int x", "is not YAML"),
    ],
)
def test_what_a_file_must_not_say_is_named_with_the_file(
    tmp_path: Path, text: str, said: str
) -> None:
    with pytest.raises(InvalidError) as error:
        read_settings(text, "lowmark.yaml", {})
    assert str(error.value).startswith("lowmark.yaml") and said in str(error.value)
    path = tmp_path / "lowmark.yaml"
    path.write_text(text)
    assert "lowmark.yaml" in refused("--config", str(path), "--show-config")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--set", "lease=5"], "--set lease: there is no such setting; there are listen, store,"),
        (["--set", "lease_ms"], "--set 'lease_ms' is not NAME=VALUE"),
        (["--set", "lease_ms=soon"], "--set lease_ms: Input should be a valid integer"),
        (["--set", "members=a:1"], "members and left_file need member and --peers"),
        (["--shards", "65"], "--shards: Input should be less than or equal to 64 (it says 65)"),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else "",
)
def test_what_a_word_must_not_say_is_named_with_the_word(words: list[str], said: str) -> None:
    assert said in refused(*words, "--show-config")


def test_a_variable_that_says_what_cannot_be_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOWMARK_SERVE_LEASE_MS", "5")
    assert "LOWMARK_SERVE_LEASE_MS: Input should be greater than" in refused("--show-config")


def test_a_file_that_is_too_large_or_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match="1000001 characters; the limit is 1000000"):
        read_settings("#" * (MAX_FILE_CHARACTERS + 1), "lowmark.yaml", {})
    assert "cannot be read" in refused("--config", str(tmp_path / "none"))
    (tmp_path / "latin").write_bytes(b"store: \xe9")
    assert "cannot be read" in refused("--config", str(tmp_path / "latin"))


def test_a_variable_that_no_setting_has_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOWMARK_SERVE_LEASE", "5000")
    said = refused("--show-config")
    assert "LOWMARK_SERVE_LEASE: there is no such setting" in said
    assert "LOWMARK_SERVE_LEASE_MS" in said and "LOWMARK_STORE" in said


def test_what_does_not_go_together_is_refused_wherever_it_was_given(tmp_path: Path) -> None:
    path = tmp_path / "lowmark.yaml"
    path.write_text("shard: 0\n")
    assert "--shard and --peers go together" in refused("--config", str(path))
    path.write_text("listen: nowhere\n")
    assert serve("--config", str(path)).exit_code == EXIT_REFUSED


def test_no_secret_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "lowmark.yaml"
    store = OTHERS["store"]
    path.write_text(f"store: {store}\n")
    assert shown("--config", str(path))["store"] == "redis://me:***@r.example:6379"
    long = store.replace("s3cret", "s3cret" * 20)
    for text in (f"log_level: {store}", f"peers: [5, '{store}']", f"shard: {long}", store,
                 f"store: '{store}", f"stores: {store}"):  # fmt: skip
        path.write_text(text)
        assert "s3cret" not in refused("--config", str(path)), text
    for word in (store, f"log_level={store}", f"shard={store}", f"{store}=5"):
        assert "s3cret" not in refused("--set", word), word


def test_what_is_shown_is_a_file_that_says_the_same(tmp_path: Path) -> None:
    words = ["--standby", "--listen", "c:7", "--peers", "a:7,b:7", "--set", "lease_ms=900"]
    result = serve(*words, "--show-config")
    (tmp_path / "lowmark.yaml").write_text(result.stdout)
    assert (
        serve("--config", str(tmp_path / "lowmark.yaml"), "--show-config").stdout == result.stdout
    )
    as_json = serve(*words, "--show-config", "--json").stdout
    assert json.loads(as_json) == {**yaml.safe_load(result.stdout), "log_json": True}


def test_addresses_of_a_file_may_be_a_list() -> None:
    settings = read_settings("peers: [a:1, b:2]\nshard: 0", "lowmark.yaml", {})
    assert settings.peers == "a:1,b:2"


def test_processes_get_all_settings_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A setting that is added is handed on, or this fails for want of another value of it."""
    started: list[ServeSettings] = []

    def take(processes: Sequence[ServeSettings]) -> int:
        started.extend(processes)
        return 0

    monkeypatch.setattr("tracker.service.supervisor.supervise", take)
    monkeypatch.setattr("tracker.service.run.configure_logging", lambda *_, **__: None)
    path = tmp_path / "lowmark.yaml"
    own = {"listen": "a:7", "shards": 2, "metrics_listen": "a:17", "dashboard_listen": "a:27"}
    path.write_text(yaml.safe_dump({**OTHERS, **own}))
    result = serve("--config", str(path))
    assert result.exit_code == 0, result.output
    of_one = {"shard", "peers", "member", "members", "left_file", "standby", "address", "join"}
    of_one |= {"health_listen", "left_status", "relay"}
    assert {*OTHERS, *own, *of_one} == set(ServeSettings.model_fields)
    for shard, settings in enumerate(started):
        said = settings.model_dump()
        assert {name: said[name] for name in OTHERS} == OTHERS
        assert (said["shard"], said["peers"], said["shards"]) == (shard, "a:7,a:8", 1)
        assert (said["listen"], said["left_status"]) == ("", LEFT)
        assert said["metrics_listen"] == f"a:{17 + shard}"
        assert said["dashboard_listen"] == ("" if shard else "a:27")
    assert len(started) == 2


def _knows_both(target: str) -> bool:
    return len(asked(target, lambda admin: admin.shards()) or []) == 2


def test_one_file_and_the_environment_start_two_processes(tmp_path: Path) -> None:
    """The environment says how many there are to be: it must not say so to each of them again."""
    port = free_ports(2)
    target = f"127.0.0.1:{port},127.0.0.1:{port + 1}"
    path = tmp_path / "lowmark.yaml"
    path.write_text(f"listen: 127.0.0.1:{port}\nstore: sqlite:{tmp_path / 'of-the-file'}\n")
    environment = {
        "LOWMARK_SERVE_SHARDS": "2", "LOWMARK_SERVE_CONFIG": str(path),
        "LOWMARK_STORE": f"sqlite:{tmp_path / 'data'}",
    }  # fmt: skip
    process = Running(
        "tracker.cli", "serve", "--json", errors=tmp_path / "log", environment=environment
    )
    with process:
        # One that is ready knows of both; the other may have to start still.
        for one in target.split(","):
            until(partial(_knows_both, one), process.errors)
        started = [event for event in process.events() if event["event"] == "shard_started"]
        for pid in (event["pid"] for event in started):
            words, variables = (
                Path(f"/proc/{pid}/{n}").read_text() for n in ("cmdline", "environ")
            )
            assert "sqlite:" not in words, "it may be an address with a password"
            assert "LOWMARK_SERVE_" not in variables and "LOWMARK_STORE" not in variables
        assert process.stop() == 0
    assert sorted(path.name for path in (tmp_path / "data").glob("*.db")) == [
        "shard-0.db", "shard-1.db",
    ]  # fmt: skip
    assert not (tmp_path / "of-the-file").exists()
