"""A release whose number of shards is changed by upgrades, run on this machine: its jobs, and its pods as a
stateful set makes, replaces and ends them."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

from tests.chart.cluster_api import ClusterApi
from tests.chart.pods import (
    Host,
    Kubelet,
    Pod,
    install,
    loopback_addresses,
    names_of_all,
    other_pod,
    tracker_pods,
)
from tests.chart.release import client_environment
from tests.chart.rendering import Values, render, render_upgrade
from tests.client.support import TWO_SEGMENTS, consume, create, done, joined_front, promise
from tests.cluster.children import Running
from tests.waits import HANG_S
from tracker.client import Admin, NodeClient, Subscriber
from tracker.core.insight.describe import ShardRole

VALUES: Values = {"shards": 2}
Secrets: TypeAlias = Mapping[str, Mapping[str, str]]
STEPS = (3, 1, 2)
"""Up; down to fewer than it began with; and up again."""
OWNERS = ([(0, 0), (1, 1), (2, 2)], [(0, 0)], [(0, 0), (3, 1)])
"""(shard, pod) behind each step: a number is never given twice."""


class Grown:
    """A release with SQLite whose number of shards is changed, as Helm and its cluster do it."""

    def __init__(
        self, directory: Path, values: Values, addresses: list[str], api: ClusterApi
    ) -> None:
        self.directory, self.values, self.addresses = directory, values, addresses
        self.host = Host(directory, secrets=api.kept, api=api)
        self.rendered = render(values)
        # The certificate that is made now is for the pods that come later, too.
        names_of_all(self.rendered, self.host, addresses)
        install(self.rendered, self.host)
        self.running: dict[str, tuple[Pod, Running, Kubelet]] = {}

    def upgrade(self, shards: int) -> None:
        """The hook before it; then the pods: those behind the set go, new ones come at once, the others are
        replaced one by one, the last first; then the hook behind it."""
        self.values = {**self.values, "shards": shards}
        self.rendered = render_upgrade(self.values, self.rendered)
        self._hook("pre-upgrade")
        made = install(self.rendered, self.host)
        assert all(said.endswith(": is there") for said in made), made
        self.roll()
        self._hook("post-upgrade")

    def _hook(self, when: str) -> None:
        for job in self.rendered.kind("Job"):
            if when in job["metadata"].get("annotations", {}).get("helm.sh/hook", "").split(","):
                name = job["metadata"]["name"]
                done = other_pod(self.rendered, "Job", name, "127.0.0.1", self.host).run()
                assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}"

    def roll(self) -> None:
        replicas = self.rendered.one("StatefulSet")["spec"]["replicas"]
        pods = tracker_pods(self.rendered, self.host, self.addresses[:replicas])
        wanted = {pod.name: pod for pod in pods}
        for name in [name for name in self.running if name not in wanted]:
            self._stop(name)
        fresh = [pod for pod in pods if pod.name not in self.running]
        for pod in fresh:
            self._start(pod)
        for pod in reversed(pods):
            if pod not in fresh:
                self._stop(pod.name)
                self._start(pod)
            self.running[pod.name][2].wait_until_ready()

    def _start(self, pod: Pod) -> None:
        process = pod.process(self.directory / f"{pod.name}.log")
        process.start()
        self.running[pod.name] = (pod, process, Kubelet(pod, process))

    def _stop(self, name: str) -> None:
        pod, process, kubelet = self.running.pop(name)
        kubelet.end()
        pod.terminate(process)
        shutil.rmtree(pod.volume("tmp"))  # it goes with its pod, unlike what is claimed

    def owners(self) -> list[tuple[int, str]]:
        """(shard, address), by shard, of those that own slots."""
        with Admin(self.target, HANG_S) as admin:
            found = admin.routing().of(ShardRole.OWNER)
        return [(o.state.shard, o.address.rpartition(":")[0]) for o in found]

    @property
    def target(self) -> str:
        return f"{self.addresses[0]}:{self.rendered.values['tracker']['port']}"

    def close(self) -> None:
        for _, process, kubelet in self.running.values():
            kubelet.ended.set()
            process.discard()


def change_shards(
    directory: Path, values: Values = VALUES, more_secrets: Secrets | None = None
) -> list[str]:
    """Makes the steps while items are open; returns what is wrong. Raises AssertionError."""
    api = ClusterApi(directory / "cluster")
    try:
        api.kept.update({name: dict(keys) for name, keys in (more_secrets or {}).items()})
        grown = Grown(directory, values, loopback_addresses(3), api)
        with client_environment(directory / "client", api.kept):
            return _change_shards(grown)
    finally:
        api.close()


def _change_shards(grown: Grown) -> list[str]:
    wrong: list[str] = []
    try:
        grown.roll()
        with (
            Admin(grown.target, HANG_S) as admin,
            NodeClient(grown.target, "two", "F") as node,
            Subscriber(grown.target, "two") as subscriber,
        ):
            admin.register(TWO_SEGMENTS)
            joined_front(node)
            for place, (shards, expected) in enumerate(zip(STEPS, OWNERS, strict=True)):
                done(node.commit(create(100 * (place + 1), 7 + place)))
                grown.upgrade(shards)
                owners = grown.owners()
                print(f"{shards} shards: {owners}", flush=True)
                if owners != [(shard, grown.addresses[pod]) for shard, pod in expected]:
                    wrong.append(f"{shards} shards: slots are owned by {owners}")
            done(node.commit(promise(400)))
            for place in range(len(STEPS)):
                slot = 100 * (place + 1)
                if not subscriber.wait_until(slot, "first", HANG_S):
                    wrong.append(f"slot {slot} is not announced")
                if subscriber.min_time("first") > slot:
                    wrong.append(f"slot {slot} is open, and announced as complete")
                done(node.commit(consume(slot, 7 + place)))
            if not subscriber.wait_until(400, "first", HANG_S):
                wrong.append("slot 400 is not announced")
    finally:
        grown.close()
    return wrong
