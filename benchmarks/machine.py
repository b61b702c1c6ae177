"""On what a benchmark ran: enough to compare two runs, and no names."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

_PACKAGES = ("grpcio", "numpy", "protobuf", "pyspark")


def machine() -> dict[str, Any]:
    """The processors, the memory, the software, and how busy the machine is as the run begins."""
    return {
        "cores": os.cpu_count() or 1,
        "cpu": _cpu_model(),
        "memory_gib": round(_memory_bytes() / 2**30),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **{package: version(package) for package in _PACKAGES},
        "load_average": [round(load, 2) for load in os.getloadavg()],
        "began": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }


def described(facts: dict[str, Any]) -> str:
    """The machine in one line."""
    return (
        f"{facts['cores']} cores of {facts['cpu']}, {facts['memory_gib']} GiB, {facts['system']}, "
        f"Python {facts['python']}, NumPy {facts['numpy']}, gRPC {facts['grpcio']}; "
        f"{facts['began']}, load average {facts['load_average'][0]} at the start"
    )


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return " ".join(line.partition(":")[2].split())
    return platform.processor() or platform.machine()


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
