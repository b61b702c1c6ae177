"""docs/consumers.md and its reference: their programs run as they stand there, on a real tracker."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import tracker
from fronts.files import FileFront
from fronts.front import FrontOptions
from tests.consumers.barrier.shown import KEYS, run_shown
from tests.docs.pages import ROOT, blocks, table_rows
from tests.waits import HANG_S, until
from tracker.cli import common
from tracker.cli.app import app
from tracker.client.embedded import EmbeddedTracker
from tracker.client.history import history
from tracker.client.pipeline_file import load_pipeline
from tracker.consumers.barrier.sqlite import ordered_rows
from tracker.consumers.periods.follow import Periods
from tracker.consumers.periods.signing import new_secret
from tracker.consumers.periods.webhook import Webhook
from tracker.core.model import Cells, Edge, Heartbeat, PipelineSpec, TickContent
from tracker.core.model.ack_values import unit_value
from tracker.core.model.slots import DEFAULT_SLACK_NS, slot_of
from tracker.core.model.units import unit_name
from tracker.errors import StateError

PAGE = ROOT / "docs" / "consumers.md"
REFERENCE = ROOT / "docs" / "consumers-reference.md"
TEN = datetime(2026, 3, 1, 10, tzinfo=UTC)


def _program(info: str) -> str:
    (found,) = [b.text for page in (PAGE, REFERENCE) for b in blocks(page) if b.info == info]
    return found


def _slot(moment: datetime) -> int:
    return slot_of(int(moment.timestamp()) * 10**9, DEFAULT_SLACK_NS)


@pytest.fixture(scope="module")
def orders() -> Iterator[EmbeddedTracker]:
    """A pipeline that is complete up to ten o'clock, and whose only front has gone silent."""
    with tracker.embedded() as lowmark:
        lowmark.register(PipelineSpec("orders", ("load",), fronts=("shop",)))
        with lowmark.node("orders", "shop") as shop:
            shop.join(HANG_S)
            shop.join_front("shop", "load", HANG_S)
            shop.commit(TickContent(heartbeats=(Heartbeat("shop", _slot(TEN)),))).result(HANG_S)
            assert lowmark.subscriber("orders").wait_until(TEN, timeout_s=HANG_S)
            yield lowmark


def test_the_programs_are_short() -> None:
    lines = [line for line in _program("sh cron").splitlines() if line.strip()]
    assert len(lines) <= 20


def test_the_program_that_emits_at_a_time_runs() -> None:
    """Who reads its report hears of ten o'clock only when the report is done."""
    nine = _slot(TEN)
    with tracker.embedded() as lowmark:
        spec = PipelineSpec(
            "orders", ("load", "reports"), (Edge("load", "reports"),), fronts=("shop",)
        )
        lowmark.register(spec)
        shop = lowmark.node("orders", "shop")
        shop.join(HANG_S)
        shop.join_front("shop", "load", HANG_S)
        shop.commit(TickContent(heartbeats=(Heartbeat("shop", nine - 5),))).result(HANG_S)
        assert lowmark.subscriber("orders").wait_until(nine - 5, timeout_s=HANG_S)
        names: dict[str, Any] = {"target": lowmark.target, "nine": nine}
        program = threading.Thread(
            target=exec,
            args=(compile(_program("python emits"), "docs/consumers.md", "exec"), names),
        )
        program.start()
        subscriber = lowmark.subscriber("orders")
        until_held(lowmark)
        shop.commit(TickContent(heartbeats=(Heartbeat("shop", nine + 5),))).result(HANG_S)
        program.join(HANG_S)
        assert not program.is_alive()
        assert subscriber.wait_until(nine, "reports", HANG_S)
        assert subscriber.min_time("reports") == nine
        reader = lowmark.node("orders", "reader")
        reader.join(HANG_S)
        item = Cells.of([(1, nine, unit_value(f"report-{nine}"), 1)])
        reader.commit(TickContent(consumed=item)).result(HANG_S)
        assert subscriber.wait_until(nine + 5, "reports", HANG_S)
        reader.close()
        shop.close()


def until_held(lowmark: EmbeddedTracker) -> None:
    """Until the program's node holds its time."""
    with lowmark.admin() as admin:

        def held() -> bool:
            return any(n.hold_count for part in admin.explain("orders").parts for n in part.nodes)

        until(held, "nobody holds anything")


def test_the_table_tells_the_exit_statuses() -> None:
    shown = {int(row[0]) for row in table_rows(PAGE, "exit status")}
    known = {value for name, value in vars(common).items() if name.startswith("EXIT_")}
    assert shown == known | {0, 2}


def test_the_plain_program_runs(orders: EmbeddedTracker) -> None:
    (program,) = [b.text for b in blocks(PAGE) if b.info == "python" and "wait_complete" in b.text]
    names: dict[str, Any] = {"target": orders.target}
    exec(compile(program, "docs/consumers.md", "exec"), names)
    assert names["waited"].outcome is names["Outcome"].REACHED


