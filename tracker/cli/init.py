"""`lowmark init`: files to begin from."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from tracker.cli.common import fail, show
from tracker.client.pipeline_file import load_pipeline
from tracker.dev.starting import (
    EXTRAS,
    FRONT,
    PIPELINE,
    PIPELINE_NAME,
    QUERY,
    READER,
    Source,
    write_files,
    write_new,
)
from tracker.errors import StateError, TrackingError
from tracker.files import FilesError

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
    from_: Annotated[
        list[Path] | None,
        typer.Option(
            "--from",
            exists=True,
            help="a program that starts Spark queries, or the checkpoint of one: write the pipeline that they make; "
            "repeatable",
        ),
    ] = None,
) -> None:
    """Write a pipeline.yaml, a front, a query and a reader that run, to begin from.

    The front lets an order a second in, the Spark query prices them, and each run of the reader takes what has
    become complete since the last. Nothing that is there is overwritten.

    With --from: the pipeline.yaml of queries that there are. A segment is named after its query (its node_id, queryName or
    checkpoint), an edge leads from the one that writes to the one that reads, and a front is to fill what none of them
    writes. A program is run in this process, and none of its queries is started.
    """
    if from_:
        return _init_from(context, directory, from_)
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


def _init_from(context: typer.Context, directory: Path, places: list[Path]) -> None:
    from tracker.dev.existing import drafts_of, pipeline_of

    path = directory / PIPELINE
    try:
        text = pipeline_of(places[0].stem, drafts_of(places), datetime.now(UTC))
        load_pipeline(text, str(path))
        write_new(directory, {path: text})
    except (StateError, TrackingError, FilesError, OSError) as error:
        fail(error)
    document = {"directory": str(directory), "files": [path.name], "pipeline": text}
    said = f"Wrote {path}:\n\n{text}\nNext:\n  lowmark pipelines apply -f {path}"
    show(context, document, said)


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
