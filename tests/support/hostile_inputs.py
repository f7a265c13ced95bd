"""Input that is made to keep the event loop of a relay busy: requests of clients, and responses of engines.

`make bench NAME=parsers` measures it, and `test_hostile_inputs.py` counts the work that each input causes.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tests.support.scripted_relay import CHAT, END, STREAM_HEAD, UNARY, chunk, post

READ = 256 * 1024
"""Bytes of a read; asyncio and uvloop read as many at once."""

BYTE_BY_BYTE = 64 * 1024
"""Bytes of an input that arrives byte by byte: each read has a cost of its own, whatever it has."""

Bytes = Callable[[int], bytes]
"""Makes about so many bytes of input."""

Items = tuple[bytes, bytes, bytes]
"""What precedes, is repeated, and follows; `%d` in what is repeated is a different number each time."""


@dataclass(frozen=True, slots=True)
class Input:
    """What one side sends, `read` bytes at a time."""

    name: str
    sent: Bytes
    request: bytes | None = None
    """The request whose response is `sent`; None if a client sends it."""
    read: int = READ
    most: int = 1 << 40
    """Bytes above which a relay does not accept it, or a measurement would take too long."""
    ends: bool = False
    """Whether the sender closes the connection after it."""

    def reads(self, size: int) -> Iterator[bytes]:
        data = self.sent(min(size, self.most))
        for start in range(0, len(data), self.read):
            yield data[start : start + self.read]


def repeated(before: bytes, item: bytes, after: bytes) -> Bytes:
    def sent(size: int) -> bytes:
        left = size - len(before) - len(after)
        if b"%d" not in item:
            return before + item * max(1, left // len(item)) + after
        count = max(1, left // len(item % 1_000_000))
        return before + b"".join([item % (1_000_000 + number) for number in range(count)]) + after

    return sent


HOST = b" HTTP/1.1\r\nhost: x\r\n"
HEAD = b"GET /v1/models" + HOST
METERED = b"POST /v1/completions" + HOST + b"content-length: 2\r\n"
LAST = b"connection: close\r\n\r\n"
MAX_HEAD = 64 * 1024 - 100


def heads() -> Iterator[Input]:
    headers: Mapping[str, Items] = {
        "headers": (HEAD, b"a:\r\n", LAST),
        "different headers": (HEAD, b"a%d:\r\n", LAST),
        "headers of a metered request": (METERED, b"a%d:\r\n", LAST + b"{}"),
        "a long value": (HEAD + b"a: ", b"x", b"\r\n" + LAST),
        "a value of spaces": (HEAD + b"a:", b" \t", b"x\r\n" + LAST),
        "a long name": (HEAD, b"x", b":\r\n" + LAST),
        "options of Connection": (HEAD + b"connection: ", b"a,", b"b\r\n" + LAST),
        "different options of Connection": (HEAD + b"connection: ", b"%d,", b"b\r\n" + LAST),
        "Connection headers": (HEAD, b"connection: a, b\r\n", LAST),
        "upgrades": (HEAD + b"connection: upgrade\r\n", b"upgrade: h2c\r\n", LAST),
        "cookies": (HEAD, b"cookie: a=b; c=d\r\n", LAST),
        "traceparents": (HEAD, b"traceparent: 00-1-1-01\r\n", LAST),
        "tracestate": (HEAD + b"traceparent: 00-%032x-%016x-01\r\ntracestate: " % (1, 1), b"a=b,", b"c=d\r\n" + LAST),
        "request ids": (HEAD, b"x-request-id: a\r\n", LAST),
        "a time": (METERED + b"x-request-start: t=", b"1", b"\r\n" + LAST + b"{}"),
        "content-lengths": (HEAD, b"content-length: 0\r\n", LAST),
        "dot segments": (b"GET ", b"/a/..", HOST + LAST),
        "slashes": (b"GET ", b"/", HOST + LAST),
        "encoded percent signs": (b"GET /", b"%25", HOST + LAST),
        "encoded bytes": (b"GET /", b"%ff", HOST + LAST),
        "bytes to encode": (b"GET /v1/models//", b'"', HOST + LAST),
        "an absolute target": (b"GET http://x/", b"[", HOST + LAST),
        "an authority": (b"GET http://", b"[a]@", b"/" + HOST + LAST),
        "a query": (b"GET /v1/models?", b"a=%25&", HOST + LAST),
        "a long method": (b"", b"M", b" /" + HOST + LAST),
    }
    for name, items in headers.items():
        yield Input(f"head: {name}", repeated(*items), most=MAX_HEAD)
    value, lines = repeated(HEAD + b"a: ", b"x", b"\r\n" + LAST), repeated(HEAD, b"a:\r\n", LAST)
    yield Input("head: byte by byte", value, read=1, most=MAX_HEAD)
    yield Input("head: line by line", lines, read=4, most=MAX_HEAD)
    yield Input("empty lines before a request", repeated(b"", b"\r\n", HEAD + LAST))
    yield Input("empty lines byte by byte", repeated(b"", b"\r\n", HEAD + LAST), read=1, most=BYTE_BY_BYTE)
    yield Input("carriage returns before a request", repeated(b"", b"\r", HEAD + LAST))
    yield Input("pipelined requests", repeated(b"", HEAD + b"\r\n", b""), most=24 * 1024)
    yield Input("pipelined requests that are refused", repeated(b"", b"GET /" + HOST + b"\r\n", b""), most=24 * 1024)


CHUNKS = {
    "of one byte": b"1\r\n \r\n",
    "of one and two bytes": b"1\r\n \r\n2\r\n  \r\n",
    "of 16 bytes": chunk(b" " * 16),
    "with extensions": b"1;a=b\r\n \r\n",
    "with zeros": b"01\r\n \r\n",
}


def chunked_bodies() -> Iterator[Input]:
    for path in (b"/v1/completions", b"/v1/chat/completions/batch"):
        begin, of = b"POST " + path + HOST + b"transfer-encoding: chunked\r\n\r\n", f"chunks to {path.decode()}"
        for name, item in CHUNKS.items():
            yield Input(f"{of}: {name}", repeated(begin, item, END))
        yield Input(f"{of}: one a read", repeated(begin, b"1\r\n \r\n", END), read=6, most=BYTE_BY_BYTE)
        yield Input(f"{of}: byte by byte", repeated(begin, b"1\r\n \r\n", END), read=1, most=BYTE_BY_BYTE)
        yield Input(f"{of}: a long extension", repeated(begin + b"1;", b"a", END))
        trailers = repeated(begin + b"0\r\n", b"a:\r\n", b"\r\n")
        yield Input(f"{of}: trailers", trailers)
        yield Input(f"{of}: trailers byte by byte", trailers, read=1, most=16_000)
    prompt = repeated(b'{"prompt":"', b"a", b'"}')
    yield Input("a body byte by byte", lambda size: post(prompt(size), path=COMPLETIONS), read=1, most=BYTE_BY_BYTE)


CHAT_COMPLETIONS, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
RESPONSES, MESSAGES = "/v1/responses", "/v1/messages"
EMBEDDINGS, RERANK, TOKENIZE = "/v1/embeddings", "/v1/rerank", "/tokenize"

NESTED = b"[" * 900 + b"]" * 900 + b","

MEMBERS: Mapping[str, Items] = {
    "numbers": (b'"x":[', b"1,", b"1]"),
    "fractions": (b'"x":[', b"1.5,", b"1]"),
    "lists": (b'"x":[', b"[],", b"1]"),
    "objects": (b'"x":[', b"{},", b"1]"),
    "strings": (b'"x":[', b'"",', b"1]"),
    "members": (b'"x":{', b'"":1,', b'"a":1}'),
    "deep lists": (b'"x":[', NESTED, b"1]"),
    "deep objects": (b'"x":[', b'{"":' * 900 + b"1" + b"}" * 900 + b",", b"1]"),
    "lists that are too deep": (b'"x":', b"[", b""),
    "spaces": (b'"x":', b" \t\r\n", b"1"),
    "members of one name": (b"", b'"a":1,', b'"b":1'),
    "members of different names": (b"", b'"%d":1,', b'"b":1'),
    "n": (b"", b'"n":1,', b'"b":1'),
    "models": (b"", b'"model":"ab",', b'"b":1'),
    "stream_options": (b"", b'"stream_options":{},', b'"b":1'),
    "temperatures": (b"", b'"temperature":1.234e-300,', b'"b":1'),
    "messages": (b"", b'"messages":[{}],', b'"b":1'),
    "inputs": (b"", b'"input":[""],', b'"b":1'),
    "prompts": (b"", b'"prompt":[[]],', b'"b":1'),
    "stream_options to change": (b'"stream_options":{"include_usage":false},"x":[', b"[[]],", b"1]"),
    "an unknown stream option": (b'"stream_options":{"continuous_usage_stats":[', b"[],", b"1]}"),
    "members of stream_options": (b'"stream_options":{', b'"%d":1,', b'"a":1}'),
    "escapes": (b'"x":"', b"\\u0000", b'"'),
    "surrogates": (b'"x":"', b"\\ud83d\\ude00", b'"'),
    "lone surrogates": (b'"x":"', b"\\ud83d", b'"'),
    "a long integer": (b'"x":', b"1", b""),
    "long integers": (b'"x":[', b"1" * 4000 + b",", b"1]"),
    "n of many digits": (b'"n":', b"1", b""),
    "a long fraction": (b'"temperature":0.', b"1", b""),
    "a long exponent": (b'"temperature":1e', b"1", b""),
    "a long model": (b'"model":"', b"m", b'"'),
    "stop": (b'"stop":[', b'"a",', b'"b"]'),
    "tools": (b'"tools":[', b"{},", b"{}]"),
    "tools of lists": (b'"tools":[[', b"[],", b"1]]"),
    "a schema": (b'"guided_json":[', b"[],", b"1]"),
    "metadata": (b'"metadata":{', b'"%d":1,', b'"a":1}'),
    "a text without end": (b'"x":"', b"a", b""),
    "escaped quotation marks": (b'"x":"', b'\\"', b'"'),
}
MESSAGE_LISTS: Mapping[str, Items] = {
    "empty messages": (b"", b"{},", b"{}"),
    "messages with spaces": (b"", b"{ },", b"{}"),
    "messages without text": (b"", b'{"content":[]},', b"{}"),
    "short messages": (b"", b'{"role":"user","content":"ab"},', b"{}"),
    "empty parts": (b'{"content":[', b"{},", b"{}]}"),
    "parts with spaces": (b'{"content":[', b"{ },", b"{}]}"),
    "parts that are strings": (b'{"content":[', b'"ab",', b'"a"]}'),
    "parts": (b'{"content":[', b'{"type":"text","text":"ab"},', b"{}]}"),
    "parts between texts": (b'{"content":[', b'"' + b"x" * 300 + b'",' + b"{}," * 2629, b"{}]}"),
    "nested blocks": (b'{"content":[', b'{"content":' * 300 + b'"a"' + b"}" * 300 + b",", b"{}]}"),
    "nested lists": (b'{"x":[', b"[" * 300 + b"1" + b"]" * 300 + b",", b"1]}"),
    "members of a message": (b"{", b'"":1,', b'"content":"a"}'),
    "contents of a message": (b"{", b'"content":[{}],', b'"content":"a"}'),
    "tool calls": (b'{"tool_calls":[', b"[],", b"{}]}"),
    "surrogates in a text": (b'{"content":"', b"\\ud83d\\ude00", b'"}'),
    "escapes in a text": (b'{"content":"', b"\\n", b'"}'),
    "escaped quotation marks in a text": (b'{"content":"', b'\\"', b'"}'),
    "backslashes after escaped quotation marks": (b'{"content":"', b'\\"' * 16 + b"\\\\" * 200, b'"}'),
    "texts of one backslash": (b'{"content":[', b'"\\\\",', b'""]}'),
    "a text of two bytes a character": (b'{"content":"', "é".encode(), b'"}'),
    "brackets in a text": (b'{"content":"', b"[{", b'"}'),
}
INPUT_LISTS: Mapping[str, Items] = {
    "empty texts": (b"", b'"",', b'""'),
    "short texts": (b"", b'"ab",', b'"a"'),
    "token ids": (b"", b"12,", b"1"),
    "token ids of 65 bits": (b"", b"18446744073709551616,", b"1"),
    "token ids of 4,000 digits": (b"", b"1" * 4000 + b",", b"1"),
    "token ids before a text": (b"", b"12,", b'"a"'),
    "lists of a token id": (b"", b"[1],", b"[1]"),
    "empty lists": (b"", b"[],", b"[]"),
    "lists before a text": (b"", b"[],", b'"a"'),
    "fractions": (b"", b"1.5,", b"1"),
    "nulls": (b"", b"null,", b"null"),
    "empty objects": (b"", b"{},", b"{}"),
    "nested lists": (b"", b"[" * 300 + b"1" + b"]" * 300 + b",", b"1"),
    "nested objects": (b"", b'{"content":' * 300 + b'"a"' + b"}" * 300 + b",", b"1"),
    "members": (b"{", b'"%d":1,', b'"a":1}'),
}


def json_bodies() -> Iterator[Input]:
    def body(path: str, name: str, before: bytes, item: bytes, after: bytes) -> Input:
        json = repeated(b'{"model":"m","stream":true,' + before, item, after + b"}")
        return Input(f"{path}: {name}", lambda size: post(json(size), path=path))

    for name, items in MEMBERS.items():
        yield body(CHAT_COMPLETIONS, name, *items)
    for path in (RESPONSES, MESSAGES, EMBEDDINGS):
        for name in ("deep lists", "members of different names", "inputs", "long integers"):
            yield body(path, name, *MEMBERS[name])
    fields = {CHAT_COMPLETIONS: b"messages", RESPONSES: b"input", MESSAGES: b"messages", RERANK: b"documents"}
    for path, field in {**fields, TOKENIZE: b"messages"}.items():
        for name, (before, item, after) in MESSAGE_LISTS.items():
            yield body(path, name, b'"%s":[%s' % (field, before), item, after + b"]")
    fields = {COMPLETIONS: b"prompt", RESPONSES: b"input", MESSAGES: b"system", EMBEDDINGS: b"input"}
    for path, field in {**fields, TOKENIZE: b"tokens"}.items():
        for name, (before, item, after) in INPUT_LISTS.items():
            yield body(path, f"a list of {name}", b'"%s":[%s' % (field, before), item, after + b"]")
    yield Input("a byte order mark", lambda size: post(b"\xef\xbb\xbf" + b"[" * size, path=COMPLETIONS))
    yield Input("no text", lambda size: post(b"\xff" * size, path=COMPLETIONS))


BOUNDARY = b"------------------------0123"
NAMED = b'content-disposition: form-data; name="%s"'


def form(*parts: tuple[bytes, bytes], boundary: bytes = BOUNDARY) -> bytes:
    """A form of parts, each the headers and the content."""
    return b"".join(b"--%s\r\n%s\r\n\r\n%s\r\n" % (boundary, *part) for part in parts) + b"--%s--\r\n" % boundary


def forms() -> Iterator[Input]:
    begin = b"--" + BOUNDARY + b"\r\n"
    option = b"content-disposition: form-data" + b"; a=b" * 800
    for name, data in {
        "a file": lambda size: form((NAMED % b"file", b"\0" * size), (NAMED % b"model", b"w")),
        "parts": lambda size: form(*[(NAMED % b"x", b"")] * (size // 90)),
        "short parts": lambda size: form(*[(b"a:", b"")] * (size // 14), boundary=b"x"),
        "headers": repeated(begin, b"a:b\r\n", b""),
        "dispositions in a header": repeated(begin, b"content-disposition:", b""),
        "dispositions in the headers of parts": lambda size: form(
            *[(b"content-disposition:" * 200, b"")] * (size // 4040)
        ),
        "names in a header": lambda size: form((b"content-disposition: form-data" + b"; name=" * (size // 7), b"")),
        "options of dispositions": lambda size: form(*[(b"\r\n".join([option] * 8), b"")] * (size // 32_000)),
        "semicolons in names": lambda size: form(*[(NAMED % (b'";"' * 1300), b"")] * (size // 4000)),
        "open quotation marks": lambda size: form(
            *[(b'content-disposition: form-data; name="' + b";" * 3900, b"")] * (size // 4000)
        ),
        "almost boundaries": lambda size: form((NAMED % b"file", (b"\r\n--" + BOUNDARY[:-1] + b"x") * (size // 33))),
        "a periodic boundary": lambda size: form((NAMED % b"file", b"\r\n--" + b"a" * size), boundary=b"a" * 69 + b"b"),
        "line ends": lambda size: form((NAMED % b"file", b"\r\n" * (size // 2))),
        "no end": repeated(begin, b"a", b""),
        "a long boundary": repeated(b"--", b"a", b""),
    }.items():
        yield Input(f"form: {name}", _posted(data))


def _posted(data: Bytes) -> Bytes:
    return lambda size: post(data(size), path="/v1/audio/transcriptions")


OK = b"HTTP/1.1 200 OK\r\n"
EVENT_STREAM = OK + b"content-type: text/event-stream\r\n\r\n"

ANSWER_FORM = form((NAMED % b"model", b"w"))
STREAM_FORM = form((NAMED % b"model", b"w"), (NAMED % b"stream", b"true"))
ANSWERED = {
    "chat": post(UNARY, close=False),
    "Responses": post(b'{"model":"m","input":"a"}', path=RESPONSES, close=False),
    "Messages": post(b'{"model":"m","messages":[]}', path=MESSAGES, close=False),
    "embeddings": post(b'{"model":"m","input":"a"}', path=EMBEDDINGS, close=False),
    "audio": post(ANSWER_FORM, path="/v1/audio/transcriptions", close=False),
}
STREAMED = {
    "chat": post(CHAT, close=False),
    "Responses": post(b'{"model":"m","stream":true,"input":"a"}', path=RESPONSES, close=False),
    "Messages": post(b'{"model":"m","stream":true,"messages":[]}', path=MESSAGES, close=False),
    "audio": post(STREAM_FORM, path="/v1/audio/transcriptions", close=False),
}
CONTENTS: Mapping[str, Items] = {
    "choices": (b'"choices":[', b"{},", b"{}]"),
    "choices with messages": (b'"choices":[', b'{"message":{}},', b"{}]"),
    "choices without output": (b'"choices":[', b'{"delta":{"content":""}},', b"{}]"),
    "tool calls of a delta": (b'"choices":[{"delta":{"tool_calls":[', b"{},", b"{}]}}]"),
    "tool calls of a message": (b'"choices":[{"message":{"tool_calls":[', b"{},", b"{}]}}]"),
    "an id of lists": (b'"id":[', b"[],", b"[]]"),
    "a model of lists": (b'"model":[', b"[],", b"[]]"),
    "members": (b"", b'"%d":1,', b'"a":1'),
    "deep lists": (b'"x":[', NESTED, b"1]"),
    "members of usage": (b'"usage":{', b'"%d":1,', b'"prompt_tokens":1}'),
    "usages": (b"", b'"usage":{"prompt_tokens":1},', b'"a":1'),
    "errors": (b"", b'"error":{},', b'"a":1'),
    "an error of lists": (b'"error":[', b"[],", b"[]]"),
    "a delta of lists": (b'"type":"response.x.delta","delta":[', b"[],", b"[]]"),
    "output": (b'"output":[', b"{},", b"{}]"),
    "content of output": (b'"output":[{"type":"message","content":[', b"{},", b"{}]}]"),
    "content": (b'"content":[', b"{},", b"{}]"),
    "log probabilities": (
        b'"choices":[{"logprobs":[',
        b'{"token":"a","logprob":-0.1},',
        b'{}],"finish_reason":"stop"}]',
    ),
    "embeddings": (b'"data":[{"embedding":[', b"0.0123,", b"1]}]"),
    "escapes": (b'"choices":[{"message":{"content":"', b"\\n", b'"}}]'),
    "an index of many digits": (b'"choices":[{"index":', b"1", b"}]"),
}
TEXT = b'data: {"choices":[{"text":"x"}]}\n\n'
EVENTS = {
    "empty events": b"\n\n",
    "carriage returns": b"\r",
    "empty lines of two bytes": b"\r\n\r\n",
    "comments": b":\n\n",
    "comments in one event": b":\n",
    "data lines in one event": b"data:\n",
    "JSON over the data lines of one event": b"data: 1,\n",
    "other lines in one event": b"a:\n",
    "events of no JSON": b"data:x\n\n",
    "events of an empty object": b"data: {}\n\n",
    "events of text": TEXT,
    "events of text and a number": b'data: {"choices":[{"text":"x"}],"n":%d}\n\n',
    "ends": b"data: [DONE]\n\n",
    "usage": b'data: {"choices":[],"usage":{}}\n\n',
    "usage with a member": b'data: {"choices":[],"usage":{},"x":1}\n\n',
}


def responses() -> Iterator[Input]:
    unary, stream = ANSWERED["chat"], STREAMED["chat"]
    for name, items in {
        "headers": (OK, b"a:\r\n", b"\r\n"),
        "options of Connection": (OK + b"connection: ", b"a,", b"b\r\n\r\n"),
        "a long reason": (OK[:-2], b"a", b"\r\n\r\n"),
    }.items():
        yield Input(f"response head: {name}", repeated(*items), unary, most=READ - 100)
    value = repeated(OK + b"a:", b"a", b"\r\n\r\n")
    yield Input("response head: in reads of 16 bytes", value, unary, most=READ - 100, read=16)
    yield Input("interim responses", repeated(b"", b"HTTP/1.1 100 \r\n\r\n", b""), unary, most=96 * 1024)
    for name, (before, item, after) in CONTENTS.items():
        json = repeated(b"{" + before, item, after + b"}")
        for api, request in ANSWERED.items():
            yield Input(f"answer of {api}: {name}", _sized(json), request)
        event = repeated(EVENT_STREAM + b"data: {" + before, item, after + b"}\n\ndata: [DONE]\n\n")
        for api, request in STREAMED.items():
            yield Input(f"event of {api}: {name}", event, request, ends=True)
    error = repeated(b'{"error":{', b'"%d":1,', b'"a":1}}')
    yield Input("body of an error", _sized(error, b"HTTP/1.1 500 X\r\n"), stream)


def streams() -> Iterator[Input]:
    unary, stream, done = ANSWERED["chat"], STREAMED["chat"], b"\n\ndata: [DONE]\n\n"
    for name, item in EVENTS.items():
        events = repeated(EVENT_STREAM, item, done)
        yield Input(f"stream: {name}", events, stream, ends=True)
        yield Input(f"stream: {name}, byte by byte", events, stream, ends=True, read=1, most=BYTE_BY_BYTE)
        framed = chunk(item % 1_000_000).replace(b"1000000", b"%d") if b"%d" in item else chunk(item)
        yield Input(f"chunked stream: {name}", repeated(STREAM_HEAD, framed, chunk(done) + END), stream)
    for name, items in {
        "an event": (EVENT_STREAM + b'data: {"choices":[{"text":"', b"a", b'"}]}\n\n'),
        "an event with a carriage return": (EVENT_STREAM + b"data: 1\r", b"a", b"\n\n"),
    }.items():
        sent = repeated(*items)
        yield Input(f"stream: {name} in reads of 64 bytes", sent, stream, ends=True, read=64, most=1024 * 1024)
    for name, item in CHUNKS.items():
        yield Input(f"chunks of a stream: {name}", repeated(STREAM_HEAD, item, END), stream)
        yield Input(
            f"chunks of an answer: {name}", repeated(OK + b"transfer-encoding: chunked\r\n\r\n", item, END), unary
        )


def _sized(body: Bytes, status: bytes = OK) -> Bytes:
    def sent(size: int) -> bytes:
        data = body(size)
        return status + b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(data), data)

    return sent


def websockets() -> Iterator[Input]:
    upgrade = b"connection: upgrade\r\nupgrade: websocket\r\n\r\n"
    request, switch = b"GET /v1/realtime" + HOST + upgrade, b"HTTP/1.1 101 X\r\n" + upgrade
    empty = repeated(switch, b"\x82\x00", b"")
    yield Input("websocket: empty frames", empty, request, ends=True)
    yield Input("websocket: empty frames byte by byte", empty, request, ends=True, read=1, most=BYTE_BY_BYTE)
    yield Input("websocket: long headers", repeated(switch, b"\x82\xff" + b"\0" * 12, b""), request, ends=True)


INPUTS = [*heads(), *chunked_bodies(), *json_bodies(), *forms(), *responses(), *streams(), *websockets()]
