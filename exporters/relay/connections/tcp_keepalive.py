"""TCP keep-alive: closes connections whose peer has disappeared without closing them."""

import socket

IDLE_SECONDS = 60
"""Shorter than the idle timeout of a NAT gateway, which is some minutes; the kernel's default is two hours."""

INTERVAL_SECONDS = 15

PROBES = 4
"""Unanswered probes after which the connection is closed: two minutes after the peer has disappeared."""


def enable(connection: socket.socket) -> None:
    """Enable keep-alive on a connection, or on a listener for all connections that it accepts."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):  # not on macOS
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, IDLE_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, INTERVAL_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, PROBES)
