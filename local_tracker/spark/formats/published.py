"""Batches of files published into one directory, each once, whatever is killed in between, wherever it is.

An attempt at a batch is first written under `_lowmark/` in the directory, where no reader of it looks, in a
folder of its own. Then its manifest is created, if the batch has none: from then on the batch is published,
by that attempt, and its files are put into their places, each as a whole. A batch that has a manifest is
never written again: what is left of the placing is finished, by whoever comes, so a reader never finds
other files, or the same rows in two files. A batch without one leaves nothing that a reader could have
seen, and is written anew.

Nothing rests on a rename. Where a store has one, a file is placed by it; elsewhere the store copies it.
"""

from __future__ import annotations

import json
import logging
import posixpath
from collections.abc import Callable
from dataclasses import dataclass
from uuid import uuid4

from tracker.core.model.units import unit_name
from tracker.errors import Code, FilesError
from tracker.files import STORES, AwayError, Stores, child

log = logging.getLogger("lowmark.spark")

KEPT_MANIFESTS = 1_000
"""Manifests of this many batches stay for inspection; a checkpoint is never that far behind."""

MAX_MANIFEST_BYTES = 64 * 2**20
"""The largest manifest that is read: of some hundred thousand files."""

_FOLDER = "_lowmark"


@dataclass(frozen=True, slots=True)
class Manifest:
    """What was published for a batch.

    scope: who numbers the batches (a query's id); offsets: the batch's offsets as logged; run: the
    run of the query that evaluated it; slot: the label of a front's batch, else None; files: pairs
    of where each file was written and where it belongs, relative to the attempt's folder and to the
    directory; attempt: the name of that folder.
    """

    scope: str
    batch: int
    offsets: str
    run: str
    slot: int | None
    files: tuple[tuple[str, str], ...]
    attempt: str


