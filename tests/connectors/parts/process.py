"""Parts that run in a JVM of their own."""

from __future__ import annotations

import os
import subprocess

from tests.waits import HANG_S

SMALL_JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true")
"""Starts fast and takes little: what runs in it moves a few rows."""
_LOG_SHOWN = 2000


def java(class_path: str, main: str, *arguments: str, heap_mb: int) -> list[str]:
    """The command of a small JVM."""
    home = os.environ.get("JAVA_HOME")
    return [
        f"{home}/bin/java" if home else "java", f"-Xmx{heap_mb}m", *SMALL_JVM,
        "-cp", class_path, main, *arguments,
    ]  # fmt: skip


def run_java(class_path: str, main: str, *arguments: str, heap_mb: int = 128) -> str:
    """Runs a tool of a part to its end; returns what it said. Raises AssertionError if it failed."""
    done = subprocess.run(
        java(class_path, main, *arguments, heap_mb=heap_mb), capture_output=True, text=True,
        timeout=HANG_S, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, f"{main} failed: {(done.stdout + done.stderr)[-_LOG_SHOWN:]}"
    return done.stdout
