"""The rendered manifests are run: installed, probed and replaced, on loopback. `make chart` does it under
load, with Redis and standbys."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("helm_python", reason="Helm's engine has no wheel for this machine")
if not sys.platform.startswith("linux"):
    pytest.skip("only Linux has more than one loopback address", allow_module_level=True)

from tests.chart.cluster_api import ClusterApi
from tests.chart.pods import (
    Host,
    Kubelet,
    install,
    loopback_addresses,
    names_of_all,
    other_pod,
    tracker_pods,
)
from tests.chart.rendering import CHART, render, values_of
from tests.waits import HANG_S
from tracker.client import Credentials, RefusedError, SecureTarget, Subscriber

PIPELINES = {"orders": {"segments": ["ship"], "fronts": ["shop"]}}


def test_what_is_on_a_volume_outlives_the_pod(tmp_path: Path) -> None:
    """The default values: SQLite, one shard, no standby, TLS and tokens."""
    rendered = render({**values_of(CHART / "ci" / "default-values.yaml"), "pipelines": PIPELINES})
    api = ClusterApi(tmp_path / "cluster")
    host = Host(tmp_path, secrets=api.kept, api=api)
    addresses = loopback_addresses(1)
    (pod,) = tracker_pods(rendered, host, addresses)
    names_of_all(rendered, host, addresses)
    name = rendered.kind("StatefulSet")[0]["metadata"]["name"]
    try:
        install(rendered, host)
        process = pod.process(tmp_path / "log")
        # The job is a client from outside; that it finds the pipeline there is the point.
        for said in ("pipeline orders: registered\n", "pipeline orders: unchanged\n"):
            process.start()
            kubelet = Kubelet(pod, process)
            try:
                kubelet.wait_until_ready()
                job = other_pod(rendered, "Job", f"{name}-pipelines", "127.0.0.1", host).run()
                assert (job.returncode, job.stdout) == (0, said), job.stderr
            finally:
                kubelet.end()
                pod.terminate(process)
    finally:
        api.close()


def test_a_relay_passes_on_to_clients_of_the_release_by_a_certificate_of_its_own(
    tmp_path: Path,
) -> None:
    rendered = render({"relays": {"replicas": 1}, "pipelines": PIPELINES})
    api = ClusterApi(tmp_path / "cluster")
    host = Host(tmp_path, secrets=api.kept, api=api)
    addresses = loopback_addresses(2)
    pods = tracker_pods(rendered, host, addresses[:1])
    names_of_all(rendered, host, addresses[:1])
    (name,) = (o["metadata"]["name"] for o in rendered.kind("Deployment"))
    pods.append(other_pod(rendered, "Deployment", name, addresses[1], host))
    host.names[f"{name}.{rendered.namespace}.svc.cluster.local"] = addresses[1]
    kubelets = []
    try:
        install(rendered, host)
        for pod in pods:
            process = pod.process(tmp_path / f"{pod.name}.log")
            process.start()
            kubelets.append(Kubelet(pod, process))
            kubelets[-1].wait_until_ready()
        job = other_pod(rendered, "Job", "demo-lowmark-pipelines", "127.0.0.1", host)
        assert job.run().returncode == 0
        given = job.environment()
        files = [
            given[f"LOWMARK_{each}"] for each in ("TLS_CA", "TLS_CERT", "TLS_KEY", "TOKEN_FILE")
        ]
        client = SecureTarget((f"{addresses[1]}:7070",), Credentials(*files))
        with Subscriber(client, "orders") as subscriber:
            assert subscriber.min_time("ship", HANG_S) == 0
        with Subscriber(client, "another") as stranger, pytest.raises(RefusedError):
            stranger.min_time(timeout_s=HANG_S)
    finally:
        for kubelet in kubelets:
            kubelet.end()
            kubelet.pod.terminate(kubelet.process)
        api.close()