class PublishedBatches:
    """The published batches of a directory, which is made if it is not there: a reader may be started
    on it before the first batch."""

    def __init__(self, location: str, stores: Stores = STORES) -> None:
        """Raises FilesError where the directory is out of reach."""
        self.directory = stores.location(location)
        self._files = stores.files(self.directory)
        self._files.make_directory(self.directory)

    def manifest(self, scope: str, batch: int) -> Manifest | None:
        """What was published for a batch; None if nothing was. Raises FilesError if it can't be read."""
        path = self._manifest_path(scope, batch)
        text = self._files.read_whole(path, MAX_MANIFEST_BYTES)
        if text is None:
            return None
        try:
            value = json.loads(text)
            pairs = tuple((str(written), str(placed)) for written, placed in value["files"])
            slot = None if value["slot"] is None else int(value["slot"])
            offsets, run, attempt = (str(value[name]) for name in ("offsets", "run", "attempt"))
            return Manifest(scope, batch, offsets, run, slot, pairs, attempt)
        except (
            AttributeError,
            KeyError,
            OverflowError,
            RecursionError,
            TypeError,
            ValueError,
        ) as e:
            raise FilesError(
                f"{path} is not a manifest of a published batch: {e!r}", Code.FILES_LOG
            ) from None

    def numbers(self, scope: str) -> list[int]:
        """The batches of a scope that were published and not forgotten, in order."""
        names = self._files.names(self._folder(scope))
        stems = [name.removesuffix(".json") for name in names if name.endswith(".json")]
        return sorted(int(stem) for stem in stems if stem.isascii() and stem.isdigit())

    def scopes(self) -> list[str]:
        """Who has published here, in order."""
        return sorted(self._files.names(child(self.directory, _FOLDER)))

    def units(self, scope: str, batch: int) -> tuple[str, ...]:
        """The names of the published files of a batch, as a reader's log names them."""
        manifest = self.manifest(scope, batch)
        if manifest is None:
            return ()
        return tuple(unit_name(child(self.directory, placed)) for _, placed in manifest.files)

    def all_units(self) -> tuple[str, ...]:
        """The names of all files that are in their places, whoever has put them there."""
        there = self._data_files(self.directory)
        return tuple(unit_name(child(self.directory, name)) for name in there)

    def written_units(self, address: str) -> list[str]:
        """The unit names of the files in a folder that is about to be published, as they are there.
        address: what `write` was called with."""
        below = address.removeprefix(self._files.address(self.directory))
        folder = child(self.directory, below.strip("/"))
        return [unit_name(child(folder, name)) for name in self._data_files(folder)]

    def publish(
        self,
        scope: str,
        batch: int,
        offsets: str,
        run: str,
        write: Callable[[str], None],
        name_of: Callable[[str, int], str],
        slot: int | None = None,
    ) -> Manifest:
        """Publish a batch, unless it is already; returns what was published, which may be another attempt's.

        `write(directory)` writes the files; `name_of(name, ordinal)` gives each its name where it belongs (its
        folder is kept). Raises FilesError if the batch was published for other offsets.
        """
        manifest = self.manifest(scope, batch)
        if manifest is None:
            attempt = f"{_number(batch)}-{uuid4().hex[:12]}"
            folder = child(self._folder(scope), attempt)
            write(self._files.address(folder))
            files = tuple(
                (name, _renamed(name, name_of, ordinal))
                for ordinal, name in enumerate(self._data_files(folder))
            )
            own = Manifest(scope, batch, offsets, run, slot, files, attempt)
            manifest = self._write_manifest(own)
            if manifest.attempt != attempt:
                self._files.delete_all(folder)
        if manifest.offsets != offsets:
            raise FilesError(
                f"{self.directory}: batch {batch} of {scope} was published for the offsets "
                f"{manifest.offsets!r} and is now asked for {offsets!r}: the checkpoint has been "
                f"rolled back; restore the newer one, or start over with an empty checkpoint and sink",
                Code.FILES_LOG,
            )
        self.place(manifest)
        return manifest

    def forget(self, scope: str, batch: int) -> None:
        """Remove the manifest of one batch; its files stay."""
        if batch >= 0:
            self._files.delete(self._manifest_path(scope, batch))

    def _write_manifest(self, manifest: Manifest) -> Manifest:
        """Returns the batch's manifest: this one, or that of who was first."""
        value = {
            "offsets": manifest.offsets,
            "run": manifest.run,
            "slot": manifest.slot,
            "files": manifest.files,
            "attempt": manifest.attempt,
        }
        path = self._manifest_path(manifest.scope, manifest.batch)
        if self._files.create_if_absent(path, json.dumps(value).encode()):
            return manifest
        first = self.manifest(manifest.scope, manifest.batch)
        if first is None:
            raise FilesError(
                f"{path} was there, and is gone: it must not be removed while queries run",
                Code.FILES_LOG,
            )
        return first

    def place(self, manifest: Manifest) -> None:
        """Puts the files of a manifest where they belong, unless that is done; then removes what all
        attempts at the batch have left."""
        scope = self._folder(manifest.scope)
        folder = child(scope, manifest.attempt)
        if not self._files.is_directory(folder):
            return
        for written, placed in manifest.files:
            self._move(child(folder, written), child(self.directory, placed))
        number = _number(manifest.batch)
        for name in self._files.names(scope):
            if name.startswith(f"{number}-"):
                self._files.delete_all(child(scope, name))

    def _move(self, written: str, placed: str) -> None:
        try:
            self._files.move(written, placed)
        except AwayError:
            raise
        except FilesError:
            if self._files.size(written) is not None:
                raise
            # Nobody else moves it: an earlier attempt has placed it, and a reader has removed it (cleanSource).
            log.warning("%s was put into its place before, and is there no more", placed)

    def _data_files(self, folder: str) -> list[str]:
        """The files that a reader of a written folder would read, relative to it, in order."""
        return [name for name in self._files.walk(folder) if not _is_hidden(name)]

    def _manifest_path(self, scope: str, batch: int) -> str:
        return child(self._folder(scope), f"{_number(batch)}.json")

    def _folder(self, scope: str) -> str:
        return child(self.directory, f"{_FOLDER}/{scope}")


def _number(batch: int) -> str:
    return f"{batch:08d}"


def _renamed(name: str, name_of: Callable[[str, int], str], ordinal: int) -> str:
    folder, last = posixpath.split(name)
    return posixpath.join(folder, name_of(last, ordinal))


def _is_hidden(name: str) -> bool:
    return any(part[0] in "._" and "=" not in part for part in name.split("/"))
