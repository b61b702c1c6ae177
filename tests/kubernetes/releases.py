"""One release in a namespace of its own, changed by helm alone; all that the API server answers is written down."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from tests.chart.rendering import Object, Values
from tests.kubernetes.api import Refused
from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.nodes import path_of
from tests.waits import until

RESTRICTED, PRIVILEGED = "restricted", "privileged"
POD_SECURITY = "pod-security.kubernetes.io"
LOOK_S = 0.5
TIMEOUT = "10m"
"""Of helm: what has not come then never will."""
EVENTS = {
    "install": ("pre-install", "post-install"), "upgrade": ("pre-upgrade", "post-upgrade"),
    "roll back": ("pre-rollback", "post-rollback"), "test": ("test",),
}  # fmt: skip


class Record:
    """Lines as `tests/kubernetes/judge.py` reads them. Thread-safe."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        path.write_text("")

    def write(self, what: str, **fields: Any) -> None:
        with self._lock, self.path.open("a") as file:
            file.write(json.dumps({"what": what, **fields}) + "\n")


class Release:
    """`name` in the namespace `space`, which is made."""

    def __init__(
        self, plane: ControlPlane, record: Record, space: str, values: Values, chart: Path, *,
        name: str = "demo", standard: str = RESTRICTED,
    ) -> None:  # fmt: skip
        self.plane, self.api, self.record = plane, plane.api, record
        self.space, self.name, self.values, self.chart = space, name, values, chart
        self.standard = standard
        self._refused: set[str] = set()
        self.base = f"/api/v1/namespaces/{space}"
        local: Values = values.get("localTrackers", {})
        self.claims_restricted = not local.get("spoolHostPath")
        self.api.create({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": space, "labels": {f"{POD_SECURITY}/enforce": standard}},
        })  # fmt: skip
        until(lambda: self.api.find(f"{self.base}/serviceaccounts/default"), f"{space}: no account")

    # --- what helm does --------------------------------------------------------------------------------

    def helm(self, step: str, *words: str) -> bool:
        """One command, in the namespace; whether it succeeded. A pod that is refused ends it at once."""
        command, *rest = words
        waits = [] if command == "test" else ["--wait"]
        process = self.plane.helm(
            command, self.name, *rest, "--namespace", self.space, "--timeout", TIMEOUT, *waits
        )
        said = ""
        while process.poll() is None:
            time.sleep(LOOK_S)  # paces: its looks at what admission has refused
            if refused := self.refusals():
                said = f"a pod is refused: {refused[0]}"
                process.kill()
        _, errors = process.communicate()
        ok = process.returncode == 0
        said = said or ("" if ok else errors.strip()[-600:])
        self.record.write("step", release=self.space, step=step, ok=ok, said=said)
        print(f"{self.space}: {step}: {'ok' if ok else said}", flush=True)
        return ok

    def install(self, step: str = "install", **changes: Any) -> bool:
        return self._apply("install", step, changes)

    def upgrade(self, step: str = "upgrade", **changes: Any) -> bool:
        return self._apply("upgrade", step, changes)

    def _apply(self, command: str, step: str, changes: Values) -> bool:
        self.values = {**self.values, **changes}
        path = self.plane.directory / f"{self.space}-values.yaml"
        path.write_text(yaml.safe_dump(self.values))
        ok = self.helm(step, command, str(self.chart), "--values", str(path))
        if ok:
            self.look(step, command)
        return ok

    def roll_back(self, revision: int, step: str = "roll back") -> bool:
        ok = self.helm(step, "rollback", str(revision))
        if ok:
            self.look(step, "roll back")
        return ok

    def test(self, step: str = "test") -> bool:
        ok = self.helm(step, "test")
        if ok:
            self.hooks(step, "test")
        return ok

    def uninstall(self, step: str = "uninstall") -> bool:
        ok = self.helm(step, "uninstall")
        if ok:
            self.kept(step)
        return ok

    # --- what there is then ----------------------------------------------------------------------------

    def look(self, step: str, command: str) -> None:
        """Writes down what the API server has after a step."""
        applied = [o for o in yaml.safe_load_all(self._told("get", "manifest")) if o]
        missing = [
            f"{o['kind']}/{o['metadata']['name']}" for o in applied
            if not self.api.find(f"{self.api.place(o, self.space)}/{o['metadata']['name']}")
        ]  # fmt: skip
        self._write("objects", step, applied=len(applied), missing=missing)
        self.hooks(step, command)
        sets = [o["spec"] for o in applied if o["kind"] == "StatefulSet"]  # one for each group
        wanted = sum(each["replicas"] for each in sets)
        self.settle(wanted)
        ready = [pod for pod in self.pods() if _ready(pod)]
        self._write(
            "pods", step, wanted=wanted, ready=len(ready), restricted=self.standard == RESTRICTED,
        )  # fmt: skip
        self.kept(step)
        (peers,) = {each["serviceName"] for each in sets}
        self.endpoints(step, peers)

    def hooks(self, step: str, command: str) -> None:
        hooks = {
            hook["name"]: (hook.get("last_run") or {}).get("phase", "")
            for hook in json.loads(self._told("status", "--output", "json")).get("hooks", [])
            if set(hook["events"]) & set(EVENTS[command])
        }
        self._write("hooks", step, hooks=hooks)

    def kept(self, step: str) -> None:
        """What must outlive its pods and the release."""
        claims = {
            claim["metadata"]["name"]: claim["metadata"]["uid"]
            for claim in self.api.list(f"{self.base}/persistentvolumeclaims")
            if claim["status"]["phase"] == "Bound" and "deletionTimestamp" not in claim["metadata"]
        }
        pods = {pod["metadata"]["name"]: _claims_of(pod) for pod in self.pods() if _claims_of(pod)}
        self._write("claims", step, claims=claims, pods=pods)
        secrets = {
            name: hashlib.sha256(json.dumps(keys, sort_keys=True).encode()).hexdigest()[:12]
            for name, keys in self.api.secrets(self.space).items()
            if keys and not name.startswith("sh.helm.")
        }
        self._write("secrets", step, secrets=secrets)

    def endpoints(self, step: str, peers: str) -> None:
        """Who is behind the services of the trackers, for clients and for each other, when the controller has caught up."""
        pods = sorted(pod["metadata"]["name"] for pod in self.pods() if _ready(pod))
        for name in (peers.removesuffix("-peers"), peers):
            with suppress(AssertionError):  # that it does not come to be so is for the judge
                until(
                    partial(self._leads_to, name, pods), timeout_s=60.0
                )  # expires: where a service selects nobody
            self._write("endpoints", step, service=name, ready=self._behind(name), pods=pods)

    def _leads_to(self, service: str, pods: list[str]) -> bool:
        return self._behind(service) == pods

    def _behind(self, service: str) -> list[str]:
        """The pods to which a service leads."""
        path = f"/apis/discovery.k8s.io/v1/namespaces/{self.space}/endpointslices"
        found = self.api.list(path, labelSelector=f"kubernetes.io/service-name={service}")
        return sorted(
            endpoint["targetRef"]["name"]
            for part in found
            for endpoint in part.get("endpoints") or []
            if endpoint["conditions"].get("ready")
        )

    def pods(self) -> list[Object]:
        """Those of the stateful sets."""
        found = self.api.list(
            f"{self.base}/pods", labelSelector="app.kubernetes.io/component=tracker"
        )
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def settle(self, count: int) -> None:
        """Waits until so many pods are ready, and none is on its way out."""

        def settled() -> bool:
            found = self.api.list(
                f"{self.base}/pods", labelSelector="app.kubernetes.io/component=tracker"
            )
            return len(found) == count and all(map(_ready, found))

        until(settled, lambda: f"{self.space}: {[p['metadata']['name'] for p in self.pods()]}")

    def refusals(self) -> list[str]:
        """What controllers have reported since the last look of pods that admission refused; one for each controller."""
        found = []
        for event in self.api.list(f"{self.base}/events", fieldSelector="reason=FailedCreate"):
            message = event.get("message", "")
            about = f"{event['involvedObject']['kind']}/{event['involvedObject']['name']}"
            if "forbidden" not in message or about in self._refused:
                continue
            self._refused.add(about)
            self.record.write(
                "refused", release=self.space, pod=about, message=message,
                claims_restricted=self.claims_restricted,
            )  # fmt: skip
            found.append(message)
        return found

    # --- budgets and rights ----------------------------------------------------------------------------

    def evict(self, pod: Object, away: int, allowed: int) -> None:
        metadata = {"name": pod["metadata"]["name"], "namespace": self.space}
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
        status = 201
        try:
            self.api.ask("POST", f"{path_of(pod)}/eviction", body)
        except Refused as refused:
            status = refused.status
        self.record.write(
            "evicted", release=self.space, pod=metadata["name"], status=status, away=away,
            allowed=allowed,
        )  # fmt: skip

    def rights(self, account: str) -> set[str]:
        """All that it may do here and another account of the namespace may not."""
        return self._rules(account) - self._rules("nobody-of-the-release")

    def _rules(self, account: str) -> set[str]:
        body = {
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview",
            "spec": {"namespace": self.space},
        }  # fmt: skip
        path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
        answer = self.api.ask("POST", path, body, user=self.user(account))
        return {
            f"{verb} {resource} {name}".rstrip()
            for rule in answer["status"]["resourceRules"]
            for verb in rule["verbs"]
            for resource in rule.get("resources", [])
            for name in rule.get("resourceNames") or [""]
        }

    def review(
        self, account: str, verb: str, resource: str, name: str = "", *, wanted: bool
    ) -> None:
        attributes = {"namespace": self.space, "verb": verb, "resource": resource, "name": name}
        answer = self.api.ask("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", {
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {"user": self.user(account), "resourceAttributes": attributes},
        })  # fmt: skip
        self.record.write(
            "review", release=self.space, account=account, verb=verb, resource=resource, name=name,
            allowed=answer["status"]["allowed"], wanted=wanted,
        )  # fmt: skip

    def user(self, account: str) -> str:
        return f"system:serviceaccount:{self.space}:{account}"

    def _told(self, *words: str) -> str:
        process = self.plane.helm(*words, self.name, "--namespace", self.space)
        told, errors = process.communicate()
        assert process.returncode == 0, errors
        return told

    def _write(self, what: str, step: str, **fields: Any) -> None:
        self.record.write(what, release=self.space, step=step, **fields)


def _ready(pod: Object) -> bool:
    conditions = pod["status"].get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def _claims_of(pod: Object) -> list[str]:
    return [
        volume["persistentVolumeClaim"]["claimName"]
        for volume in pod["spec"].get("volumes", [])
        if "persistentVolumeClaim" in volume
    ]
