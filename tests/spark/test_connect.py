"""What is read of a query in a Spark Connect session, by the messages of its client; row 6.20 of the matrix
runs such a session."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql.connect.proto import Relation, WriteStreamOperationStart

from local_tracker.spark.formats.interface import QueryReads, Source
from local_tracker.spark.query.plans import Routes
from local_tracker.spark.query.starting import check_started
from local_tracker.spark.session import connect
from local_tracker.spark.state.rules import StateKind, StatePlan
from tracker.core.model import PipelineSpec
from tracker.errors import TrackingError


def stream(*paths: str, fmt: str = "parquet", name: str = "") -> Relation:
    relation = Relation()
    relation.read.is_streaming = True
    relation.read.data_source.format = fmt
    relation.read.data_source.paths.extend(paths)
    if name:
        relation.read.data_source.source_name = name
    return relation


def union(left: Relation, right: Relation) -> Relation:
    relation = Relation()
    relation.set_op.left_input.CopyFrom(left)
    relation.set_op.right_input.CopyFrom(right)
    return relation


class Writer:
    """As the client's, of which a plan and a message are read."""

    def __init__(self, plan: Relation, mode: str = "", **settings: str) -> None:
        self._write_proto = WriteStreamOperationStart(output_mode=mode)
        self._write_proto.options.update(settings)
        self._write_stream, self._child, self._session = self, self, self
        self._plan, self.client, self.conf = plan, None, {"spark.sql.sources.default": "orc"}
        self.isStreaming = True  # of the one table that the session has
        self.catalog, self.tableType = self, "TEMPORARY"

    def getTable(self, name: str) -> Writer:
        if not self.tableType:
            raise AnalysisException(f"no table {name}")
        return self

    def table(self, name: str) -> Writer:
        return self

    def plan(self, client: object) -> Relation:
        return self._plan


def planned(plan: Relation, **settings: str) -> Any:
    return connect.planned_query(Writer(plan, **settings))


def test_sources_are_numbered_in_the_order_of_the_plan() -> None:
    plan = union(stream("/in"), union(stream(fmt="rate"), stream("/b", fmt="json", name="mine")))
    assert planned(plan).sources == (
        Source("0", "FileSource[/in]", "/in"),
        Source("1", "rate"),
        Source("mine", "FileSource[/b]", "/b"),
    )


def test_sources_that_list_one_directory_are_told_by_the_message() -> None:
    """They must take the same files in each batch, and no JVM can be asked which ones list what."""
    one, other = stream("/in/", name="mine"), stream("/in")
    other.read.data_source.options["latestFirst"] = "true"
    read = planned(union(union(one, stream("/b")), union(other, stream(fmt="rate"))))
    reads = QueryReads("parse", ["3"])
    routes = Routes(PipelineSpec("p", ("parse",)), reads, (), "parse", plan=read.sources)
    assert routes.lists is not None and list(routes.lists) == ["mine", "1", "2"]
    assert routes.reads_too("2", "mine", "hdfs://host/in/a")
    assert not routes.reads_too("1", "mine", "hdfs://host/in/a")


def test_what_does_not_stream_is_no_source() -> None:
    table = stream("/table")
    table.read.is_streaming = False
    assert planned(union(stream("/in"), table)).sources == (Source("0", "FileSource[/in]", "/in"),)


def test_sources_that_the_message_does_not_show_are_not_guessed() -> None:
    named, sql = Relation(), Relation()
    named.read.named_table.unparsed_identifier = "view"
    sql.sql.query = "select * from view"
    for unclear in (named, sql, stream("/in")):  # Spark may take two that are alike for one
        assert planned(union(stream("/in"), unclear)).sources is None


def state_of(plan: Relation, mode: str = "") -> StatePlan:
    writer = Writer(plan, mode)
    state = connect.planned_query(writer).state
    assert state is not None
    return state


def above(kind: str, *inputs: Relation) -> Relation:
    """A relation of a kind, of one or two others."""
    relation = Relation()
    made = getattr(relation, kind)
    for name, given in zip(("left", "right") if inputs[1:] else ("input",), inputs, strict=True):
        getattr(made, name).CopyFrom(given)
    return relation


def test_what_emits_at_once_is_known_by_the_message() -> None:
    table = stream("/table")
    table.read.is_streaming = False
    rows = above("with_watermark", above("project", above("filter", stream("/in"))))
    for plan in (
        rows,
        above("deduplicate", rows),
        above("join", rows, table),
        union(rows, stream("/b")),
    ):
        assert state_of(plan).kind is StateKind.NOTHING
    assert state_of(above("aggregate", rows), "update").kind is StateKind.NOTHING
    assert state_of(above("group_map", rows)).kind is StateKind.NOTHING


