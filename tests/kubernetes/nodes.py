"""What a cluster has beside its control plane, played here: a scheduler, a provisioner of volumes, and kubelets.

Pods of namespaces in `processes` run: each container is a process of this machine (`tests/chart/pods.py`), with the
secrets, config maps, tokens and claims that the API server has, probed and ended as its manifest says. Of others it is
stated alone that they run, and are ready, or have succeeded.
"""

from __future__ import annotations

import shutil
import threading
import time
import traceback
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.chart.pods import Host, Kubelet, Pod
from tests.chart.rendering import Object, Rendered
from tests.cluster.children import Running
from tests.kubernetes.api import Refused
from tests.kubernetes.control_plane import ControlPlane, PodAccount
from tests.waits import HANG_S

NODES = ("node-0", "node-1", "node-2")
LABELS = {"kubernetes.io/os": "linux", "example.org/spark": "true"}
CLASS = "loopback"
LOOK_S = 0.2
RESTART_S = 2.0


class Addresses:
    """Where the pods that run are reached. pods: by name, of sets; local: by node, of daemon sets."""

    def __init__(self, pods: Mapping[str, str], local: Mapping[str, str]) -> None:
        self.pods, self.local = pods, local

    def of(self, pod: Object) -> str:
        """Jobs are clients, and reached by nobody."""
        if _owner(pod) == "DaemonSet":
            return self.local[pod["spec"]["nodeName"]]
        return self.pods.get(pod["metadata"]["name"], "127.0.0.1")


