"""Sets of jars: pinned coordinates in `sets/<name>.xml`, fetched by Maven once for a machine.

    python -m tests.connectors.parts.jars [NAME ...]           fetches sets, or all
    python -m tests.connectors.parts.jars --pin [NAME ...]     and writes their digests down anew

`sets/<name>.sha256` names every jar of a set with its digest, as `sha256sum` writes it: what Maven
fetched must be exactly that, else the set is refused.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from pathlib import Path

from tests.connectors.parts.cache import Unavailable, cache, made_once, run_fetcher

SETS = Path(__file__).with_name("sets")
OFTEN = ("kafka", "spark-kafka", "s3a")
"""The sets that a short run needs, of every change."""
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_DIGEST_CHARACTERS = 12
"""Of a set's definition, in the name of its folder: another definition has another folder."""


class WrongJars(Exception):
    """What was fetched is not what is pinned: nothing to skip for, but to look into."""


def names() -> list[str]:
    """The names of all sets."""
    return sorted(path.stem for path in SETS.glob("*.xml"))


def jars(name: str) -> list[Path]:
    """The jars of a set, fetched if they are not there. Raises Unavailable where Maven can't fetch
    them, WrongJars where it has fetched others."""
    pinned, folder = pinned_jars(name), _folder(name)
    with made_once(folder) as part:
        if part is not None:
            _fetch(name, part)
            refuse_others(name, digests(part), pinned)
    return [folder / jar for jar in sorted(pinned)]


def class_path(name: str, *before: Path) -> str:
    """For `java -cp`: folders to look into first, then the jars of a set."""
    return os.pathsep.join(map(str, (*before, *jars(name))))


def spark_jars(*sets: str) -> str:
    """For `spark.jars`: all jars of some sets."""
    return ",".join(str(path) for name in sets for path in jars(name))


def pinned_jars(name: str) -> dict[str, str]:
    """The digest of each jar of a set, by its name."""
    lines = (SETS / f"{name}.sha256").read_text().splitlines()
    return {jar: digest for digest, _, jar in (line.partition("  ") for line in lines)}


def digests(folder: Path) -> dict[str, str]:
    """The digest of each jar in a folder, by its name."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.glob("*.jar"))
    }


def refuse_others(name: str, found: dict[str, str], pinned: dict[str, str]) -> None:
    """Raises WrongJars with the first jar that is missing, unknown, or has another digest."""
    for jar in sorted(found.keys() | pinned.keys()):
        if found.get(jar) != pinned.get(jar):
            raise WrongJars(
                f"{name}: {jar} has the sha256 {found.get(jar, '(missing)')}, pinned is "
                f"{pinned.get(jar, '(none)')}; fetch it again, or look at sets/{name}.xml and pin it"
            )


def _fetch(name: str, folder: Path) -> None:
    # A coordinate that could not be had is asked for again: Maven else remembers that for a day.
    command = [
        os.environ.get("MVN", "mvn"), "-q", "-B", "-U", "-f", str(SETS / f"{name}.xml"), _COPY,
        "-DincludeScope=runtime", f"-DoutputDirectory={folder}",
    ]  # fmt: skip
    run_fetcher(f"jars of {name}", command)


def _folder(name: str) -> Path:
    text = (SETS / f"{name}.xml").read_bytes() + (SETS / f"{name}.sha256").read_bytes()
    return cache() / f"{name}-{hashlib.sha256(text).hexdigest()[:_DIGEST_CHARACTERS]}"


def _pin(name: str) -> None:
    folder = cache() / f"{name}-to-pin"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    _fetch(name, folder)
    lines = (f"{digest}  {jar}\n" for jar, digest in digests(folder).items())
    (SETS / f"{name}.sha256").write_text("".join(lines))
    shutil.rmtree(folder)


def main(arguments: list[str]) -> int:
    pin = "--pin" in arguments
    for name in [argument for argument in arguments if argument != "--pin"] or names():
        try:
            if pin:
                _pin(name)
            print(f"{name}: {len(jars(name))} jars", flush=True)
        except Unavailable as error:
            print(f"{name}: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
