"""gRPC settings that all ends share."""

from __future__ import annotations

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
"""A larger message is refused by gRPC with RESOURCE_EXHAUSTED."""
MAX_TICK_BYTES = 32 * 1024 * 1024 - 1024
"""The largest tick; so much smaller that the frame which takes it to another process, with the ticks
before it, still is a message."""
MAX_TICKS_PER_MESSAGE = 1_000
"""Ticks that a node may send in one message; more are refused, and the stream ends."""
KEEPALIVE_MS = 2_000
KEEPALIVE_TIMEOUT_MS = 3_000
HANDSHAKE_TIMEOUT_MS = 10_000
"""How long a connection may take to say that it is one: TLS, and the settings of HTTP/2."""
MAX_IDLE_MS = 300_000
"""How long a connection may be without a call; also one that begins a call and never ends its headers."""
MAX_STREAMS_PER_CONNECTION = 10_000
CONNECT_TIMEOUT_MS = 2_000
"""A process that is paused, or cut off, is given up after both."""

_SHARED = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    ("grpc.http2.ping_timeout_ms", KEEPALIVE_TIMEOUT_MS),  # a minute, if it is not given
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
)

CHANNEL_OPTIONS = (
    *_SHARED,
    ("grpc.initial_reconnect_backoff_ms", 50),
    # How long making a connection may take: a process that is paused takes it, and says nothing.
    ("grpc.min_reconnect_backoff_ms", CONNECT_TIMEOUT_MS),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.enable_retries", 0),
)

SERVER_OPTIONS = (
    *_SHARED,
    ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
    ("grpc.so_reuseport", 0),
    # Who connects and says nothing sensible is let go; a client opens more connections, not more streams.
    ("grpc.server_handshake_timeout_ms", HANDSHAKE_TIMEOUT_MS),
    ("grpc.max_concurrent_streams", MAX_STREAMS_PER_CONNECTION),
    ("grpc.max_connection_idle_ms", MAX_IDLE_MS),
)
