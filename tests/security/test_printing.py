"""No name reaches a terminal as a command: what cannot be printed is refused where it enters, and what is
stored already, or said by a tracker that is not to be trusted, is escaped where it is printed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from rich.table import Table
from rich.text import Text
from typer.testing import CliRunner

from tests.client.support import TWO_SEGMENTS, create, done
from tests.core.driver import Cluster, HandNode, refused
from tests.core.test_waits import a_query, say, told
from tests.waits import HANG_S
from tracker.cli.app import app
from tracker.cli.render.terminal import Terminal
from tracker.client import NodeClient
from tracker.client.embedded import EmbeddedTracker, embedded
from tracker.core.home.home import HomePipeline
from tracker.core.log import KeyOpened, StageContributions
from tracker.core.model import (
    Batch,
    Cells,
    Edge,
    NodeKey,
    PipelineSpec,
    RefusalCode,
    StagedContribution,
    Unit,
)
from tracker.core.model.names import printable
from tracker.core.model.waits import WaitCause, WaitKind
from tracker.service.run import configure_logging
from tracker.view.printing import as_printable

SPEC = PipelineSpec("p", ("read", "wrote"), (Edge("read", "wrote"),), open=True)
HOSTILE = {
    "escape": "a\x1b[2Jb",
    "newline": "a\nlowmark: all is well",
    "nul": "a\x00b",
    "c1": "a\x9b31mb",
    "bidi": "a\u202egpj.exe",
    "line separator": "a\u2028b",
}
hostile = pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE.keys())


def started() -> tuple[Cluster, HandNode]:
    cluster = Cluster(1)
    cluster.register(SPEC)
    return cluster, cluster.front(SPEC, "front", f=0)


def is_refused(answer: Any, what: str) -> None:
    refused(answer, RefusalCode.INVALID, what, "cannot be printed")


# --- what enters ----------------------------------------------------------------------------------


@hostile
def test_a_node_does_not_join_under_such_a_name(name: str) -> None:
    cluster, _ = started()
    is_refused(cluster.join(name), "node ")
    is_refused(cluster.join("w", kind=name), "kind or owner")
    is_refused(cluster.join("w", owner=name), "kind or owner")


@hostile
def test_a_tick_brings_in_no_such_name_and_its_number_stays_free(name: str) -> None:
    _, node = started()
    unit = Unit(0, f"file:///{name}", 5)
    is_refused(node.refused(created=[(0, 5, 7)], units_created=[unit]), "unit ")
    is_refused(node.refused(created=[(0, 5, 7)], units_consumed=[unit]), "unit ")
    is_refused(node.refused(joins={name: 0}), "front ")
    is_refused(node.refused(batch=Batch(name, 1, b"")), "scope ")
    is_refused(node.refused(created=[(0, 5, 7)], holds={name: (0, 5)}), "hold ")
    node.commit(created=[(0, 5, 7)])


@hostile
def test_nothing_is_staged_under_such_a_name(name: str) -> None:
    cluster, _ = started()
    for names in ((name, "run", "op"), ("query", name, "op"), ("query", "run", name)):
        query, run, operator = names
        staged = StagedContribution(
            query, run, 1, 0, operator, 0, 0, 0, Cells.empty(), Cells.of([(0, 5, 7, 1)])
        )
        is_refused(
            cluster.ask_home("front", StageContributions, (staged,)), "query, run or operator"
        )


@hostile
def test_why_a_node_waits_is_escaped_since_it_is_a_text_and_no_name(name: str) -> None:
    _, query = a_query()
    say(query, WaitCause(WaitKind.OTHER, f"file {name}"))
    (wait,) = told(query).waits
    assert wait.text == f"file {printable(name)}" and wait.text.isprintable()


@pytest.mark.parametrize(
    "name", ["Größe", "日本語", "ملف‌ها", "👩‍🚀", "b\u200f", "a b", "new\U0003fffd"]
)
def test_files_may_be_called_what_people_call_them(name: str) -> None:
    _, node = started()
    node.commit(created=[(0, 5, 7)], units_created=[Unit(0, f"file:///{name}", 5)])


def test_what_is_stored_already_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node and a unit that an older version let in: the node joins again, the unit is consumed."""
    cluster, front = started()
    name = HOSTILE["escape"]
    with monkeypatch.context() as older:
        older.setattr(HomePipeline, "check_printable", lambda *_: None)
        older_node = cluster.node(SPEC, name)
        front.commit(created=[(0, 5, 7)], units_created=[Unit(0, f"file:///{name}", 5)])
    assert isinstance(older_node.key, NodeKey)
    again = cluster.node(SPEC, name)
    again.commit(consumed=[(0, 5, 7)], units_consumed=[Unit(0, f"file:///{name}", 5)])
    assert sum(entry.key.node_id == name for entry in cluster.logged(KeyOpened)) == 2


