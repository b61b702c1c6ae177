"""Webhooks: signed, tried again until they are taken, within limits, and none lost or out of order."""

from __future__ import annotations

import itertools
import logging
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from typer.testing import CliRunner

import tracker
from tests.client.support import done, joined_front, promise
from tests.consumers.exactly import run_exactly
from tests.consumers.receiver import Receiver, receiving
from tests.consumers.test_periods import HOUR, HOURS, SPEC, TEN, kill
from tests.security.certificates import Authority
from tests.waits import HANG_S, until
from tracker.cli.app import app
from tracker.cli.common import EXIT_REFUSED, EXIT_TIMED_OUT
from tracker.client.embedded import EmbeddedTracker
from tracker.consumers.periods.follow import Periods
from tracker.consumers.periods.signing import new_secret, read_secrets, signed, verify
from tracker.consumers.periods.webhook import (
    MAX_RETRY_AFTER_S,
    Patience,
    Webhook,
    message_id,
)
from tracker.errors import Code, InvalidError, StateError, UnavailableError

SECRET = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
NOW_S = 1_649_367_553
HASTY = Patience(attempt_s=HANG_S, give_up_s=HANG_S, first_pause_s=0.001, longest_pause_s=0.01)


@pytest.fixture
def secret_file(tmp_path: Path) -> Path:
    path = tmp_path / "hook.secret"
    path.write_text(SECRET + "\n")
    return path


@pytest.fixture
def running(tmp_path: Path) -> Iterator[EmbeddedTracker]:
    with tracker.embedded(shards=2, store=f"sqlite:{tmp_path / 'store'}") as embedded:
        embedded.register(SPEC)
        yield embedded


def key_of(hour: int) -> str:
    return f"two/first/{TEN + hour * HOUR}..{TEN + (hour + 1) * HOUR}"


# --- signatures -----------------------------------------------------------------------------------


def test_signatures_are_those_of_the_public_libraries() -> None:
    """The example that the documentation of several receivers shows."""
    body = b'{"email":"test@example.com","username":"test_user"}'
    (key,) = [b"\x0baU\xb0\x14\x08\x86\xbb\x1c\n\x19P \xc5~o\x9b\x12b\xcaho\xba\x03"]
    headers = signed([key], "msg_27UH4WbU6Z5A5EzD8u03UvzRbpk", NOW_S, body)
    assert headers["webhook-signature"] == "v1,tZ1I4/hDygAJgO5TYxiSd6Sd0kDW6hPenDe+bTa3Kkw="
    assert verify(SECRET, headers, body, NOW_S + 10) == "msg_27UH4WbU6Z5A5EzD8u03UvzRbpk"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"webhook-id": "msg_other"}, "not signed"),
        ({"webhook-timestamp": str(NOW_S + 1)}, "not signed"),
        ({"webhook-timestamp": "soon"}, "no webhook-timestamp"),
        ({"webhook-signature": ""}, "not signed"),
        ({"webhook-id": ""}, "no webhook-id"),
    ],
)
def test_what_was_changed_is_not_taken(change: dict[str, str], why: str, secret_file: Path) -> None:
    headers = signed(read_secrets(secret_file), "msg_a", NOW_S, b"{}")
    assert verify(SECRET, headers, b"{}", NOW_S) == "msg_a"
    with pytest.raises(InvalidError, match=why):
        verify(SECRET, {**headers, **change}, b"{}", NOW_S)
    with pytest.raises(InvalidError, match="not signed"):
        verify(SECRET, headers, b"{ }", NOW_S)
    with pytest.raises(InvalidError, match="a repeated one"):
        verify(SECRET, headers, b"{}", NOW_S + 301)


def test_a_secret_is_replaced_without_a_gap(tmp_path: Path) -> None:
    old, new, other = new_secret(), new_secret(), new_secret()
    path = tmp_path / "secrets"
    path.write_text(f"{new}\n{old}\n")
    headers = signed(read_secrets(path), "msg_a", NOW_S, b"{}")
    assert verify(old, headers, b"{}", NOW_S) == verify(new, headers, b"{}", NOW_S) == "msg_a"
    with pytest.raises(InvalidError):
        verify(other, headers, b"{}", NOW_S)


@pytest.mark.parametrize(
    "text", ["", "whsec_short", "whsec_" + "A" * 200, "\n".join([SECRET] * 5), "p\u00e4ss"]
)
def test_what_is_no_secret_is_refused_and_not_quoted(text: str, tmp_path: Path) -> None:
    path = tmp_path / "secrets"
    path.write_text(text)
    with pytest.raises(InvalidError, match="secret") as refused:
        read_secrets(path)
    assert not text or text not in str(refused.value)


# --- one message ----------------------------------------------------------------------------------


def hang_up(handler: BaseHTTPRequestHandler) -> None:
    """As a receiver that dies when it has read a message."""
    handler.connection.shutdown(socket.SHUT_RDWR)


