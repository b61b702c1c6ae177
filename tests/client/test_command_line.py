"""The command line: against a tracker in this process, and one real tracker of two processes."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import tracker
from examples.children import free_ports
from tests.client.support import consume, create, done, heard_everywhere, joined_front, promise
from tests.cluster.network import NOBODY, Place
from tests.cluster.tracker import Server, lowmark
from tests.waits import HANG_S
from tracker.cli.app import app
from tracker.cli.common import EXIT_REFUSED, EXIT_TIMED_OUT, EXIT_UNAVAILABLE
from tracker.cli.shared import DEFAULT_TARGET
from tracker.client import Admin, NodeClient, Subscriber
from tracker.client.embedded import EmbeddedTracker
from tracker.core.process import ProcessConfig
from tracker.errors import RefusedError
from tracker.service.config import ServerConfig
from tracker.service.settings import ServeSettings

FILE = """
name: two
segments: [first, second]
edges: [first -> second]
fronts: [front]
"""
WRONG_USAGE = 2


@pytest.fixture(scope="module")
def running() -> Iterator[EmbeddedTracker]:
    with tracker.embedded(shards=2) as embedded:
        yield embedded


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "pipeline.yaml"
    path.write_text(FILE)
    return path


@pytest.fixture
def node(running: EmbeddedTracker, file: Path) -> Iterator[NodeClient]:
    run(running, "pipelines", "apply", "-f", str(file))
    with NodeClient(running.target, "two", "n") as node:
        yield joined_front(node)


def run(running: EmbeddedTracker, *words: str) -> Result:
    return run_at(running.target, *words)


def run_at(target: str, *words: str) -> Result:
    environment = {"LOWMARK_TARGET": target, "COLUMNS": "200"}
    return CliRunner().invoke(app, list(words), env=environment)


def run_json(running: EmbeddedTracker, *words: str) -> Any:
    result = run(running, *words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_pipeline_is_applied_once_and_listed(running: EmbeddedTracker, tmp_path: Path) -> None:
    path = tmp_path / "applied.yaml"
    path.write_text(FILE.replace("two", "applied"))
    assert run_json(running, "pipelines", "apply", "-f", str(path)) == {
        "pipeline": "applied",
        "created": True,
        "changes": {},
        "dry_run": False,
        "dropped": [],
        "start_slot": 0,
    }
    again = run(running, "pipelines", "apply", "-f", str(path))
    assert again.stdout == "pipeline applied: unchanged\n"
    path.write_text(FILE.replace("two", "applied") + "slack: 1s\n")
    conflict = run(running, "pipelines", "apply", "-f", str(path))
    assert conflict.exit_code == EXIT_REFUSED
    assert "its slack_ns is for good: it is 10000000, and 1000000000 is asked" in conflict.stderr
    listed = run_json(running, "status")
    assert "applied" in [row["pipeline"] for row in listed]
    assert "applied" in run(running, "status").stdout


def test_limits_are_changed_while_a_pipeline_runs_and_said(
    running: EmbeddedTracker, tmp_path: Path
) -> None:
    path = tmp_path / "limited.yaml"
    file = FILE.replace("two", "limited")
    path.write_text(file)
    run(running, "pipelines", "apply", "-f", str(path))
    path.write_text(file + "max_open_cells: 5000000\nmax_nodes: 20000\n")
    changed = run(running, "pipelines", "apply", "-f", str(path))
    said = "changed max_open_cells from 4000000 to 5000000, max_nodes from 10000 to 20000"
    assert changed.stdout == f"pipeline limited: {said}\n"
    again = run_json(running, "pipelines", "apply", "-f", str(path))
    assert not again["created"] and not again["changes"]
    path.write_text(file + "max_open_cells: 6000000\n")
    assert run_json(running, "pipelines", "apply", "-f", str(path))["changes"] == {
        "max_open_cells": [5000000, 6000000],
        "max_nodes": [20000, 10000],
    }
    assert (
        run_json(running, "watch", "--once", "-p", "limited")["spec"]["max_open_cells"] == 6000000
    )
    path.write_text(file + "max_open_cells: 7000000\nslack: 77ms\n")
    conflict = run(running, "pipelines", "apply", "-f", str(path))
    assert conflict.exit_code == EXIT_REFUSED and "slack_ns is for good" in conflict.stderr


def test_a_file_that_cannot_be_is_refused_with_the_place(
    running: EmbeddedTracker, file: Path
) -> None:
    file.write_text(FILE + "frnots: [x]\n")
    result = run(running, "pipelines", "apply", "-f", str(file))
    assert result.exit_code == EXIT_REFUSED
    assert (
        f"{file}: line 6, column 1: frnots: there is no such setting; there are name, segments"
        in result.stderr
    )
    nobody = run_at(NOBODY, "pipelines", "apply", "-f", str(file))
    assert (nobody.exit_code, nobody.stderr) == (result.exit_code, result.stderr)
    missing = run(running, "pipelines", "apply", "-f", str(file.parent / "none.yaml"))
    assert missing.exit_code == WRONG_USAGE


def test_what_is_looked_at_is_what_is(running: EmbeddedTracker, node: NodeClient) -> None:
    base = Subscriber(running.target, "two").min_time()
    done(node.commit(create(base + 10, 1)))
    done(node.commit(promise(base + 110)))
    heard_everywhere(running.target, "two", base + 10)
    shown = run_json(running, "watch", "-p", "two", "--once")
    first = shown["state"]["segments"][0]
    assert (first["segment"], first["min_time"]) == ("first", base + 10)
    assert (first["open_slots"], first["open_items"]) == (1, 1)
    assert first["lag_ms"] == 1_000, "100 slots of 10 ms behind what the front promises"
    assert first["lag_slots"] == 100
    (front,) = shown["state"]["fronts"]
    assert (front["front"], front["heartbeat"]) == ("front", base + 110)
    assert [shard["connected"] for shard in shown["shards"]] == [True, True]
    view = run(running, "watch", "-p", "two", "--once").stdout
    for text in ("first", "second", "1.00 s", "n/front", *running.addresses):
        assert text in view
    node.commit(consume(base + 10, 1))
    assert Subscriber(running.target, "two").wait_until(base + 110, timeout_s=HANG_S)


def test_where_slots_are_numbers_numbers_are_shown_and_no_clock(
    running: EmbeddedTracker, tmp_path: Path
) -> None:
    file = tmp_path / "versions.yaml"
    numbers = "\ntime: number\nslack: 1ns\nstart: slot:10\n"
    file.write_text(FILE.strip().replace("two", "versions") + numbers)
    run(running, "pipelines", "apply", "-f", str(file))
    with NodeClient(running.target, "versions", "table") as node:
        joined_front(node)
        done(node.commit(create(17, 1)))
        done(node.commit(promise(20)))
        heard_everywhere(running.target, "versions", 17)
        view = run(running, "watch", "-p", "versions", "--once").stdout
        assert "everything before slot 17 is processed\n" in view
        assert view.count("slot 17") == 3 and view.count("3 slots") == 2, "each segment"
        assert "slot 20" in view, "the front's promise"
        assert "1970" not in view and "UTC" not in view and "ago" not in view
        assert "slot 17" in run(running, "status").stdout
        assert "min time slot 17 for" in run(running, "explain", "-p", "versions").stdout
        state = run_json(running, "watch", "--once", "-p", "versions")["state"]
    said = {"min_time": 17, "time": None, "lag_slots": 3, "lag_ms": None, "age_ms": None}
    for place in (state, *state["segments"]):
        assert {**place, **said} == place
    (explained, _) = run_json(running, "explain", "-p", "versions")["segments"]
    assert (explained["min_time"], explained["time"]) == (17, None)


def test_watching_ends_when_the_pipeline_is_complete(running: EmbeddedTracker, file: Path) -> None:
    file.write_text(FILE.replace("two", "short"))
    run(running, "pipelines", "apply", "-f", str(file))
    with NodeClient(running.target, "short", "n") as node:
        joined_front(node)
        done(node.leave_front("front"))
        node.leave(HANG_S)
    result = run(running, "watch", "-p", "short", "--json", "--interval", "50ms")
    assert result.exit_code == 0
    assert json.loads(result.stdout.splitlines()[-1])["state"]["complete"]
    live = run(running, "watch", "-p", "short", "--interval", "50ms")
    assert live.exit_code == 0 and "complete: everything is processed" in live.stdout
    assert run(running, "wait", "-p", "short", "--until", "now").stdout == "complete\n"


def test_watching_shows_the_only_pipeline_or_all_where_there_are_several(
    running: EmbeddedTracker,
) -> None:
    with tracker.embedded() as other:
        none = run(other, "watch", "--once")
        assert none.exit_code == WRONG_USAGE and "no pipeline is registered" in none.stderr
        other.register(tracker_pipeline("only"))
        assert run_json(other, "watch", "--once")["spec"]["name"] == "only"
        other.register(tracker_pipeline("more"))
        several = run(other, "watch", "--once")
        assert several.exit_code == 0 and "more" in several.stdout and "only" in several.stdout


def tracker_pipeline(name: str) -> Any:
    from tracker.client.pipeline_file import load_pipeline

    return load_pipeline(FILE.replace("two", name))


def test_waiting_prints_min_time(running: EmbeddedTracker, node: NodeClient) -> None:
    base = Subscriber(running.target, "two").min_time()
    done(node.commit(promise(base + 500)))
    words = ["wait", "-p", "two", "--until", f"slot:{base + 500}"]
    shown = run_json(running, *words, "--segment", "second")
    assert shown["min_time"] == base + 500 and not shown["complete"]
    assert run(running, *words).stdout == shown["time"] + "\n"


def test_waiting_tells_by_its_exit_status(running: EmbeddedTracker, node: NodeClient) -> None:
    base = Subscriber(running.target, "two").min_time()
    words = ["wait", "-p", "two", "--until"]
    late = run(running, *words, f"slot:{base + 100}", "--timeout", "50ms")
    assert late.exit_code == EXIT_TIMED_OUT and "was not reached within 0.05 s" in late.stderr
    as_json = run(running, *words, f"slot:{base + 100}", "--timeout", "50ms", "--json")
    assert as_json.exit_code == EXIT_TIMED_OUT
    assert json.loads(as_json.stdout)["reached"] is False
    result: list[Result] = []
    waiting = threading.Thread(
        target=lambda: result.append(run(running, *words, f"slot:{base + 100}"))
    )
    waiting.start()
    done(node.commit(promise(base + 100)))
    waiting.join(HANG_S)
    assert result[0].exit_code == 0
    assert run(running, *words, "1970-01-01", "--timeout", f"{HANG_S}s").exit_code == 0
    assert run(running, *words, "now", "--timeout", "50ms").exit_code == EXIT_TIMED_OUT
    bad = run(running, *words, "yesterday")
    assert bad.exit_code == WRONG_USAGE and "not a moment" in bad.stderr
    unknown = run(running, "wait", "-p", "nowhere", "--until", "now")
    assert unknown.exit_code == EXIT_REFUSED and "'nowhere' is not registered" in unknown.stderr
    nobody = run_at(NOBODY, *words, "now", "--timeout", "50ms")
    assert nobody.exit_code == EXIT_UNAVAILABLE and "can be reached" in nobody.stderr


def test_all_pipelines_of_a_directory_are_registered(
    running: EmbeddedTracker, tmp_path: Path
) -> None:
    directory = tmp_path / "pipelines"
    directory.mkdir()
    empty = run(running, "pipelines", "apply", "-f", str(directory))
    assert empty.exit_code == WRONG_USAGE and "has no *.yaml" in empty.stderr
    for name in ("left", "right"):
        (directory / f"{name}.yaml").write_text(f"name: {name}\nsegments: [in]\nfronts: [f]\n")
    (directory / "notes.txt").write_text("not a pipeline")
    result = run(running, "pipelines", "apply", "-f", str(directory))
    assert result.stdout == "pipeline left: registered\npipeline right: registered\n"


def test_two_files_of_a_directory_do_not_change_one_pipeline_in_turns(
    running: EmbeddedTracker, tmp_path: Path
) -> None:
    for name, segment in (("turned", "in"), ("turned-before", "former")):
        (tmp_path / f"{name}.yaml").write_text(
            f"name: turned\nsegments: [{segment}]\nfronts: [f]\n"
        )
    refused = run(running, "pipelines", "apply", "-f", str(tmp_path))
    assert refused.exit_code == WRONG_USAGE and "pipeline turned is in two" in refused.stderr
    with running.admin() as admin, pytest.raises(RefusedError, match="is not registered"):
        admin.pipeline("turned")


def test_serving_asks_for_what_belongs_together(running: EmbeddedTracker) -> None:
    for words in (
        ["--shard", "0"],
        ["--peers", "a:1"],
        ["--shard", "0", "--peers", "a:1,b:2", "--shards", "2"],
        ["--set", "log_level=loud"],
        ["--set", "member=0"],
        ["--set", "member=0", "--shard", "0", "--peers", "a:1"],
        ["--set", "health_listen=127.0.0.1:0"],
        ["--shard", "0", "--peers", "nowhere"],
    ):
        assert run(running, "serve", *words).exit_code == WRONG_USAGE, words
    for words in (
        ["--listen", "nowhere"],
        ["--listen", "h:65535", "--shards", "2"],
        ["--shard", "2", "--peers", "a:1,b:2"],
    ):
        assert run(running, "serve", *words).exit_code == EXIT_REFUSED, words


@pytest.fixture
def run_configs(monkeypatch: pytest.MonkeyPatch) -> list[ServerConfig]:
    """With what `lowmark serve` would run processes, which it does not here."""
    configs: list[ServerConfig] = []

    def take(config: ServerConfig) -> int:
        configs.append(config)
        return 0

    monkeypatch.setenv("LOWMARK_STORE", "memory:")
    monkeypatch.setattr("tracker.service.run.main", take)
    monkeypatch.setattr("tracker.service.run.configure_logging", lambda *_, **__: None)
    return configs


def served_with(configs: list[ServerConfig], *words: str) -> ServerConfig:
    """The configuration with which `lowmark serve` would run a process."""
    assert CliRunner().invoke(app, ["serve", *words]).exit_code == 0, words
    return configs.pop()


def test_what_people_serve_is_what_is_measured(run_configs: list[ServerConfig]) -> None:
    """Benchmarks, embedded trackers and tests take the defaults of ServerConfig and ProcessConfig."""
    assert served_with(run_configs) == ServerConfig(0, (DEFAULT_TARGET,))
    peers = ("--peers", "a:1,b:2")
    assert served_with(run_configs, "--shard", "1", *peers) == ServerConfig(1, ("a:1", "b:2"))
    for words in (("--standby", "--listen", "c:3", *peers), ("--join", "a:1", "--listen", "c:3")):
        assert served_with(run_configs, *words).process == ProcessConfig(), words
    changed = served_with(
        run_configs, "--set", "join_timeout_ms=700", "--set", "rescale_margin_ms=70"
    )
    assert changed.process == ProcessConfig(join_timeout_ms=700, rescale_margin_ms=70)


def test_processes_of_one_command_are_served_as_one_is(
    run_configs: list[ServerConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[ServeSettings] = []

    def take(processes: Sequence[ServeSettings]) -> int:
        started.extend(processes)
        return 0

    monkeypatch.setattr("tracker.service.supervisor.supervise", take)
    assert CliRunner().invoke(app, ["serve", "--shards", "2", "--listen", "a:7"]).exit_code == 0
    for shard, settings in enumerate(started):
        said = settings.model_dump_json()
        assert CliRunner().invoke(app, ["serve", "--config", "-"], input=said).exit_code == 0
        config = replace(run_configs.pop(), left_status=0)
        assert config == ServerConfig(shard, ("a:7", "a:8"))
    assert len(started) == 2


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Server, str]]:
    """`lowmark serve --shards 2` as people run it."""
    port = free_ports(2)
    place = Place("served", f"127.0.0.1:{port}", f"127.0.0.1:{port}")
    way = ("--shards", "2", "--store", f"sqlite:{tmp_path / 'data'}")
    with Server(place, way, tmp_path) as process:
        yield process, f"127.0.0.1:{port},127.0.0.1:{port + 1}"


def test_two_real_processes_serve_and_end_in_order(served: tuple[Server, str], file: Path) -> None:
    process, target = served
    applied = run_at(target, "--retry-for", "60s", "pipelines", "apply", "-f", str(file))
    assert applied.exit_code == 0, applied.stderr
    with NodeClient(target, "two", "n") as node, Subscriber(target, "two") as subscriber:
        joined_front(node)
        for slot in range(50):
            node.commit(create(slot, slot + 1))
            node.commit(consume(slot, slot + 1))
        node.commit(promise(50))
        assert subscriber.wait_until(50, timeout_s=HANG_S)

        pids = {e["shard"]: e["pid"] for e in process.events() if e["event"] == "shard_started"}
        os.kill(pids[1], signal.SIGKILL)  # the supervisor starts it again, from its store
        node.commit(promise(60))
        assert subscriber.wait_until(60, timeout_s=HANG_S)
    with Admin(target) as admin:
        assert [shard.state.shard for shard in admin.shards()] == [0, 1]

    assert process.stop() == 0
    log = process.events()
    assert sorted(e["shard"] for e in log if e["event"] == "stopped") == [0, 1]
    restarts = [(e["shard"], e["status"]) for e in log if e["event"] == "shard_restarts"]
    assert restarts == [(1, -signal.SIGKILL)]


def test_a_shard_that_cannot_run_ends_all_of_them(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file, where the store wants a directory")
    result = lowmark(
        "serve", "--shards", "2", "--json", "--listen", f"127.0.0.1:{free_ports(2)}",
        "--store", f"sqlite:{tmp_path / 'taken'}",
    )  # fmt: skip
    assert result.returncode == 1
    assert "cannot_start" in result.stderr and "shard_failed" in result.stderr
