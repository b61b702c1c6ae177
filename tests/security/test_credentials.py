"""`lowmark credentials create`: made once, kept, and made whole again wherever it was interrupted."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("cryptography", reason="certificates are made by cryptography")

from typer.testing import CliRunner

from tests.chart.cluster_api import ClusterApi
from tests.chart.rendering import Rendered
from tests.security.serving import Served, serving, wait_for
from tracker.cli.app import app
from tracker.cli.issuing.certificates import Authority, Pair
from tracker.cli.issuing.credentials import CLIENT_HOST, Wanted, make
from tracker.cli.issuing.places import Directories, Secrets
from tracker.client import Admin, Credentials, SecureTarget
from tracker.errors import LowmarkError, UnavailableError
from tracker.service.rpc.tokens import Tokens

NOW = datetime(2026, 11, 1, tzinfo=UTC)
WANTED = Wanted(("*.tracker.example", "127.0.0.1"), days=300)
BUNDLES = (
    "authority", "certificate", "client-certificate", "client-token", "peer-token", "admin-token",
    "tokens",
)  # fmt: skip


def made(directory: Path, wanted: Wanted = WANTED, now: datetime = NOW) -> dict[str, str]:
    return dict(make(Directories(directory), wanted, now))


def files(directory: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(directory)): p.read_bytes() for p in directory.rglob("*") if p.is_file()
    }


def test_what_is_there_stays(tmp_path: Path) -> None:
    assert made(tmp_path) == dict.fromkeys(BUNDLES, "made")
    before = files(tmp_path)
    assert all(path.stat().st_mode & 0o077 == 0 for path in tmp_path.rglob("*"))
    assert made(tmp_path, now=NOW + timedelta(days=150)) == dict.fromkeys(BUNDLES, "is there")
    assert files(tmp_path) == before


def test_a_certificate_is_renewed_in_the_last_third_of_its_life_by_the_same_authority(
    tmp_path: Path,
) -> None:
    made(tmp_path)
    before = files(tmp_path)
    later = made(tmp_path, now=NOW + timedelta(days=250))
    assert later == {
        name: "made anew: it ends at 2027-08-28" if name.endswith("certificate") else "is there"
        for name in BUNDLES
    }
    after = files(tmp_path)
    assert {path for path in before if before[path] != after[path]} == {
        f"{name}/tls.{kind}" for name in ("certificate", "client-certificate") for kind in ("crt", "key")
    }  # fmt: skip


def test_more_hosts_make_a_certificate_anew_and_leave_clients_alone(tmp_path: Path) -> None:
    made(tmp_path)
    said = made(tmp_path, Wanted((*WANTED.hosts, "tracker.example"), days=300))
    assert said["certificate"] == "made anew: it is for other hosts"
    assert {name for name, what in said.items() if what != "is there"} == {"certificate"}


def test_a_server_that_is_no_process_of_the_tracker_has_a_certificate_of_its_own(
    tmp_path: Path,
) -> None:
    relay = replace(WANTED, others={"relay": ("relays.example",)})
    made(tmp_path)
    said = made(tmp_path, relay)
    assert {name: what for name, what in said.items() if what != "is there"} == {
        "relay-certificate": "made"
    }
    authority = Authority(pair(tmp_path, "authority", "ca"))
    own = pair(tmp_path, "relay-certificate", "tls")
    assert authority.why_anew(own, ("relays.example",), NOW, serves=True) == ""
    assert authority.why_anew(own, WANTED.hosts, NOW, serves=True) == "it is for other hosts"


@pytest.mark.parametrize("others", [
    {"client": ("relays.example",)}, {"Relay": ("relays.example",)}, {"relay": ()}, {"relay": ("a b",)},
])  # fmt: skip
def test_what_is_no_other_server_is_refused(others: dict[str, tuple[str, ...]]) -> None:
    with pytest.raises(ValueError, match=r"NAME=HOST|is no host"):
        replace(WANTED, others=others)


def test_the_command_makes_one_for_each_name_before_hosts(tmp_path: Path) -> None:
    out = ["credentials", "create", "--out", str(tmp_path), "--no-tokens"]
    hosts = [
        "--host",
        "a.example",
        "--host",
        "relay=b.example,c.example",
        "--host",
        "relay=d.example",
    ]
    assert CliRunner().invoke(app, [*out, *hosts]).exit_code == 0
    own = pair(tmp_path, "relay-certificate", "tls")
    authority = Authority(pair(tmp_path, "authority", "ca"))
    wanted = ("b.example", "c.example", "d.example")
    assert authority.why_anew(own, wanted, datetime.now(UTC), serves=True) == ""
    assert CliRunner().invoke(app, [*out, "--host", "a.example", "--host", "relay="]).exit_code == 2


class Interrupted(Directories):
    """Ends after so many files."""

    left = 0

    def write(self, name: str, files: Mapping[str, bytes]) -> None:
        for key, data in files.items():
            if not self.left:
                raise KeyboardInterrupt
            self.left -= 1
            super().write(name, {key: data})


@pytest.mark.parametrize("files_written", range(13))
def test_whoever_died_in_between_is_followed_by_one_who_ends_it(
    tmp_path: Path, files_written: int
) -> None:
    place = Interrupted(tmp_path)
    place.left = files_written
    try:
        list(make(place, WANTED, NOW))
    except KeyboardInterrupt:
        pass
    before = files(tmp_path)
    made(tmp_path)
    assert made(tmp_path) == dict.fromkeys(BUNDLES, "is there")
    kept = {path for path in before if before[path] == files(tmp_path)[path]}
    # What had been made whole is what clients may have by now.
    assert len(kept) >= files_written - 2
    authority = Authority(pair(tmp_path, "authority", "ca"))
    for name, hosts, serves in (
        ("certificate", WANTED.hosts, True), ("client-certificate", (CLIENT_HOST,), False),
    ):  # fmt: skip
        assert authority.why_anew(pair(tmp_path, name, "tls"), hosts, NOW, serves=serves) == ""


def pair(directory: Path, name: str, stem: str) -> Pair:
    of = directory / name
    return Pair((of / f"{stem}.crt").read_bytes(), (of / f"{stem}.key").read_bytes())


def test_tokens_of_others_and_changed_rights_stay(tmp_path: Path) -> None:
    made(tmp_path)
    path = tmp_path / "tokens" / "tokens.yaml"
    document = yaml.safe_load(path.read_text())
    document["tokens"].append({"name": "jfk", "sha256": "a" * 64, "pipelines": {"f": ["commit"]}})
    client = next(entry for entry in document["tokens"] if entry["name"] == "client")
    client["pipelines"] = {"flights": ["subscribe"]}
    path.write_text(yaml.safe_dump(document))
    (tmp_path / "client-token" / "token").unlink()
    assert made(tmp_path)["tokens"] == "made anew: it said something else of them"
    entries = {entry["name"]: entry for entry in yaml.safe_load(path.read_text())["tokens"]}
    assert entries["jfk"]["sha256"] == "a" * 64
    assert entries["client"]["pipelines"] == {"flights": ["subscribe"]}
    assert entries["client"]["sha256"] != client["sha256"]


def test_a_token_that_was_taken_away_is_not_let_in_again(tmp_path: Path) -> None:
    """By removing its entry, as for any token; what makes certificates anew runs now and then."""
    made(tmp_path)
    before = files(tmp_path)
    path = tmp_path / "tokens" / "tokens.yaml"
    document = yaml.safe_load(path.read_text())
    document["tokens"] = [entry for entry in document["tokens"] if entry["name"] != "admin"]
    path.write_text(yaml.safe_dump(document))
    said = made(tmp_path)
    assert said["admin-token"] == "made anew: its entry was removed"
    tokens = Tokens(str(path))
    for name in ("client-token", "peer-token", "admin-token"):
        token, old = ((tmp_path / name / "token").read_text(), before[f"{name}/token"].decode())
        assert tokens.find(token.strip()) is not None
        assert (token == old) == (tokens.find(old.strip()) is not None) == (name != "admin-token")
    assert made(tmp_path) == dict.fromkeys(BUNDLES, "is there")


def test_limits_that_somebody_has_given_to_a_token_stay(tmp_path: Path) -> None:
    made(tmp_path)
    path = tmp_path / "tokens" / "tokens.yaml"
    document = yaml.safe_load(path.read_text())
    client = next(entry for entry in document["tokens"] if entry["name"] == "client")
    client |= {"max_segments": 10, "max_nodes": 0}
    path.write_text(yaml.safe_dump(document))
    assert made(tmp_path)["tokens"] == "is there"
    entries = {entry["name"]: entry for entry in yaml.safe_load(path.read_text())["tokens"]}
    assert (entries["client"]["max_segments"], entries["client"]["max_nodes"]) == (10, 0)


@pytest.mark.parametrize(
    ("path", "text", "advice"),
    [
        ("authority/ca.key", "hush", "give both back, or take it away"),
        ("client-token/token", "\n", "client-token holds no token"),
        ("tokens/tokens.yaml", "tokens: [{token: hush}]", "tokens.yaml: token 1"),
    ],
)
def test_what_somebody_else_has_broken_is_left_alone(
    tmp_path: Path, path: str, text: str, advice: str
) -> None:
    made(tmp_path)
    (tmp_path / path).write_text(text)
    before = files(tmp_path)
    with pytest.raises(ValueError, match=advice) as refused:
        made(tmp_path)
    assert "hush" not in str(refused.value)
    assert files(tmp_path) == before


@pytest.mark.parametrize(
    "host", ["*.lowmark.invalid", CLIENT_HOST, "a b", "*.10.0.0.1", "*.", "", "-a"]
)
def test_hosts_that_cannot_be_are_refused(host: str) -> None:
    with pytest.raises(ValueError):
        Wanted((host,), days=30)


# --- with a tracker, and in a cluster -------------------------------------------------------------


def test_a_tracker_takes_what_is_made(tmp_path: Path) -> None:
    """Clients come in with their certificate and token; they are no shards, and strangers do not come in."""
    made(tmp_path, Wanted(("127.0.0.1",), days=30), datetime.now(UTC))
    served = Served(tmp_path / "served")
    place = {name: str(tmp_path / name) for name in BUNDLES}
    served.certificate = type(served.certificate)(
        f"{place['certificate']}/tls.crt", f"{place['certificate']}/tls.key"
    )
    credentials = Credentials(
        f"{place['client-certificate']}/ca.crt", f"{place['client-certificate']}/tls.crt",
        f"{place['client-certificate']}/tls.key", f"{place['client-token']}/token",
    )  # fmt: skip
    ca = credentials.ca
    with serving(served, "--tls-ca", ca, "--tokens", f"{place['tokens']}/tokens.yaml"):
        target = SecureTarget(served.addresses, credentials)
        wait_for(target)
        with Admin(target, 30) as admin:
            assert admin.pipelines() == []
            with pytest.raises(LowmarkError, match="PERMISSION_DENIED"):
                admin.rescale(2)
        nobody = SecureTarget(served.addresses, Credentials(ca, "", "", credentials.token_file))
        with pytest.raises(UnavailableError), Admin(nobody, 2) as admin:
            admin.pipelines()


def test_a_client_s_certificate_is_not_one_to_serve_with(tmp_path: Path) -> None:
    made(tmp_path, now=datetime.now(UTC))
    context = ssl.create_default_context(cafile=str(tmp_path / "authority" / "ca.crt"))
    outgoing, incoming = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    client = tmp_path / "client-certificate"
    server.load_cert_chain(client / "tls.crt", client / "tls.key")
    dialling = context.wrap_bio(incoming, outgoing, server_hostname=CLIENT_HOST)
    answering = server.wrap_bio(outgoing, incoming, server_side=True)
    with pytest.raises(ssl.SSLCertVerificationError, match="purpose"):
        for _ in range(4):
            for side in (dialling, answering):
                try:
                    side.do_handshake()
                except ssl.SSLWantReadError:
                    pass


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterApi]:
    api = ClusterApi(tmp_path / "cluster")
    try:
        yield api
    finally:
        api.close()


@contextmanager
def account(
    api: ClusterApi, directory: Path, monkeypatch: pytest.MonkeyPatch, names: list[str]
) -> Iterator[Secrets]:
    """As the chart's job is told of the cluster, with a right to these secrets."""
    objects: list[dict[str, Any]] = [
        *({"kind": "Secret", "metadata": {"name": name}} for name in names),
        {"kind": "Role", "metadata": {"name": "r"}, "rules": [
            {"resources": ["secrets"], "resourceNames": names, "verbs": ["get", "update"]},
        ]},
        {"kind": "RoleBinding", "roleRef": {"name": "r"}, "subjects": [{"name": "a"}]},
    ]  # fmt: skip
    api.apply(Rendered(objects, [], {}, ""))
    directory.mkdir()
    for name, text in (
        ("token", api.token_of("a")), ("ca.crt", Path(api.ca).read_text()), ("namespace", "prod"),
    ):  # fmt: skip
        (directory / name).write_text(text)
    for variable, value in api.environment.items():
        monkeypatch.setenv(variable, value)
    yield Secrets(directory, "demo")


