"""An S3 server: versitygw, over a directory.

It was taken for its conditional PUT, which holds a lock of the object from the check to the link: of
eight threads that put one absent key at once, exactly one wins, every time. It keeps objects as files,
so that one that is killed comes back with what it had. It is one program, built by Go once for a
machine, and answers in less than a second.
"""

from __future__ import annotations

import os
import urllib.error
import urllib.request
from pathlib import Path

from tests.cluster.network import fresh_address
from tests.cluster.part import PartProcess
from tests.connectors.parts.cache import cache, made_once, run_fetcher

VERSION = "v1.8.0"
MODULE = f"github.com/versity/versitygw/cmd/versitygw@{VERSION}"
"""Go checks the sums of what it fetches by its own public log."""
KEY, SECRET, REGION = "lowmark", "lowmark-secret", "us-east-1"
_HEALTH = "/health"


def server_program() -> Path:
    """The program, built if it is not there. Raises Unavailable where Go can't."""
    folder = cache() / f"versitygw-{VERSION}"
    with made_once(folder) as part:
        if part is not None:
            go = os.environ.get("GO", "go")
            run_fetcher("versitygw", [go, "install", MODULE], {"GOBIN": str(part)})
    return folder / "versitygw"


class S3Server(PartProcess):
    """A server with its buckets in `directory`. It has one address for all its runs.

    Raises Unavailable where it can't be built.
    """

    def __init__(self, directory: Path, *buckets: str) -> None:
        address = fresh_address()
        self.url = f"http://{address}"
        self.data = directory / "data"
        """A directory for each bucket, and a file in it for each object, by its key."""
        self.data.mkdir(parents=True, exist_ok=True)
        for bucket in buckets:
            (self.data / bucket).mkdir(exist_ok=True)
        self.access_log = directory / "requests.log"
        command = [
            str(server_program()), "--port", address, "--health", _HEALTH, "--region", REGION,
            "--access-log", str(self.access_log), "--quiet", "posix", str(self.data),
        ]  # fmt: skip
        credentials = {"ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": SECRET}
        super().__init__(command, directory / "server.log", self._answers, credentials)

    def _answers(self) -> bool:
        try:
            # expires: asked again until it is ready
            with urllib.request.urlopen(self.url + _HEALTH, timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, ConnectionError):
            return False

    def requests(self) -> int:
        """How many it has answered so far, over all its runs."""
        return len(self.access_log.read_text().splitlines()) if self.access_log.exists() else 0

    def spark_settings(self) -> dict[str, str]:
        """For a session that reads and writes `s3a://` on this server."""
        return {
            "spark.hadoop.fs.s3a.endpoint": self.url,
            "spark.hadoop.fs.s3a.endpoint.region": REGION,
            "spark.hadoop.fs.s3a.access.key": KEY,
            "spark.hadoop.fs.s3a.secret.key": SECRET,
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
        }

    def environment(self) -> dict[str, str]:
        """By which programs find this server, as they find Amazon's."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": REGION,
        }

    def fsspec_options(self) -> dict[str, object]:
        """For `fsspec.filesystem("s3", ...)`."""
        client = {"endpoint_url": self.url, "region_name": REGION}
        return {"key": KEY, "secret": SECRET, "client_kwargs": client}
