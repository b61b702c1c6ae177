"""The steps of the Dockerfile, run in a chroot: no container engine is needed, only root on a machine with
`debootstrap`.

It knows the instructions that the Dockerfile has, and refuses any other. Each stage is a directory; mounts
are made in a namespace of their own, so that none stays behind.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from scripts.summary import BUILD
from tests.docs.pages import ROOT
from tests.waits import PROGRAM_S

WORK = BUILD / "image"
_KNOWN = {"ARG", "FROM", "RUN", "COPY", "WORKDIR", "ENV", "USER", "EXPOSE", "ENTRYPOINT", "CMD"}
_OF_THE_MACHINE = re.compile(r"(?i)^((https?|no|all)_proxy|pip_(?!find_links).*|ssl_cert_.*)$")
"""By which this machine reaches the package registries; they belong to the build, not to the image."""


class CannotTry(Exception):
    """This machine cannot run the steps; says why."""


@dataclass
class Stage:
    """One stage as far as it has come. root: its files; the rest as the instructions have set it."""

    name: str
    root: Path
    base: str
    variables: dict[str, str] = field(default_factory=dict)
    directory: str = "/"
    user: str = "0:0"
    entrypoint: list[str] = field(default_factory=list)
    ports: list[int] = field(default_factory=list)

    def command(
        self, words: list[str], *, read_only: bool = False, user: str = "",
        mounts: Mapping[str, Path] | None = None,
    ) -> list[str]:  # fmt: skip
        """A command line that runs `words` inside, as a container would: a /proc, a /dev and a /tmp of
        its own, what is mounted, by its place inside, and else what is in the root, to be written or not."""
        mounts = mounts or {}
        for place in mounts:
            (self.root / place.lstrip("/")).mkdir(parents=True, exist_ok=True)
        root = shlex.quote(str(self.root))
        steps = [
            f"mount --bind {root} {root}",
            *([f"mount -o remount,bind,ro {root}"] if read_only else []),
            *(
                f"mount --bind {shlex.quote(str(path))} {root}{place}"
                for place, path in mounts.items()
            ),
            f"mount -t proc proc {root}/proc",
            f"mount --rbind /dev {root}/dev",
            f"mount -t tmpfs -o mode=1777 tmpfs {root}/tmp",
            *([f"mount -t tmpfs -o uid=65532,gid=65532 tmpfs {root}/var/lib/lowmark"] * read_only),
        ]
        uid, _, gid = (user or self.user).partition(":")
        variables = [f"{name}={value}" for name, value in self.variables.items()]
        inside = shlex.join(
            ["chroot", f"--userspec={uid}:{gid}", str(self.root), "/usr/bin/env", "-i",
             f"--chdir={self.directory}", *variables, *words]
        )  # fmt: skip
        script = " && ".join([*steps, f"exec {inside}"])
        return ["unshare", "--mount", "--propagation", "private", "sh", "-c", script]


def instructions(text: str) -> list[tuple[str, str]]:
    """(instruction, its words), with lines that go on joined. Raises ValueError for an unknown one."""
    text = re.sub(r"(?m)^\s*#.*\n", "", text)
    found = []
    for line in re.sub(r"\\\n", " ", text).splitlines():
        if line.strip():
            name, _, rest = line.strip().partition(" ")
            if name not in _KNOWN:
                raise ValueError(f"the Dockerfile has {name}, which is not known here: {line}")
            found.append((name, rest.strip()))
    return found


def check_machine() -> None:
    """Raises CannotTry where the steps cannot be run."""
    if os.getuid() != 0:
        raise CannotTry("only root may chroot")
    if shutil.which("debootstrap") is None:
        installed = subprocess.run(
            ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "debootstrap"],
            capture_output=True, check=False,
        )  # fmt: skip
        if installed.returncode:
            raise CannotTry("there is no debootstrap, and apt-get could not install it")


def make_base(image: str) -> Path:
    """A Debian root of the release that the image names; kept for the next time. Raises ValueError for an image
    without a digest: here debootstrap makes it, but who builds it gets that one."""
    name, _, digest = image.partition("@")
    if not re.fullmatch(r"sha256:[0-9a-f]{64}", digest):
        raise ValueError(f"the base {image} is not pinned by its digest")
    release = {"13": "trixie"}[name.removeprefix("debian:").partition(".")[0]]
    base = WORK / f"base-{release}"
    if not (base / "complete").exists():
        shutil.rmtree(base, ignore_errors=True)
        base.mkdir(parents=True)
        command = ["debootstrap", "--variant=minbase", release, str(base)]
        _run(command, timeout_s=PROGRAM_S)
        (base / "complete").touch()
    return base


def build(shown: bool = False) -> Stage:
    """Runs all steps; returns the last stage. Raises CannotTry, ValueError, or CalledProcessError with
    what the step said."""
    check_machine()
    stages: dict[str, Stage] = {}
    arguments: dict[str, str] = {}
    stage: Stage | None = None
    for name, rest in instructions((ROOT / "Dockerfile").read_text()):
        if shown:
            print(f"image: {name} {rest[:90]}", flush=True)
        if name == "ARG":
            key, _, value = rest.partition("=")
            arguments[key] = value
        elif name == "FROM":
            image, _, alias = rest.partition(" AS ")
            for key, value in arguments.items():
                image = image.replace(f"${{{key}}}", value)
            stage = _begin(alias or "last", image)
            stages[stage.name] = stage
        else:
            assert stage is not None, "the Dockerfile begins with a step"
            _step(stage, stages, name, rest)
    assert stage is not None
    _forget_machine(stage)
    return stage


def _begin(name: str, image: str) -> Stage:
    root = WORK / name
    shutil.rmtree(root, ignore_errors=True)
    _run(["cp", "-a", "--reflink=auto", str(make_base(image)), str(root)])
    (root / "complete").unlink()
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return Stage(name, root, image, {"PATH": path})


def _step(stage: Stage, stages: dict[str, Stage], name: str, rest: str) -> None:
    match name:
        case "RUN":
            _tell_machine(stage)  # a step before may have put a file of a package in its place
            machine = {k: v for k, v in os.environ.items() if _OF_THE_MACHINE.match(k)}
            outside = ["env", *(f"{key}={value}" for key, value in machine.items())]
            words = [*outside, "DEBIAN_FRONTEND=noninteractive", "sh", "-e", "-c", rest]
            _run(stage.command(words), timeout_s=PROGRAM_S)
        case "COPY":
            _copy(stage, stages, shlex.split(rest))
        case "WORKDIR":
            stage.directory = rest
            (stage.root / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)
        case "ENV":
            key, _, value = rest.partition("=")
            stage.variables[key] = value
        case "USER":
            stage.user = rest
        case "EXPOSE":
            stage.ports = [int(port) for port in rest.split()]
        case "ENTRYPOINT":
            stage.entrypoint = json.loads(rest)


def _copy(stage: Stage, stages: dict[str, Stage], words: list[str]) -> None:
    origin, context = ROOT, True
    if words[0].startswith("--from="):
        origin, context = stages[words.pop(0).removeprefix("--from=")].root, False
    *sources, target = words
    place = stage.root / stage.directory.lstrip("/") / target.lstrip("/")
    if target.startswith("/"):
        place = stage.root / target.lstrip("/")
    for source in sources:
        path = origin / source.lstrip("/")
        if context and source not in _context():
            raise ValueError(f".dockerignore keeps {source} out of the image")
        to = place / path.name if target.endswith("/") else place
        if path.is_dir():
            # As an engine would: what .dockerignore leaves out, links as they are, owned by root.
            ignored = shutil.ignore_patterns("__pycache__") if context else None
            shutil.copytree(path, to, symlinks=True, dirs_exist_ok=True, ignore=ignored)
        else:
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, to)


def _context() -> set[str]:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    return {line.removeprefix("!") for line in lines if line.startswith("!")}


def _machine_files() -> list[str]:
    """Resolving names, and what certificates are checked by."""
    found = ["/etc/resolv.conf", "/etc/hosts", "/etc/pip.conf"]
    found += [v for k, v in os.environ.items() if k.upper() in ("PIP_CERT", "SSL_CERT_FILE")]
    return [path for path in dict.fromkeys(found) if Path(path).is_file()]


def _tell_machine(stage: Stage) -> None:
    for path in _machine_files():
        place = stage.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, place)


def _forget_machine(stage: Stage) -> None:
    for path in _machine_files():
        place = stage.root / path.lstrip("/")
        if "ca-certificates" not in path:
            place.unlink(missing_ok=True)


def size_mb(stage: Stage) -> float:
    """What the files of the image take, in MB of 10^6 bytes."""
    said = _run(["du", "-s", "-x", "--block-size=1", str(stage.root)])
    return int(said.split()[0]) / 1e6


def writable(stage: Stage) -> list[str]:
    """What the user of the image could write, apart from /tmp and its own directories."""
    # What it cannot even look into, it cannot write.
    find = "find / -xdev -writable -not -type l -not -path '/proc/*' 2>/dev/null || true"
    found = _run(stage.command(["sh", "-c", find])).splitlines()
    allowed = ("/tmp", "/var/tmp", "/var/lib/lowmark", "/run/lowmark", "/run/lock", "/proc", "/dev")
    return [path for path in found if not path.startswith(allowed)]


def privileged(stage: Stage) -> list[str]:
    """Files that run with more rights than whoever runs them, in what was added to the base."""
    find = ["find", "/opt", "-xdev", "-perm", "/6000"]
    return _run(stage.command(find, user="0:0")).splitlines()


def inside(stage: Stage, *words: str, mounts: Mapping[str, Path] | None = None) -> str:
    """What a command says that is run as a container of a pod would: as its user, with a root that is
    read only."""
    return _run(stage.command(list(words), read_only=True, mounts=mounts))


def _run(command: list[str], timeout_s: float = PROGRAM_S) -> str:
    done = subprocess.run(
        command, check=False, text=True, timeout=timeout_s, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{shlex.join(command)[-400:]} failed:\n{done.stdout[-3000:]}")
    return done.stdout
