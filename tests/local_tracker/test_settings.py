"""Where a worker's settings come from."""

from __future__ import annotations

from local_tracker.agent.main import parse
from local_tracker.core.window import Flush
from local_tracker.worker.settings import load

OF_QUERY = {"lowmark.tls_ca": "/driver/ca", "lowmark.token_file": "/driver/token"}


def test_a_querys_credentials_are_for_hosts_that_have_none() -> None:
    assert load(OF_QUERY.get, {}).credentials == (
        ("LOWMARK_TLS_CA", "/driver/ca"),
        ("LOWMARK_TOKEN_FILE", "/driver/token"),
    )
    assert load(None, {}).credentials == ()


def test_files_of_the_host_and_of_the_query_are_not_mixed() -> None:
    assert load(OF_QUERY.get, {"LOWMARK_TLS_CA": "/host/ca"}).credentials == ()


def test_whether_steps_wait_for_others_is_the_hosts_or_the_querys_to_say() -> None:
    assert load(None, {}).flush is Flush.WHEN_IDLE
    settings = load(None, {"LOWMARK_FLUSH": "at-window-end"})
    assert settings.flush is Flush.AT_WINDOW_END
    given = ["--target", "t", "--pipeline", "p", "--node-id", "n", "--socket", "unix:/s"]
    assert parse(given).flush is Flush.WHEN_IDLE
    assert parse([*given, "--flush", settings.flush.value]).flush is Flush.AT_WINDOW_END
