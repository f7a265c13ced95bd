"""Sends one request over a gevent socket and feeds each read, with its time, to the response."""

import errno
import sys
from contextlib import ExitStack
from time import monotonic
from typing import Any

import gevent
import gevent.socket
import gevent.ssl

from exporters.text.errors import UsageError, system_reason
from loadgen.client.completion import CompletionResponse
from loadgen.client.socket_reader import READ_BYTES, SocketReader, request_timestamps
from loadgen.client.target import Target


class UnreachableError(Exception):
    """The connection failed, or closed before the first byte of a response."""


class UntrustedError(UnreachableError):
    """The certificate of the target is not trusted."""


class HttpClient:
    """Opens a connection for each request, because a connection pool would limit the open requests.

    The host name is resolved once, because lookups wait for gevent's small thread pool.
    """

    def __init__(self, target: Target) -> None:
        """Resolve the target's host name.

        Raises:
            UnreachableError: the name has no address.
            UsageError: a CA certificate is corrupt.
        """
        self._target = target
        try:
            addresses = gevent.socket.getaddrinfo(target.host, target.port, type=gevent.socket.SOCK_STREAM)
        except OSError as error:
            raise UnreachableError(f"cannot resolve {target.host}: {system_reason(error)}") from error
        self._addresses = [(family, address) for family, _, _, _, address in addresses]
        try:
            self._tls = _tls(target) if target.tls else None
        except gevent.ssl.SSLError as error:
            raise UsageError("--target-ca: cannot be used: a certificate in it is corrupt") from error
        self._reader = SocketReader() if sys.platform == "linux" and self._tls is None else None

    def exchange(self, request: bytes, response: CompletionResponse) -> None:
        """Send the request and feed `response` until it is complete or the connection closes.

        Raises:
            UnreachableError: there is no response.
            BadHttpError: the response is not HTTP/1.1.
        """
        connection, since = self._connect(), monotonic()
        try:
            failure: OSError | None = None
            try:
                connection.sendall(request)
            except (BrokenPipeError, ConnectionResetError) as error:
                # A server can reject a request before it has read all of it, so a response may have arrived.
                failure = error
            try:
                self._read(connection, response, since)
            except OSError as error:
                failure = failure or error
                response.lost(monotonic())
            if response.http.status is None:
                reason = system_reason(failure) if failure else "the connection was closed"
                raise UnreachableError(f"no response: {reason}")
        finally:
            connection.close()

    def get(self, path: str, timeout: float) -> CompletionResponse:
        """The response to a GET of a path below that of the target; raises as `exchange`, also after this time."""
        headers = (("host", self._target.netloc), ("connection", "close"), *self._target.authorization)
        lines = [f"GET {self._target.path}{path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers)]
        response = CompletionResponse()
        try:
            with gevent.Timeout(timeout):
                self.exchange(("\r\n".join(lines) + "\r\n\r\n").encode("ascii"), response)
        except gevent.Timeout as error:
            raise UnreachableError(f"no response in {timeout:.0f} s") from error
        return response

    def _read(self, connection: Any, response: CompletionResponse, since: float) -> None:
        if self._reader is not None:
            self._reader.read(connection, response, since)
            return
        receive, feed = connection.recv, response.feed
        while data := receive(READ_BYTES):
            if feed(data, monotonic()):
                return
        response.eof(monotonic())

    def _connect(self) -> Any:
        failure = OSError(errno.EADDRNOTAVAIL, "no address")
        for family, address in self._addresses:
            try:
                with ExitStack() as opened:  # closed by an error, a timeout, or the end of the run
                    connection = opened.enter_context(gevent.socket.socket(family, gevent.socket.SOCK_STREAM))
                    connection.setsockopt(gevent.socket.IPPROTO_TCP, gevent.socket.TCP_NODELAY, 1)
                    if self._reader is not None:
                        request_timestamps(connection)
                    connection.connect(address)
                    if self._tls is not None:
                        connection = self._tls.wrap_socket(
                            connection, server_hostname=self._target.host, suppress_ragged_eofs=False
                        )
                    opened.pop_all()
                    return connection
            except gevent.ssl.SSLCertVerificationError as error:
                reason = f"its certificate is not trusted: {error.verify_message}"
                raise UntrustedError(f"cannot connect to {self._target}: {reason}") from error
            except OSError as error:
                failure = error
        raise UnreachableError(f"cannot connect to {self._target}: {system_reason(failure)}") from failure


def _tls(target: Target) -> Any:
    context = gevent.ssl.create_default_context(cadata=target.ca)
    # Only `close_notify` ends a response without a length; Python's default hides that it is missing.
    context.options &= ~gevent.ssl.OP_IGNORE_UNEXPECTED_EOF
    return context
