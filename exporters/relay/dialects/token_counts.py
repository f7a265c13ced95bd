"""The dialect of `/tokenize`, `/detokenize` and `/v1/messages/count_tokens`, which need the tokenizer and no model."""

from concurrent.futures import Executor

from exporters.relay.bodies.request_body import NOT_JSON, RequestBody, without_completion
from exporters.relay.dialects import one_answer

DONE = None
decode = decode_first = decode_long = decode_unary = one_answer.decode
decode_output = one_answer.decode_output
collect = one_answer.collect


def parse(data: bytes, salt: bytes | None, hashing: Executor) -> RequestBody | None:  # noqa: ARG001 - of the interface
    try:
        model, _, tokens = one_answer.parse_inputs(data)
    except NOT_JSON:
        return None
    return without_completion(model, tokens)
