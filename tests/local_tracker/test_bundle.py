"""The zip for workers: whole, the same each time, and without gRPC."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from local_tracker.worker.bundle import build_zip
from tests.waits import HANG_S

WORKER = """
import sys
sys.path.insert(0, sys.argv[1])
from lowmark import acks
assert acks.__file__.startswith(sys.argv[1]), acks.__file__
with acks.recording() as recorded, acks.step():
    acks.consume("a", [1, 2], [3, 4])
assert recorded.consumed.rows() == [(0, 2, 4, 1), (0, 1, 3, 1)]
for name in ("grpc", "google", "acker", "tracker.client", "pyspark", "pandas", "pyarrow"):
    assert name not in sys.modules, name
"""
AGENT = """
import sys
sys.path.insert(0, sys.argv[1])
import local_tracker.agent, tracker.client
for module in (local_tracker.agent, tracker.client, sys.modules["acker.v1.types_pb2"]):
    assert module.__file__.startswith(sys.argv[1]), module.__file__
"""


def run(code: str, path: str, folder: Path) -> None:
    subprocess.run([sys.executable, "-I", "-c", code, path], check=True, cwd=folder, timeout=HANG_S)


def test_workers_need_the_standard_library_and_numpy_alone(tmp_path: Path) -> None:
    run(WORKER, build_zip(f"{tmp_path}/w.zip"), tmp_path)


def test_a_local_tracker_starts_from_the_zip(tmp_path: Path) -> None:
    run(AGENT, build_zip(f"{tmp_path}/w.zip"), tmp_path)


def test_the_same_code_gives_the_same_zip(tmp_path: Path) -> None:
    one, other = (Path(build_zip(f"{tmp_path}/{name}.zip")) for name in ("one", "other"))
    assert one.read_bytes() == other.read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["one.zip", "other.zip"]
