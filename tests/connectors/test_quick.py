"""One row of `make connectors` for each source and sink: an ordinary run. HDFS, and what runs on another PySpark, is left
to it whole, and so is a topic into files: a topic is read, and files are written, where it goes into another topic."""

from __future__ import annotations

import subprocess
import sys

from scripts.summary import ROOT
from tests.connectors.conftest import or_skip
from tests.connectors.kinds.files import FilesOnS3
from tests.connectors.kinds.kafka_sink import IntoKafka
from tests.connectors.parts.jars import OFTEN, jars
from tests.connectors.parts.s3 import server_program
from tests.waits import PROGRAM_S

NAME = "connectors_quick"
ROW = "ordinary"
QUICK = (FilesOnS3, IntoKafka)


def test_an_ordinary_run_of_each_is_right() -> None:
    or_skip(server_program)
    for name in OFTEN:
        or_skip(lambda name=name: jars(name))  # type: ignore[misc]
    only = ",".join(str(kind.number) for kind in QUICK)
    command = [
        sys.executable, "-m", "tests.connectors", "--only", only, "--rows", ROW, "--name", NAME,
    ]  # fmt: skip
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=PROGRAM_S
    )
    print(done.stdout, done.stderr[-3000:])
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1].startswith(
        f"{NAME}: OK rows={len(QUICK)} failed=0 false=0 lost=0"
    )
