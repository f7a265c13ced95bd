"""The time per token of an answer, and below which time no engine has generated it."""

from collections.abc import Iterable

from exporters.vocabulary.verdicts import nearest_rank

FASTEST_TOKEN = 0.0001
"""Seconds per token of one request; the fastest engines with speculative decoding need several times as long."""
FEWEST_TOKENS = 32
"""Tokens of an answer that is judged: a shorter one may arrive in one burst of speculative decoding."""
_FASTEST_PERCENT = 5
_BURSTS = 5
"""Factor by which decode may be faster than its 5th percentile: more draft tokens are accepted in a repeated text."""


def cache_pace(paces: Iterable[float]) -> float:
    """Seconds per token below which only a response cache answers, for the TPOT of answers that an engine generated.

    A repeated prompt skips the prefill in a prefix cache, but each of its tokens is still decoded.
    """
    fastest = nearest_rank(sorted(paces) or [0.0], _FASTEST_PERCENT)
    return max(fastest / _BURSTS, FASTEST_TOKEN)
