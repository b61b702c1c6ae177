"""The default release in the image: the job that makes its credentials, and its pod, each as the image's user, with
a root that it cannot write."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

from tests.chart.cluster_api import ClusterApi
from tests.chart.image import Stage, inside
from tests.chart.pods import (
    Host,
    Pod,
    asked,
    expanded,
    loopback_addresses,
    names_of_all,
    other_pod,
    tracker_pods,
)
from tests.chart.rendering import Rendered, render
from tests.waits import HANG_S

USER = 65532
"""The image's user and group."""
PROGRAMS = (
    ("lowmark", "--version"),
    ("lowmark", "local-tracker", "--help"),
    ("test", "-d", "/run"),
)
"""What manifests call in the image beside the tracker: the sidecar's probe asks `test`."""


def run_pod_in(stage: Stage, directory: Path) -> list[str]:
    """What is wrong with it."""
    directory.mkdir(parents=True)
    wrong = []
    for words in PROGRAMS:
        try:
            inside(stage, *words)
        except RuntimeError as error:
            wrong.append(f"{' '.join(words)}: {error}")
    rendered = render({})
    wrong += _ports(stage, rendered)
    api = ClusterApi(directory / "cluster")
    try:
        host = Host(directory, secrets=api.kept, api=api)
        addresses = loopback_addresses(1)
        (pod,) = tracker_pods(rendered, host, addresses)
        names_of_all(rendered, host, addresses)
        _make_credentials(stage, rendered, host)
        return wrong + _serve(stage, pod, directory)
    finally:
        api.close()


def _make_credentials(stage: Stage, rendered: Rendered, host: Host) -> None:
    """Runs the job. Raises RuntimeError with what it said if it fails."""
    assert isinstance(host.api, ClusterApi)
    host.api.apply(rendered)
    job = other_pod(rendered, "Job", rendered.one("Job")["metadata"]["name"], "127.0.0.1", host)
    variables = [f"{name}={value}" for name, value in host.api.environment.items()]
    words = [host.resolved(word) for word in job.container["args"]]
    inside(stage, "env", *variables, *stage.entrypoint, *words, mounts=_mounted(job))


def _mounted(pod: Pod) -> dict[str, Path]:
    """What is read only in a pod, by its place, for the group of the image's user alone."""
    pod.make_volumes()
    found = {}
    for mount in pod.container["volumeMounts"]:
        if mount.get("readOnly"):
            place = found[mount["mountPath"]] = pod.volume(mount["name"])
            for path in (place, *place.iterdir()):
                os.chown(path, 0, USER)
                path.chmod(0o750 if path.is_dir() else 0o440)
    return found


def _serve(stage: Stage, pod: Pod, directory: Path) -> list[str]:
    wrong = []
    words = [*stage.entrypoint, *_words(pod)]
    command = stage.command(words, read_only=True, mounts=_mounted(pod))
    with open(directory / "log", "w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        wrong += _probed(pod, process, directory / "log")
        process.send_signal(signal.SIGTERM)
        status = process.wait(HANG_S)
        if status:
            wrong.append(f"the pod ended with status {status}: {(directory / 'log').read_text()}")
    finally:
        process.kill()
        process.wait()
    return wrong


def _words(pod: Pod) -> list[str]:
    """Its arguments; paths are those of the image, where its volume is."""
    variables = {"POD_NAME": pod.name, "LOWMARK_MEMBER": "0"}
    words = [expanded(word, variables) for word in pod.container["args"]]
    store = next(v["value"] for v in pod.container["env"] if v["name"] == "LOWMARK_STORE")
    resolved = [pod.host.resolved(w).replace("0.0.0.0:", f"{pod.address}:") for w in words]
    return [*resolved, f"--store={store}"]


def _ports(stage: Stage, rendered: Rendered) -> list[str]:
    tracker = rendered.values["tracker"]
    wanted = [tracker["port"], tracker["healthPort"]]
    return [] if stage.ports == wanted else [f"EXPOSE is {stage.ports}, the chart has {wanted}"]


def _probed(pod: Pod, process: subprocess.Popen[bytes], log: Path) -> list[str]:
    deadline = time.monotonic() + HANG_S
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        while not asked(pod, pod.container[probe]):
            if process.poll() is not None or time.monotonic() > deadline:
                return [f"{probe} in the image: {log.read_text()[-2000:]}"]
            time.sleep(0.2)  # paces: its looks
    return []
