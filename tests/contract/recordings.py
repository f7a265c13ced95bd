"""HTTP exchanges with real vLLM, recorded byte for byte: `recorded/README.md` says how."""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import h11

FOLDER = Path(__file__).with_name("recorded") / "vllm-0.32.0"
NAMES = tuple(sorted(path.stem for path in FOLDER.glob("*.response")))


@dataclass(frozen=True)
class Event:
    """A server-sent event; `name` is None without an `event:` line."""

    name: str | None
    data: str


@dataclass(frozen=True)
class Recording:
    """One exchange; `request` and `response` are the bytes on the wire."""

    name: str
    request: bytes
    response: bytes

    @property
    def method(self) -> str:
        return self.request.split(b" ", 1)[0].decode()

    @property
    def path(self) -> str:
        return self.request.split(b" ", 2)[1].decode()

    @property
    def body(self) -> bytes:
        """The body of the request."""
        return self.request.partition(b"\r\n\r\n")[2]

    @cached_property
    def _response(self) -> tuple[h11.Response, bytes, bool]:
        connection = h11.Connection(h11.CLIENT)
        connection.send(h11.Request(method=self.method, target=self.path, headers=[("Host", "vllm")]))
        connection.send(h11.EndOfMessage())
        connection.receive_data(self.response)
        head = connection.next_event()
        assert isinstance(head, h11.Response)
        content = b""
        while isinstance(part := connection.next_event(), h11.Data):
            content += part.data
        return head, content, isinstance(part, h11.EndOfMessage)

    @property
    def status(self) -> int:
        return self._response[0].status_code

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the response, with names in lower case."""
        return {name.decode(): value.decode() for name, value in self._response[0].headers}

    @property
    def content(self) -> bytes:
        """The body of the response, without the chunked encoding."""
        return self._response[1]

    @property
    def complete(self) -> bool:
        """Whether the engine sent the whole body before it closed the connection."""
        return self._response[2]

    @property
    def answer(self) -> Any:
        """The JSON body of a response that is not streamed."""
        return json.loads(self.content)

    @property
    def events(self) -> list[Event]:
        """The events of a stream."""
        return events(self.content)


def events(content: bytes) -> list[Event]:
    """The events of a stream, each an optional `event:` line and one `data:` line, as vLLM sends them."""
    assert content.endswith(b"\n\n")
    found = []
    for block in content.decode().split("\n\n")[:-1]:
        *names, data = block.split("\n")
        assert data.startswith("data: ")
        found.append(Event(names[0].removeprefix("event: ") if names else None, data.removeprefix("data: ")))
    return found


def recording(name: str) -> Recording:
    return Recording(name, (FOLDER / f"{name}.request").read_bytes(), (FOLDER / f"{name}.response").read_bytes())
