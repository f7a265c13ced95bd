"""The dialect of `/v1/chat/completions`."""

from exporters.relay import request_body
from exporters.relay.dialects import completion_events

DONE = completion_events.DONE
parse = request_body.parse
decode = decode_unary = completion_events.decode
collect = completion_events.collect
