"""Serves the load generator's metrics for Prometheus, with `--metrics`."""

from collections.abc import Callable, Iterable
from typing import Any

import gevent.socket
from gevent.event import Event
from gevent.pywsgi import WSGIServer
from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.registry import Collector

from exporters.text.addresses import Address
from exporters.text.errors import UsageError, system_reason


class MetricsEndpoint:
    """Runs in the event loop that sends the load; without an address it does nothing."""

    def __init__(self, series: Collector, address: Address | None) -> None:
        """Listen on the address.

        Raises:
            UsageError: the address is in use, or does not belong to this machine.
        """
        registry = CollectorRegistry()
        registry.register(series)
        self._render = make_wsgi_app(registry)
        self._scraped = Event()
        self._server = None if address is None else WSGIServer(_listen(address), self._respond, log=None)
        if self._server is not None:
            self._server.start()

    def mark_unread(self) -> None:
        """Ignore earlier scrapes in `wait_for_scrape`, because the metrics have changed."""
        self._scraped.clear()

    def wait_for_scrape(self, seconds: float) -> None:
        """Wait up to `seconds` for a scrape since the start or the last `mark_unread`."""
        if self._server is not None:
            self._scraped.wait(seconds)

    def stop_waiting(self) -> None:
        """End a wait for a scrape."""
        self._scraped.set()

    def close(self) -> None:
        if self._server is not None:
            self._server.stop(timeout=1)  # for a response that is being sent

    def _respond(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        def start_and_close(status: str, headers: list[tuple[str, str]]) -> Any:
            # `close` would wait for the next request on a keep-alive connection.
            return start(status, [*headers, ("Connection", "close")])

        body: Iterable[bytes] = self._render(environ, start_and_close)
        self._scraped.set()  # a waiting greenlet runs only after the response has been written
        return body


def _listen(address: Address) -> gevent.socket.socket:
    # gevent's server does not close the socket when binding fails.
    listener = gevent.socket.socket(gevent.socket.AF_INET6 if ":" in address.host else gevent.socket.AF_INET)
    try:
        listener.setsockopt(gevent.socket.SOL_SOCKET, gevent.socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen()
    except OSError as error:
        listener.close()
        raise UsageError(f"--metrics {address}: cannot listen: {system_reason(error)}") from error
    return listener
