"""The part of a cluster's API that the chart's job asks: Secrets of one namespace, by HTTPS, to whoever has the
token of an account, as far as its Role lets it. What it keeps are the secrets that pods mount."""

from __future__ import annotations

import base64
import json
import re
import secrets
import ssl
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.chart.rendering import Object, Rendered
from tests.security.certificates import Authority

ADDRESS = "127.0.0.1"


class ClusterApi:
    """Serves from its making to `close`. `kept`: secrets by name, the values of their keys."""

    def __init__(self, directory: Path) -> None:
        self.kept: dict[str, dict[str, str]] = {}
        self.asked: list[str] = []
        """Verb and name of each question that was answered."""
        self._versions: dict[str, int] = {}
        self._lock = threading.Lock()
        self._accounts: dict[str, str] = {}
        self._rules: Mapping[str, list[Object]] = {}
        authority = Authority(directory, "cluster")
        self.ca = authority.cert
        pair = authority.server()
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(pair.cert, pair.key)
        api = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                api.answer(self, "get")

            def do_PUT(self) -> None:
                api.answer(self, "update")

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer((ADDRESS, 0), Handler)
        self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        serve = self._server.serve_forever
        self._thread = threading.Thread(target=serve, name="cluster-api", daemon=True)
        self._thread.start()

    @property
    def environment(self) -> dict[str, str]:
        """What a kubelet tells every container."""
        port = str(self._server.server_address[1])
        return {"KUBERNETES_SERVICE_HOST": ADDRESS, "KUBERNETES_SERVICE_PORT": port}

    def apply(self, rendered: Rendered) -> None:
        """As Helm puts a release into a cluster: a secret that is there keeps what it holds."""
        with self._lock:
            for secret in rendered.kind("Secret"):
                assert not secret.get("data") and not secret.get("stringData")
                self.kept.setdefault(secret["metadata"]["name"], {})
            roles = {o["metadata"]["name"]: o["rules"] for o in rendered.kind("Role")}
            self._rules = {
                subject["name"]: roles[binding["roleRef"]["name"]]
                for binding in rendered.kind("RoleBinding")
                for subject in binding["subjects"]
            }

    def token_of(self, account: str) -> str:
        """A new token of an account."""
        token = secrets.token_urlsafe(32)
        self._accounts[token] = account
        return token

    def may(self, account: str, verb: str, name: str) -> bool:
        return any(
            rule["resources"] == ["secrets"]
            and verb in rule["verbs"]
            and name in rule.get("resourceNames", [])
            for rule in self._rules.get(account, [])
        )

    def answer(self, handler: BaseHTTPRequestHandler, verb: str) -> None:
        length = int(handler.headers.get("Content-Length", 0))
        body = json.loads(handler.rfile.read(length)) if length else None
        token = handler.headers.get("Authorization", "").removeprefix("Bearer ")
        found = re.fullmatch(r"/api/v1/namespaces/[a-z0-9-]+/secrets/([a-z0-9-]+)", handler.path)
        name = found[1] if found else ""
        with self._lock:
            status, said = self._answer(self._accounts.get(token, ""), verb, name, body)
        data = json.dumps(said).encode()
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    def _answer(self, account: str, verb: str, name: str, body: Any) -> tuple[int, Any]:
        if not account:
            return 401, {}
        if not self.may(account, verb, name):
            return 403, {}
        if name not in self.kept:
            return 404, {}
        version = self._versions.setdefault(name, 1)
        if verb == "update":
            if body["metadata"]["resourceVersion"] != str(version):
                return 409, {}
            self.kept[name] = {
                key: base64.b64decode(data).decode() for key, data in body["data"].items()
            }
            self._versions[name] += 1
        self.asked.append(f"{verb} {name}")
        return 200, self._secret(name)

    def _secret(self, name: str) -> Object:
        data = {
            key: base64.b64encode(text.encode()).decode() for key, text in self.kept[name].items()
        }
        metadata = {"name": name, "resourceVersion": str(self._versions[name])}
        found: Object = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": metadata,
            "type": "Opaque",
        }
        return found | ({"data": data} if data else {})

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
