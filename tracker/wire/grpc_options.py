"""gRPC settings that all ends share."""

from __future__ import annotations

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
"""A larger message is refused by gRPC with RESOURCE_EXHAUSTED."""
MAX_TICK_BYTES = 32 * 1024 * 1024 - 1024
"""The largest tick; so much smaller that the frame which takes it to another process, with the ticks
before it, still is a message."""
MAX_TICKS_PER_MESSAGE = 1_000
"""Ticks that a node may send in one message; more are refused, and the stream ends."""
MAX_PROBE_BYTES = 4 * 1024
"""The largest question of a probe."""
MAX_PROBE_STREAMS = 100
"""Of one connection to the port that answers nothing but probes."""
KEEPALIVE_MS = 2_000
KEEPALIVE_TIMEOUT_MS = 3_000
HANDSHAKE_TIMEOUT_MS = 10_000
"""How long a connection may take to say that it is one: TLS, and the settings of HTTP/2."""
MAX_IDLE_MS = 300_000
"""How long a connection may be without a call; also one that begins a call and never ends its headers."""
MAX_STREAMS_PER_CONNECTION = 2_000
"""Calls and streams that one connection may have under way; further ones wait at the client."""
MAX_PENDING_CALLS = 20_000
"""Calls of all connections that have come, and that nobody has taken up yet. Beyond it gRPC cancels whichever
comes, and by its own default from 1,000 on: what one connection may send at once would cancel others' calls."""
MAX_CONNECTION_GRACE_MS = 10_000
"""How long the calls of a connection that has reached its age may go on."""
MAX_PROBE_AGE_MS = 300_000
"""Of a connection to the port that answers nothing but probes."""
CONNECT_TIMEOUT_MS = 2_000
"""A process that is paused, or cut off, is given up after both."""

_NO_COMPRESSION = ("grpc.compression_enabled_algorithms_bitset", 1)
"""The identity alone: 60 KiB of gzip would be 64 MiB in memory, before anybody has looked at them. A compressed
message ends its call with UNIMPLEMENTED, and is not unpacked."""
_LARGE = ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES)
_SMALL = ("grpc.max_receive_message_length", MAX_PROBE_BYTES)
_SHARED = (
    _NO_COMPRESSION,
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    ("grpc.http2.ping_timeout_ms", KEEPALIVE_TIMEOUT_MS),  # a minute, if it is not given
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
)

CHANNEL_OPTIONS = (
    _LARGE,
    *_SHARED,
    # A tracker is reached as it is named: what http_proxy says is of the web, and would hear all that is said.
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 50),
    # How long making a connection may take: a process that is paused takes it, and says nothing.
    ("grpc.min_reconnect_backoff_ms", CONNECT_TIMEOUT_MS),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.enable_retries", 0),
)

_SERVER = (
    *_SHARED,
    ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
    ("grpc.so_reuseport", 0),
    # Who connects and says nothing sensible is let go; a client opens more connections, not more streams.
    ("grpc.server_handshake_timeout_ms", HANDSHAKE_TIMEOUT_MS),
    ("grpc.max_concurrent_streams", MAX_STREAMS_PER_CONNECTION),
    ("grpc.server.max_pending_requests", MAX_PENDING_CALLS),
    ("grpc.server.max_pending_requests_hard_limit", MAX_PENDING_CALLS),
    ("grpc.max_connection_idle_ms", MAX_IDLE_MS),
)

SERVER_OPTIONS = (_LARGE, *_SERVER)
ELSEWHERE_OPTIONS = (_SMALL, *_SERVER)
"""Of a process that answers probes, and sends everybody else to another one without reading what they say."""


def connection_age(most_ms: int) -> tuple[tuple[str, int], ...]:
    """Of a server whose connections end when they are so old (0: never), whatever goes on in them: so nobody
    stays in by a certificate, or a CA, that has been replaced. Whoever is told to go opens another connection,
    and has the grace to end what is under way; a stream that goes on is cut, and begun again where it was."""
    if not most_ms:
        return ()
    return (
        ("grpc.max_connection_age_ms", most_ms),
        ("grpc.max_connection_age_grace_ms", min(most_ms, MAX_CONNECTION_GRACE_MS)),
    )


PROBE_OPTIONS = (
    _NO_COMPRESSION,
    _SMALL,
    *connection_age(MAX_PROBE_AGE_MS),
    ("grpc.so_reuseport", 0),
    ("grpc.server_handshake_timeout_ms", HANDSHAKE_TIMEOUT_MS),
    ("grpc.max_concurrent_streams", MAX_PROBE_STREAMS),
    ("grpc.max_connection_idle_ms", MAX_IDLE_MS),
)
"""Of a port that answers probes alone, and everybody."""
