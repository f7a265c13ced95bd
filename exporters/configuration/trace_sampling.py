"""Selects a share of traces by their ids, so that all processes and replicas select the same ones."""

import re

from exporters.text.errors import InvalidValueError

_RANDOMNESS = 2**56
_PERCENTAGE = re.compile(r"(\d+(?:\.\d+)?)%")


def in_share(trace_id: str, share: float) -> bool:
    """Whether the trace belongs to the share, as in OpenTelemetry's consistent probability sampling.

    The low 56 bits of the id are compared with the rejection threshold, so a smaller share is part of a larger one.
    """
    return int(trace_id[-14:], 16) >= (1 - share) * _RANDOMNESS


def parse_share(text: str) -> float:
    """Parse `1%` to a number from 0 to 1; raises InvalidValueError if it is not from 0% to 100%."""
    match = _PERCENTAGE.fullmatch(text)
    if match is None or float(match[1]) > 100:
        raise InvalidValueError(f"{text!r} is not a valid share; write a percentage from 0% to 100%, such as 1%")
    return float(match[1]) / 100
