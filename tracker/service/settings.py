"""The settings of `lowmark serve`: each declared once, with its limits and what it means.

From the declarations follow the options, the variables of the environment, the file, the values of the chart and the
table in docs/settings.md (`python -m scripts.settings_page`). A process hands the settings to those that it starts as
one document.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from tracker.client.settings import Settings, from_words, read_layers
from tracker.errors import Code, InvalidError

if TYPE_CHECKING:
    from tracker.service.config import ServerConfig

DEFAULT_LISTEN = "127.0.0.1:7070"
CONFIG_VARIABLE = "LOWMARK_SERVE_CONFIG"
TYPED = (
    "store", "listen", "shards", "shard", "peers", "standby", "join", "address", "metrics_listen", "dashboard_listen",
    "tls_cert", "tls_key", "tls_ca", "tokens", "group", "directory",
)  # fmt: skip
"""The settings that are options as well: what one types by hand."""


def _joined(value: Any) -> Any:
    """A list of addresses, as one writes it in a file, is as good as one text with commas."""
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return ",".join(value)
    return value


_Addresses = Annotated[str, BeforeValidator(_joined)]


class ServeSettings(Settings):
    """The settings of `lowmark serve`."""

    listen: str = Field(
        "",
        description=f"host:port to listen on; with shards: of the first ({DEFAULT_LISTEN} if not "
        "given); with peers: if it is not what the others dial",
    )
    store: str = Field(
        "sqlite:lowmark-data",
        description="sqlite:DIRECTORY, memory: or redis://HOST:PORT (docs/durability.md has all forms)",
    )
    shards: int = Field(1, ge=1, le=64, description="run this many processes, on consecutive ports")
    shard: int | None = Field(None, ge=0, description="run one process: the number of its shard")
    peers: _Addresses = Field(
        "", description="with shard: host:port of every shard, in order, with ,"
    )
    member: int | None = Field(
        None,
        ge=0,
        description="with peers: run process number N of a set, for its shard; a number that no "
        "shard has makes it a standby",
    )
    members: _Addresses = Field(
        "",
        description="with member: host:port of the processes of the set that have shards, in order, "
        "with ,: those that peers does not name have come since, and join",
    )
    left_file: str = Field(
        "",
        description="with members: where a process notes that its shard has left; then it waits to be "
        "ended",
    )
    standby: bool = Field(
        False, description="with peers: take the place of any shard whose owner has gone"
    )
    address: str = Field(
        "", description="where others reach this process, if it is not where it listens"
    )
    join: _Addresses = Field(
        "",
        description="become one more shard of the tracker at host:port (or several with ,); with "
        "listen (docs/elasticity.md)",
    )
    group: int = Field(
        0,
        ge=0,
        le=255,
        description="number of the group of a deployment that the tracker is; with directory, but for 0 "
        "(docs/groups.md)",
    )
    directory: _Addresses = Field(
        "",
        description="host:port of processes of group 0, which records where each pipeline lives (several "
        "with ,)",
    )
    relay: _Addresses = Field(
        "",
        description="have no shard, and pass on what the tracker at host:port (or several with ,) announces, to any number "
        "of subscribers (docs/consumers-reference.md#many-who-listen)",
    )
    join_timeout_ms: int = Field(
        60_000,
        ge=100,
        description="how long the sequencer waits for a process that joins to begin, before it gives it up",
    )
    rescale_margin_ms: int = Field(
        1_000,
        ge=0,
        description="how far beyond the highest known slot, in time, new shards begin to own slots",
    )
    left_status: int = Field(
        0, description="exit status once it has left", json_schema_extra={"hidden": True}
    )
    health_listen: str = Field(
        "",
        description="host:port of a health service for probes, without TLS or token; with peers",
    )
    lease_ms: int = Field(
        3_000,
        ge=200,
        le=3_600_000,
        description="how long an owner may be silent before another takes its place",
    )
    snapshot_after_records: int = Field(
        100_000, ge=100, description="length of the log at which a snapshot takes its place"
    )
    block_slots: int = Field(
        64, ge=1, description="neighbouring slots of one shard; the same for ever"
    )
    metrics_listen: str = Field(
        "",
        description="host:port where Prometheus reads metrics over HTTP (with shards: of the "
        "first); none if not given (docs/metrics.md)",
    )
    tls_cert: str = Field(
        "",
        description="PEM file of this process's certificate, and of what leads to its CA: it then "
        "speaks TLS only (docs/security.md)",
    )
    tls_key: str = Field("", description="PEM file of the certificate's key")
    tls_ca: str = Field(
        "",
        description="PEM file of a CA: clients and other processes then need a certificate of it",
    )
    tokens: str = Field(
        "", description="YAML file of tokens and their rights: every call then needs a token"
    )
    max_subscribers: int = Field(
        20_000, ge=1, description="streams that may subscribe to one pipeline at a process"
    )
    max_streams_per_client: int = Field(
        20_000, ge=1, description="streams that one client may have open at a process"
    )
    max_calls_per_s: int = Field(0, ge=0, description="calls of one client a second; 0: no limit")
    max_ticks_per_s: int = Field(
        0, ge=0, description="ticks of one pipeline a second that a process reads; 0: no limit"
    )
    max_connection_age_ms: int = Field(
        3_600_000,
        ge=0,
        le=2_000_000_000,
        description="how old a client's connection may become before it is ended, and its certificate judged "
        "anew when it comes again; 0: no limit",
    )
    dashboard_listen: str = Field(
        "",
        description="host:port of a page that shows the tracker live (docs/dashboard.md), and of the API over HTTP "
        "(docs/http.md); none if not given",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="debug, info, warning or error"
    )
    log_json: bool = Field(
        False, description="log JSON also on a terminal, for scripts (--json does so too)"
    )

    def shown(self) -> dict[str, Any]:
        """What counts, without secrets, by the names that a file has."""
        from tracker.store import shown_store

        values = self.model_dump(exclude={"left_status"})
        return {**values, "store": shown_store(self.store)}

    def of_shard(self, shard: int, addresses: tuple[str, ...], **own: Any) -> ServeSettings:
        """Those of one of several processes: all that is not its own is as it is here."""
        own |= {"shards": 1, "shard": shard, "peers": ",".join(addresses)}
        own |= {"listen": "", "address": ""}  # it is reached, and listens, where the others dial
        return ServeSettings.model_validate({**self.model_dump(), **own})


def variable_of(field: str) -> str:
    """The environment variable of a setting. Those of a client, LOWMARK_TLS_CA for one, are others."""
    return "LOWMARK_STORE" if field == "store" else f"LOWMARK_SERVE_{field.upper()}"


def variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of an environment that say something to `lowmark serve`. Raises InvalidError for one that no
    setting has."""
    known = {CONFIG_VARIABLE, *map(variable_of, ServeSettings.model_fields)}
    unknown = sorted(
        name for name in environment if name.startswith("LOWMARK_SERVE_") and name not in known
    )
    if unknown:
        raise InvalidError(
            f"the environment has {', '.join(unknown)}: there is no such setting; there are "
            f"{', '.join(sorted(known))}",
            Code.INVALID_SETTINGS,
        )
    return {name: text for name, text in environment.items() if name in known}


