"""A connection of Airflow's as a target of Lowmark's clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow.sdk import BaseHook

from tracker.client.admin import Admin
from tracker.client.connection import SecureTarget
from tracker.client.credentials import Credentials
from tracker.errors import LowmarkError

DEFAULT_PORT = 7070
TEST_TIMEOUT_S = 5.0


def target_of(host: str | None, port: int | None, extra: Mapping[str, Any]) -> str | SecureTarget:
    """The target that a connection names. host: one or several, with commas, each with a port of its own or with the
    connection's; extra: `ca`, `cert`, `key`, `token_file`, paths on the machine that connects, as of `Credentials`.
    Without them the environment's are used. Raises ValueError for a word that is none of these."""
    unknown = set(extra) - {"ca", "cert", "key", "token_file"}
    if unknown:
        raise ValueError(
            f"a connection of type lowmark has no extra {sorted(unknown)[0]!r}: ca, cert, key and "
            "token_file are paths of files; a secret itself is never written into a connection"
        )
    named = [each.strip() for each in (host or "127.0.0.1").split(",") if each.strip()]
    whole = ",".join(each if ":" in each else f"{each}:{port or DEFAULT_PORT}" for each in named)
    return SecureTarget(whole, Credentials(**extra)) if extra else whole


class LowmarkHook(BaseHook):
    """The connection type `lowmark`: host (with commas where there are several processes), port, and as extra the
    files of TLS."""

    conn_name_attr = "lowmark_conn_id"
    default_conn_name = "lowmark_default"
    conn_type = "lowmark"
    hook_name = "Lowmark"

    def __init__(self, lowmark_conn_id: str = default_conn_name) -> None:
        super().__init__()
        self.lowmark_conn_id = lowmark_conn_id

    def target(self) -> str | Sequence[str]:
        """What each of Lowmark's clients takes as its target."""
        found = self.get_connection(self.lowmark_conn_id)
        return target_of(found.host, found.port, found.extra_dejson)

    async def atarget(self) -> str | Sequence[str]:
        """The same, in a loop."""
        found = await self.aget_connection(self.lowmark_conn_id)
        return target_of(found.host, found.port, found.extra_dejson)

    def get_conn(self) -> Admin:
        """A client; the caller closes it."""
        return Admin(self.target(), TEST_TIMEOUT_S)

    def test_connection(self) -> tuple[bool, str]:
        """Whether a process of the tracker answers, for Airflow's button."""
        try:
            with self.get_conn() as admin:
                shards = len(admin.shards())
        except (LowmarkError, ValueError) as error:
            return False, str(error)
        return True, f"a tracker of {shards} shards answers"

    @classmethod
    def get_ui_field_behaviour(cls) -> dict[str, Any]:
        """Which fields Airflow's page of connections shows."""
        return {
            "hidden_fields": ["schema", "login", "password"],
            "relabeling": {},
            "placeholders": {"host": "tracker-0:7070,tracker-1:7070", "extra": '{"ca": "/etc/lowmark/ca.pem"}'},
        }  # fmt: skip
