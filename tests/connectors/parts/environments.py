"""Environments for other versions of PySpark: all that the project's own has, with another PySpark."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

from scripts.summary import BUILD
from tests.connectors.parts.cache import made_once, run_fetcher

PY4J = {"3.5.9": "0.10.9.7"}
"""Where a version of PySpark needs another Py4J than the newer ones."""
NEWER_PY4J = "0.10.9.9"


def python_with(pyspark: str) -> Path:
    """The interpreter of an environment with this version of PySpark. Everything else comes from the
    environment that runs this. Raises Unavailable where PySpark can't be fetched."""
    folder = BUILD / "environments" / f"pyspark-{pyspark}"
    with made_once(folder) as part:
        if part is not None:
            _make(part, pyspark)
    return folder / "bin/python"


def _make(folder: Path, pyspark: str) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    command = [
        sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(packages),
        f"pyspark=={pyspark}", f"py4j=={PY4J.get(pyspark, NEWER_PY4J)}",
    ]  # fmt: skip
    run_fetcher(f"PySpark {pyspark}", command)
    # Behind its own packages those of this environment, with what their own path files add.
    own = sysconfig.get_path("purelib")
    (packages / "project.pth").write_text(f"import site; site.addsitedir({own!r})\n")
