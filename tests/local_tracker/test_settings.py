"""Where a worker's settings come from."""

from __future__ import annotations

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