def test_secrets_of_a_cluster_are_filled_once(
    cluster: ClusterApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"demo-{name}" for name in BUNDLES]
    with account(cluster, tmp_path / "account", monkeypatch, names) as place:
        assert dict(make(place, WANTED, NOW)) == dict.fromkeys(BUNDLES, "made")
        before = {name: dict(files) for name, files in cluster.kept.items()}
        assert dict(make(place, WANTED, NOW)) == dict.fromkeys(BUNDLES, "is there")
    assert cluster.kept == before and set(before) == set(names)
    assert [asked for asked in cluster.asked if asked.startswith("update")] == [
        f"update {name}" for name in names
    ]


def test_a_secret_that_is_not_one_s_own_is_neither_read_nor_made(
    cluster: ClusterApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = ["demo-authority"]
    with (
        account(cluster, tmp_path / "account", monkeypatch, own) as place,
        pytest.raises(OSError, match="demo-certificate in prod was answered with 403: its account"),
    ):
        list(make(place, WANTED, NOW))


def test_two_at_once_do_not_overwrite_each_other(
    cluster: ClusterApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"demo-{name}" for name in BUNDLES]
    with account(cluster, tmp_path / "account", monkeypatch, names) as place:
        other = Secrets(tmp_path / "account", "demo")
        assert place.read("authority") == other.read("authority") == {}
        place.write("authority", {"ca.crt": b"first"})
        with pytest.raises(OSError, match="answered with 409"):
            other.write("authority", {"ca.crt": b"second"})
    assert cluster.kept["demo-authority"] == {"ca.crt": "first"}
