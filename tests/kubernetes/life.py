"""The life of one release whose pods run: the default values with a pipeline and eager local trackers, under the load
of `make faults`, judged by `tests.check`. Each volume is a claim, TLS and tokens are what the release's job has made by
the rights that the API server gives it, and helm and the controllers alone start, replace and end pods."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.chart.pods import loopback_addresses
from tests.chart.release import Pods, client_environment, values_of_release
from tests.cluster.children import Running, now_slot
from tests.faults.nodes import PIPELINE
from tests.faults.system import System
from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.nodes import NODES, Addresses
from tests.kubernetes.releases import Record, Release
from tests.waits import until
from tracker.core.insight.describe import ShardRole

SPACE, NAME = "life", "demo-lowmark"
MOST_PODS = 3
STEPS = (
    "install", "test", "upgrade", "roll back", "3 shards", "2 shards", "uninstall", "install again",
)  # fmt: skip
GO_ON_S = 120.0
"""In which what is labelled now must be announced."""


class Life(System):
    """Not started."""

    def __init__(self, directory: Path) -> None:
        self.addresses, local = loopback_addresses(MOST_PODS), loopback_addresses(len(NODES))
        tail = f"{NAME}-peers.{SPACE}.svc.cluster.local"
        pods = {f"{NAME}-{number}": at for number, at in enumerate(self.addresses)}
        self.names = {f"{pod}.{tail}": at for pod, at in pods.items()}
        # What a certificate is for: all pods.
        self.names[f"*.{tail}"] = ",".join(self.addresses)
        self.where = Addresses(pods, dict(zip(NODES, local, strict=True)))
        super().__init__(
            directory, Pods(self.addresses, 7070), shards=MOST_PODS, standbys=0, store="sqlite"
        )
        # It hands over to the pod of its node.
        self.worker = self._nodes_process("worker", f"tcp:{local[0]}:7077", "worker", "join")

    def _clients(self) -> list[Running]:
        return [process for process in super()._clients() if process is not self.local_tracker]

    def go(self, plane: ControlPlane, record: Record, chart: Path) -> None:
        """All steps, until one fails."""
        values = values_of_release(
            shards=1, standbys=0, store={"kind": "sqlite"}, metrics={"enabled": False},
            dashboard={"enabled": False},
        )  # fmt: skip
        values["localTrackers"] = {"enabled": True, "pipeline": PIPELINE, "mode": "eager"}
        release = Release(plane, record, SPACE, values, chart)
        if not release.install():
            return
        rights(release)
        with client_environment(self.directory / "client", plane.api.secrets(SPACE)):
            wrong = []
            try:
                self._under_load(release)
            except AssertionError as error:
                wrong.append(str(error).splitlines()[0])
                self.stop_nodes()
            wrong += self.violations()[:10]
            record.write(
                "ran", release=SPACE, wrong=wrong, acknowledged=self.acknowledged(),
                announcements=len(self.heard()),
            )  # fmt: skip
        if release.uninstall():
            release.install("install again", shards=2, initialShards=1)

    def _under_load(self, release: Release) -> None:
        for process in self._clients():
            process.start()
        self.hears_of(now_slot() + 1, GO_ON_S)
        assert release.test(), "helm test failed"
        tracker: Any = {"settings": {"log_level": "debug"}}
        changes: dict[str, Callable[[], bool]] = {
            "upgrade": lambda: release.upgrade(tracker=tracker),
            "roll back": lambda: release.roll_back(1),
            "3 shards": lambda: release.upgrade("3 shards", tracker={}, shards=3),
            "evictions": lambda: self._drain(release),
            "2 shards": lambda: release.upgrade("2 shards", shards=2),
        }
        for step, change in changes.items():
            assert change(), f"{step} failed"
            with self.tracker.admin() as admin:
                owners = len(admin.routing().of(ShardRole.OWNER))
            release.record.write(
                "shards", release=SPACE, step=step, wanted=release.values["shards"], owners=owners
            )
            gone_on_s = self.goes_on(GO_ON_S)
            print(f"{SPACE}: {step}: goes on after {gone_on_s:.1f} s", flush=True)
        self.leave()

    def _drain(self, release: Release) -> bool:
        """Evictions as of whoever drains nodes: one is within the budget, the next beyond, until the first is back."""
        budget = f"/apis/policy/v1/namespaces/{SPACE}/poddisruptionbudgets/{NAME}"
        first, second, *_ = release.pods()
        until(
            lambda: (
                release.api.get(budget)["status"].get("disruptionsAllowed") == 1
                or not release.api.get(budget)["status"].get("expectedPods")
            ),
            "the budget allows nothing",
        )
        release.evict(first, 0, 1)
        release.evict(second, 1, 1)
        release.settle(MOST_PODS)
        release.kept("evictions")
        return True


def rights(release: Release) -> None:
    """The accounts of the release, held against what they need."""
    secrets = sorted(n for n in release.api.secrets(SPACE) if n.startswith(f"{NAME}-"))
    account = f"{NAME}-credentials"
    needed = [f"{verb} secrets {name}" for name in secrets for verb in ("get", "update")]
    for who, wanted in ((account, needed), (NAME, []), ("default", [])):
        release.record.write(
            "rights", release=SPACE, account=who, found=sorted(release.rights(who)), wanted=wanted
        )
    for verb in ("get", "update", "list", "watch", "create", "delete", "patch"):
        for name in (secrets[0], "another", ""):
            may = name == secrets[0] and verb in ("get", "update")
            release.review(account, verb, "secrets", name, wanted=may)
            release.review(NAME, verb, "secrets", name, wanted=False)
    for verb, resource in (("get", "pods"), ("list", "pods"), ("patch", "statefulsets")):
        for who in (account, NAME):
            release.review(who, verb, resource, wanted=False)
