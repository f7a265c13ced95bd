"""HTTP and SMTP servers on loopback that record the notifications of Alertmanager."""

import base64
import json
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Delivery:
    path: str
    authorization: str | None
    body: Any
    at: float = field(default_factory=time.time)


@dataclass(frozen=True)
class HttpSink:
    port: int
    arrived: list[Delivery] = field(default_factory=list)

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}/{path}"

    def bodies(self, path: str) -> list[Any]:
        return [each.body for each in self.arrived if each.path == f"/{path}"]


@dataclass(frozen=True)
class MailSink:
    port: int
    messages: list[EmailMessage] = field(default_factory=list)
    logins: list[str] = field(default_factory=list)


@contextmanager
def http_sink() -> Iterator[HttpSink]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            sink.arrived.append(Delivery(self.path, self.headers["Authorization"], body))
            # For Slack; the others check only the status.
            reply = b"ok"
            self.send_response(202 if self.path == "/pagerduty" else 200)
            self.send_header("Content-Length", str(len(reply)))
            self.end_headers()
            self.wfile.write(reply)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server, _serving(server):
        sink = HttpSink(server.server_address[1])
        yield sink


@contextmanager
def mail_sink() -> Iterator[MailSink]:
    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(b"220 sink\r\n")
            for line in self.rfile:
                command, _, rest = line.decode().strip().partition(" ")
                match command.upper():
                    case "EHLO":
                        self.wfile.write(b"250-sink\r\n250 AUTH PLAIN\r\n")
                    case "AUTH":
                        sink.logins.append(base64.b64decode(rest.split()[-1]).decode().replace("\0", " ").strip())
                        self.wfile.write(b"235 ok\r\n")
                    case "DATA":
                        self.wfile.write(b"354 go on\r\n")
                        text = b"".join(iter(self.rfile.readline, b".\r\n"))
                        sink.messages.append(message_from_bytes(text, policy=policy.default))
                        self.wfile.write(b"250 ok\r\n")
                    case "QUIT":
                        self.wfile.write(b"221 bye\r\n")
                        return
                    case _:
                        self.wfile.write(b"250 ok\r\n")

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server, _serving(server):
        sink = MailSink(server.server_address[1])
        yield sink


@contextmanager
def _serving(server: socketserver.BaseServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
