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
MAX_STREAMS_PER_CONNECTION = 10_000
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
    ("grpc.max_connection_idle_ms", MAX_IDLE_MS),
)

SERVER_OPTIONS = (_LARGE, *_SERVER)
ELSEWHERE_OPTIONS = (_SMALL, *_SERVER)
"""Of a process that answers probes, and sends everybody else to another one without reading what they say."""

PROBE_OPTIONS = (
    _NO_COMPRESSION,
    _SMALL,
    ("grpc.so_reuseport", 0),
    ("grpc.server_handshake_timeout_ms", HANDSHAKE_TIMEOUT_MS),
    ("grpc.max_concurrent_streams", MAX_PROBE_STREAMS),
    ("grpc.max_connection_idle_ms", MAX_IDLE_MS),
)
"""Of a port that answers probes alone, and everybody."""
