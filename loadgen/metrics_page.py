"""The page from which Prometheus reads the load generator's series, where `--metrics` asks for one."""

from collections.abc import Callable, Iterable
from typing import Any

import gevent.socket
from gevent.event import Event
from gevent.pywsgi import WSGIServer
from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.registry import Collector

from exporters.errors import UsageError, system_reason

Address = tuple[str, int]


class Page:
    """Open from its making on, if there is an address; it has its turns in the loop that sends the load."""

    def __init__(self, series: Collector, address: Address | None) -> None:
        """Listen.

        Raises:
            UsageError: the address is taken, or not of this machine.
        """
        registry = CollectorRegistry()
        registry.register(series)
        self._render = make_wsgi_app(registry)
        self._read = Event()
        self._server = None if address is None else WSGIServer(_listening(address), self._answer, log=None)
        if self._server is not None:
            self._server.start()

    def changed(self) -> None:
        """What stands on it has not been read yet."""
        self._read.clear()

    def wait(self, seconds: float) -> None:
        """Until it has been read since it was opened or changed, at most so long."""
        if self._server is not None:
            self._read.wait(seconds)

    def hurry(self) -> None:
        """End a wait."""
        self._read.set()

    def close(self) -> None:
        if self._server is not None:
            self._server.stop(timeout=1)  # for an answer on its way

    def _answer(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        def start_and_close(status: str, headers: list[tuple[str, str]]) -> Any:
            # A connection that is kept would keep `close` waiting for its next request.
            return start(status, [*headers, ("Connection", "close")])

        body: Iterable[bytes] = self._render(environ, start_and_close)
        self._read.set()  # whoever waits has its turn only after this has been written
        return body


def _listening(address: Address) -> gevent.socket.socket:
    host, port = address
    # Not left to gevent's server, which leaves the socket open when it cannot bind it.
    listener = gevent.socket.socket(gevent.socket.AF_INET6 if ":" in host else gevent.socket.AF_INET)
    try:
        listener.setsockopt(gevent.socket.SOL_SOCKET, gevent.socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen()
    except OSError as error:
        listener.close()
        raise UsageError(f"--metrics {host}:{port}: cannot listen there: {system_reason(error)}") from error
    return listener
