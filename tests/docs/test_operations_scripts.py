"""The scripts of docs/operations.md run as they stand there, with a `systemctl` by which this test starts and stops programs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import tracker
from examples.children import free_ports
from tests.client.support import consume, create, done, promise
from tests.cluster.before import NoReleaseBefore, release_before
from tests.cluster.network import Place
from tests.cluster.tracker import Server, Tracker
from tests.docs.pages import ROOT, blocks_below
from tests.waits import HANG_S, until
from tracker.client import Admin, Credentials, NodeClient, SecureTarget
from tracker.client.finishing import waits_for
from tracker.client.pipeline_file import load_pipeline
from tracker.core.model.levels import NEWEST_LEVEL
from tracker.errors import LowmarkError, UnavailableError

PAGE = ROOT / "docs" / "operations.md"
FILE = """
name: flights
segments: [enrich, aggregate]
edges: [enrich -> aggregate]
fronts: [front]
"""
GROWN = FILE.replace("aggregate]\nedges: [", "aggregate, audit]\nedges: [enrich -> audit, ")
ENRICH, AUDIT = 0, 2
SYSTEMCTL = """#!/usr/bin/env bash
echo "$@" > asked.new && mv asked.new asked
until [ -e did ]; do sleep 0.02; done
rm did
"""


def scripts(heading: str) -> list[str]:
    return [block.text for block in blocks_below(PAGE, heading) if block.info == "sh"]


class Machine:
    """A directory in which scripts run. does: what `systemctl` is, called with its words."""

    def __init__(self, directory: Path, does: Callable[[list[str]], None], **more: str) -> None:
        self.directory, self._does, self._more = directory, does, more
        commands = directory / "commands"
        commands.mkdir()
        lowmark = f'#!/usr/bin/env bash\nexec {sys.executable} -m tracker.cli "$@"\n'
        for name, script in (("lowmark", lowmark), ("systemctl", SYSTEMCTL)):
            (commands / name).write_text(script)
            (commands / name).chmod(0o755)
        self.asked: list[str] = []

    def run(self, script: str) -> str:
        """Returns what a script has printed, each of whose commands must end well."""
        path = f"{self.directory / 'commands'}:{os.environ['PATH']}"
        environment = {"PATH": path, "PYTHONPATH": f"{ROOT}:{ROOT / 'proto'}", "COLUMNS": "200"}
        output = self.directory / "output"
        with (
            open(output, "w", encoding="utf-8") as said,
            subprocess.Popen(
                ["bash", "-euo", "pipefail", "-c", script], cwd=self.directory,
                env={**os.environ, **environment, **self._more}, stdout=said, stderr=said,
            ) as shell,
        ):  # fmt: skip
            until(lambda: self._helps() or shell.poll() is not None, output.read_text)
        assert shell.returncode == 0, f"{script}\n{output.read_text()}"
        return output.read_text()

    def _helps(self) -> bool:
        """Does what `systemctl` was asked for, if it was; there is always more to do."""
        asked = self.directory / "asked"
        if asked.exists():
            words = asked.read_text().split()
            asked.unlink()
            self.asked.append(" ".join(words))
            self._does(words)
            (self.directory / "did").touch()
        return False


def test_a_segment_is_added_and_taken_away(tmp_path: Path) -> None:
    with tracker.embedded(shards=2) as embedded:
        embedded.register(load_pipeline(FILE))
        front = embedded.node("flights", "front", "front")
        front.join(HANG_S)
        front.join_front("front", "enrich", HANG_S)
        done(front.commit(create(10, 7)))

        def does(words: list[str]) -> None:
            """Started again, `enrich` passes on what there is; `audit` takes it."""
            steps = {
                ("restart", "enrich"): replace(
                    consume(10, 7), created=create(10, 70, AUDIT).created
                ),
                ("start", "audit"): consume(10, 70, AUDIT),
            }
            if (step := steps.get((words[0], words[1]))) and machine.asked.count(
                " ".join(words)
            ) == 1:
                with NodeClient(embedded.target, "flights", words[1]) as node:
                    node.join(HANG_S)
                    done(node.commit(step))

        machine = Machine(tmp_path, does, LOWMARK_TARGET=embedded.target)
        (tmp_path / "pipeline.yaml").write_text(GROWN)
        (add,) = scripts("Adding a segment")
        assert "would be changed segments (+ audit)" in machine.run(add)
        done(front.commit(promise(20)))
        with embedded.subscriber("flights") as subscriber:
            assert subscriber.wait_until(20, "audit", HANG_S)
        (tmp_path / "pipeline.yaml").write_text(FILE)
        (take_away,) = scripts("Taking a segment away")
        machine.run(take_away)
        with Admin(embedded.target) as admin:
            assert admin.pipeline("flights").spec.removed == ("audit",)
        assert machine.asked == ["restart enrich", "start audit", "restart enrich", "stop audit"]


def test_a_lost_shard_is_replaced(tmp_path: Path) -> None:
    with Tracker(tmp_path / "tracker", 3) as cluster:
        cluster.register(load_pipeline(FILE))
        target = ",".join(server.address for server in cluster.shards[:2])

        def does(words: list[str]) -> None:
            if words == ["stop", "lowmark@2"]:
                cluster.shards[2].kill()
                for path in (tmp_path / "tracker" / "store").glob("shard-2.*"):
                    path.unlink()
                until(are_two_alone)
            elif words == ["start", "lowmark-join"]:
                cluster.newcomer()

        def are_two_alone() -> bool:
            """Whether each of those that are left has noticed that the third is gone."""
            states = []
            for server in cluster.shards[:2]:
                with Admin(server.address) as admin:
                    states += [shard.state for shard in admin.shards()]
            return not any(state.connected for state in states if state.shard == 2)

        machine = Machine(tmp_path, does, LOWMARK_TARGET=target)
        (script,) = scripts("Replacing a lost shard")
        said = machine.run(script)
        assert "3 shards: 0, 1, 3" in said, said
        assert machine.asked == ["stop lowmark@2", "start lowmark-join"]


def test_a_pipeline_succeeds_another(tmp_path: Path) -> None:
    with tracker.embedded(shards=2) as embedded, Admin(embedded.target) as admin:
        embedded.register(load_pipeline(FILE))
        nodes: dict[str, NodeClient] = {}

        def start(name: str, pipeline: str) -> NodeClient:
            nodes[name] = embedded.node(pipeline, name, "front")
            nodes[name].join(HANG_S)
            nodes[name].join_front("front", "enrich", HANG_S)
            return nodes[name]

        def does(words: list[str]) -> None:
            if words == ["stop", "front"]:
                done(nodes["front"].leave_front("front"))
            elif words == ["start", "front2", "enrich2", "aggregate2"]:
                done(start("front2", "coarser").commit(promise(7_000)))

        front = start("front", "flights")
        done(front.commit(promise(60_000)))
        until(lambda: admin.pipeline("flights").state.min_time == 60_000)
        machine = Machine(tmp_path, does, LOWMARK_TARGET=embedded.target)
        coarser = FILE.replace("name: flights", "name: coarser\nslack: 100ms")
        (tmp_path / "coarser.yaml").write_text(coarser)
        (succeed,) = scripts("A pipeline that succeeds another")
        assert "`start: slot:6000`" in machine.run(succeed)
        until(lambda: admin.pipeline("coarser").state.min_time == 7_000)
        assert [info.spec.name for info in admin.pipelines()] == ["coarser"]


class Units:
    """The processes of a tracker, by the names that the pages give them."""

    def __init__(self, cluster: Tracker) -> None:
        self.cluster = cluster

    def __call__(self, words: list[str]) -> None:
        servers = [self.cluster.shards[int(unit.partition("@")[2])] for unit in words[1:]]
        for server in servers:
            if words[0] == "start":
                server.start()
            else:
                assert server.stop() == 0
        if words[0] == "start":
            self.cluster.wait_connected()


def test_a_backup_is_made_and_restored(tmp_path: Path) -> None:
    with Tracker(tmp_path, 2, store=f"sqlite:{tmp_path / 'tracker-data'}") as cluster:
        cluster.register(load_pipeline(FILE))
        machine = Machine(tmp_path, Units(cluster), LOWMARK_TARGET=cluster.target)
        backup, restore = scripts("Restoring a backup")

        def node() -> NodeClient:
            return NodeClient(cluster.target, "flights", "front", kind="front")

        with node() as front:
            front.join(HANG_S)
            front.join_front("front", "enrich", HANG_S)
            done(front.commit(create(10, 7)))
            machine.run(backup)
            machine.run(restore)
            done(front.commit(promise(20)))  # nothing was acknowledged in between: it goes on
            machine.run(restore.replace(".broken", ".newer"))
            with pytest.raises(LowmarkError, match="lost what it acknowledged"):
                done(front.commit(promise(30)))
        with cluster.admin() as admin:
            assert admin.pipeline("flights").state.segments[ENRICH].open_items == 1


def test_a_tracker_is_upgraded_for_good(tmp_path: Path) -> None:
    try:
        before = release_before()
    except NoReleaseBefore as reason:
        pytest.skip(str(reason))
    cluster = Tracker(tmp_path, 3, store=f"sqlite:{tmp_path / 'tracker-data'}")
    units = Units(cluster)

    def does(words: list[str]) -> None:
        for unit in words[1:]:
            cluster.shards[int(unit.partition("@")[2])].root = ROOT
        units(words)
        if words[0] == "start" and all(server.root == ROOT for server in cluster.shards):
            until(all_know_all)

    def all_know_all() -> bool:
        """Whether each has heard of which release the others are."""
        routings = []
        for server in cluster.shards:
            with Admin(server.address) as admin:
                routings.append(admin.routing())
        return not any(map(waits_for, routings))

    for server in cluster.shards:
        server.root = before
    with cluster:
        machine = Machine(tmp_path, does, LOWMARK_TARGET=cluster.target, NEW="0.2.0")
        pip = tmp_path / "commands" / "pip"
        pip.write_text('#!/usr/bin/env bash\necho "pip $@"\n')
        pip.chmod(0o755)
        upgrade, finish = scripts("Upgrading, and going back")
        said = machine.run(upgrade)
        assert said.count("pip install --quiet lowmark[server]==0.2.0") == 3
        assert "the upgrade to 2 can be finished: --finish-upgrade" in said
        said = machine.run(finish)
        assert "all processes record by feature level 2" in said
        with cluster.admin() as admin:
            assert admin.routing().table.level == NEWEST_LEVEL


def test_certificates_of_another_authority_take_the_place_of_the_old_ones(tmp_path: Path) -> None:
    pytest.importorskip("cryptography", reason="certificates are made by cryptography")
    tls, port = tmp_path / "tls", free_ports(2)
    tls.mkdir()
    addresses = [f"127.0.0.1:{port + shard}" for shard in range(2)]
    machine = Machine(
        tmp_path, lambda words: None, HOSTS="127.0.0.1", LOWMARK_TARGET=",".join(addresses),
        LOWMARK_TLS_CA="tls/ca.crt", LOWMARK_TLS_CERT="tls/client.crt",
        LOWMARK_TLS_KEY="tls/client.key",
    )  # fmt: skip
    machine.run(
        """lowmark credentials create --out old --host "$HOSTS"
        cp old/authority/ca.crt old/certificate/tls.crt old/certificate/tls.key tls
        for part in crt key; do cp old/client-certificate/tls.$part tls/client.$part; done"""
    )
    files = (
        "--tls-cert",
        f"{tls}/tls.crt",
        "--tls-key",
        f"{tls}/tls.key",
        "--tls-ca",
        f"{tls}/ca.crt",
    )
    way = ("--peers", ",".join(addresses), "--store", f"sqlite:{tmp_path / 'data'}", *files)
    servers = [
        Server(Place(f"shard-{n}", address, address), (*way, "--shard", str(n)), tmp_path)
        for n, address in enumerate(addresses)
    ]

    def are_connected(client: str = f"{tls}/client", timeout_s: float = HANG_S) -> bool:
        """Whether both shards let somebody in anew, and have each other."""
        credentials = Credentials(f"{tls}/ca.crt", f"{client}.crt", f"{client}.key")
        there = []
        for address in addresses:
            with Admin(SecureTarget(address, credentials), timeout_s) as admin:
                there += [shard.state.connected for shard in admin.shards()]
        return len(there) == 4 and all(there)

    def start_again(server: Server) -> None:
        assert server.stop() == 0
        server.start()
        until(are_connected, server.errors)

    with servers[0], servers[1]:
        until(are_connected, servers[0].errors)
        both, renewed, only_new = scripts("Rotating certificates")
        machine.run(both)
        until(are_connected, servers[0].errors)
        machine.run(renewed)
        start_again(servers[0])
        machine.run(only_new)
        start_again(servers[1])
        with pytest.raises(UnavailableError):  # expires: it is not let in
            are_connected(f"{tmp_path}/old/client-certificate/tls", timeout_s=3.0)
