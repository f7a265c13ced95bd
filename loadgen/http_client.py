"""Carries one request over a gevent socket and hands each read, with its time, to whoever reads the response."""

import ssl
from time import monotonic
from typing import Any

import gevent.socket
import gevent.ssl

from exporters.errors import system_reason
from loadgen.load_target import Target
from loadgen.response import Answer

READ = 16 * 1024  # far more than the chunks that gather between two turns of the loop, and cheap to allocate


class UnreachableError(Exception):
    """No connection, or one that ended before any byte of a response."""


class Client:
    """A fresh connection for each request: no pool, hence no limit on open requests that would close the loop.

    The name is resolved once; a look-up for each request would wait in gevent's small thread pool.
    """

    def __init__(self, target: Target) -> None:
        """Resolve the target's name.

        Raises:
            UnreachableError: the name has no address.
        """
        self._target = target
        try:
            found = gevent.socket.getaddrinfo(target.host, target.port, type=gevent.socket.SOCK_STREAM)
        except OSError as error:
            raise UnreachableError(f"{target.host} has no address: {_reason(error)}") from error
        self._addresses = [(family, address) for family, _, _, _, address in found]
        self._tls = gevent.ssl.create_default_context() if target.tls else None

    def exchange(self, request: bytes, answer: Answer) -> None:
        """Send the request and feed the response to `answer` until it is complete or the connection has ended.

        Raises:
            UnreachableError: nobody answered.
            ProtocolError: the response is no HTTP/1.1.
        """
        connection = self._connect()
        try:
            lost: OSError | None = None
            try:
                connection.sendall(request)
            except (BrokenPipeError, ConnectionResetError) as error:
                lost = error  # the answer may have come already: a refusal that did not wait for the whole request
            try:
                self._read(connection, answer)
            except OSError as error:
                lost = lost or error
                answer.eof(monotonic())
            if answer.http.status is None:
                why = _reason(lost) if lost else "the connection was closed"
                raise UnreachableError(f"no response: {why}")
        finally:
            connection.close()

    def _read(self, connection: Any, answer: Answer) -> None:
        receive, feed = connection.recv, answer.feed
        while data := receive(READ):
            if feed(data, monotonic()):
                return
        answer.eof(monotonic())

    def _connect(self) -> Any:
        refused: OSError | None = None
        for family, address in self._addresses:
            connection = gevent.socket.socket(family, gevent.socket.SOCK_STREAM)
            try:
                connection.setsockopt(gevent.socket.IPPROTO_TCP, gevent.socket.TCP_NODELAY, 1)
                connection.connect(address)
                if self._tls is not None:
                    return self._tls.wrap_socket(connection, server_hostname=self._target.host)
            except (OSError, ssl.SSLError) as error:
                connection.close()
                refused = error
            except BaseException:  # a timeout or the end of the run, raised into the wait for the connection
                connection.close()
                raise
            else:
                return connection
        raise UnreachableError(f"cannot connect to {self._target}: {_reason(refused)}") from refused


def _reason(error: OSError | None) -> str:
    return system_reason(error) if error else "it has no address"
