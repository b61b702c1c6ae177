"""Runs the tests layer by layer: what needs no process first, then processes, then Spark, then brokers
and stores.

    python -m scripts.test [LAYER ...] [-- PYTEST ARGUMENTS]

Every directory of `tests` belongs to one layer: those named below to theirs, every other one to
`processes`, so that a new directory can't be forgotten. A layer that runs no test has failed. A layer
that fails does not keep the next ones from running. Parts of a layer run beside each other, each in a
pytest of its own. Each layer's time is told, and kept in `build/test.json` with that of each of its
directories.
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
from dataclasses import asdict, dataclass, field
from pathlib import Path

from scripts.summary import BUILD, ROOT, finish

PURE = ("core", "model", "simulation", "mutations", "scenarios", "check", "fuzz")
SPARK = ("spark", "spark_matrix", "examples")
CONNECTORS = ("connectors",)
BESIDE = {
    "inputs": ("core", "fuzz"),
    "clients": ("client", "consumers", "dashboard", "dev", "docs", "explain", "public"),
    "systems": ("chart", "faults", "processes"),
    "matrix": ("spark_matrix",),
    "rows": ("connectors/test_quick.py",),
}
"""By the name of a part, directories and files of `tests` that run beside the rest of their layer. The parts of a layer take
about as long as each other; they are more than there are cores where tests wait more than they compute."""
LAYERS = ("pure", "processes", "spark", "connectors")
LONG = "long"
"""Marks tests of connectors that `make connectors` runs; here is no time for them."""
FETCHER = ("nice", sys.executable, "-m", "tests.connectors.parts")
"""Fetches what the layer of connectors needs, while the layers before it run. What can't be had it says,
and the tests that need it are skipped."""
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


def run_layer(layer: str, arguments: Sequence[str]) -> LayerResult:
    """Runs one layer; its first part prints as it goes, what another has printed comes in the end."""
    parts, start = parts_of(layer), time.monotonic()
    print(f"== {layer}: {' '.join(path for paths in parts.values() for path in paths)}", flush=True)
    reports = [BUILD / f"test-{name}.xml" for name in parts]
    running: list[subprocess.Popen[bytes]] = []
    for (name, paths), report in zip(parts.items(), reports, strict=True):
        report.unlink(missing_ok=True)
        command = [sys.executable, "-m", "pytest", "--durations=5", f"--junitxml={report}"]
        command += ["-m", f"not {LONG}"] if layer == "connectors" else []
        with (BUILD / f"test-{name}.log").open("wb") as log:
            said = log if running else None
            running.append(subprocess.Popen([*command, *arguments, *paths], cwd=ROOT, stdout=said))
    exit_codes = [process.wait() for process in running]
    for name in list(parts)[1:]:
        print((BUILD / f"test-{name}.log").read_text(errors="replace"), flush=True)
    exit_code = worst(exit_codes)
    result = counted(layer, exit_code, time.monotonic() - start, *reports)
    print(f"== {layer}: {result.seconds:.0f} s, {result.passed} passed", flush=True)
    return result


class Fetching:
    """What the layer of connectors needs, being fetched; its words are in `build/parts.log`."""

    def __init__(self, command: Sequence[str] = FETCHER) -> None:
        self._log = BUILD / "parts.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip

    def wait(self) -> None:
        """Until all is there that can be had; prints what was said."""
        self._process.wait()
        print(self._log.read_text(errors="replace"), end="", flush=True)

    def end(self) -> None:
        """Ends it with all that it has started, if it still runs."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def run_layers(chosen: Sequence[str], arguments: Sequence[str]) -> list[LayerResult]:
    """Runs layers one after the other."""
    fetching = Fetching() if "connectors" in chosen else None
    results = []
    try:
        for layer in chosen:
            if fetching is not None and layer == "connectors":
                fetching.wait()
            results.append(run_layer(layer, arguments))
    finally:
        if fetching is not None:
            fetching.end()
    return results


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
    results = run_layers(chosen, arguments[split + 1 :])
    shown: dict[str, object] = {
        "passed": sum(result.passed for result in results),
        "failed": sum(result.failed for result in results),
        "skipped": sum(result.skipped for result in results),
        "seconds": round(sum(result.seconds for result in results)),
        **{f"{result.name}_s": round(result.seconds) for result in results},
    }
    broken = [result.name for result in results if not result.ok]
    if broken:
        shown["layers"] = ",".join(broken)
    details = {"by_layer": [asdict(result) for result in results]}
    return finish("test", ok=not broken, shown=shown, details=details)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
