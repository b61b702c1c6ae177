"""Delta and Iceberg tables with the real connectors, in an environment of the PySpark that they are for: the
short ones of `python -m tests.connectors.lake`, which runs all."""

from __future__ import annotations

import pytest

from tests.connectors.conftest import or_skip
from tests.connectors.lake.__main__ import FILES, QUICK, run
from tests.connectors.lake.sessions import PYSPARK
from tests.connectors.parts.jars import spark_jars
from tests.spark_versions.environments import EnvironmentFailed, environment


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", sorted(FILES))
def test_tables_are_tracked(name: str) -> None:
    or_skip(lambda: spark_jars("delta", "iceberg"))
    try:
        environment(PYSPARK)
    except EnvironmentFailed as error:
        pytest.skip(str(error))
    assert run([name], QUICK) == 0