def test_a_message_is_tried_again_under_its_id_until_it_is_taken(
    secret_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "lowmark.webhook")
    with receiving(SECRET, 503, hang_up, 429, 408) as receiver:
        Webhook(receiver.url, secret_file, patience=HASTY).deliver("msg_a", {"type": "test"})
    assert receiver.ids == ["msg_a"] * 5
    assert receiver.events.get_nowait() == {"type": "test"}
    assert [r.getMessage().count("tried again in") for r in caplog.records] == [1] * 4
    assert "hidden" not in caplog.text and SECRET not in caplog.text


def test_while_the_secret_is_being_replaced_the_one_before_counts(secret_file: Path) -> None:
    new = new_secret()
    with receiving(SECRET) as receiver:
        webhook = Webhook(receiver.url, secret_file, patience=HASTY)
        secret_file.write_text("")
        webhook.deliver("msg_a", {})
        secret_file.unlink()
        webhook.deliver("msg_b", {})
        secret_file.write_text(f"{new}\n{SECRET}\n")
        webhook.deliver("msg_c", {})
        receiver.secret = new
        webhook.deliver("msg_d", {})
    assert receiver.ids == ["msg_a", "msg_b", "msg_c", "msg_d"]


@pytest.mark.parametrize("status", [301, 400, 401, 404, 410])
def test_what_a_receiver_does_not_want_is_not_tried_again(status: int, secret_file: Path) -> None:
    with (
        receiving(SECRET, (status, {"Location": "/elsewhere"})) as receiver,
        pytest.raises(StateError, match=f"refused msg_a: status {status}") as refused,
    ):
        Webhook(receiver.url, secret_file, patience=HASTY).deliver("msg_a", {})
    assert refused.value.code == Code.STATE_RECEIVER
    assert receiver.ids == ["msg_a"]


def test_a_receiver_that_asks_for_a_pause_gets_it_within_a_limit(secret_file: Path) -> None:
    pauses: list[float] = []
    asked = [(503, {"Retry-After": text}) for text in ("7", "999999", "Wed, 21 Oct 2026", "-1")]
    patience = Patience(first_pause_s=0.5, give_up_s=10_000)
    with receiving(SECRET, *asked) as receiver:
        webhook = Webhook(receiver.url, secret_file, patience=patience, sleep=pauses.append)
        webhook.deliver("msg_a", {})
    assert pauses[:2] == [7.0, MAX_RETRY_AFTER_S] and all(pause <= 4.0 for pause in pauses[2:])


def test_pauses_grow_up_to_a_limit_and_attempts_end(secret_file: Path) -> None:
    pauses: list[float] = []
    patience = Patience(first_pause_s=1, longest_pause_s=8)
    with receiving(SECRET, *itertools.repeat(500, 6)) as receiver:
        webhook = Webhook(receiver.url, secret_file, patience=patience, sleep=pauses.append)
        webhook.deliver("msg_a", {})
    for pause, longest in zip(pauses, (1, 2, 4, 8, 8, 8), strict=True):
        assert longest / 2 <= pause <= longest
    answers = itertools.repeat(500, 50)
    with (
        receiving(SECRET, *answers) as receiver,
        pytest.raises(
            UnavailableError, match=r"not taken msg_a in 1 attempts.*limit is 0\.25 s"
        ) as late,
    ):
        impatient = Patience(give_up_s=0.25, first_pause_s=10)
        Webhook(receiver.url, secret_file, patience=impatient).deliver("msg_a", {})
    assert late.value.code == Code.UNAVAILABLE_RECEIVER


