"""With TLS and tokens the dashboard asks as any client does, and says at once where it could not."""

from __future__ import annotations

import pytest

from tracker.client.credentials import Credentials
from tracker.errors import InvalidError
from tracker.service.config import ServerConfig
from tracker.service.rpc.security import Security
from tracker.service.run import _dashboard


def config(security: Security) -> ServerConfig:
    return ServerConfig(0, ("127.0.0.1:7070",), dashboard_listen="127.0.0.1:0", security=security)


def test_it_needs_the_ca_and_a_token_where_clients_do() -> None:
    with pytest.raises(InvalidError, match="LOWMARK_TLS_CA"):
        _dashboard(config(Security("cert.pem", "key.pem")))
    peer = Credentials("ca.pem")
    with pytest.raises(InvalidError, match="LOWMARK_TOKEN_FILE"):
        _dashboard(config(Security("cert.pem", "key.pem", tokens="tokens.yaml", peer=peer)))
    assert _dashboard(config(Security("cert.pem", "key.pem", peer=peer))) is not None
    assert _dashboard(ServerConfig(0, ("127.0.0.1:7070",))) is None