def read_settings(
    text: str,
    source: str,
    environment: Mapping[str, str],
    assigned: Sequence[str] = (),
    options: Mapping[str, Any] | None = None,
) -> ServeSettings:
    """Settings from the YAML text of a file, over them those of an environment, then `NAME=VALUE` words, then options
    by field. Raises InvalidError."""
    said = variables(environment)
    by_variable = {
        field: said[variable_of(field)]
        for field in ServeSettings.model_fields
        if said.get(variable_of(field))  # one that is empty says nothing
    }
    in_environment = from_words(ServeSettings, by_variable, variable_of)
    return read_layers(ServeSettings, text, source, in_environment, assigned, options or {})


# --- what they come to ----------------------------------------------------------------------------


def for_a_process(settings: ServeSettings) -> ServeSettings:
    """What a process is to be, where it was given its number in a set: a shard, a standby, or one that
    joins. Raises InvalidError for settings that do not go together."""
    for wrong in _wrong_of_sets(settings):
        raise InvalidError(wrong, Code.INVALID_SETTINGS)
    if settings.member is not None:
        settings = _member(settings, settings.member)
    for wrong in _wrong(settings):
        raise InvalidError(wrong, Code.INVALID_SETTINGS)
    return settings


def _member(settings: ServeSettings, member: int) -> ServeSettings:
    from tracker.client.connection import parse_targets

    first = parse_targets(settings.peers)
    current = parse_targets(settings.members or settings.peers)
    update: dict[str, Any] = {
        "standby": member >= max(len(first), len(current)),
        "shard": member if member < len(first) else None,
    }
    if len(first) <= member < len(current):
        update |= {"join": settings.peers, "peers": ""}
    return settings.model_copy(update=update)


