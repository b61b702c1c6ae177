"""Generates the Python stubs of the contract beside its .proto files: `python -m scripts.generate_stubs`.

The stubs are committed, so that nobody needs a compiler to use Lowmark; `--check` fails if they are
not what the .proto files say.

Stubs run with the protobuf and the gRPC of their compiler and with newer ones. So the compiler is an old one, of
the floors in pyproject.toml. What it asks of protobuf is not what everything else here runs with: it lies in a
directory of its own, out of scripts/compiler.lock, and takes nothing from protobuf's package.
"""

from __future__ import annotations

import filecmp
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from lowmark._shadows import MARK

ROOT = Path(__file__).resolve().parent.parent / "proto"
LOCK = Path(__file__).resolve().parent / "compiler.lock"
COMPILER = Path(sys.prefix) / "compiler"
"""Where the compiler is installed: within the environment, whose end is its own."""


def compiler() -> Path:
    """The directory of the compiler that the lock names, installed if it is not there yet. A copy of the lock
    says what is there; it is written last."""
    stamp = COMPILER / "installed.lock"
    if stamp.exists() and stamp.read_bytes() == LOCK.read_bytes():
        return COMPILER
    shutil.rmtree(COMPILER, ignore_errors=True)
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input",
         "--no-deps", "--only-binary", ":all:", "--require-hashes", "--target", str(COMPILER),
         "--requirement", str(LOCK)],
        check=True,
    )  # fmt: skip
    shutil.copyfile(LOCK, stamp)
    return COMPILER


def generate(target: Path) -> list[Path]:
    """Writes the stubs of all .proto files below `target`; returns their paths relative to it."""
    protos = sorted(ROOT.glob("acker/v1/*.proto"))
    binaries = Path(sys.executable).parent
    place = compiler()
    status = subprocess.call(
        [
            *(sys.executable, "-m", "grpc_tools.protoc"),
            f"-I{ROOT}",
            f"-I{place / 'grpc_tools' / '_proto'}",
            f"--plugin=protoc-gen-mypy={binaries / 'protoc-gen-mypy'}",
            f"--plugin=protoc-gen-mypy_grpc={binaries / 'protoc-gen-mypy_grpc'}",
            f"--python_out={target}",
            f"--grpc_python_out={target}",
            f"--mypy_out=quiet:{target}",
            f"--mypy_grpc_out=quiet:{target}",
            *(str(proto) for proto in protos),
        ],
        env={**os.environ, "PYTHONPATH": str(place)},
    )
    if status:
        raise SystemExit(f"protoc failed with status {status}")
    (target / "acker" / "__init__.py").write_text(f"{MARK}\n")
    (target / "acker" / "v1" / "__init__.py").touch()
    return sorted(path.relative_to(target) for path in target.rglob("*.py*") if path.is_file())


def check() -> list[str]:
    """The stubs that are missing, outdated, or belong to no .proto file any more."""
    with tempfile.TemporaryDirectory() as directory:
        fresh = generate(Path(directory))
        stale = [
            str(path)
            for path in fresh
            if not (ROOT / path).exists()
            or not filecmp.cmp(ROOT / path, Path(directory) / path, shallow=False)
        ]
    kept = {p.relative_to(ROOT) for p in ROOT.rglob("*.py*") if "__pycache__" not in p.parts}
    return stale + sorted(str(path) for path in kept - set(fresh))


def main() -> None:
    if "--check" in sys.argv[1:]:
        stale = check()
        if stale:
            raise SystemExit(f"stale stubs, run python -m scripts.generate_stubs: {stale}")
        print("stubs: OK")
        return
    for path in generate(ROOT):
        print(path)


if __name__ == "__main__":
    main()
