"""Where the tracker has tokens, the page and the API ask for one, and each may see what it may see over gRPC."""

from __future__ import annotations

import base64
import http.client
import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from examples.children import free_ports
from tests.security.serving import Served, serving, wait_for
from tests.waits import HANG_S, until
from tracker.client import Admin
from tracker.core.model import PipelineSpec


class Page:
    """The dashboard of a tracker with tokens: `orders` may hear of orders, `worker` commit to it, `nobody` nothing."""

    def __init__(self, served: Served, address: str) -> None:
        self.served, self.address = served, address

    def bearer(self, name: str) -> str:
        return f"Bearer {self.served.secrets[name]}"

    @contextmanager
    def asked(self, path: str, authorization: str = "") -> Iterator[http.client.HTTPResponse]:
        with closing(http.client.HTTPConnection(self.address, timeout=HANG_S)) as connection:
            headers = {"Authorization": authorization} if authorization else {}
            connection.request("GET", path, headers=headers)
            yield connection.getresponse()

    def status(self, path: str, authorization: str = "") -> int:
        with self.asked(path, authorization) as answer:
            return answer.status

    def json(self, path: str, authorization: str = "") -> Any:
        with self.asked(path, authorization) as answer:
            return json.load(answer)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    served = Served(tmp_path_factory.mktemp("served"))
    everything = served.token("dashboard", _any=["subscribe"])
    operator = served.token("operator", _any=["register"])
    served.token("orders", orders=["subscribe"])
    served.token("worker", orders=["commit"])
    served.token("nobody")
    address = f"127.0.0.1:{free_ports(1)}"
    options = ("--tokens", str(served.tokens_file), "--dashboard-listen", address)
    own = {"LOWMARK_TLS_CA": served.authority.cert, "LOWMARK_TOKEN_FILE": everything}
    with serving(served, *options, environment=own):
        target = served.target(token_file=operator)
        wait_for(target)
        with Admin(target, HANG_S) as admin:
            for name in ("orders", "wages"):
                admin.register(PipelineSpec(name, ("a",), fronts=("f",)))
        yield Page(served, address)


PATHS = (
    "/api/v1/pipelines", "/api/v1/pipelines/orders", "/api/v1/pipelines/orders/min_times",
    "/api/v1/pipelines/orders/lags", "/api/v1/pipelines/orders/events", "/badge/orders.svg",
    "/api/v1/pipelines/none",
)  # fmt: skip


@pytest.mark.parametrize("path", ["/", *PATHS])
def test_without_a_token_that_is_known_nothing_is_answered(page: Page, path: str) -> None:
    for given in ("", "Bearer lowmark_wrong", "Bearer", "Basic !", "Digest x", "Bearer a\tb"):
        with page.asked(path, given) as answer:
            told = json.load(answer)
            assert answer.status == 401 and answer.headers["www-authenticate"].startswith("Basic")
            assert told["code"] == "invalid.credentials" and "Bearer TOKEN" in told["message"]
            assert "wrong" not in told["message"], "what was given is not repeated"


def test_the_files_of_the_page_and_the_contract_are_no_secret(page: Page) -> None:
    for path in ("/app.js", "/style.css", "/api/v1", "/api/v1/openapi.json"):
        assert page.status(path) == 200


def test_each_token_may_do_what_it_may_over_grpc(page: Page) -> None:
    for name, allowed in (
        ("dashboard", PATHS[:-1]),
        ("orders", PATHS[:-1]),
        ("worker", (PATHS[0], PATHS[1], PATHS[3], PATHS[5])),
        ("nobody", PATHS[:1]),
    ):
        for path in PATHS[:-1]:
            status = page.status(path, page.bearer(name))
            assert status == (200 if path in allowed else 403), (name, path)
    told = page.json("/api/v1/pipelines/wages", page.bearer("orders"))
    assert told["code"] == "invalid.credentials"
    assert all(word in told["message"] for word in ("'orders'", "'wages'", "ask whoever"))
    assert page.status("/api/v1/pipelines/none", page.bearer("orders")) == 403, "nor whether it is"


def test_a_list_has_what_a_token_may_see(page: Page) -> None:
    def seen(name: str) -> tuple[list[str], int]:
        told = page.json("/api/v1/pipelines", page.bearer(name))
        return sorted(each["pipeline"] for each in told["pipelines"]), told["all"]

    until(lambda: seen("dashboard") == (["orders", "wages"], 2))
    assert seen("orders") == (["orders"], 1) and seen("nobody") == ([], 0)
    told = page.json("/api/v1/pipelines?search=wages", page.bearer("orders"))
    assert (told["found"], told["more"], sum(told["states"].values())) == (0, 0, 1)


def test_a_browser_sends_it_as_a_password(page: Page) -> None:
    pair = base64.b64encode(f"anybody:{page.served.secrets['orders']}".encode()).decode()
    assert page.status("/api/v1/pipelines/orders", f"Basic {pair}") == 200
    assert page.status("/", f"basic {pair}") == 200
    assert page.status("/api/v1/pipelines/wages", f"Basic {pair}") == 403


def test_what_depends_on_a_token_is_kept_by_nobody_else(page: Page) -> None:
    for path in ("/api/v1/pipelines/orders/min_times", "/badge/orders.svg"):
        with page.asked(path, page.bearer("orders")) as answer:
            assert answer.headers["cache-control"].startswith("private, ")
            assert answer.headers["vary"] == "authorization"


def test_a_token_that_is_taken_away_ends_its_stream(page: Page, tmp_path: Path) -> None:
    served = page.served
    served.token("short", orders=["subscribe"])
    path, short = "/api/v1/pipelines/orders/events", page.bearer("short")
    until(lambda: page.status("/api/v1/pipelines/orders", short) == 200)
    with page.asked(path, short) as stream:
        assert stream.readline() == b"retry: 10000\n"
        served.entries = [entry for entry in served.entries if entry["name"] != "short"]
        served.write_tokens()
        while stream.readline():  # until it ends
            pass
    assert page.status(path, short) == 401
