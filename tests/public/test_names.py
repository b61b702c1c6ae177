"""The public face: its names are pinned, each is there, and users are shown no other way in."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

import lowmark
from tests.docs.pages import ROOT, blocks, pages

NAMES = [
    "DEFAULT_SLACK_NS", "FOREVER", "HIGHEST_SLOT", "LOWEST_SLOT", "ROCKSDB", "Admin", "Applied",
    "AsyncSubscriber", "Barrier", "BarrierCounts", "Batch", "BatchWriter", "BrokerAwayError",
    "BufferFullError", "CauseKind", "Cells", "ClosedError", "CommittedFiles", "CompletedReader",
    "Credentials", "CredentialsError", "DeltaSink", "Edge", "EmbeddedTracker", "EventTime", "Explanation",
    "FencedError", "FileFront", "FileGroup", "FilesIn", "FollowerLimits", "ForeignPositionError",
    "Front", "FrontFailedError", "FrontFullError", "FrontPolicy", "FrontStateError", "Grant",
    "Heartbeat", "HeldFor", "Hold", "HoldMove", "Joined", "KafkaFront", "KafkaGroup", "KafkaSink", "KafkaTopic",
    "Label", "Labels", "LateItemError", "LateRow", "LateRowsError", "LowmarkError", "NodeClient",
    "NotDeliveredError", "NotPublishedError", "NotYetPublished", "Notificator", "OffsetRanges",
    "OpenBatch", "OrderedSink", "Outcome", "PartitionGroup", "Period", "PeriodFollower", "Periods",
    "PipelineDescription", "PipelineFileError", "PipelineInfo", "PipelineSpec", "Position",
    "PostgresSink", "ProgressListener", "PublishedBatch", "PublishedFile", "PublishedRanges", "RangeFront", "Reached",
    "RefusalCode", "RefusedByReceiverError", "RefusedError", "Released", "ReorderBuffer", "RescaleError",
    "Rescaled", "RolledBackError", "Rounds", "RoundsExceededError", "RoutingInfo", "RowError",
    "RowReader", "Run", "Runs", "SecureTarget", "SegmentGraph", "ShardInfo", "ShardRole", "SilentFront",
    "SinkAwayError", "SinkError", "SinkFencedError", "SinkRefusedError", "SparkFront", "SqliteSink",
    "StateError", "Subscriber", "TableAsOf", "Taken", "TickContent", "TickRefusedError", "TimeKind",
    "TopicEnds", "TopicError", "Tracked", "TrackedQuery", "TrackingError", "UnavailableError", "Unit",
    "Update", "WaitCause", "WaitKind", "Waited", "Webhook", "__version__", "acks", "add_delay",
    "child_value", "child_values", "embedded", "file_name", "free_ports", "history", "load_pipeline", "note_commit",
    "offset_value", "otel", "parse_file_name", "range_value", "rescale_query", "root_value", "root_values",
    "signing", "slot_in_name", "slot_of", "slot_of_timestamp", "slot_start_ns", "slot_time",
    "slot_until", "string_key", "subtract_delay", "topic_ranges", "unit_name", "unit_value",
    "wait_complete", "write_durably",
]  # fmt: skip
"""A name that is taken away, or renamed, breaks programs of others: keep it for a release."""

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


def test_the_names_are_these() -> None:
    assert sorted(lowmark.__all__) == sorted(NAMES)
    assert set(NAMES) <= set(dir(lowmark))


@pytest.mark.parametrize("name", NAMES)
def test_each_name_is_there(name: str) -> None:
    assert getattr(lowmark, name) is not None


def test_another_name_is_not_there() -> None:
    with pytest.raises(AttributeError, match="'lowmark' has no attribute 'no_such_name'"):
        getattr(lowmark, "no_such_" + "name")
    with pytest.raises(ImportError, match="no_such_name"):
        exec("from lowmark import no_such_name")


def test_type_checkers_see_the_same_names_in_the_same_modules() -> None:
    source = Path(lowmark.__file__).read_text()
    seen = {
        alias.name: node.module
        for node in _imports(source)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if (node.module or "").split(".")[0] in OURS
    }
    resolved = dict(lowmark._MODULE_OF)
    resolved |= {name: module.rpartition(".")[0] for name, module in lowmark._MODULES.items()}
    assert seen == resolved
    assert set(seen) == set(NAMES)


@pytest.mark.parametrize("package", ["tracker", "tracker.client"])
def test_what_a_package_offers_is_there(package: str) -> None:
    assert set(importlib.import_module(package).__all__) <= set(NAMES)


def test_pages_and_examples_use_the_public_face_alone() -> None:
    programs = _shown_programs()
    for where, text in programs:
        inside = {m for m in _imported_modules(text) if m.split(".")[0] in OURS}
        assert not inside, f"{where} imports {inside}: import from lowmark"
    assert sum("lowmark" in _imported_modules(text) for _, text in programs) > 20