def test_a_receiver_that_answers_byte_by_byte_does_not_hold_the_sender(secret_file: Path) -> None:
    over = threading.Event()

    def drip(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
        while not over.wait(0.05):  # paces: byte by byte
            handler.wfile.write(b"x")

    patience = Patience(attempt_s=1.0, give_up_s=HANG_S, first_pause_s=0.001)
    try:
        with receiving(SECRET, drip) as receiver:
            Webhook(receiver.url, secret_file, patience=patience).deliver("msg_a", {})
            assert receiver.ids == ["msg_a"] * 2
    finally:
        over.set()


def test_the_receivers_certificate_is_checked(secret_file: Path, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.server()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pair.cert, pair.key)
    once = Patience(give_up_s=0.0)
    with receiving(SECRET, tls=tls) as receiver:
        Webhook(receiver.url, secret_file, ca=authority.cert).deliver("msg_a", {})
        with pytest.raises(UnavailableError, match="CERTIFICATE_VERIFY_FAILED"):
            Webhook(receiver.url, secret_file, patience=once).deliver("msg_b", {})
    assert receiver.ids == ["msg_a"]


def test_an_address_of_the_receiver_that_does_not_answer_leaves_time_for_another(
    secret_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the message would be taken at the second one, and not known to be, and sent again for as long as the first one
    is away."""
    patience = Patience(attempt_s=3.0, give_up_s=HANG_S, first_pause_s=0.001)
    with receiving(SECRET) as receiver, _unanswered() as unanswered:
        *kind, reached = socket.getaddrinfo(*_place(receiver.url), type=socket.SOCK_STREAM)[0]
        both = [(*kind, unanswered), (*kind, reached)]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: both)
        Webhook(receiver.url, secret_file, patience=patience).deliver("msg_a", {})
        assert receiver.ids == ["msg_a"]


def test_nothing_is_sent_when_an_attempts_time_is_over(
    secret_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the receiver answers then counts for nothing."""
    patience = Patience(attempt_s=0.3, give_up_s=0.0)
    with receiving(SECRET) as receiver, _unanswered() as unanswered:
        *kind, last = socket.getaddrinfo(*_place(receiver.url), type=socket.SOCK_STREAM)[0]
        all_of_them = [*[(*kind, unanswered)] * 4, (*kind, last)]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: all_of_them)
        with pytest.raises(UnavailableError, match=r"no answer in 0\.3 s"):
            Webhook(receiver.url, secret_file, patience=patience).deliver("msg_a", {})
        assert receiver.ids == []


def _place(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    assert parts.hostname is not None and parts.port is not None
    return parts.hostname, parts.port


@contextmanager
def _unanswered() -> Iterator[tuple[str, int]]:
    """An address of this machine at which nobody answers: who listens there takes no connection, and as many wait as may."""
    with socket.socket() as listener, ExitStack() as waiting:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = listener.getsockname()
        for _ in range(4):
            one = waiting.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(address)
        yield address


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://receiver.example/hours?key=hidden", "plain http leaves this machine"),
        ("https://" + "user:hidden@receiver.example/", "a URL with a password"),
        ("ftp://receiver.example/hidden?hidden", "no URL of a webhook"),
        ("https:///hours", "no URL of a webhook"),
        ("https://receiver.example:99999/", "no URL of a webhook"),
        ("https://receiver.example/a b?hidden", "no URL of a webhook"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused(url: str, why: str, secret_file: Path) -> None:
    with pytest.raises(ValueError, match=why) as refused:
        Webhook(url, secret_file)
    assert "?hidden" not in str(refused.value) and ":hidden" not in str(refused.value)


# --- periods --------------------------------------------------------------------------------------


def test_none_is_skipped_whoever_is_killed(
    running: EmbeddedTracker, tmp_path: Path, secret_file: Path
) -> None:
    """The sender ends at a refusal, and the tracker is killed: the next one goes on where it was."""
    node = joined_front(running.node("two", "n"))
    done(node.commit(promise(TEN + 3 * HOUR)))
    record = tmp_path / "record.json"

    def run(receiver: Receiver, count: int) -> None:
        with Periods(running.target, "two", "first", "1h", record) as periods:
            run_exactly(count, periods, Webhook(receiver.url, secret_file, patience=HASTY))

    with receiving(SECRET, 204, 500, 403) as receiver:
        with pytest.raises(StateError):
            run(receiver, 3)
        kill(running)
        run(receiver, 2)
        run(receiver, 0)  # there is none twice
    told = [receiver.events.get_nowait() for _ in range(3)]
    assert [each["data"]["key"] for each in told] == [key_of(hour) for hour in range(3)]
    assert {each["type"] for each in told} == {"period.complete"}
    assert all(each["timestamp"] == each["data"]["complete_at"] for each in told)
    first, again = receiver.ids[0], receiver.ids[1:4]
    assert len(set(again)) == 1 and first not in again and len(receiver.ids) == 5
    assert first == message_id(HOURS.period("two", "first", TEN))


def test_the_command_posts_and_says_why_it_ended(running: EmbeddedTracker, tmp_path: Path) -> None:
    node = joined_front(running.node("two", "n"))
    done(node.commit(promise(TEN + HOUR)))
    secret_file = tmp_path / "made.secret"
    command = ["credentials", "token", "--webhook", "--out", str(secret_file)]
    made = CliRunner().invoke(app, command)
    assert made.exit_code == 0 and not made.output and secret_file.stat().st_mode & 0o077 == 0
    assert CliRunner().invoke(app, command).exit_code == 2
    secret = secret_file.read_text().strip()

    def follow(receiver: Receiver, *more: str, limit_s: float = HANG_S) -> tuple[int, str]:
        ran = CliRunner().invoke(
            app,
            ["periods", "follow", "-p", "two", "-s", "first", "--webhook", receiver.url, "--since",
             "2026-03-02T10:00", "--set", f"secret_file={secret_file}", "--record",
             str(tmp_path / "record"), "--timeout", f"{limit_s}s", "--target", running.target,
             *more],
        )  # fmt: skip
        assert secret not in ran.output and "hidden" not in ran.output
        return ran.exit_code, ran.output

    with receiving(secret, 404, 503) as receiver:
        status, said = follow(receiver)
        assert status == EXIT_REFUSED and "status 404" in said
        status, said = follow(receiver, "--set", "give_up_after=1ms")
        assert status == EXIT_TIMED_OUT and "status 503" in said
        until(lambda: follow(receiver, limit_s=1)[0] == 0 and not receiver.events.empty())
        assert receiver.events.get_nowait()["data"]["key"] == key_of(0)