class Nodes:
    """Three of them, which look at the API server all the time, from `with` to its end."""

    def __init__(
        self, plane: ControlPlane, directory: Path, processes: Mapping[str, Addresses],
        names: Mapping[str, str],
    ) -> None:  # fmt: skip
        """names: what DNS would tell, for pods that run."""
        self.plane, self.api, self.directory = plane, plane.api, directory
        self._processes, self._names = processes, names
        self.running: dict[str, Container] = {}
        """By the pod's uid."""
        self.wrong: list[str] = []
        self._numbers: dict[str, int] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="nodes")
        self._enders = ThreadPoolExecutor(16)

    def __enter__(self) -> Nodes:
        self.directory.mkdir(parents=True)
        for name in NODES:
            labels = {**LABELS, "kubernetes.io/hostname": name}
            metadata = {"name": name, "labels": labels}
            self.api.create({"apiVersion": "v1", "kind": "Node", "metadata": metadata})
        annotation = {"storageclass.kubernetes.io/is-default-class": "true"}
        self.api.create({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
            "metadata": {"name": CLASS, "annotations": annotation},
            "provisioner": "tests.lowmark.dev/loopback",
        })  # fmt: skip
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(HANG_S)
        self._enders.shutdown()
        for container in self.running.values():
            container.discard()

    def _run(self) -> None:
        while not self._ended.wait(LOOK_S):  # paces: its looks
            try:
                self._look()
            except Refused as refused:
                if refused.status not in (404, 409):  # it has changed meanwhile: the next look
                    self.wrong.append(str(refused))
            except (AssertionError, OSError) as error:
                if str(error) not in self.wrong:
                    traceback.print_exc()
                    self.wrong.append(str(error))

    def _look(self) -> None:
        for claim in self.api.list("/api/v1/persistentvolumeclaims"):
            if claim["status"].get("phase") == "Pending":
                self._provide(claim)
        pods = self.api.list("/api/v1/pods")
        for pod in pods:
            if "deletionTimestamp" in pod["metadata"]:
                self._delete(pod)
            elif "nodeName" not in pod["spec"]:
                self._bind(pod, pods)
            elif pod["status"]["phase"] == "Pending":
                self._begin(pod)
            elif container := self.running.get(pod["metadata"]["uid"]):
                self._report(pod, container)

    # --- volumes --------------------------------------------------------------------------------------

    def _provide(self, claim: Object) -> None:
        """A volume for one claim alone, as its class provides it."""
        metadata, spec = claim["metadata"], claim["spec"]
        name = f"volume-{metadata['uid']}"
        if self.api.find(f"/api/v1/persistentvolumes/{name}"):
            return
        keys = ("namespace", "name", "uid")
        self.api.create({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
            "spec": {
                "capacity": spec["resources"]["requests"], "accessModes": spec["accessModes"],
                "storageClassName": spec["storageClassName"],
                "persistentVolumeReclaimPolicy": "Retain",
                "hostPath": {"path": f"/volumes/{name}"},
                "claimRef": {
                    "kind": "PersistentVolumeClaim", "apiVersion": "v1",
                    **{key: metadata[key] for key in keys},
                },
            },
        })  # fmt: skip

    def _claimed(self, pod: Object) -> dict[str, Object | None]:
        """The claim of each volume that is one."""
        base = f"/api/v1/namespaces/{pod['metadata']['namespace']}/persistentvolumeclaims"
        return {
            volume["name"]: self.api.find(f"{base}/{volume['persistentVolumeClaim']['claimName']}")
            for volume in pod["spec"].get("volumes", [])
            if "persistentVolumeClaim" in volume
        }

    # --- scheduling -----------------------------------------------------------------------------------

    def _bind(self, pod: Object, pods: list[Object]) -> None:
        for claim in self._claimed(pod).values():
            if claim is None or claim["status"].get("phase") != "Bound":
                return
        metadata = pod["metadata"]
        node = _daemons_node(pod) or self._emptiest(pod, pods)
        self.api.ask("POST", f"{path_of(pod)}/binding", {
            "apiVersion": "v1", "kind": "Binding",
            "metadata": {"name": metadata["name"], "namespace": metadata["namespace"]},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        })  # fmt: skip
        pod["spec"]["nodeName"] = node

    def _emptiest(self, pod: Object, pods: list[Object]) -> str:
        """With the fewest pods of the same namespace, so that each set is spread."""
        wanted = pod["spec"].get("nodeSelector", {})
        assert wanted.items() <= LABELS.items(), f"no node has {wanted}"
        space = pod["metadata"]["namespace"]
        taken = [p["spec"].get("nodeName") for p in pods if p["metadata"]["namespace"] == space]
        return min(NODES, key=taken.count)

    # --- kubelets -------------------------------------------------------------------------------------

    def _begin(self, pod: Object) -> None:
        metadata = pod["metadata"]
        addresses = self._processes.get(metadata["namespace"])
        if addresses is None:
            once = pod["spec"]["restartPolicy"] == "Never"
            self._tell(pod, "Succeeded" if once else "Running", ready=not once)
        elif metadata["uid"] not in self.running:
            try:
                container = Container(self._as_manifest(pod, addresses), pod, self.directory)
            except (KeyError, AssertionError):
                return  # a secret or config map that it mounts is not there, or not filled
            self.running[metadata["uid"]] = container
            self._tell(pod, "Running", ready=False)
        else:
            self._tell(pod, "Running", ready=False)

    def _as_manifest(self, pod: Object, addresses: Addresses) -> Pod:
        metadata = pod["metadata"]
        space = metadata["namespace"]
        claims = tuple(self._claimed(pod))
        maps = self.api.list(f"/api/v1/namespaces/{space}/configmaps")
        rendered = Rendered([{"kind": "ConfigMap", **o} for o in maps], [], {}, "", "", space)
        host = Host(
            self.directory / space, dict(self._names), self.api.secrets(space),
            PodAccount(self.plane, pod), pod["spec"]["nodeName"],
        )  # fmt: skip
        return Pod(
            rendered, pod["spec"], metadata["name"], addresses.of(pod), host,
            metadata["labels"], claims,
        )  # fmt: skip

    def _report(self, pod: Object, container: Container) -> None:
        phase, ready = container.state()
        if container.restarts and _owner(pod) == "StatefulSet":
            raise AssertionError(f"{pod['metadata']['name']} has ended by itself: {container.last}")
        if (phase, ready) != (pod["status"]["phase"], _is_ready(pod)):
            self._tell(pod, phase, ready=ready, restarts=container.restarts)

    def _delete(self, pod: Object) -> None:
        container = self.running.get(pod["metadata"]["uid"])
        if container is None:
            gone = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
            self.api.ask("DELETE", path_of(pod), gone)
        elif not container.ending:
            container.ending = True
            self._enders.submit(self._end, pod, container)

    def _end(self, pod: Object, container: Container) -> None:
        try:
            container.end()
        except AssertionError as error:
            self.wrong.append(f"{pod['metadata']['name']}: {str(error).splitlines()[0]}")
        finally:
            container.discard()
            del self.running[pod["metadata"]["uid"]]

    def _tell(self, pod: Object, phase: str, *, ready: bool, restarts: int = 0) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        number = self._numbers.setdefault(pod["metadata"]["uid"], len(self._numbers) + 1)
        address = f"10.244.{number // 250}.{number % 250 + 1}"
        (container,) = pod["spec"]["containers"]
        done = {"terminated": {"exitCode": int(phase == "Failed"), "finishedAt": now}}
        states = {
            "name": container["name"], "image": container["image"], "imageID": container["image"],
            "ready": ready, "started": True, "restartCount": restarts,
            "state": {"running": {"startedAt": now}} if phase == "Running" else done,
        }  # fmt: skip
        conditions = [
            {"type": name, "status": str(is_so), "lastTransitionTime": now}
            for name, is_so in (
                ("PodScheduled", True), ("Initialized", True),
                ("ContainersReady", ready), ("Ready", ready),
            )
        ]  # fmt: skip
        self.api.patch(f"{path_of(pod)}/status", {"status": {
            "phase": phase, "podIP": address, "podIPs": [{"ip": address}], "startTime": now,
            "conditions": conditions, "containerStatuses": [states],
        }})  # fmt: skip


