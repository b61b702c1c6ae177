"""Places in stores: files on the S3 server, and in HDFS.

What is there is looked at past the connectors: the S3 server keeps objects as files of this machine, and
the NameNode has a web interface.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

from tests.connectors.parts.hdfs import HdfsCluster
from tests.connectors.parts.s3 import S3Server
from tests.connectors.s3_requests import S3Client
from tests.spark_matrix.places import StoreAway

_TIMEOUT_S = 10.0  # expires: of a store that is away
_NS_IN_MS = 1_000_000


class S3Place:
    """A prefix of a bucket."""

    def __init__(self, server: S3Server, bucket: str, prefix: str) -> None:
        self._client = S3Client(server, bucket)
        self._url = f"s3a://{bucket}/{prefix}"
        self._prefix, self._data = prefix, server.data / bucket / prefix

    def url(self, name: str) -> str:
        return f"{self._url}/{name}"

    logged = url

    def look(self, name: str) -> Path:
        return self._data / name

    def put(self, name: str, data: bytes) -> None:
        status = self._client.put(f"{self._prefix}/{name}", data)
        assert status == 200, f"{name} was answered with {status}"


class HdfsPlace:
    """A directory of HDFS. address: by which files are named."""

    def __init__(self, cluster: HdfsCluster, address: str, directory: str) -> None:
        self._url = f"hdfs://{address}/{directory}"
        self._root = HdfsPath(cluster.web, f"/{directory}")

    def url(self, name: str) -> str:
        return f"{self._url}/{name}"

    logged = url

    def look(self, name: str) -> HdfsPath:
        return self._root / name

    def put(self, name: str, data: bytes) -> None:
        """Written under another name, and renamed, as one does with HDFS."""
        folder, _, last = name.rpartition("/")
        hidden = self._root / folder / f".{last}"
        hidden.write_bytes(data)
        hidden.rename(self._root / name)


@dataclass(frozen=True)
class HdfsPath:
    """A file or folder of HDFS by the NameNode's web interface, with what `Path` has of the same name."""

    web: str
    path: str

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    def __truediv__(self, name: str) -> HdfsPath:
        return HdfsPath(self.web, f"{self.path}/{name}".rstrip("/"))

    def exists(self) -> bool:
        try:
            self.stat()
        except FileNotFoundError:
            return False
        return True

    def stat(self) -> Any:
        found = json.loads(self._get("GETFILESTATUS"))["FileStatus"]
        return SimpleNamespace(st_mtime_ns=found["modificationTime"] * _NS_IN_MS)

    def iterdir(self) -> Iterator[HdfsPath]:
        found = json.loads(self._get("LISTSTATUS"))["FileStatuses"]["FileStatus"]
        return iter([self / entry["pathSuffix"] for entry in found])

    def read_bytes(self) -> bytes:
        return self._get("OPEN")

    def read_text(self) -> str:
        return self.read_bytes().decode()

    def write_bytes(self, data: bytes) -> None:
        # The NameNode says which DataNode takes the bytes.
        where = json.loads(self._ask("PUT", self._url("CREATE", "&overwrite=true&noredirect=true")))
        self._ask("PUT", where["Location"], data)

    def rename(self, to: HdfsPath) -> None:
        done = self._ask("PUT", self._url("RENAME", f"&destination={quote(to.path)}"))
        assert json.loads(done)["boolean"], f"{self.path} could not be renamed"

    def _get(self, operation: str) -> bytes:
        return self._ask("GET", self._url(operation))

    def _url(self, operation: str, more: str = "") -> str:
        return f"http://{self.web}/webhdfs/v1{quote(self.path)}?op={operation}{more}"

    def _ask(self, method: str, url: str, data: bytes | None = None) -> bytes:
        headers = {"Content-Type": "application/octet-stream"}
        request = urllib.request.Request(url, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
                return bytes(answer.read())
        except urllib.error.HTTPError as error:
            if error.code == 404:
                raise FileNotFoundError(self.path) from None
            raise StoreAway(f"{url}: {error.code}: {error.read()[:500]!r}") from None
        except (OSError, HTTPException) as error:
            raise StoreAway(f"{url}: {error}") from None
