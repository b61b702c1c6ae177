"""`lowmark nodes list`: which nodes a pipeline has, and how each stands."""

from __future__ import annotations

import typer

from tracker.cli.common import PipelineName, connect, say
from tracker.cli.render.nodes import nodes_table
from tracker.cli.tables import Format, TableFormat, usable, write_table
from tracker.view.nodes import left_out, node_row
from tracker.view.tables import NODES


def nodes_list(
    context: typer.Context, pipeline: PipelineName, format: TableFormat = Format.TABLE
) -> None:
    """Show the nodes of a pipeline, those that are gone first: state, kind, home shard, last tick, and what it waits for.

    State: gone, it has no stream of ticks; evicted, after a silence; silent, it has a stream and no tick has come for 5
    seconds; live; retired. Time is the lowest slot that its fronts promise or that it holds, and how far that is behind
    now. Each shard lists the 1,000 longest silent.
    """
    format = usable(context, format)
    with connect(context) as admin:
        found = admin.nodes(pipeline)
    rows = [node_row(node, found.spec) for node in found.nodes]
    document = {
        "pipeline": found.spec.name,
        "nodes": rows,
        "omitted": found.omitted,
        "silent_shards": {str(shard): why for shard, why in found.silent_shards.items()},
    }
    write_table(context, format, rows, NODES.types, lambda: nodes_table(rows, found.spec), document)
    for sentence in left_out(found):
        say(sentence, err=True)
