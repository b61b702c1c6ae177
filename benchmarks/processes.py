"""The bare gRPC servers that a tracker is compared with."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.cluster.children import Running, processor_s


class EchoServer(Running):
    """A bare gRPC server in a process of its own: a module that prints its port."""

    def __init__(self, module: str = "benchmarks.echo") -> None:
        super().__init__(module, errors=Path(tempfile.gettempdir()) / "lowmark-bench-echo.log")

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.until_line(0)}"

    def processor_s(self) -> float:
        return processor_s(self.pid)
