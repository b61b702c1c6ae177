"""The pods of a rendered release as processes of this machine, as far as one machine can run them.

Taken from the manifests as they are: commands, arguments, environment, mounts, probes, the time to end.
Given by this module, as a cluster would: a pod's address (one of the loopback range), its name in DNS, the
contents of secrets, volumes, and the kubelet, which probes, sleeps before it stops, stops, and kills.
"""

from __future__ import annotations

import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.chart.cluster_api import ClusterApi
from tests.chart.rendering import Object, Rendered
from tests.cluster.children import Running
from tests.waits import HANG_S

_VARIABLE = re.compile(r"\$\((\w+)\)")


def loopback_addresses(count: int) -> list[str]:
    """Addresses of this machine that nobody else uses: each pod has all ports to itself, as in a
    cluster."""
    net = f"127.{random.randrange(2, 250)}.{random.randrange(1, 250)}"
    return [f"{net}.{10 + number}" for number in range(count)]


class OwnApi(Protocol):
    """By which a pod asks its cluster: the environment that finds it, its authority's file, and tokens."""

    ca: str

    @property
    def environment(self) -> dict[str, str]: ...

    def token_of(self, account: str) -> str: ...


@dataclass
class Host:
    """What the pods share. directory: where volumes lie; names: a name in DNS, and its address;
    secrets: by name, the values of their keys; api: the cluster's, if it has one; node: the name."""

    directory: Path
    names: dict[str, str] = field(default_factory=dict)
    secrets: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    api: OwnApi | None = None
    node: str = "this-node"

    def resolved(self, text: str) -> str:
        """With addresses instead of names: longest first, so that none is taken for a part of another."""
        for name in sorted(self.names, key=len, reverse=True):
            text = text.replace(name, self.names[name])
        return text


