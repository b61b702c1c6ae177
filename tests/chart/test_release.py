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


def test_what_is_on_a_volume_outlives_the_pod(tmp_path: Path) -> None:
    """The default values: SQLite, one shard, no standby, TLS and tokens."""
    pipelines = {"orders": {"segments": ["ship"], "fronts": ["shop"]}}
    rendered = render({**values_of(CHART / "ci" / "default-values.yaml"), "pipelines": pipelines})
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
