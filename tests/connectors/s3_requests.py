"""Single requests to an S3 server, signed (AWS signature, version 4) by the standard library alone."""

from __future__ import annotations

import hashlib
import hmac
import urllib.error
import urllib.request
from datetime import UTC, datetime

from tests.connectors.parts.s3 import KEY, REGION, SECRET, S3Server


class S3Client:
    """Puts and gets whole objects of one bucket. Keys need no quoting."""

    def __init__(self, server: S3Server, bucket: str) -> None:
        self._server, self._bucket = server, bucket

    def put(self, key: str, body: bytes, *, if_absent: bool = False) -> int:
        """The status of the answer."""
        headers = {"if-none-match": "*"} if if_absent else {}
        try:
            with urllib.request.urlopen(self._signed("PUT", key, body, headers)) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    def get(self, key: str) -> bytes:
        with urllib.request.urlopen(self._signed("GET", key, b"", {})) as answer:
            return bytes(answer.read())

    def _signed(
        self, method: str, key: str, body: bytes, headers: dict[str, str]
    ) -> urllib.request.Request:
        path, moment = f"/{self._bucket}/{key}", datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        digest = hashlib.sha256(body).hexdigest()
        signed = headers | {
            "host": self._server.url.removeprefix("http://"),
            "x-amz-content-sha256": digest, "x-amz-date": moment,
        }  # fmt: skip
        names = ";".join(sorted(signed))
        lines = "".join(f"{name}:{signed[name]}\n" for name in sorted(signed))
        asked = hashlib.sha256(f"{method}\n{path}\n\n{lines}\n{names}\n{digest}".encode())
        scope = f"{moment[:8]}/{REGION}/s3/aws4_request"
        to_sign = f"AWS4-HMAC-SHA256\n{moment}\n{scope}\n{asked.hexdigest()}"
        secret = f"AWS4{SECRET}".encode()
        for part in scope.split("/"):
            secret = hmac.digest(secret, part.encode(), "sha256")
        signature = hmac.new(secret, to_sign.encode(), "sha256").hexdigest()
        authorization = f"AWS4-HMAC-SHA256 Credential={KEY}/{scope}, SignedHeaders={names}, Signature={signature}"
        url, all_headers = self._server.url + path, signed | {"authorization": authorization}
        data = body if method == "PUT" else None
        return urllib.request.Request(url, data, all_headers, method=method)
