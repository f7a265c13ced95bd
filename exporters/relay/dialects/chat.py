"""The dialect of `/v1/chat/completions` and `/v1/completions`."""

from exporters.relay import request_body
from exporters.relay.dialects import completion_events

DONE = completion_events.DONE
parse = request_body.parse
decode = completion_events.decode
decode_first = decode_unary = completion_events.decode_identified
collect = completion_events.collect
