"""`lowmark store`: stores as one file, and what is to become of records that are gone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from tracker.cli.common import show
from tracker.store import GONE, Store, StoreError, open_leases, open_store
from tracker.store.archive import export_stores, import_stores

StoreUrl = Annotated[
    str, typer.Option("--store", envvar="LOWMARK_STORE", help="as for `lowmark serve`")
]
Shard = Annotated[int, typer.Option(min=0, help="number of the shard")]
OneShard = Annotated[
    int | None, typer.Option(min=0, help="number of the shard, if not all; 0 if not given")
]
AllShards = Annotated[
    int | None, typer.Option("--shards", min=1, help="all shards in one file: how many there are")
]


@contextmanager
def _opened(url: str, shard: int, *, new: bool = False, lossy: bool = False) -> Iterator[Store]:
    """The store. lossy: with it may be lost who has owned it."""
    if not new:
        with closing(open_leases(url)) as leases:
            lease = leases.read(shard)
            there = lossy and shard in leases.shards()
        if not there and (lease is None or lease.epoch == 0):
            raise StoreError(f"there is no shard {shard} in this store, or it does not answer")
        if lease is not None and lease.owner == GONE and not lossy:
            raise StoreError(
                f"shard {shard} has left the tracker, and nothing in its store counts any more: leave it out"
            )
    with closing(open_store(url, shard)) as store:
        yield store


@contextmanager
def _all_opened(url: str, shards: range, *, new: bool) -> Iterator[dict[int, Store]]:
    """The stores of shards by number, as `_opened`."""
    with ExitStack() as stack:
        yield {shard: stack.enter_context(_opened(url, shard, new=new)) for shard in shards}


def _check_all(url: str, shards: int) -> None:
    """Raises StoreError if there are more shards."""
    with closing(open_leases(url)) as leases:
        for shard in leases.shards():
            if shard < shards:
                continue
            lease = leases.read(shard)  # one that cannot be read now may be in use
            if lease is None or (lease.epoch and lease.owner != GONE):
                raise StoreError(
                    f"there is a shard {shard} too: --shards {shards} would leave it out; where numbers have gaps, "
                    "copy one after the other, by --shard"
                )


def copy_command(
    context: typer.Context,
    store: StoreUrl,
    to: Annotated[Path | None, typer.Option(help="file to write; it must not exist")] = None,
    from_: Annotated[
        Path | None, typer.Option("--from", help="instead: such a file, for an empty store")
    ] = None,
    shard: OneShard = None,
    shards: AllShards = None,
) -> None:
    """Copy the store of a shard, or of all, to a file, or from one. Their processes must be stopped."""
    file = to or from_
    if file is None or (to is not None and from_ is not None):
        raise typer.BadParameter("give --to FILE to write one, or --from FILE to fill a new store")
    if shard is not None and shards is not None:
        raise typer.BadParameter("give --shard for one of them, or --shards for all, not both")
    numbers = range(shard or 0, (shard or 0) + 1) if shards is None else range(shards)
    with _all_opened(store, numbers, new=to is None) as stores:
        if shards is not None:
            _check_all(store, shards)
        found = (import_stores if to is None else export_stores)(stores, file)
    text = "\n".join(
        f"{file}: shard {contents.shard}, a snapshot of {contents.snapshot_bytes} bytes and "
        f"{contents.records} records"
        for contents in found
    )
    show(context, {"shards": [asdict(contents) for contents in found]}, text)


def accept_loss_command(context: typer.Context, store: StoreUrl, shard: Shard = 0) -> None:
    """Let a shard start that has lost acknowledged records. What they recorded is gone for good: items may
    be open for ever, or have been announced as complete while they are not."""
    with _opened(store, shard, lossy=True) as opened:
        missing = opened.accept_loss()
    outcome = f"accepted: {missing}" if missing else "nothing was missing"
    show(context, {"shard": shard, "accepted": missing}, f"shard {shard}: {outcome}")