@dataclass
class Pod:
    """One pod, as its manifest says: of a set by its number, of a daemon set on one node, or alone."""

    rendered: Rendered
    spec: Object
    name: str
    address: str
    host: Host
    labels: dict[str, str] = field(default_factory=dict)
    claims: tuple[str, ...] = ()

    @property
    def container(self) -> Object:
        (container,) = self.spec["containers"]
        return dict(container)

    @property
    def directory(self) -> Path:
        return self.host.directory / self.name

    # --- what its container is given ---------------------------------------------------------------

    def environment(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for variable in self.container.get("env", []):
            found[variable["name"]] = self._value(variable, found)
        return found

    def _value(self, variable: Object, before: Mapping[str, str]) -> str:
        if "value" in variable:
            return self.located(expanded(str(variable["value"]), before))
        source = variable["valueFrom"]
        if "secretKeyRef" in source:
            reference = source["secretKeyRef"]
            return self.host.secrets[reference["name"]][reference["key"]]
        path = source["fieldRef"]["fieldPath"]
        if match := re.fullmatch(r"metadata\.labels\['(.+)'\]", path):
            return self.labels[match[1]]
        return {"metadata.name": self.name, "spec.nodeName": self.host.node}[path]

    def located(self, text: str) -> str:
        """As the process is to see it: its own address for all addresses, names resolved, paths of
        mounts where those lie."""
        text = self.host.resolved(text).replace("0.0.0.0:", f"{self.address}:")
        mounts = {m["mountPath"]: m["name"] for m in self.container.get("volumeMounts", [])}
        if not mounts:
            return text
        paths = "|".join(re.escape(path) for path in sorted(mounts, key=len, reverse=True))
        return re.sub(
            rf"(?:(?<=^)|(?<=[=:]))({paths})(?=/|$)",
            lambda found: str(self.volume(mounts[found[1]])),
            text,
        )

    def volume(self, name: str) -> Path:
        if name in self.claims:
            return self.host.directory / f"claim-{name}-{self.name}"
        (found,) = (v for v in self.spec["volumes"] if v["name"] == name)
        if "hostPath" in found:
            return self.host.directory / "node" / str(found["hostPath"]["path"]).lstrip("/")
        return self.directory / name

    def make_volumes(self) -> None:
        """Fills secrets and config maps; what is empty or claimed is there."""
        for name in self.claims:
            self.volume(name).mkdir(parents=True, exist_ok=True)
        for volume in self.spec["volumes"]:
            place = self.volume(volume["name"])
            place.mkdir(parents=True, exist_ok=True)
            if "secret" in volume:
                secret = self.host.secrets[volume["secret"]["secretName"]]
                for item in volume["secret"]["items"]:
                    (place / item["path"]).write_text(secret[item["key"]])
            for source in volume.get("projected", {}).get("sources", []):
                for key, text in self._projected(source).items():
                    (place / key).write_text(text)

    def _projected(self, source: Object) -> Mapping[str, str]:
        """Files of one source: a config map, or what a cluster tells a pod of its account."""
        if "configMap" in source and source["configMap"]["name"] != "kube-root-ca.crt":
            found = self.rendered.one("ConfigMap", source["configMap"]["name"])["data"]
            return {str(key): str(text) for key, text in found.items()}
        assert self.host.api is not None, "no cluster's API is there"
        if "serviceAccountToken" in source:
            token = self.host.api.token_of(self.spec["serviceAccountName"])
            return {source["serviceAccountToken"]["path"]: token}
        if "configMap" in source:
            return {"ca.crt": Path(self.host.api.ca).read_text()}
        (item,) = source["downwardAPI"]["items"]
        assert item["fieldRef"]["fieldPath"] == "metadata.namespace"
        return {item["path"]: self.rendered.namespace}

    def words(self) -> list[str]:
        """What follows the command `lowmark`, with which the image begins its commands."""
        variables = self.environment()
        return [self.located(expanded(word, variables)) for word in self.container["args"]]

    def given(self) -> list[str]:
        """Nothing of this test's environment but what finds Python's modules."""
        cluster = self.host.api.environment if self.host.api is not None else {}
        given = [f"{name}={value}" for name, value in {**cluster, **self.environment()}.items()]
        return ["env", "-i", f"PATH={os.environ['PATH']}", f"HOME={self.directory}", *given]

    # --- running -----------------------------------------------------------------------------------

    def process(self, errors: Path, sabotage: str = "") -> Running:
        """Its process, not started, with a planted fault if one is named; the volumes are there."""
        self.make_volumes()
        planted = ("tests.sabotage", sabotage, "--") if sabotage else ("tracker.cli",)
        return Running(*planted, *self.words(), errors=errors, before=self.given())

    def run(self) -> subprocess.CompletedProcess[str]:
        """For a job: runs to its end."""
        self.make_volumes()
        return subprocess.run(
            [*self.given(), sys.executable, "-m", "tracker.cli", *self.words()],
            capture_output=True, text=True, timeout=HANG_S, check=False,
        )  # fmt: skip

    def terminate(self, process: Running) -> float:
        """As a kubelet ends a pod: the hook, SIGTERM; that its time is over before it has ended fails
        the test. Returns how many seconds it took from the signal."""
        hook = self.container.get("lifecycle", {}).get("preStop", {})
        sleep_s = float(hook.get("sleep", {}).get("seconds", 0))
        grace_s = float(self.spec["terminationGracePeriodSeconds"])
        time.sleep(sleep_s)  # paces: the hook of the pod
        begun = time.monotonic()
        process.signal(signal.SIGTERM)
        process.ends_well(grace_s - sleep_s)
        return time.monotonic() - begun


def expanded(text: str, variables: Mapping[str, str]) -> str:
    """`$(NAME)` as Kubernetes replaces it."""
    return _VARIABLE.sub(lambda found: variables[found[1]], text)


# --- pods of a release ----------------------------------------------------------------------------


def tracker_pods(rendered: Rendered, host: Host, addresses: list[str]) -> list[Pod]:
    """The pods of the stateful set, by number; their names are told to `host`."""
    found = rendered.kind("StatefulSet")[0]
    name, spec = found["metadata"]["name"], found["spec"]
    claims = tuple(c["metadata"]["name"] for c in spec.get("volumeClaimTemplates", []))
    tail = f"{spec['serviceName']}.{rendered.namespace}.svc.{rendered.values['clusterDomain']}"
    pods = []
    for number, address in zip(range(spec["replicas"]), addresses, strict=True):
        pod = f"{name}-{number}"
        host.names[f"{pod}.{tail}"] = address
        labels = {"apps.kubernetes.io/pod-index": str(number)}
        pods.append(Pod(rendered, spec["template"]["spec"], pod, address, host, labels, claims))
    return pods


def names_of_all(rendered: Rendered, host: Host, addresses: list[str]) -> None:
    """Tells `host` what stands for every pod of the set, those that come later too."""
    spec = rendered.one("StatefulSet")["spec"]
    domain = rendered.values["clusterDomain"]
    tail = f"{spec['serviceName']}.{rendered.namespace}.svc.{domain}"
    host.names[f"*.{tail}"] = ",".join(addresses)


def install(rendered: Rendered, host: Host) -> list[str]:
    """Helm puts a release's secrets into the cluster, and the job that fills them runs to its end; what became
    of each. Raises AssertionError if it fails."""
    assert isinstance(host.api, ClusterApi)
    host.api.apply(rendered)
    (name,) = (
        o["metadata"]["name"]
        for o in rendered.kind("Job")
        if o["metadata"]["labels"]["app.kubernetes.io/component"] == "credentials"
    )
    done = other_pod(rendered, "Job", name, "127.0.0.1", host).run()
    assert done.returncode == 0, f"{name} failed: {done.stdout}{done.stderr}"
    said = done.stdout.splitlines()
    assert len(said) == len(rendered.kind("Secret")), said
    return said


def other_pod(rendered: Rendered, kind: str, name: str, address: str, host: Host) -> Pod:
    """The pod of a job or daemon set, or one alone."""
    found = rendered.one(kind, name)
    spec = found["spec"] if kind == "Pod" else found["spec"]["template"]["spec"]
    return Pod(rendered, spec, name, address, host)


# --- probes ---------------------------------------------------------------------------------------


def asked(pod: Pod, probe: Object) -> bool:
    """One probe as a kubelet makes it, by TCP or gRPC: in the clear, at the pod's address, within its time."""
    if "tcpSocket" in probe:
        return _accepts(pod, probe)
    grpc_probe = probe["grpc"]
    request = health_pb2.HealthCheckRequest(service=grpc_probe.get("service", ""))
    with grpc.insecure_channel(f"{pod.address}:{grpc_probe['port']}") as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        try:
            answer = stub.Check(request, timeout=float(probe.get("timeoutSeconds", 1)))
        except grpc.RpcError:
            return False
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


def _accepts(pod: Pod, probe: Object) -> bool:
    ports = {port["name"]: port["containerPort"] for port in pod.container["ports"]}
    where = (pod.address, ports[probe["tcpSocket"]["port"]])
    try:
        socket.create_connection(where, float(probe.get("timeoutSeconds", 1))).close()
    except OSError:
        return False
    return True


class Kubelet:
    """Probes one pod while it runs: first for its start, then whether it lives and is ready."""

    def __init__(self, pod: Pod, process: Running) -> None:
        self.pod, self.process = pod, process
        self.ready = threading.Event()
        self.failure = ""
        self.asked = {"startupProbe": 0, "livenessProbe": 0, "readinessProbe": 0}
        self.ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"kubelet-{pod.name}")
        self._thread.start()

    def _probe(self, name: str) -> bool:
        self.asked[name] += 1
        return asked(self.pod, self.pod.container[name])

    def _run(self) -> None:
        startup = self.pod.container["startupProbe"]
        failures = 0
        while not self.ended.is_set() and not self._probe("startupProbe"):
            failures += 1
            if failures >= startup["failureThreshold"]:
                self.failure = f"{self.pod.name} did not start"
                return
            self.ended.wait(startup["periodSeconds"])
        threads = [
            threading.Thread(target=look)
            for look in (self._look_whether_ready, self._look_whether_alive)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _look_whether_ready(self) -> None:
        probe, failures = self.pod.container["readinessProbe"], 0
        while not self.ended.is_set():
            if self._probe("readinessProbe"):
                failures = 0
                self.ready.set()
            else:
                failures += 1
                if failures >= probe.get("failureThreshold", 3):
                    self.ready.clear()
            self.ended.wait(probe["periodSeconds"])

    def _look_whether_alive(self) -> None:
        probe, failures = self.pod.container["livenessProbe"], 0
        while not self.ended.is_set():
            failures = 0 if self._probe("livenessProbe") else failures + 1
            if failures >= probe.get("failureThreshold", 3) and not self.ended.is_set():
                self.failure = f"{self.pod.name} would have been killed: it did not live"
                return
            self.ended.wait(probe["periodSeconds"])

    def wait_until_ready(self, timeout_s: float = HANG_S) -> None:
        assert self.ready.wait(timeout_s), (
            f"{self.pod.name} is not ready after {timeout_s:g} s: {self.process.errors()}"
        )

    def end(self) -> None:
        """No more probes; raises AssertionError if one has condemned the pod."""
        self.ended.set()
        self._thread.join(HANG_S)
        assert not self.failure, self.failure
