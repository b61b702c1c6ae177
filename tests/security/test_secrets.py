"""No password is shown, and what is not secure is said at the start."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.children import free_ports
from tests.cluster.children import Running
from tests.security.certificates import Authority
from tracker.client.credentials import is_loopback
from tracker.errors import InvalidError
from tracker.redacting import redacted, shown_url
from tracker.service.rpc.security import Security, check_files
from tracker.store import StoreError, open_store, shown_store


@pytest.mark.parametrize(
    "url",
    [
        "redis://user:s3cret@host/0", "redis://:s3cret@host", "rediss+cluster://u:s3cret@a:1,b:2",
        "rediss://host?ssl_keyfile_password=s3cret&namespace=x",
    ],
)  # fmt: skip
def test_a_stores_address_is_shown_without_its_password(url: str) -> None:
    assert "s3cret" not in shown_store(url)
    assert "s3cret" not in redacted(f"Error while connecting to {url}: refused")


def test_an_address_that_is_not_known_is_quoted_without_its_password() -> None:
    with pytest.raises(StoreError) as refused:
        open_store("reddis://user:s3cret@host", 0)
    assert "s3cret" not in str(refused.value) and "reddis://user" in str(refused.value)


def test_what_has_no_password_is_shown_as_it_is() -> None:
    for text in ("sqlite:/data", "redis://host:6379/0", "see https://a.example/b:c@d"):
        assert redacted(text) == text


@pytest.mark.parametrize(
    ("listen", "loopback"),
    [
        ("127.0.0.1:7070", True), ("localhost:1", True), ("[::1]:1", True), ("127.9.9.9:1", True),
        ("0.0.0.0:7070", False), ("[::]:1", False), ("tracker-0.tracker:7070", False),
    ],
)  # fmt: skip
def test_loopback_addresses_are_known(listen: str, loopback: bool) -> None:
    assert is_loopback(listen) is loopback


def test_what_is_missing_is_said_of_an_address_that_others_reach(tmp_path: Path) -> None:
    assert Security().warnings("127.0.0.1:7070") == []
    assert len(Security().warnings("0.0.0.0:7070")) == 2
    assert "without TLS" in Security().warnings("0.0.0.0:7070")[0]
    only_tls = Security("cert", "key")
    (said,) = only_tls.warnings("0.0.0.0:7070")
    assert "asks nobody who they are" in said
    (said,) = Security("cert", "key", "ca").warnings("0.0.0.0:7070")
    assert "rights by pipeline" in said
    assert Security("cert", "key", "", "tokens").warnings("0.0.0.0:7070") == []


def said_by(tmp_path: Path, *options: str, until: str) -> str:
    """What `lowmark serve` logs, until it says something."""
    with Running("tracker.cli", "serve", "--json", *options, errors=tmp_path / "log") as serving:
        serving.until_logs(until)
        return serving.errors_of_run()


def test_a_process_says_loudly_that_it_is_not_secure(tmp_path: Path) -> None:
    port = free_ports(1)
    given = ["--peers", f"tracker.invalid:{port}", "--shard", "0", "--store", "memory:"]
    loud = said_by(tmp_path, *given, until="cannot_start")  # there is no such host to listen on
    assert loud.count('"insecure"') == 2
    quiet = said_by(tmp_path, *given, "--listen", f"127.0.0.1:{port}", until='"serving"')
    assert '"level": "warning"' not in quiet


def test_a_password_in_the_arguments_is_warned_of_and_not_logged(tmp_path: Path) -> None:
    port = free_ports(2)
    said = said_by(
        tmp_path, "--listen", f"127.0.0.1:{port}",
        "--store", f"redis://user:s3cret@127.0.0.1:{port + 1}", until="store_away",
    )  # fmt: skip
    assert "LOWMARK_STORE" in said and "s3cret" not in said


def test_files_that_cannot_be_used_are_said_before_it_serves(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair, other = authority.server(), authority.server("other")
    for cert, key, why in (
        (pair.cert, str(tmp_path / "none"), "cannot be read"),
        (pair.key, pair.key, "cannot be used"),
        (pair.cert, other.key, "cannot be used"),
    ):
        with pytest.raises(InvalidError, match=why):
            check_files(cert, key, "")
    said = said_by(
        tmp_path, "--listen", f"127.0.0.1:{free_ports(1)}", "--store", "memory:",
        "--tls-cert", pair.cert, "--tls-key", other.key, until="cannot_start",
    )  # fmt: skip
    assert "cannot be used" in said


def test_a_password_with_an_at_sign_is_left_out_whole() -> None:
    assert redacted("redis://{}@host:1/0".format("me:word@more")) == "redis://me:***@host:1/0"


def test_a_receiver_is_shown_without_login_and_query() -> None:
    for login in ("me:word@", "token@", "me:a@b@", ""):
        url = f"https://{login}a.example:1/x?key=1#part"
        assert shown_url(url) == "https://a.example:1/x"
