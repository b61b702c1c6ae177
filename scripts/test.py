"""Runs the tests in parts: processes first, then Spark, then brokers and stores, then those that need no process.

    python -m scripts.test [LAYER ...] [-- PYTEST ARGUMENTS]

Every directory of `tests` belongs to one layer: those named below to theirs, every other one to
`processes`, so that a new directory can't be forgotten. A layer that runs no test has failed. A layer
that fails does not keep the others from running. A part is a pytest of its own; as many run at the same time as
`AT_ONCE` says, and the next one begins when one has ended, of whichever layer it is. What a part has printed comes
when it has ended. Each layer's time, from the beginning of its first part to the end of its last, is shown, and kept
in `build/test.json` with that of each of its directories.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from zlib import crc32

from scripts.summary import BUILD, ROOT, finish

PURE = ("core", "model", "proof", "simulation", "mutations", "scenarios", "check", "fuzz")
SPARK = ("spark", "spark_matrix", "examples")
CONNECTORS = ("connectors",)
BESIDE = {
    "inputs": ("core", "fuzz"),
    "consumers": ("consumers", "docs"),
    "clients": ("client", "dashboard", "dev", "explain", "public"),
    "systems": ("chart", "faults", "processes"),
    "matrix": ("spark_matrix",),
    "drivers": ("examples", "spark/test_declarative.py", "spark/test_init.py"),
}
"""By the name of a part, directories and files of `tests` that are a part of their own; the rest of a layer is one."""
LAYERS = ("processes", "spark", "connectors", "pure")
"""In the order in which their parts begin: first what takes longest and waits for most of it, last what keeps every core
busy to the end."""
AT_ONCE = (os.cpu_count() or 2) + 3
"""Parts that run beside each other: more than there are cores, since tests wait for more than half of their time."""
LONG = "long"
"""Marks tests of connectors that `make connectors` runs; here is no time for them."""
CLASSES = Path(sys.prefix) / f"spark-classes-{crc32(sys.prefix.encode()):08x}.jsa"
"""An archive of Spark's classes: half of what a JVM takes to start with Spark is to load them. It is of this environment
at this place, and goes with it."""
BEFOREHAND = {
    "parts": ("nice", sys.executable, "-m", "tests.connectors.parts"),
    "classes": (sys.executable, "-m", "tests.spark_matrix.classes", str(CLASSES)),
}
"""Programs that run beside the first layers, and what they make: what the layer of connectors needs, which says what can't
be had, and the tests that need it are skipped; and the archive, without which JVMs start as ever."""
NEEDS = {"spark": ("classes",), "connectors": ("parts", "classes")}
"""By layer, of those programs."""
MAKING_S = 300
"""A part of a layer waits for what it needs for so long, and then goes on with what is there."""
KEPT = {
    "PYTHONDONTWRITEBYTECODE": "",
    "JDK_JAVA_OPTIONS": f"-XX:SharedArchiveFile={CLASSES} -Xlog:disable -Xlog:all=error:stderr",
}
"""Tests start some hundred processes: a third of what one takes to start is to compile what nobody has kept. A JVM whose
jars are others than those of the archive says nothing of it, and loads its classes as ever."""
NOTHING_COLLECTED = 5
"""What pytest ends with when it has run no test."""


@dataclass(frozen=True)
class LayerResult:
    """What one run of pytest came to; `seconds` is wall time with start-up."""

    name: str
    exit_code: int
    passed: int
    failed: int
    skipped: int
    seconds: float
    directories: dict[str, float] = field(default_factory=dict)
    """Seconds of the tests of each directory, the longest first."""

    @property
    def ok(self) -> bool:
        return self.exit_code == 0 and self.failed == 0 and self.passed > 0


def layer_of(directory: Path) -> str:
    """The layer of a directory of `tests`."""
    if directory.name in PURE:
        return "pure"
    if directory.name in CONNECTORS:
        return "connectors"
    return "spark" if directory.name in SPARK else "processes"


def paths_of(layer: str) -> list[str]:
    """Directories and files of a layer, relative to the project, in the order of their names."""
    directories = [d for d in sorted((ROOT / "tests").iterdir()) if any(d.glob("**/test_*.py"))]
    paths = [d for d in directories if layer_of(d) == layer]
    if layer == "pure":
        paths += sorted((ROOT / "tests").glob("test_*.py"))
    return [str(path.relative_to(ROOT)) for path in paths]


def parts_of(layer: str) -> dict[str, list[str]]:
    """What of a layer runs side by side: paths by the name of the part, as arguments of pytest."""
    beside = {name: f"{layer}-{part}" for part, names in BESIDE.items() for name in names}
    parts: dict[str, list[str]] = {layer: []}
    for path in paths_of(layer):
        parts.setdefault(beside.get(Path(path).name, layer), []).append(path)
        for name, part in beside.items():
            if name.startswith(f"{Path(path).name}/"):
                parts[layer].append(f"--ignore=tests/{name}")
                parts.setdefault(part, []).append(f"tests/{name}")
    # Without a path pytest would collect everything: a layer without tests has failed instead.
    return {name: paths for name, paths in parts.items() if paths}


@dataclass
class Part:
    """What one pytest runs; what it has printed and its report are in `build/test-NAME.*`. The moments are of the
    monotonic clock."""

    layer: str
    name: str
    paths: Sequence[str]
    exit_code: int = NOTHING_COLLECTED
    began_s: float = 0.0
    ended_s: float = 0.0

    @property
    def report(self) -> Path:
        return BUILD / f"test-{self.name}.xml"

    def run(self, arguments: Sequence[str]) -> None:
        """Runs its tests, and prints what they have printed when they have ended."""
        self.report.unlink(missing_ok=True)
        command = [sys.executable, "-m", "pytest", "--durations=5", f"--junitxml={self.report}"]
        command += ["-m", f"not {LONG}"] if self.layer == "connectors" else []
        log = self.report.with_suffix(".log")
        self.began_s = time.monotonic()
        with log.open("wb") as said:
            self.exit_code = subprocess.run(
                [*command, *arguments, *self.paths], cwd=ROOT, env={**os.environ, **KEPT},
                stdin=subprocess.DEVNULL, stdout=said, stderr=said, check=False,
            ).returncode  # fmt: skip
        self.ended_s = time.monotonic()
        text = log.read_text(errors="replace")
        print(f"== {self.name}: {self.ended_s - self.began_s:.0f} s\n{text}", flush=True)


class Making:
    """What a layer needs, being made or fetched; its words are in `build/NAME.log`."""

    def __init__(self, name: str, command: Sequence[str]) -> None:
        self._log = BUILD / f"{name}.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip

    def wait(self) -> None:
        """Until all is there that can be had, or `MAKING_S` have passed."""
        try:
            self._process.wait(MAKING_S)
        except subprocess.TimeoutExpired:
            pass

    def end(self) -> None:
        """Ends it with all that it has started, if it still runs; prints what was said."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        print(self._log.read_text(errors="replace"), end="", flush=True)


