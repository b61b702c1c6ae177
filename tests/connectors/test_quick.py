"""One row of `make connectors`: the driver killed between sink commit and `commits/N`, on S3."""

from __future__ import annotations

import subprocess
import sys

import pytest

from scripts.summary import ROOT
from tests.connectors.conftest import or_skip
from tests.connectors.kinds.files import FilesOnS3
from tests.connectors.parts.cache import FETCH_TIMEOUT_S
from tests.connectors.parts.jars import spark_jars
from tests.connectors.parts.s3 import server_program

NAME = "connectors_quick"


@pytest.mark.timeout(3 * FETCH_TIMEOUT_S)  # where a part is fetched first
def test_a_driver_is_killed_before_it_commits_a_batch_on_s3() -> None:
    or_skip(server_program)
    or_skip(lambda: spark_jars(*FilesOnS3.jars))
    command = [
        sys.executable, "-m", "tests.connectors", "--only", FilesOnS3.name, "--rows", "commit",
        "--name", NAME,
    ]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    print(done.stdout, done.stderr[-3000:])
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1].startswith(f"{NAME}: OK rows=1 failed=0 false=0 lost=0")
