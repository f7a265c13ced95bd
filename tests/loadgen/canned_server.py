"""A server that gives every request the same bytes and closes the connection."""

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


def http(status: str, body: str, *headers: str) -> bytes:
    """An HTTP response with its length."""
    lines = [f"HTTP/1.1 {status}", f"content-length: {len(body.encode())}", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n" + body).encode()


@contextmanager
def canned_server(response: bytes, tls: ssl.SSLContext | None = None) -> Iterator[tuple[str, list[str]]]:
    """The URL, and the heads of the requests so far."""
    heads: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_serve, args=(listener, response, heads, tls))
        thread.start()
        scheme, port = "https" if tls else "http", listener.getsockname()[1]
        try:
            yield f"{scheme}://127.0.0.1:{port}", heads
        finally:
            listener.shutdown(socket.SHUT_RDWR)  # ends accept
            thread.join()


def _serve(listener: socket.socket, response: bytes, heads: list[str], tls: ssl.SSLContext | None) -> None:
    while True:
        try:
            accepted, _ = listener.accept()
        except OSError:
            return
        with (
            accepted,
            suppress(OSError),
            tls.wrap_socket(accepted, server_side=True) if tls else accepted as connection,
        ):
            data = b""
            while b"\r\n\r\n" not in data and (piece := connection.recv(65536)):
                data += piece
            heads.append(data.decode("latin-1"))
            connection.sendall(response)
