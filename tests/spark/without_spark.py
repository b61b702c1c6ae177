"""The command line where PySpark is not installed: `python -m tests.spark.without_spark COMMAND ...`."""

from __future__ import annotations

import sys

sys.modules["pyspark"] = None  # type: ignore[assignment]

from tracker.cli import main  # noqa: E402 - only now is there no PySpark

if __name__ == "__main__":
    main()
