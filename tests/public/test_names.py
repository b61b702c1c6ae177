"""The public face: its names are pinned, each is there, and users are shown no other way in."""

from __future__ import annotations

import ast
import importlib
import os
import py_compile
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import lowmark
from lowmark._face import declared
from tests.docs.pages import ROOT, blocks, pages
from tests.waits import HANG_S

NAMES = {
    "": (
        "Admin AsyncSubscriber Barrier CompletedReader Credentials Edge FOREVER FileFront "
        "KafkaFront LowmarkError Outcome Periods PipelineSpec RangeFront Runs SecureTarget "
        "Subscriber Tracked TrackedQuery Update Waited __version__ acks embedded history "
        "load_pipeline slot_of wait_complete"
    ),
    "admin": (
        "Applied CauseKind Explanation FrontPolicy GroupInfo NodeInfo NodeList NodeState PipelineDescription PipelineInfo "
        "Reached RefusalCode RoutingInfo ShardInfo ShardRole SilentFront TimeKind WaitCause WaitKind"
    ),
    "barrier": (
        "BarrierCounts BarrierOptions DeltaSink FilesIn KafkaSink LateRow OrderedSink Position PostgresSink "
        "Released ReorderBuffer RowReader SqliteSink"
    ),
    "errors": (
        "ClosedError Code FencedError FilesError HandOverError InvalidError LateError NotPublishedError RefusedError "
        "StateError TrackingError UnavailableError"
    ),
    "fronts": (
        "FileGroup Front FrontOptions KafkaGroup KafkaTopic Label Labels OpenBatch PartitionGroup PublishedBatch "
        "PublishedFile SparkFront TopicEnds"
    ),
    "nodes": (
        "Batch Cells DEFAULT_SLACK_NS Grant HIGHEST_SLOT Heartbeat Hold HoldMove Joined LOWEST_SLOT "
        "NodeClient Rounds RoundsExceededError SegmentGraph TickContent Unit add_delay child_value child_values "
        "file_name offset_value parse_file_name range_value root_value root_values slot_in_name "
        "slot_start_ns slot_time slot_until string_key subtract_delay unit_name unit_value"
    ),
    "periods": ("Action Notificator Period Run Webhook otel signing write_durably"),
    "spark": (
        "BatchWriter CommittedFiles EventTime HeldFor OffsetRanges ProgressListener "
        "PublishedRanges ROCKSDB Rescaled TableAsOf Taken TrackingOptions note_commit progress register "
        "rescale_query slot_of_timestamp topic_ranges"
    ),
    "testing": (
        "EmbeddedTracker HandFront HandItem ManualClock Moment assert_complete assert_nothing_lost free_ports "
        "kill_and_restart"
    ),
}
"""By module of the public face (`""` is `lowmark` itself) its names. Who takes one away, or renames it, breaks programs
of others."""
MOST_AT_THE_TOP = 40
"""Names that one meets first, and so reads through."""

OURS = {"tracker", "local_tracker", "fronts", "acker"}


def _imports(text: str) -> list[ast.Import | ast.ImportFrom]:
    nodes = ast.walk(ast.parse(text))
    return [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]


def _imported_modules(text: str) -> set[str]:
    found = _imports(text)
    plain = {alias.name for node in found if isinstance(node, ast.Import) for alias in node.names}
    return plain | {node.module or "" for node in found if isinstance(node, ast.ImportFrom)}


def _shown_programs() -> list[tuple[str, str]]:
    """What users read: the Python of all pages, and the examples."""
    shown = [
        (block.page, block.text)
        for page in pages()
        for block in blocks(page)
        if block.info.split(" ")[0] == "python"
    ]
    files = sorted((ROOT / "examples").rglob("*.py"))
    return shown + [(str(file.relative_to(ROOT)), file.read_text()) for file in files]


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"lowmark.{name}" if name else "lowmark")


@pytest.mark.parametrize("module", NAMES)
def test_the_names_are_these_and_each_is_there(module: str) -> None:
    face = _module(module)
    assert sorted(face.__all__) == sorted(NAMES[module].split())
    assert set(face.__all__) <= set(dir(face))
    for name in face.__all__:
        assert getattr(face, name) is not None, name


def test_a_name_is_declared_once() -> None:
    names = [name for module in NAMES.values() for name in module.split()]
    assert len(names) == len(set(names))
    assert len(NAMES[""].split()) <= MOST_AT_THE_TOP


def test_a_module_of_the_face_holds_nothing_but_names() -> None:
    folder = Path(lowmark.__file__).parent
    modules = {file.stem for file in folder.glob("*.py") if declared(file.read_text())}
    assert modules == {name or "__init__" for name in NAMES}
    for name in modules:
        statements = ast.parse((folder / f"{name}.py").read_text()).body
        assert not any(isinstance(each, ast.FunctionDef | ast.ClassDef) for each in statements)


def test_another_name_is_not_there() -> None:
    with pytest.raises(AttributeError, match="'lowmark' has no attribute 'no_such_name'"):
        getattr(lowmark, "no_such_" + "name")
    with pytest.raises(ImportError, match="no_such_name"):
        exec("from lowmark.nodes import no_such_name")


def test_without_its_source_a_module_of_the_face_says_what_to_do(tmp_path: Path) -> None:
    for file in Path(lowmark.__file__).parent.glob("*.py"):
        py_compile.compile(str(file), str(tmp_path / "lowmark" / f"{file.stem}.pyc"), doraise=True)
    done = subprocess.run(
        [sys.executable, "-P", "-c", "import lowmark"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)}, check=False, capture_output=True, text=True, timeout=HANG_S,
    )  # fmt: skip
    assert "the source of lowmark is not there: install lowmark whole" in done.stderr


@pytest.mark.parametrize("package", ["tracker", "tracker.client"])
def test_what_a_package_offers_is_there(package: str) -> None:
    offered = {name for module in NAMES.values() for name in module.split()}
    assert set(importlib.import_module(package).__all__) <= offered


def test_pages_and_examples_use_the_public_face_alone() -> None:
    programs = _shown_programs()
    for where, text in programs:
        inside = {m for m in _imported_modules(text) if m.split(".")[0] in OURS}
        assert not inside, f"{where} imports {inside}: import from lowmark"
    uses = [{m.split(".")[0] for m in _imported_modules(text)} for _, text in programs]
    assert sum("lowmark" in used for used in uses) > 20