# --- what is printed ------------------------------------------------------------------------------


@pytest.fixture
def older(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedTracker]:
    """A tracker in which hostile names are stored."""
    monkeypatch.setattr(HomePipeline, "check_printable", lambda *_: None)
    with embedded() as running:
        running.register(TWO_SEGMENTS)
        with NodeClient(running.target, "two", NODE) as node:
            node.join(HANG_S)
            node.join_front(FRONT, "first", HANG_S)
            done(node.commit(create(5, 7)))
            yield running


NODE = "n\x1b]0;owned\x07\n  everything is complete"
FRONT = "[bold]f[/nope]\x1b[31m\nlowmark: done"


@pytest.mark.parametrize(
    "words",
    [
        ("explain", "-p", "two"), ("status",), ("watch", "-p", "two", "--once"),
        ("nodes", "list", "-p", "two"), ("nodes", "retire", NODE, "-p", "two", "--yes"),
        ("nodes", "retire", NODE + "?", "-p", "two", "--yes"), ("status", "--freshness", "-p", "two"),
    ],
    ids=lambda words: "-".join(words[:2]),
)  # fmt: skip
def test_a_stored_name_commands_no_terminal_and_makes_no_line(
    older: EmbeddedTracker, words: tuple[str, ...]
) -> None:
    shown = CliRunner().invoke(app, words, env={"LOWMARK_TARGET": older.target, "COLUMNS": "200"})
    assert shown.exception is None or isinstance(shown.exception, SystemExit)
    for text in (shown.stdout, shown.stderr):
        assert printable(text, lines=True) == text
        for line in text.splitlines():
            assert not line.lstrip().startswith(("everything is complete", "lowmark: done"))
    if words[0] == "explain":
        assert r"n\x1b]0;owned\x07\n  everything is complete" in shown.stdout


def test_a_name_is_no_markup_and_a_style_is_not_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("front")
    table.add_row("[bold]f[/nope] :smile:\x1b[31m")
    terminal = Terminal(force_terminal=True, color_system="standard", width=60)
    terminal.print(table)
    terminal.print(Text("late\x1b[2J", "red"))
    shown = capsys.readouterr().out
    assert r"[bold]f[/nope] :smile:\x1b[31m" in shown
    assert "\x1b[31mlate\\x1b[2J\x1b[0m" in shown, "rich's own colour, and no other"


def test_data_are_made_printable_however_deep_they_lie() -> None:
    unit = Unit(0, "file:///\x1b", 5)
    assert as_printable("\ud800") == r"\ud800", (
        "of no message, but of a file name that cannot be decoded"
    )
    made = as_printable({"\x07": [(unit, 3, None)], "b": SPEC})
    assert made == {r"\x07": [(Unit(0, r"file:///\x1b", 5), 3, None)], "b": SPEC}
    assert made["b"] is SPEC, "what needs no change is not copied"


def test_a_log_on_a_terminal_shows_what_was_said_and_obeys_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = structlog.get_config()
    try:
        configure_logging(as_json=False)
        structlog.get_logger().warning("call_refused", who="x\x1b[2J", why="a\nforged line")
    finally:
        structlog.configure(**before)
    said = capsys.readouterr().err
    assert r"x\x1b[2J" in said and "\x1b[2J" not in said and len(said.splitlines()) == 1