def _wrong_of_sets(s: ServeSettings) -> Iterator[str]:
    if s.member is not None and (not s.peers or s.shard is not None or s.standby):
        yield "member needs --peers, and takes the place of --shard and --standby"
    if (s.members or s.left_file) and (s.member is None or not s.peers):
        yield "members and left_file need member and --peers"


def _wrong(s: ServeSettings) -> Iterator[str]:
    if s.health_listen and not (s.peers or s.join or s.relay):
        yield "health_listen is for one process: it needs --peers, --join or relay"
    if s.join and (s.peers or s.shard is not None or s.standby or s.shards != 1):
        yield (
            "--join is for one process whose shard is not known before: no --shard, --peers, --shards, "
            "member or --standby"
        )
    if s.join and not (s.address or s.listen):
        yield "--join needs an address of its own: --listen or --address"
    if s.standby and (not s.peers or s.shard is not None):
        yield "--standby needs --peers, and is for any shard: no --shard"
    if s.standby and not (s.address or s.listen):
        yield "--standby needs an address of its own: --listen or --address"
    if not s.standby and (s.shard is None) != (not s.peers):
        yield "--shard and --peers go together: one process of several"
    if s.relay and (s.join or s.peers or s.shard is not None or s.standby or s.shards != 1):
        yield "relay is for one process without a shard: no --shard, --peers, --shards, --join, member or --standby"
    if bool(s.group) != bool(s.directory):
        yield "--group and --directory go together, but for group 0, which keeps the directory"
    if s.peers and s.shards != 1:
        yield "--peers is for one process; --shards runs all of them"


def server_config(settings: ServeSettings, addresses: tuple[str, ...]) -> ServerConfig:
    """The process that runs by these settings. addresses: of all shards, where they are known. Raises
    ValueError for an address that is none, and InvalidError."""
    from tracker.client.connection import parse_targets
    from tracker.client.credentials import Credentials
    from tracker.core.process import ProcessConfig
    from tracker.service.cluster.addresses import nobody_reaches
    from tracker.service.config import ServerConfig
    from tracker.service.rpc.limits import Limits
    from tracker.service.rpc.security import Security

    s = settings
    own = s.address or (s.listen if s.standby or s.join else "")
    if s.join and nobody_reaches(own):
        raise InvalidError(
            f"others cannot reach {own}: name an address by --address", Code.INVALID_SETTINGS
        )

    def one(address: str) -> str:
        return parse_targets(address)[0] if address else ""

    return ServerConfig(
        s.shard or 0, addresses, s.store, s.listen if s.peers or s.join or s.address else "",
        s.block_slots,
        process=ProcessConfig(
            join_timeout_ms=s.join_timeout_ms, rescale_margin_ms=s.rescale_margin_ms
        ),
        relay=parse_targets(s.relay) if s.relay else (),
        join=parse_targets(s.join) if s.join else (), left_status=s.left_status,
        members=parse_targets(s.members) if s.members else (), left_file=s.left_file,
        lease_ms=s.lease_ms, snapshot_after_records=s.snapshot_after_records,
        group=s.group, directory=parse_targets(s.directory) if s.directory else (),
        standby=s.standby, address=one(own), health_listen=one(s.health_listen),
        metrics_listen=one(s.metrics_listen), dashboard_listen=one(s.dashboard_listen),
        security=Security(s.tls_cert, s.tls_key, s.tls_ca, s.tokens, Credentials.from_environment()),
        limits=Limits(
            s.max_subscribers, s.max_streams_per_client, s.max_calls_per_s, s.max_ticks_per_s,
            max_connection_age_ms=s.max_connection_age_ms,
        ),
    )  # fmt: skip