class Container:
    """The process of one pod's container, started again where it has ended by itself, and who probes it."""

    def __init__(self, pod: Pod, found: Object, logs: Path) -> None:
        self.pod, self.ending, self.restarts, self.last = pod, False, 0, ""
        self._log = logs / f"{pod.name}.log"
        self._kubelet: Kubelet | None = None
        self._process: Running | None = None
        self._phase, self._restart_at = "Running", 0.0
        pod.make_volumes()
        if found["spec"]["restartPolicy"] == "Never":
            self._thread = threading.Thread(target=self._once, name=pod.name)
            self._thread.start()
            return
        self._process = pod.process(self._log)
        self._start(self._process)

    def _start(self, process: Running) -> None:
        process.start()
        self._kubelet = Kubelet(self.pod, process)

    def _once(self) -> None:
        done = self.pod.run()
        self._log.write_text(done.stdout + done.stderr)
        self._phase = "Failed" if done.returncode else "Succeeded"

    def state(self) -> tuple[str, bool]:
        """Phase, and whether it is ready. Raises AssertionError where a probe has condemned it."""
        if self._process is None:
            return self._phase, False
        if self._kubelet is not None and self._process.has_ended():
            self._kubelet.end()
            self._kubelet = None
            self.restarts, self.last = self.restarts + 1, self._process.errors()[-300:]
            self._process.end()
            self._restart_at = time.monotonic() + RESTART_S
        if self._kubelet is None:
            if time.monotonic() > self._restart_at:
                self._start(self._process)
            return "Running", False
        assert not self._kubelet.failure, self._kubelet.failure
        return "Running", self._kubelet.ready.is_set()

    def end(self) -> None:
        """As its manifest says. Raises AssertionError if it takes longer than that allows."""
        if self._process is None:
            self._thread.join(HANG_S)
        elif self._kubelet is not None:
            self._kubelet.end()
            self.pod.terminate(self._process)
            shutil.rmtree(self.pod.directory)  # what is not claimed goes with the pod

    def discard(self) -> None:
        if self._kubelet is not None:
            self._kubelet.ended.set()
        if self._process is not None:
            self._process.discard()


def path_of(pod: Object) -> str:
    metadata = pod["metadata"]
    return f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"


def _owner(pod: Object) -> str:
    """The kind of what has made it; empty of a pod alone."""
    owners = pod["metadata"].get("ownerReferences") or [{}]
    return str(owners[0].get("kind", ""))


def _is_ready(pod: Object) -> bool:
    return any(
        c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", [])
    )


def _daemons_node(pod: Object) -> str:
    """For which node a daemon set has made the pod; empty of others."""
    affinity: Any = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get(
        "nodeSelectorTerms", []
    )
    return next((str(f["values"][0]) for t in terms for f in t.get("matchFields", [])), "")
