"""Cuts a long prompt of token ids out of a request body: a JSON parser takes 1 to 2 ms per MiB to find its end.

The prompt has no quotation mark, so a search for one finds both ends.
"""

from typing import NamedTuple

SPACES = b" \t\r\n"

_NAME = b'"prompt"'

MARK = b"-0"
"""The JSON that replaces the prompt; no request has this prompt."""


class CutBody(NamedTuple):
    """A body in two parts; both are JSON."""

    rest: bytes
    """The body with `MARK` as the prompt. If the prompt is not of the request itself, that has no prompt `MARK`."""
    prompt: bytes


def cut_prompt(body: bytes) -> CutBody | None:
    """Cut out the list that is the value of `prompt`; None if its middle part is not that of the body, or has strings.

    In valid JSON, a name after `{` or `,` is neither within a string nor the end of another name.
    """
    middle = len(body) // 2
    name_end = body.rfind(b'"', 0, middle) + 1
    next_name = body.find(b'"', middle)
    list_end = body.rfind(b"]", name_end, next_name if next_name >= 0 else None) + 1
    before, after = body[:name_end], body[list_end : next_name if next_name >= 0 else None].strip(SPACES)
    if not before.endswith(_NAME) or before[: -len(_NAME)].rstrip(SPACES)[-1:] not in {b"{", b","}:
        return None
    if not list_end or after != (b"," if next_name >= 0 else b"}"):
        return None
    colon, prompt = body[name_end:list_end].lstrip(SPACES).partition(b":")[::2]
    prompt = prompt.lstrip(SPACES)
    if colon or not prompt.startswith(b"["):
        return None
    return CutBody(b"%s:%s%s" % (before, MARK, body[list_end:]), prompt)
