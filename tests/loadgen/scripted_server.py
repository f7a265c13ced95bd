"""A scripted OpenAI-compatible server on a plain socket, run as a process of its own; prints its port when it listens.

The class header says what to do: `refuse` 429, `fail` 500, `tear` ends the stream early, `hang` never answers,
`drop` closes without a word; any other class is answered with `max_tokens` chunks, `slots` requests at a time.
"""

import argparse
import asyncio
import json
import signal
import sys


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(value: object) -> bytes:
    return chunk(b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n")


def whole(status: int, value: object) -> bytes:
    body = json.dumps(value).encode()
    return b"HTTP/1.1 %d X\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (
        status,
        len(body),
        body,
    )


class Server:
    def __init__(self, arguments: argparse.Namespace) -> None:
        self.first = arguments.first
        self.gap = arguments.gap
        self.slots = asyncio.Semaphore(arguments.slots)
        self.seen: list[dict[str, str]] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
            asked = json.loads(await reader.readexactly(int(headers.get("content-length", "0"))) or b"{}")
            await self.answer(head[0].split()[1], headers, asked, writer)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def answer(self, path: str, headers: dict[str, str], asked: dict, writer: asyncio.StreamWriter) -> None:  # type: ignore[type-arg]
        if path == "/v1/models":
            writer.write(whole(200, {"data": [{"id": "scripted"}]}))
        elif path == "/seen":
            writer.write(whole(200, self.seen))
        else:
            self.seen.append({"path": path, **headers})
            await self.complete(headers["x-request-class"], asked, writer)

    async def complete(self, name: str, asked: dict, writer: asyncio.StreamWriter) -> None:  # type: ignore[type-arg]
        if name == "refuse":
            writer.write(whole(429, {"error": {"message": "too many"}}))
        elif name == "fail":
            writer.write(whole(500, {"error": {"message": "broken"}}))
        elif name == "hang":
            await asyncio.sleep(3600)
        elif name != "drop":
            async with self.slots:
                await self.tokens(asked, writer, tear=name == "tear")

    async def tokens(self, asked: dict, writer: asyncio.StreamWriter, *, tear: bool) -> None:  # type: ignore[type-arg]
        chat, count = "messages" in asked, asked["max_tokens"]
        prompt = asked["messages"][0]["content"] if chat else asked["prompt"]
        usage = {
            "prompt_tokens": len(prompt) // 4,
            "completion_tokens": count,
            "prompt_tokens_details": {"cached_tokens": 16},
        }
        await asyncio.sleep(self.first)
        if not asked["stream"]:
            await asyncio.sleep(self.gap * (count - 1))
            choice = {"index": 0, "finish_reason": "length", ("message" if chat else "text"): {"content": "x"}}
            writer.write(whole(200, {"choices": [choice], "usage": usage}))
            return
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        if chat:
            writer.write(event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}))
        for number in range(count // 2 if tear else count):
            if number and self.gap:
                await asyncio.sleep(self.gap)
            text = {"delta": {"content": " the"}} if chat else {"text": " the"}
            reason = "length" if number == count - 1 else None
            writer.write(event({"choices": [{"index": 0, **text, "finish_reason": reason}]}))
            await writer.drain()
        if not tear:
            writer.write(event({"choices": [], "usage": usage, "metrics": {"queue_time_ms": 1.5}}))
            writer.write(chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--slots", type=int, default=1000)
    parser.add_argument("--first", type=float, default=0.01)
    parser.add_argument("--gap", type=float, default=0.002)
    scripted = Server(parser.parse_args())
    server = await asyncio.start_server(scripted.serve, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    end = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, end.set)
    await end.wait()
    sys.exit(0)


if __name__ == "__main__":
    asyncio.run(main())
