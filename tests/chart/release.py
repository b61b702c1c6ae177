"""A release whose pods run on this machine, under the load that `make faults` uses, and are upgraded.

The load, the subscribers and the judging are those of `tests.faults`; the processes of the tracker and
the local tracker are the pods of the chart, the pipeline is registered by the chart's job, and
upgrades go as a stateful set's do: from the last pod to the first, each ended as a kubelet ends it, the
next one when this one is ready.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

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
from tests.chart.rendering import RELEASE, Values, render, render_upgrade
from tests.cluster.children import Running, discard, now_slot
from tests.cluster.network import Loopback, Place
from tests.faults import nodes
from tests.faults.system import System
from tests.waits import HANG_S
from tracker.client.credentials import CA_VARIABLE, CERT_VARIABLE, KEY_VARIABLE, TOKEN_VARIABLE

SHARDS, STANDBYS = 2, 1
REDIS_SECRET = "tracker-redis"
PODS_CERTIFICATE, CERTIFICATE, TOKENS, TOKEN, PROCESS_TOKEN, ADMIN_TOKEN = (
    f"{RELEASE}-lowmark-{bundle}"
    for bundle in (
        "certificate", "client-certificate", "tokens", "client-token", "peer-token", "admin-token",
    )
)  # fmt: skip
"""Of what the release makes for itself."""


def values_of_release(**changes: Any) -> Values:
    """All that the load needs: Redis by a secret, a standby, the pipeline, eager local trackers. Nothing is said
    of TLS and tokens."""
    start = now_slot()
    spec = nodes.spec(start)
    edges = [f"{e.source} -> {e.target}" for e in spec.edges]
    pipeline = {
        "segments": list(spec.segments), "edges": edges, "fronts": list(nodes.FRONTS),
        "start": f"slot:{start}",
    }  # fmt: skip
    return {
        "shards": SHARDS,
        "standbys": STANDBYS,
        "store": {"kind": "redis", "redis": {"existingSecret": REDIS_SECRET}},
        "pipelines": {nodes.PIPELINE: pipeline},
        "metrics": {"enabled": True},
        "dashboard": {"enabled": True},
        "localTrackers": {
            "enabled": True, "pipeline": nodes.PIPELINE, "mode": "eager",
            "spoolHostPath": "/var/lib/lowmark",
        },
        **changes,
    }  # fmt: skip


@contextmanager
def client_environment(directory: Path, secrets: Mapping[str, Mapping[str, str]]) -> Iterator[None]:
    """The load, the subscribers and this process are clients: by the environment, as in their pods."""
    directory.mkdir(parents=True)
    given = {}
    for variable, text in (
        (CA_VARIABLE, secrets[CERTIFICATE]["ca.crt"]),
        (CERT_VARIABLE, secrets[CERTIFICATE]["tls.crt"]),
        (KEY_VARIABLE, secrets[CERTIFICATE]["tls.key"]),
        (TOKEN_VARIABLE, secrets[TOKEN]["token"]),
    ):
        path = directory / variable.lower()
        path.write_text(text)
        given[variable] = str(path)
    before = {variable: os.environ.get(variable) for variable in given}
    os.environ.update(given)
    try:
        yield
    finally:
        for variable, value in before.items():
            os.environ.pop(variable)
            if value is not None:
                os.environ[variable] = value


class Pods(Loopback):
    """The network that `System` asks for places: Redis at a free port, pods at their addresses."""

    def __init__(self, pods: list[str], port: int) -> None:
        self._pods, self._port = pods, port

    def place(self, name: str) -> Place:
        if name == "redis":
            return super().place(name)
        kind, _, number = name.partition("-")
        pod = int(number) + (SHARDS if kind == "standby" else 0)
        where = f"{self._pods[pod]}:{self._port}"
        return Place(name, where, where)


class Release(System):
    """The release's pods, and who uses them; not started."""

    def __init__(self, directory: Path, sabotage: str = "", **changes: Any) -> None:
        """`changes`: values beside those of `values_of_release`."""
        self.values = values_of_release(**changes)
        self.rendered = render(self.values)
        replicas = SHARDS + STANDBYS
        *self.addresses, self._local_address = loopback_addresses(replicas + 1)
        port = self.rendered.values["tracker"]["port"]
        super().__init__(directory, Pods(self.addresses, port), shards=SHARDS, standbys=STANDBYS)
        self.api = ClusterApi(directory / "cluster")
        self._stack.callback(self.api.close)
        self.api.kept[REDIS_SECRET] = {"url": self.tracker.store}
        self.host = Host(directory / "pods", secrets=self.api.kept, api=self.api)
        names_of_all(self.rendered, self.host, self.addresses)
        made = install(self.rendered, self.host)
        assert all(said.endswith(": made") for said in made), made
        self.processes: list[Running] = []
        self._sabotage = sabotage
        self._stack.enter_context(client_environment(directory / "client", self.api.kept))
        self.kubelets: list[Kubelet] = []
        self.worst_stop_s = 0.0
        self._take_pods()
        self.local_pod = self._local_pod()
        self.local_tracker = self._local_process()
        workers = self.rendered.values["localTrackers"]["port"]
        self.worker = self._nodes_process(
            "worker", f"tcp:{self._local_address}:{workers}", "worker", "join"
        )

    # --- the manifests as processes ----------------------------------------------------------------

    def _take_pods(self) -> None:
        """The processes are those of the manifests as they are now."""
        self.pods = tracker_pods(self.rendered, self.host, self.addresses)
        self.processes = [
            pod.process(self.directory / f"{pod.name}.log", self._sabotage) for pod in self.pods
        ]
        self._stack.callback(discard, self.processes)

    def _local_pod(self) -> Pod:
        name = self.rendered.kind("DaemonSet")[0]["metadata"]["name"]
        return other_pod(self.rendered, "DaemonSet", name, self._local_address, self.host)

    def _local_process(self) -> Running:
        # Clients are told the pods' names, which resolve to the same addresses.
        return self.local_pod.process(self.directory / "local-tracker.log")

    def job(self, kind: str, name: str) -> str:
        """Runs a job or test pod of the release; returns what it said. Raises AssertionError if it
        failed."""
        pod = other_pod(self.rendered, kind, name, "127.0.0.1", self.host)
        done = pod.run()
        assert done.returncode == 0, f"{name} failed: {done.stdout}{done.stderr}"
        return done.stdout

    # --- a life --------------------------------------------------------------------------------------

    def start(self) -> None:
        """All pods at once; then the job that follows an install; then the load."""
        assert self.tracker.redis is not None
        self.tracker.redis.start()
        for pod, process in zip(self.pods, self.processes, strict=True):
            process.start()
            self.kubelets.append(Kubelet(pod, process))
        for kubelet in self.kubelets:
            kubelet.wait_until_ready()
        said = self.job("Job", f"{self.fullname}-pipelines")
        assert f"pipeline {nodes.PIPELINE}: registered" in said, said
        for process in self._clients():
            process.start()

    @property
    def fullname(self) -> str:
        return str(self.rendered.kind("StatefulSet")[0]["metadata"]["name"])

    def upgrade(self, **changes: Any) -> None:
        """`helm upgrade` with these values beside the present ones: every pod is replaced by one of the
        new manifests, and the jobs run again."""
        self.values = {**self.values, **changes}
        self.rendered = render_upgrade(self.values, self.rendered)
        made = install(self.rendered, self.host)
        assert all(said.endswith(": is there") for said in made), made
        running = {
            pod.name: process for pod, process in zip(self.pods, self.processes, strict=True)
        }
        self._take_pods()
        for number in reversed(range(len(self.pods))):
            pod, process = self.pods[number], self.processes[number]
            old = running[pod.name]
            assert process.command != old.command, "the upgrade changes nothing"
            self._replace(number, old, process)
        self._replace_local_tracker()
        said = self.job("Job", f"{self.fullname}-pipelines")
        assert f"pipeline {nodes.PIPELINE}: unchanged" in said, said

    def _replace(self, number: int, old: Running, new: Running) -> None:
        kubelet = self.kubelets[number]
        kubelet.end()
        before = kubelet.pod
        self.worst_stop_s = max(self.worst_stop_s, before.terminate(old))
        new.start()
        self.kubelets[number] = Kubelet(self.pods[number], new)
        self.kubelets[number].wait_until_ready()
        others = [k for n, k in enumerate(self.kubelets) if n != number]
        # Whoever waits is away for a moment while it takes a shard over.
        for other in others:
            other.wait_until_ready()

    def _replace_local_tracker(self) -> None:
        old = self.local_pod
        self.worst_stop_s = max(self.worst_stop_s, old.terminate(self.local_tracker))
        self.local_pod = self._local_pod()
        self.local_tracker = self._local_process()
        self.local_tracker.start()

    def finish(self, timeout_s: float = HANG_S) -> None:
        """As of the load; then `helm test`, and the pods are ended as an uninstall does."""
        assert "faults" in self.job("Pod", f"{self.fullname}-test")
        values, token = self.rendered.values, self.host.secrets[TOKEN]["token"].strip()
        api = f"/api/v1/pipelines/{nodes.PIPELINE}/min_times"
        for address in self.addresses:
            assert "lowmark_serving" in fetched(address, values["metrics"]["port"], "/metrics")
            assert "<html" in fetched(address, values["dashboard"]["port"], "/", token)
            assert nodes.PIPELINE in fetched(address, values["dashboard"]["port"], api, token)
        super().finish(timeout_s)

    def told_secrets(self) -> list[str]:
        """Logs in which a secret stands."""
        tokens = (TOKEN, PROCESS_TOKEN, ADMIN_TOKEN)
        secret = [self.host.secrets[name]["token"] for name in tokens]
        secret += [self.host.secrets[name]["tls.key"] for name in (PODS_CERTIFICATE, CERTIFICATE)]
        return [
            path.name for path in self.directory.glob("*.log")
            if any(text.strip() in path.read_text(errors="replace") for text in secret)
        ]  # fmt: skip

    def end_pods(self) -> None:
        """Ends the probes; what they have condemned fails the run."""
        for kubelet in self.kubelets:
            kubelet.end()

    def close(self) -> None:
        for kubelet in self.kubelets:
            kubelet.ended.set()
        super().close()


def fetched(address: str, port: int, path: str, token: str = "") -> str:
    """What a pod tells by HTTP. Raises OSError."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with urlopen(
        Request(f"http://{address}:{port}{path}", headers=headers), timeout=HANG_S
    ) as answer:
        return str(answer.read().decode())