@pytest.mark.parametrize(
    ("hour", "silent_after", "status", "told"),
    [
        ("2026-03-01T10:00", "10m", 0, "report 2026-03-01T10:00"),
        ("2100-01-01T00:00", "1s", 75, "will not be complete by themselves"),
    ],
)
def test_the_cron_job_runs(
    orders: EmbeddedTracker, tmp_path: Path, hour: str, silent_after: str, status: int, told: str
) -> None:
    def command(name: str, body: str) -> None:
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    command("date", f"echo {hour}")
    command("report-hour", 'echo report "$1"')
    command("notify-on-call", "cat")
    command("lowmark", f'exec {sys.executable} -m tracker.cli "$@"')
    job = tmp_path / "hourly.sh"
    job.write_text(_program("sh cron").replace("10m", silent_after))
    paths = [str(ROOT), str(ROOT / "proto")]
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(paths),
        "LOWMARK_TARGET": orders.target,
    }
    ran = subprocess.run(
        ["sh", str(job)],
        check=False,
        env=environment,
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    assert (ran.returncode, told in ran.stdout) == (status, True), ran


def test_the_programs_over_periods_run(
    orders: EmbeddedTracker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names: dict[str, Any] = {"target": orders.target, "record": tmp_path / "periods.json"}
    exec(compile(_program("python periods"), "docs/consumers.md", "exec"), names)
    hours = ["2026-03-01 08:00:00+00:00", "2026-03-01 09:00:00+00:00"]
    assert capsys.readouterr().out.splitlines() == [f"report {hour}" for hour in hours]
    names |= {"record": tmp_path / "reports.json", "reports": tmp_path}
    exec(compile(_program("python action"), "docs/consumers.md", "exec"), names)
    written = sorted(path.name for path in tmp_path.glob("*.txt"))
    assert written == ["2026-03-01T08.txt", "2026-03-01T09.txt"]


def test_the_notificator_runs_in_the_order_of_times(
    orders: EmbeddedTracker, capsys: pytest.CaptureFixture[str]
) -> None:
    exec(
        compile(_program("python callbacks"), "docs/consumers.md", "exec"),
        {"target": orders.target},
    )
    said = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in said] == ["up to eight", "up to nine"]


def test_the_reorder_buffer_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exec(
        compile(_program("python reorder"), "docs/consumers.md", "exec"),
        {"path": tmp_path / "buffer.db"},
    )
    assert capsys.readouterr().out == "[(0, b'first'), (1, b'second'), (2, b'third')]\n"


def test_the_barrier_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_shown("consumers-reference.md", "python barrier", tmp_path, database=tmp_path / "sink.db")
    assert capsys.readouterr().out == "3 rows\n"
    rows = ordered_rows(tmp_path / "sink.db", "orders-to-db")
    assert [row.key for row in rows] == KEYS


def test_the_receiver_of_a_webhook_runs(tmp_path: Path) -> None:
    secret_file = tmp_path / "secret"
    secret_file.write_text(new_secret() + "\n")
    taken: list[tuple[str, bytes]] = []
    names: dict[str, Any] = {
        "secret_file": str(secret_file), "take": lambda *message: taken.append(message),
    }  # fmt: skip
    program = _program("python webhook")
    assert "8080" in program
    exec(compile(program.replace("8080", "0"), "docs/consumers.md", "exec"), names)
    server = names["server"]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}/hours"
    try:
        Webhook(url, secret_file).deliver("msg_a", {"type": "test"})
        other = tmp_path / "other"
        other.write_text(new_secret())
        with pytest.raises(StateError, match="status 401"):
            Webhook(url, other).deliver("msg_b", {})
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert taken == [("msg_a", b'{"type":"test"}')]


def test_slots_may_be_numbers(tmp_path: Path) -> None:
    spec = load_pipeline(_program("yaml number"))
    with tracker.embedded() as lowmark:
        lowmark.register(spec)
        names: dict[str, Any] = {"target": lowmark.target, "path": tmp_path}
        exec(compile(_program("python number"), "docs/consumers.md", "exec"), names)
        (file,) = names["front"].published()
        assert file.slot == 17
        subscriber = lowmark.subscriber("versions")
        assert subscriber.wait_until(17, timeout_s=HANG_S), "the file is open"
        with lowmark.node("versions", "reader") as reader:
            reader.join(HANG_S)
            taken = Cells.of([(0, 17, unit_value(unit_name(str(file.path))), 1)])
            reader.commit(TickContent(consumed=taken)).result(HANG_S)
        names["front"] = FileFront(
            lowmark.target,
            "versions",
            "table",
            "load",
            tmp_path,
            format="json",
            options=FrontOptions(clock=lambda: 20),
        )
        with names["front"]:
            assert subscriber.wait_until(20, timeout_s=HANG_S)
            shown = CliRunner().invoke(
                app, ["wait", "-p", "versions", "--until", "slot:20", "--target", lowmark.target]
            )
            assert shown.stdout == "slot:20\n"
            (told,) = history(lowmark.target, "versions", [18])
            assert (told.reached, told.min_time) == (True, 20)
            with Periods(lowmark.target, "versions", None, "10", tmp_path / "r") as tens:
                keys = []
                for period in tens.completed(HANG_S):
                    keys.append(period.key)
                    tens.done(period)
                    if len(keys) == 2:
                        break
            assert keys == ["versions/*/0..10", "versions/*/10..20"]
