"""A scripted OpenAI-compatible server on a plain socket, run as a process of its own; prints its port when it listens.

The class header selects the response: `refuse` 429, `fail` 500, `deny` 401 with the authorization in its text, `tear`
ends the stream early, `hang` never responds, `drop` closes the connection. `brief` gets one token and `stop`, `canned`
always the same text, with the usual times; any other class gets `max_tokens` chunks at once.
After GET /hold, no such response begins before GET /release. GET /received returns the headers of all completion
requests since the last GET /reset. With `--capacity`, requests above so many a second fail, counted by their due times
(x-request-start), so the speed of the machine does not matter. With `--exit-after`, the server ends when it has
received so many.
"""

import argparse
import asyncio
import json
import os
import signal
import sys
from collections import Counter
from typing import Any


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(value: object) -> bytes:
    return chunk(b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n")


def unary(status: int, value: object) -> bytes:
    body = json.dumps(value).encode()
    head = b"HTTP/1.1 %d X\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % (status, len(body))
    return head + body


class Server:
    def __init__(self, *, capacity: float | None, exit_after: int | None) -> None:
        self.capacity = capacity
        self.exit_after = exit_after
        self.due_in = Counter[int]()
        self.released = asyncio.Event()
        self.received: list[dict[str, str]] = []
        self.released.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
            body = json.loads(await reader.readexactly(int(headers.get("content-length", "0"))) or b"{}")
            await self.respond(head[0].split()[1], headers, body, writer)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def respond(
        self, path: str, headers: dict[str, str], body: dict[str, Any], writer: asyncio.StreamWriter
    ) -> None:
        match path:
            case "/v1/models":
                writer.write(unary(200, {"data": [{"id": "scripted"}]}))
            case "/metrics":
                writer.write(unary(404, {}))
            case "/received":
                writer.write(unary(200, self.received))
            case "/release" | "/hold" | "/reset":
                if path == "/hold":
                    self.released.clear()
                else:
                    self.released.set()
                if path == "/reset":
                    self.received.clear()
                writer.write(unary(200, {}))
            case _:
                self.received.append({"path": path, **headers})
                if len(self.received) == self.exit_after:
                    os._exit(0)
                if self.overloaded(float(headers["x-request-start"].removeprefix("t="))):
                    writer.write(unary(500, {"error": {"message": "overloaded"}}))
                    return
                await self.complete(headers["x-request-class"], headers, body, writer)

    def overloaded(self, due: float) -> bool:
        """Whether more requests than the capacity are due in the same tenth of a second."""
        self.due_in[int(due * 10)] += 1
        return self.capacity is not None and self.due_in[int(due * 10)] > self.capacity / 10

    async def complete(
        self, name: str, headers: dict[str, str], body: dict[str, Any], writer: asyncio.StreamWriter
    ) -> None:
        match name:
            case "refuse":
                writer.write(unary(429, {"error": {"message": "too many"}}))
            case "fail":
                writer.write(unary(500, {"error": {"message": "broken"}}))
            case "deny":
                key = headers.get("authorization", "none")
                writer.write(unary(401, {"error": {"message": f"wrong key: {key}"}}))
            case "hang":
                await asyncio.sleep(3600)
            case "drop":
                pass
            case _:
                await self.released.wait()
                await self.tokens(body, writer, name)

    async def tokens(self, body: dict[str, Any], writer: asyncio.StreamWriter, name: str) -> None:
        chat, count = "messages" in body, body["max_tokens"]
        counted, sent = {"brief": (1, 1), "tear": (count, count // 2)}.get(name, (count, count))
        prompt = " ".join(message["content"] for message in body["messages"]) if chat else body["prompt"]
        usage = {
            "prompt_tokens": len(prompt) // 4,
            "completion_tokens": counted,
            "prompt_tokens_details": {"cached_tokens": 16},
        }
        if not body["stream"]:
            text = " the" * sent
            answer = {"message": {"content": text}} if chat else {"text": text}
            choice = {"index": 0, "finish_reason": "length", **answer}
            if name == "canned":
                await asyncio.sleep(0.002 * sent)
            writer.write(unary(200, {"choices": [choice], "usage": usage}))
            return
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        if chat:
            writer.write(event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}))
        for number in range(sent):
            if name == "canned":
                await asyncio.sleep(0.002)
            text = {"delta": {"content": " the"}} if chat else {"text": " the"}
            reason = None if number < sent - 1 else "stop" if name == "brief" else "length"
            writer.write(event({"choices": [{"index": 0, **text, "finish_reason": reason}]}))
            await writer.drain()
        if name != "tear":
            writer.write(event({"choices": [], "usage": usage, "metrics": {"queue_time_ms": 1.5}}))
            writer.write(chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--capacity", type=float)
    parser.add_argument("--exit-after", type=int)
    flags = parser.parse_args()
    scripted = Server(capacity=flags.capacity, exit_after=flags.exit_after)
    server = await asyncio.start_server(scripted.serve, "127.0.0.1", flags.port, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    end = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, end.set)
    await end.wait()
    sys.exit(0)


if __name__ == "__main__":
    asyncio.run(main())
