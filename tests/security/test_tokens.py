"""The file of tokens: what it may say, and that nothing of it is quoted."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from tests.cluster.tracker import lowmark
from tracker.client.credentials import Credentials, read_token
from tracker.errors import InvalidError
from tracker.service import server
from tracker.service.rpc import access
from tracker.service.rpc.security import Security
from tracker.service.rpc.tokens import Right, Tokens, digest_of, new_token, parse_tokens

SECRET = new_token()


def entry(more: str = "pipelines: {flights: [commit]}", digest: str | None = None) -> str:
    known = digest_of(SECRET).hex() if digest is None else digest
    return f'tokens:\n  - name: jfk\n    sha256: "{known}"\n    {more}\n'


def test_rights_are_by_name_or_by_the_beginning_of_names() -> None:
    (token,) = parse_tokens(
        entry("pipelines: {flights: [commit], team-a-*: [register, subscribe]}").encode(), "file"
    )
    assert token.may(Right.COMMIT, "flights")
    assert not token.may(Right.SUBSCRIBE, "flights")
    assert not token.may(Right.COMMIT, "flights-2")
    assert token.may(Right.REGISTER, "team-a-1") and not token.may(Right.REGISTER, "team-b")
    assert token.knows("flights") and not token.knows("others")
    assert not token.may_everywhere(Right.COMMIT)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (entry(digest=SECRET), "64 hexadecimal digits"),
        (entry("token: " + SECRET), "never write a token"),
        (entry("pipelines: {flights: [fly]}"), "needs a list of register"),
        (entry("pipelines: {f*s: [commit]}"), "at its end alone"),
        (entry("peer: perhaps"), "true or false"),
        (entry("max_nodes: -1"), "numbers from 0"),
        (entry("max_segments: many"), "numbers from 0"),
        (entry() + entry().partition("\n")[2], "the same name"),
        (f"tokens: [{{{SECRET}: [", "not YAML at line 1"),
        (SECRET, "a list named tokens"),
    ],
)
def test_a_wrong_file_is_refused_with_its_place_and_nothing_is_quoted(text: str, why: str) -> None:
    with pytest.raises(InvalidError, match=why) as refused:
        parse_tokens(text.encode(), "tokens.yaml")
    assert "tokens.yaml" in str(refused.value)
    assert SECRET not in str(refused.value)


def test_a_file_that_cannot_be_read_keeps_what_was(tmp_path: Path) -> None:
    path = tmp_path / "tokens.yaml"
    path.write_text(entry())
    tokens = Tokens(str(path))
    found = tokens.find(SECRET)
    assert found is not None and found.name == "jfk"
    assert tokens.find(new_token()) is None
    path.write_text("tokens: [")
    with pytest.raises(InvalidError):
        tokens.reload()
    assert tokens.find(SECRET) is not None
    fresh = tmp_path / "fresh"
    fresh.write_text("tokens: []\n")
    os.replace(fresh, path)
    assert tokens.reload()
    assert tokens.find(SECRET) is None and tokens.current(found) is None


def test_the_command_makes_a_token_and_prints_a_file_of_tokens(tmp_path: Path) -> None:
    path = tmp_path / "jfk.token"
    made = lowmark(
        "credentials", "token", "jfk", "--allow", "flights=commit,subscribe", "--out", str(path),
        environment={},
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    secret = read_token(str(path))
    assert path.stat().st_mode & 0o077 == 0
    assert secret not in made.stdout + made.stderr
    tokens = tmp_path / "tokens.yaml"
    tokens.write_text(made.stdout)
    found = Tokens(str(tokens)).find(secret)
    assert found is not None and found.may(Right.SUBSCRIBE, "flights")
    again = lowmark("credentials", "token", "jfk", "--out", str(path))
    assert again.returncode != 0 and "exists" in again.stderr


def test_every_method_is_named_where_access_is_judged() -> None:
    methods = {
        f"/{service.full_name}/{method.name}"
        for service in server.SERVICES
        for method in service.methods
        if not access.is_open(f"/{service.full_name}/{method.name}")
    }
    assert methods == {*access.CALLS, *access.STREAMS, *access.ANY_TOKEN, *access.WHOLE_TRACKER}


def test_files_that_do_not_go_together_are_refused() -> None:
    for given in (
        {"tls_cert": "c"}, {"tls_ca": "a"}, {"tokens": "t"},
    ):  # fmt: skip
        with pytest.raises(InvalidError):
            Security(**given)  # type: ignore[arg-type]
    for given in ({"cert": "c"}, {"cert": "c", "key": "k"}, {"token_file": "t"}):
        with pytest.raises(InvalidError):
            Credentials(**given)


def test_a_token_file_holds_one_word(tmp_path: Path) -> None:
    path = tmp_path / "token"
    for text in ("", f"{SECRET} {SECRET}", f"{SECRET}\n{SECRET}", "\x00"):
        path.write_text(text)
        with pytest.raises(InvalidError) as refused:
            read_token(str(path))
        assert SECRET not in str(refused.value)


def test_a_token_without_rights_is_made_and_said(tmp_path: Path) -> None:
    made = lowmark("credentials", "token", "jfk", "--out", str(tmp_path / "token"))
    assert made.returncode == 0 and "token jfk may do nothing yet" in made.stderr
    parse_tokens(made.stdout.encode(), "what was printed")
    peer = lowmark("credentials", "token", "pod", "--peer", "--out", str(tmp_path / "peer"))
    assert (peer.returncode, peer.stderr) == (0, "")


def test_a_file_that_could_not_be_opened_for_a_moment_is_read_at_the_next_look(
    tmp_path: Path,
) -> None:
    """A process whose clients take all that it may have open does not miss that one of them is shut out."""
    path = tmp_path / "tokens.yaml"
    path.write_text(entry())
    tokens = Tokens(str(path))
    assert tokens.find(SECRET) is not None
    path.write_text("tokens: []\n")
    most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, most[1]))
    try:
        with pytest.raises(InvalidError, match="Too many open files"):
            tokens.reload()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, most)
    assert tokens.reload()
    assert tokens.find(SECRET) is None
