"""The dialect of `/v1/chat/completions` and `/v1/completions`."""

from exporters.http.sse import LONG_EVENT
from exporters.relay.bodies import request_body
from exporters.relay.dialects import completion_events

DONE = completion_events.DONE
parse = request_body.parse
decode = completion_events.decode
decode_first = completion_events.decode_identified
decode_long = completion_events.decode_long
decode_output = completion_events.decode_output
collect = completion_events.collect


def decode_unary(data: bytes | bytearray) -> completion_events.CompletionEvent:
    return (decode_first if len(data) <= LONG_EVENT else decode_long)(data)