def run_layers(chosen: Sequence[str], arguments: Sequence[str]) -> list[LayerResult]:
    """Runs the parts of layers in their order, `AT_ONCE` at a time; what each layer came to."""
    layers = [layer for layer in LAYERS if layer in chosen]
    needed = {name for layer in layers for name in NEEDS.get(layer, ())}
    making = {name: Making(name, BEFOREHAND[name]) for name in sorted(needed)}
    parts = [
        Part(layer, name, paths) for layer in layers for name, paths in parts_of(layer).items()
    ]

    def run(part: Part) -> None:
        for name in NEEDS.get(part.layer, ()):
            making[name].wait()
        part.run(arguments)

    try:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(run, parts))
    finally:
        for each in making.values():
            each.end()
    return [result_of(layer, [part for part in parts if part.layer == layer]) for layer in layers]


def result_of(layer: str, parts: Sequence[Part]) -> LayerResult:
    """What a layer came to by its parts."""
    began_s, ended_s = min(part.began_s for part in parts), max(part.ended_s for part in parts)
    exit_code = worst([part.exit_code for part in parts])
    result = counted(layer, exit_code, ended_s - began_s, *(part.report for part in parts))
    print(f"== {layer}: {result.seconds:.0f} s, {result.passed} passed", flush=True)
    return result


def worst(exit_codes: Sequence[int]) -> int:
    """Of the parts of a layer. That one of them had nothing to run is no failure of the others."""
    ran = [code for code in exit_codes if code != NOTHING_COLLECTED]
    return max(ran, key=abs) if ran else NOTHING_COLLECTED


def counted(layer: str, exit_code: int, seconds: float, *reports: Path) -> LayerResult:
    """Reads counts and times from pytest's reports; errors outside of tests count as failed."""
    tests = failed = skipped = 0
    times: dict[str, float] = defaultdict(float)
    for report in filter(Path.exists, reports):
        for suite in ElementTree.parse(report).getroot().iter("testsuite"):
            tests += int(suite.get("tests", 0))
            failed += int(suite.get("failures", 0)) + int(suite.get("errors", 0))
            skipped += int(suite.get("skipped", 0))
            for case in suite.iter("testcase"):
                times[".".join(case.get("classname", "").split(".")[:2])] += float(
                    case.get("time", 0)
                )
    passed = max(0, tests - failed - skipped)
    longest = sorted(times, key=lambda name: times[name], reverse=True)
    directories = {name: round(times[name], 1) for name in longest}
    return LayerResult(layer, exit_code, passed, failed, skipped, round(seconds, 1), directories)


def main(arguments: Sequence[str]) -> int:
    """Runs the layers named, or all; returns the exit code."""
    split = arguments.index("--") if "--" in arguments else len(arguments)
    chosen = tuple(arguments[:split]) or LAYERS
    unknown = [name for name in chosen if name not in LAYERS]
    if unknown:
        print(f"test: no layer {unknown[0]!r}; layers are {', '.join(LAYERS)}", file=sys.stderr)
        return 2
    BUILD.mkdir(exist_ok=True)
    began_s = time.monotonic()
    results = run_layers(chosen, arguments[split + 1 :])
    shown: dict[str, object] = {
        "passed": sum(result.passed for result in results),
        "failed": sum(result.failed for result in results),
        "skipped": sum(result.skipped for result in results),
        "seconds": round(time.monotonic() - began_s),
        **{f"{result.name}_s": round(result.seconds) for result in results},
    }
    broken = [result.name for result in results if not result.ok]
    if broken:
        shown["layers"] = ",".join(broken)
    details = {"by_layer": [asdict(result) for result in results]}
    return finish("test", ok=not broken, shown=shown, details=details)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
