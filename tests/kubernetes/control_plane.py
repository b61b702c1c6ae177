"""etcd, kube-apiserver and kube-controller-manager on loopback, as `scripts/ensure-kubernetes` has built them, and
helm. There is no kubelet, scheduler or network: `tests/kubernetes/nodes.py` stands for these."""

from __future__ import annotations

import os
import secrets
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from scripts.summary import ROOT
from tests.chart.rendering import Object
from tests.kubernetes.api import Api, Refused
from tests.security.certificates import Authority
from tests.waits import PROGRAM_S, until
from tracker.client.ports import free_ports

LOOPBACK = "127.0.0.1"
ENSURE = ROOT / "scripts" / "ensure-kubernetes"
CONTROLLERS = "*,-node-lifecycle-controller,-taint-eviction-controller"
"""All but those that wait for heartbeats of kubelets."""
TOKEN_S = 600
"""For how long a pod's token is good: the least that the API server gives."""


class NotBuilt(Exception):
    """These programs can't be had on this machine; the message is why."""


def programs() -> Path:
    """Where they are, built if they were not. Raises NotBuilt."""
    done = subprocess.run(
        [ENSURE, "--where"], capture_output=True, text=True, check=False, timeout=PROGRAM_S
    )
    if done.returncode:
        raise NotBuilt(done.stderr.strip().splitlines()[-1])
    return Path(done.stdout.strip())


class ControlPlane:
    """Runs from `with` to its end; `directory` has its data and logs."""

    def __init__(self, directory: Path, where: Path) -> None:
        directory.mkdir(parents=True)
        self.directory, self._where = directory, where
        self._stack = ExitStack()
        self._started: dict[str, subprocess.Popen[bytes]] = {}
        authority = Authority(directory, "cluster")
        self.ca = authority.cert
        self._pair = authority.server()
        etcd, peer, self.port, manager = (str(port) for port in free_ports(4))
        self.api = Api(f"https://{LOOPBACK}:{self.port}", Path(self.ca), secrets.token_urlsafe(32))
        (directory / "tokens.csv").write_text(f'{self.api.token},admin,admin,"system:masters"\n')
        config = self.api.kubeconfig(directory / "kubeconfig")
        self._etcd = _flags(
            data_dir=directory / "etcd", log_level="error", unsafe_no_fsync="true",
            listen_client_urls=f"http://{LOOPBACK}:{etcd}",
            advertise_client_urls=f"http://{LOOPBACK}:{etcd}",
            listen_peer_urls=f"http://{LOOPBACK}:{peer}",
            initial_advertise_peer_urls=f"http://{LOOPBACK}:{peer}",
            initial_cluster=f"default=http://{LOOPBACK}:{peer}",
        )  # fmt: skip
        self._server = _flags(
            etcd_servers=f"http://{LOOPBACK}:{etcd}", bind_address=LOOPBACK,
            advertise_address=LOOPBACK, secure_port=self.port, endpoint_reconciler_type="none",
            tls_cert_file=self._pair.cert, tls_private_key_file=self._pair.key,
            token_auth_file=directory / "tokens.csv", authorization_mode="RBAC",
            service_account_issuer="https://issuer.example",
            service_account_key_file=self._pair.key,
            service_account_signing_key_file=self._pair.key,
            service_cluster_ip_range="10.96.0.0/16",
            # Nobody here would say that a node is ready.
            disable_admission_plugins="TaintNodesByCondition",
        )  # fmt: skip
        self._manager = _flags(
            kubeconfig=config, controllers=CONTROLLERS, leader_elect="false",
            bind_address=LOOPBACK, secure_port=manager, cert_dir=directory / "manager",
            service_account_private_key_file=self._pair.key, root_ca_file=self.ca,
            pvclaimbinder_sync_period="1s",
        )  # fmt: skip

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.callback(self._end)
            self._start("etcd", self._etcd)
            self._start("kube-apiserver", self._server)
            until(self._is_ready, self.errors)
            self._start("kube-controller-manager", self._manager)
            until(
                lambda: self.api.find("/api/v1/namespaces/default/serviceaccounts/default"),
                self.errors,
            )
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self, name: str, flags: list[str]) -> None:
        with open(self.directory / f"{name}.log", "wb") as log:
            self._started[name] = subprocess.Popen(
                [self._where / name, *flags], stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )

    def _is_ready(self) -> bool:
        self.check_alive()
        try:
            return bool(self.api.get("/readyz") == "ok")
        except (OSError, Refused):
            return False

    def check_alive(self) -> None:
        for name, process in self._started.items():
            assert process.poll() is None, f"{name} has ended: {self.errors()}"

    def errors(self) -> str:
        """The last lines of each."""
        return "\n".join(
            "\n".join([name, *path.read_text(errors="replace").splitlines()[-5:]])
            for name in self._started
            if (path := self.directory / f"{name}.log").exists()
        )

    def _end(self) -> None:
        for process in reversed(self._started.values()):
            process.kill()
            process.wait()

    def helm(self, *words: str) -> subprocess.Popen[str]:
        """Starts one command of helm against this cluster."""
        return subprocess.Popen(
            [self._where / "helm", *words], text=True, cwd=ROOT, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={
                "PATH": os.environ["PATH"], "HOME": str(self.directory / "helm"),
                "KUBECONFIG": str(self.directory / "kubeconfig"),
            },
        )  # fmt: skip


class PodAccount:
    """By which a pod asks the API: it is given a token of its account, bound to it, as by a kubelet."""

    def __init__(self, control_plane: ControlPlane, pod: Object) -> None:
        self._plane, self._metadata = control_plane, pod["metadata"]
        self.ca = control_plane.ca

    @property
    def environment(self) -> dict[str, str]:
        port = str(self._plane.port)
        return {"KUBERNETES_SERVICE_HOST": LOOPBACK, "KUBERNETES_SERVICE_PORT": port}

    def token_of(self, account: str) -> str:
        name, uid = self._metadata["name"], self._metadata["uid"]
        path = f"/api/v1/namespaces/{self._metadata['namespace']}/serviceaccounts/{account}/token"
        bound = {"kind": "Pod", "apiVersion": "v1", "name": name, "uid": uid}
        asked = {"expirationSeconds": TOKEN_S, "boundObjectRef": bound}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": asked}
        return str(self._plane.api.ask("POST", path, body)["status"]["token"])


def _flags(**values: object) -> list[str]:
    return [f"--{name.replace('_', '-')}={value}" for name, value in values.items()]
