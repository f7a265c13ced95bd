"""The end of a response without a length, which only an orderly end of the connection completes."""

import json
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from loadgen.client.completion import CompletionResponse
from loadgen.client.http_client import HttpClient
from loadgen.client.target import parse
from loadgen.results.record import ClientOutcome
from tests.exporters.configuration.certificates import Authority, authority, needs_openssl

REQUEST = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
BODY = json.dumps({"choices": [{"text": "x", "finish_reason": "stop"}]}).encode()
TRUNCATED = ClientOutcome.TRUNCATED, "the response is incomplete"


@contextmanager
def serving(end: str, trusted: Authority | None) -> Iterator[str]:
    """The URL of a server that sends one response without a length and ends the connection like this."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_serve, args=(listener, end, trusted))
        thread.start()
        yield f"{'https' if trusted else 'http'}://127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


def _serve(listener: socket.socket, end: str, trusted: Authority | None) -> None:
    connection, _ = listener.accept()
    if trusted is not None:
        leaf = trusted.issue("leaf")
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(leaf.cert, leaf.key)
        connection = context.wrap_socket(connection, server_side=True)
    with connection:
        connection.recv(len(REQUEST))
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n" + BODY)
        if end == "reset":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif end == "close_notify" and isinstance(connection, ssl.SSLSocket):
            with suppress(OSError):  # the client does not answer
                connection.unwrap()


@needs_openssl
@pytest.mark.parametrize(
    "end, tls, outcome",
    [
        pytest.param("close", False, (ClientOutcome.OK, None), id="closed"),
        pytest.param("reset", False, TRUNCATED, id="reset"),
        pytest.param("close_notify", True, (ClientOutcome.OK, None), id="TLS, with close_notify"),
        pytest.param("close", True, TRUNCATED, id="TLS, without close_notify"),
    ],
)
def test_a_response_without_a_length_is_complete_if_the_connection_ends_in_order(
    tmp_path: Path, end: str, tls: bool, outcome: object
) -> None:
    trusted = authority(tmp_path / "trusted") if tls else None
    response = CompletionResponse()
    with serving(end, trusted) as url:
        client = HttpClient(parse(url, allow_remote=False, ca_file=trusted.ca if trusted else None))
        client.exchange(REQUEST, response)
    assert response.outcome() == outcome
