"""`lowmark store`: a shard's store as a file, and what is to become of records that are gone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from tracker.store import Store, StoreError, open_leases, open_store

store_app = typer.Typer(
    no_args_is_help=True, help="Export and import the store of a shard whose process is stopped."
)

StoreUrl = Annotated[
    str, typer.Option("--store", envvar="LOWMARK_STORE", help="as for `lowmark serve`")
]
Shard = Annotated[int, typer.Option(min=0, help="number of the shard")]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON, for scripts")]


@contextmanager
def _opened(url: str, shard: int, *, new: bool = False) -> Iterator[Store]:
    """The store; its errors become one line and exit status 1."""
    try:
        if not new:
            with closing(open_leases(url)) as leases:
                lease = leases.read(shard)
            if lease is None or lease.epoch == 0:
                raise StoreError(f"there is no shard {shard} in this store, or it does not answer")
        with closing(open_store(url, shard)) as store:
            yield store
    except StoreError as error:
        typer.echo(f"lowmark: {error}", err=True)
        raise typer.Exit(1) from None


def _show(as_json: bool, values: dict[str, Any], text: str) -> None:
    typer.echo(json.dumps(values) if as_json else text)


@store_app.command("export")
def export_command(
    store: StoreUrl,
    to: Annotated[Path, typer.Option(help="file to write; it must not exist")],
    shard: Shard = 0,
    as_json: AsJson = False,
) -> None:
    """Write a shard's store to a file. Its process must be stopped."""
    from tracker.store.archive import export_shard

    with _opened(store, shard) as opened:
        contents = export_shard(opened, shard, to)
    _show(
        as_json, asdict(contents),
        f"{to}: shard {shard}, a snapshot of {contents.snapshot_bytes} bytes and "
        f"{contents.records} records",
    )  # fmt: skip


@store_app.command("import")
def import_command(
    store: StoreUrl,
    source: Annotated[Path, typer.Option("--from", help="file that `export` wrote")],
    shard: Shard = 0,
    as_json: AsJson = False,
) -> None:
    """Fill an empty store from a file."""
    from tracker.store.archive import import_shard

    with _opened(store, shard, new=True) as opened:
        contents = import_shard(opened, shard, source)
    _show(
        as_json, asdict(contents),
        f"shard {shard}: a snapshot of {contents.snapshot_bytes} bytes and {contents.records} "
        f"records from {source}",
    )  # fmt: skip


@store_app.command("accept-loss")
def accept_loss_command(store: StoreUrl, shard: Shard = 0, as_json: AsJson = False) -> None:
    """Let a shard start that has lost acknowledged records. What they said is gone for good: items may
    be open for ever, or have been announced as complete while they are not."""
    with _opened(store, shard) as opened:
        missing = opened.accept_loss()
    _show(
        as_json, {"shard": shard, "accepted": missing},
        f"shard {shard}: accepted: {missing}" if missing else f"shard {shard}: nothing was missing",
    )  # fmt: skip