def test_what_only_the_analysed_plan_would_tell_is_not_understood() -> None:
    sql, view = Relation(), Relation()
    sql.sql.query = "SELECT * FROM view"
    view.read.named_table.unparsed_identifier = "view"
    known = {
        "aggregate": above("project", above("aggregate", stream("/in"))),
        "join": above("join", stream("/a"), stream("/b")),
        "sql": sql,
        "read": above("filter", view),
        "None": Relation(),
    }
    for kind, plan in known.items():
        state = state_of(plan)
        assert state.kind is StateKind.UNKNOWN
        assert state.what.startswith(f"{kind} in a Spark Connect session")
    assert state_of(known["join"], "update").kind is StateKind.UNKNOWN


def test_a_stream_of_a_table_may_be_a_view_whose_plan_is_not_seen() -> None:
    view = Relation()
    view.read.named_table.unparsed_identifier = "w"
    view.read.is_streaming = True
    writer = Writer(above("filter", view))
    for said, kind in {
        "TEMPORARY": StateKind.UNKNOWN,
        "": StateKind.UNKNOWN,  # it does not know
        "MANAGED": StateKind.NOTHING,
        "EXTERNAL": StateKind.NOTHING,
    }.items():
        writer.tableType = said
        state = connect.planned_query(writer).state
        assert state is not None and state.kind is kind, said


def test_a_job_over_what_the_server_has_cached_or_checkpointed_is_refused() -> None:
    class Frame:
        text = "Relation [slot] parquet"

        def _explain_string(self, *, extended: bool) -> str:
            return (
                f"== Optimized Logical Plan ==\nUnion false, false\n:- {self.text}\n+- Range (0, 3)"
            )

        def inputFiles(self) -> list[str]:
            return ["file:///in/a"]

    frame = Frame()
    assert connect.job_files(frame, "days", ()) == ["file:///in/a"]
    for frame.text, said in {
        "InMemoryRelation [slot], StorageLevel": "'days' reads what the session has cached",
        "LogicalRDD [slot]": "'days' reads LogicalRDD",
    }.items():
        with pytest.raises(TrackingError, match=said):
            connect.job_files(frame, "days", ["InMemoryRelation"])
    assert connect.job_files(frame, "days", ["LogicalRDD"]) == ["file:///in/a"]


def test_functions_with_state_are_not_understood() -> None:
    """Nobody here could see when their state is empty."""
    with_timers = above("group_map", stream("/in"))
    with_timers.group_map.timeout_conf = "EventTimeTimeout"
    for plan in (with_timers, above("apply_in_pandas_with_state", stream("/in"))):
        assert state_of(plan).kind is StateKind.UNKNOWN
        assert not state_of(plan).by_clock
    of_pandas = above("apply_in_pandas_with_state", stream("/in"))
    of_pandas.apply_in_pandas_with_state.timeout_conf = "ProcessingTimeTimeout"
    assert state_of(of_pandas).by_clock
    with_timers.group_map.timeout_conf = "ProcessingTimeTimeout"
    assert state_of(with_timers).by_clock
    with_timers.group_map.ClearField("timeout_conf")
    with_timers.group_map.transform_with_state_info.time_mode = "ProcessingTime"
    assert state_of(with_timers).by_clock


def test_where_a_query_writes_and_keeps_its_checkpoint() -> None:
    query = planned(stream("/in"), path="/out", checkpointLocation="/cp")
    assert (query.sink, query.path, query.checkpoint) == ("orc", "/out", "/cp")
    assert connect.sink_description(query) == "FileSink[/out]"
    assert planned(stream("/in")).checkpoint is None


def test_a_query_of_another_checkpoint_than_the_one_seen_here_is_refused() -> None:
    class Query:
        id = "theirs"

    with pytest.raises(
        TrackingError, match=r"Spark has started the query as theirs.*/cp is of ours"
    ):
        check_started(Query(), "ours", "/cp")
    Query.id = "ours"
    check_started(Query(), "ours", "/cp")


def test_a_query_that_cannot_be_asked_is_followed_on() -> None:
    class Query:
        id = "q"
        running = True

        @property
        def isActive(self) -> bool:
            if self.running:
                return True
            raise ConnectionError

    query = Query()
    assert connect.is_running(query)
    query.running = False
    assert connect.is_running(query)
