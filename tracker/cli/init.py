"""`lowmark init`: files to begin from."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from tracker.cli.common import fail, show
from tracker.dev.starting import (
    EXTRAS,
    FRONT,
    PIPELINE,
    PIPELINE_NAME,
    QUERY,
    READER,
    Source,
    write_files,
)
from tracker.errors import StateError

_BESIDE = {
    Source.FILES: "",
    Source.KAFKA: "   # and a broker with a topic `orders`; BROKERS names it",
    Source.DELTA: " 'pyspark==4.1.*'   # the newest that Delta was tried with",
}


def init(
    context: typer.Context,
    directory: Annotated[
        Path, typer.Argument(file_okay=False, help="where to; made if missing")
    ] = Path(),
    source: Annotated[Source, typer.Option("--source", help="where the data live")] = Source.FILES,
) -> None:
    """Write a pipeline.yaml, a front, a query and a reader that run, to begin from.

    The front lets an order a second in, the Spark query prices them, and each run of the reader takes what has
    become complete since the last. Nothing that is there is overwritten.
    """
    try:
        written = write_files(directory, source, datetime.now(UTC))
    except (StateError, OSError) as error:
        fail(error)
    document = {
        "directory": str(directory),
        "source": source.value,
        "files": [f.name for f in written],
    }
    show(context, document, _next_steps(directory, source))


def _next_steps(directory: Path, source: Source) -> str:
    return "\n".join(
        [
            f"Wrote {PIPELINE}, {FRONT}, {QUERY} and {READER} into {directory}.",
            "",
            "Next, beside a tracker (`lowmark dev`):",
            f"  pip install 'lowmark[{EXTRAS[source]}]'{_BESIDE[source]}",
            *([] if directory == Path() else [f"  cd {directory}"]),
            f"  lowmark pipelines apply -f {PIPELINE}",
            f"  python {FRONT} &",
            f"  python {QUERY} &   # Spark: needs Java 17 or newer",
            f"  lowmark watch -p {PIPELINE_NAME}",
            f"  python {READER}   # now and then: what has become complete since",
        ]
    )
