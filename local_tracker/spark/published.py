"""Batches of files published into one directory, each once, whatever is killed in between.

A batch is first written under `_lowmark/` in the directory, where no reader of it looks. Then its
manifest is written, by one rename: from then on the batch is published, and its files are moved to
their places, each by a rename. A batch that has a manifest is never written again: what is left of
the moving is finished, so a reader never finds other files, or the same rows in two files. A batch
without one leaves nothing that a reader could have seen, and is written anew.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from local_tracker.spark.logs import LogError
from tracker.core.model.units import unit_name
from tracker.files import STORES, FilesError, LocalFiles, scheme

KEPT_MANIFESTS = 1_000
"""Manifests of this many batches stay for inspection; a checkpoint is never that far behind."""

_FOLDER = "_lowmark"


@dataclass(frozen=True, slots=True)
class Manifest:
    """What was published for a batch.

    scope: who numbers the batches (a query's id); offsets: the batch's offsets as logged; run: the
    run of the query that evaluated it; slot: the label of a front's batch, else None; files: pairs
    of where each file was written and where it belongs, relative to the batch's folder and to the
    directory.
    """

    scope: str
    batch: int
    offsets: str
    run: str
    slot: int | None
    files: tuple[tuple[str, str], ...]


class PublishedBatches:
    """The published batches of a local directory, which is made if it is not there: a reader may be
    started on it before the first batch."""

    def __init__(self, location: str) -> None:
        where = STORES.location(location)
        if scheme(where):
            raise FilesError(f"batches cannot be published to {where}, only to a local directory")
        self.directory, self._files = Path(where), LocalFiles()
        self.directory.mkdir(parents=True, exist_ok=True)

    def manifest(self, scope: str, batch: int) -> Manifest | None:
        """What was published for a batch; None if nothing was. Raises LogError if it can't be read."""
        path = self._manifest_path(scope, batch)
        try:
            value = json.loads(path.read_text())
            pairs = tuple((str(written), str(placed)) for written, placed in value["files"])
            slot = None if value["slot"] is None else int(value["slot"])
            return Manifest(scope, batch, str(value["offsets"]), str(value["run"]), slot, pairs)
        except FileNotFoundError:
            return None
        except (KeyError, OverflowError, RecursionError, TypeError, ValueError) as error:
            raise LogError(f"{path} is not a manifest of a published batch: {error!r}") from None

    def numbers(self, scope: str) -> list[int]:
        """The batches of a scope that were published and not forgotten, in order."""
        names = [path.stem for path in self._folder(scope).glob("*.json")]
        return sorted(int(name) for name in names if name.isascii() and name.isdigit())

    def units(self, scope: str, batch: int) -> tuple[str, ...]:
        """The names of the published files of a batch, as a reader's log names them."""
        manifest = self.manifest(scope, batch)
        if manifest is None:
            return ()
        return tuple(unit_name(str(self.directory / placed)) for _, placed in manifest.files)

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
        """Publish a batch, unless it is already.

        `write(directory)` writes the files; `name_of(name, ordinal)` gives each its name where it belongs (its
        folder is kept). Raises LogError if the batch was published for other offsets.
        """
        manifest = self.manifest(scope, batch)
        folder = self._folder(scope) / f"{batch:08d}"
        if manifest is None:
            shutil.rmtree(folder, ignore_errors=True)
            folder.parent.mkdir(parents=True, exist_ok=True)
            write(str(folder))
            files = tuple(
                (name, str(Path(name).parent / name_of(Path(name).name, ordinal)))
                for ordinal, name in enumerate(_data_files(folder))
            )
            manifest = Manifest(scope, batch, offsets, run, slot, files)
            self._write_manifest(manifest)
        elif manifest.offsets != offsets:
            raise LogError(
                f"{self.directory}: batch {batch} of {scope} was published for the offsets "
                f"{manifest.offsets!r} and is now asked for {offsets!r}: the checkpoint has been "
                f"rolled back; restore the newer one, or start over with an empty checkpoint and sink"
            )
        self._move(manifest, folder)
        return manifest

    def forget(self, scope: str, batch: int) -> None:
        """Remove the manifest of one batch; its files stay."""
        self._manifest_path(scope, batch).unlink(missing_ok=True)

    def _move(self, manifest: Manifest, folder: Path) -> None:
        if not folder.exists():
            return
        for written, placed in manifest.files:
            target = self.directory / placed
            if (folder / written).exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                os.rename(folder / written, target)
        shutil.rmtree(folder)

    def _write_manifest(self, manifest: Manifest) -> None:
        path = self._manifest_path(manifest.scope, manifest.batch)
        value = {
            "offsets": manifest.offsets,
            "run": manifest.run,
            "slot": manifest.slot,
            "files": manifest.files,
        }
        self._files.create(str(path), json.dumps(value).encode())

    def _manifest_path(self, scope: str, batch: int) -> Path:
        return self._folder(scope) / f"{batch:08d}.json"

    def _folder(self, scope: str) -> Path:
        return self.directory / _FOLDER / scope


def written_units(directory: str) -> list[str]:
    """The unit names of the files in a folder that is about to be published, as they are there."""
    return [unit_name(str(Path(directory) / name)) for name in _data_files(Path(directory))]


def _data_files(folder: Path) -> list[str]:
    """The files that a reader of a written folder would read, relative to it, in order."""
    found = []
    for path in folder.rglob("*"):
        relative = path.relative_to(folder)
        hidden = any(part[0] in "._" and "=" not in part for part in relative.parts)
        if path.is_file() and not hidden:
            found.append(str(relative))
    return sorted(found)
