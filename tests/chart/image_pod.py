"""The default release's pod, run in the image: as its user, with a root that it cannot write."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

from tests.chart.image import Stage, inside
from tests.chart.pods import Host, Pod, asked, expanded, loopback_addresses, tracker_pods
from tests.chart.rendering import Rendered, render
from tests.cluster.children import WAIT_S

PROGRAMS = (("lowmark", "version"), ("lowmark", "local-tracker", "--help"), ("test", "-d", "/run"))
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
    host = Host(directory)
    (pod,) = tracker_pods(rendered, host, loopback_addresses(1))
    wrong += _ports(stage, rendered)
    command = stage.command([*stage.entrypoint, *_words(pod)], read_only=True)
    with open(directory / "log", "w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        wrong += _probed(pod, process, directory / "log")
        process.send_signal(signal.SIGTERM)
        status = process.wait(WAIT_S)
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
    deadline = time.monotonic() + WAIT_S
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        while not asked(pod, pod.container[probe]):
            if process.poll() is not None or time.monotonic() > deadline:
                return [f"{probe} in the image: {log.read_text()[-2000:]}"]
            time.sleep(0.2)
    return []
