"""Where credentials are kept: in directories, or as Secrets of Kubernetes.

Either holds named bundles of files. What is read and written here are secrets: none is printed, and no error
quotes one.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import re
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

HOST_VARIABLE, PORT_VARIABLE = "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"
ANSWER_TIMEOUT_S = 30.0
MAX_ANSWER_BYTES = 4 * 1024 * 1024
"""More than a Secret may take (1 MiB), in base64 and with all that is around it."""
_FRESH = ".new"


class Place(Protocol):
    """Bundles of files by name. What one process writes outlives it."""

    def read(self, name: str) -> dict[str, bytes]:
        """The files of a bundle by name; none where it is still to be written. Raises OSError or
        ValueError."""

    def write(self, name: str, files: Mapping[str, bytes]) -> None:
        """Puts files into a bundle, in the place of those of the same names. Raises OSError or ValueError,
        and for a place that others write to, when somebody else has since `read`."""


class Directories:
    """A directory for each bundle, which only its owner may enter. Files take their places one by one, each at
    once: who is interrupted between a certificate and its key leaves two that do not fit, which can be told."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def read(self, name: str) -> dict[str, bytes]:
        directory = self._root / name
        if not directory.is_dir():
            return {}
        files = (path for path in directory.iterdir() if not path.name.endswith(_FRESH))
        return {path.name: path.read_bytes() for path in files}

    def write(self, name: str, files: Mapping[str, bytes]) -> None:
        directory = self._root / name
        self._root.mkdir(parents=True, exist_ok=True)
        directory.mkdir(mode=0o700, exist_ok=True)
        for key, data in files.items():
            fresh = directory / f"{key}{_FRESH}"
            fresh.unlink(missing_ok=True)  # of somebody who died while writing it
            with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(fresh, directory / key)


class Secrets:
    """Secrets of one namespace, named `PREFIX-BUNDLE`, which are there already, empty at first: so the account
    that asks needs the right to these alone. Two verbs of one kind, by HTTPS."""

    def __init__(self, account: Path, prefix: str) -> None:
        """account: a directory with `token`, `ca.crt` and `namespace`, as Kubernetes projects it. Raises
        ValueError outside of a cluster, OSError for files that are not there."""
        host, port = os.environ.get(HOST_VARIABLE, ""), os.environ.get(PORT_VARIABLE, "443")
        if not host:
            raise ValueError(
                f"{HOST_VARIABLE} is not set: Secrets are written from within a cluster"
            )
        self._where = (host, int(port))
        self._token = (account / "token").read_text().strip()
        self._tls = ssl.create_default_context(cafile=str(account / "ca.crt"))
        self._namespace = (account / "namespace").read_text().strip()
        self._prefix = prefix
        self._read: dict[str, Any] = {}
        for word in (self._namespace, prefix):
            if not re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", word):
                raise ValueError(f"{word!r} is no name in Kubernetes")

    def read(self, name: str) -> dict[str, bytes]:
        found = self._ask("GET", name)
        self._read[name] = found
        return {key: base64.b64decode(data) for key, data in (found.get("data") or {}).items()}

    def write(self, name: str, files: Mapping[str, bytes]) -> None:
        # With its resourceVersion: the API refuses it if somebody else has written since.
        secret = self._read[name]
        encoded = {key: base64.b64encode(data).decode() for key, data in files.items()}
        self._read[name] = self._ask(
            "PUT", name, {**secret, "data": {**(secret.get("data") or {}), **encoded}}
        )

    def _ask(self, verb: str, name: str, body: Any = None) -> Any:
        secret = f"{self._prefix}-{name}"
        connection = http.client.HTTPSConnection(
            *self._where, timeout=ANSWER_TIMEOUT_S, context=self._tls
        )
        try:
            connection.request(
                verb, f"/api/v1/namespaces/{self._namespace}/secrets/{secret}",
                None if body is None else json.dumps(body),
                {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"},
            )  # fmt: skip
            answer = connection.getresponse()
            data = answer.read(MAX_ANSWER_BYTES)
        except http.client.HTTPException as error:
            raise OSError(f"{verb} of the Secret {secret}: {error!r}") from None
        finally:
            connection.close()
        if answer.status != http.HTTPStatus.OK:
            advice = {404: ": make it, empty, beforehand", 403: ": its account has no right to it"}
            raise OSError(
                f"{verb} of the Secret {secret} in {self._namespace} was answered with {answer.status}"
                f"{advice.get(answer.status, '')}"
            )
        return json.loads(data)
