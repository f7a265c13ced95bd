"""A Prometheus on a real socket with given responses."""

import json
import threading
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

Handler = Callable[[str, dict[str, str]], tuple[int, Any]]


class FakePrometheus:
    """Responds with `respond` and records the requests, except those for the names of labels, if `labels` has them."""

    def __init__(self, respond: Handler, labels: Sequence[str] | None = None) -> None:
        self.requests: list[tuple[str, dict[str, str]]] = []
        fake = self

        class RequestHandler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                url = urlsplit(self.path)
                if labels is not None and url.path == "/api/v1/labels":
                    status, body = _label_names(labels)
                else:
                    fake.requests.append((url.path, dict(parse_qsl(url.query))))
                    status, body = respond(*fake.requests[-1])
                payload = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(payload)))
                self.end_headers()
                self.wfile.write(payload)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), RequestHandler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _label_names(labels: Sequence[str]) -> tuple[int, Any]:
    return 200, {"data": labels}
