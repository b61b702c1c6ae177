"""A Kubernetes API server as its clients ask it: by HTTPS and a token, as far as these tests need it."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import yaml

from tests.chart.rendering import Object
from tests.waits import HANG_S

MERGE = "application/merge-patch+json"


class Refused(RuntimeError):
    """The API server has answered with another status than 2xx, and this message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class Api:
    """Answers of the server at `url`, to whoever has `token`."""

    def __init__(self, url: str, ca: Path, token: str) -> None:
        self.url, self.ca, self.token = url, ca, token
        self._tls = ssl.create_default_context(cafile=str(ca))
        self._places = cache(self._kinds)

    def ask(
        self, method: str, path: str, body: Object | None = None, *,
        kind: str = "application/json", user: str = "",
    ) -> Any:  # fmt: skip
        """The answer; `user`: in whose name. Raises Refused; OSError where nobody answers."""
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": kind}
        if user:
            headers["Impersonate-User"] = user
        data = None if body is None else json.dumps(body).encode()
        request = Request(f"{self.url}{path}", data=data, headers=headers, method=method)
        try:
            with urlopen(request, context=self._tls, timeout=HANG_S) as answer:
                text = answer.read().decode()
        except HTTPError as error:
            text = error.read().decode()
            message = json.loads(text).get("message", text) if text[:1] == "{" else text
            raise Refused(error.code, message) from None
        return json.loads(text) if text[:1] == "{" else text

    def get(self, path: str) -> Any:
        return self.ask("GET", path)

    def list(self, path: str, **query: str) -> list[Object]:
        """The objects under a path, with `query` as Kubernetes takes it."""
        return list(self.get(f"{path}?{urlencode(query)}" if query else path)["items"])

    def find(self, path: str) -> Object | None:
        """The object, if there is one."""
        try:
            return dict(self.get(path))
        except Refused as refused:
            if refused.status != 404:
                raise
            return None

    def create(self, o: Object, namespace: str = "") -> Object:
        return dict(self.ask("POST", self.place(o, namespace), o))

    def patch(self, path: str, change: Object) -> Object:
        return dict(self.ask("PATCH", path, change, kind=MERGE))

    def place(self, o: Object, namespace: str = "") -> str:
        """The path of an object's kind, in a namespace if it lies in one."""
        version = o["apiVersion"]
        name, namespaced = self._places(version)[o["kind"]]
        base = f"/apis/{version}" if "/" in version else f"/api/{version}"
        return f"{base}/namespaces/{namespace}/{name}" if namespaced else f"{base}/{name}"

    def _kinds(self, version: str) -> Mapping[str, tuple[str, bool]]:
        """Of a version: each kind's name in paths, and whether it lies in a namespace."""
        listed = self.get(f"/apis/{version}" if "/" in version else f"/api/{version}")["resources"]
        return {r["kind"]: (r["name"], r["namespaced"]) for r in listed if "/" not in r["name"]}

    def secrets(self, namespace: str) -> dict[str, dict[str, str]]:
        """All secrets of a namespace: the values of their keys, by name."""
        return {
            found["metadata"]["name"]: {
                key: base64.b64decode(data).decode()
                for key, data in (found.get("data") or {}).items()
            }
            for found in self.list(f"/api/v1/namespaces/{namespace}/secrets")
        }

    def kubeconfig(self, path: Path) -> Path:
        """Writes a file by which other programs ask as this one does."""
        cluster = {"server": self.url, "certificate-authority": str(self.ca)}
        document = {
            "apiVersion": "v1", "kind": "Config", "current-context": "it",
            "clusters": [{"name": "it", "cluster": cluster}],
            "users": [{"name": "it", "user": {"token": self.token}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        }  # fmt: skip
        path.write_text(yaml.safe_dump(document))
        return path
