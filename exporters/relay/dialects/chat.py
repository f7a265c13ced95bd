"""The dialect of `/v1/chat/completions` and `/v1/completions`."""

from exporters.relay import request_body
from exporters.relay.dialects import completion_events

DONE = completion_events.DONE
parse = request_body.parse
decode = completion_events.decode
decode_first = completion_events.decode_identified
decode_long = decode_unary = completion_events.decode_long
decode_output = completion_events.decode_output
collect = completion_events.collect
