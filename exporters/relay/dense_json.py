"""Finds JSON of so many small values that decoding it would block the event loop for too long."""

MAX_QUOTES = 20_000
"""Quotation marks around strings, per MiB, up to which JSON is decoded; JSON below 1 MiB may have as many."""

MAX_EMPTY = 100_000
"""Empty strings or objects in lists, per MiB, up to which JSON is parsed at all; engines reject both as prompts."""

_MIB = 1024 * 1024

# 256 of every 8,192 bytes are counted: counting all would take as long as decoding a long text.
_STRIDE, _WINDOW = 8192, 256

_QUOTES_PER_EMPTY_OBJECT = 2


def is_dense(json: bytes, max_quotes: int = MAX_QUOTES) -> bool:
    """Whether the JSON has more strings, or empty objects, than may be decoded."""
    sample, limit = _sample(json), _limit(len(json), max_quotes)
    return _has_quotes_above(limit, sample) or sample.count(b"{}") * _QUOTES_PER_EMPTY_OBJECT > limit


def has_many_strings(json: bytes) -> bool:
    return _has_quotes_above(_limit(len(json), MAX_QUOTES), _sample(json))


def is_mostly_empty(json: bytes) -> bool:
    """Whether finding the end of the values alone would block the event loop for too long."""
    sample = _sample(json)
    return sample.count(b'"",') + sample.count(b"{},") > _limit(len(json), MAX_EMPTY)


def count_strings(json: bytes) -> int:
    """The number of strings in JSON that has many; with escapes a lower bound, at least 2."""
    escapes = json.count(b"\\") if b"\\" in json else 0
    return max(2, (json.count(b'"') - escapes) // 2)


def _sample(json: bytes) -> bytes:
    return b"".join([json[start : start + _WINDOW] for start in range(0, len(json), _STRIDE)])


def _limit(size: int, per_mib: int) -> float:
    """How many of something the sample of JSON of `size` bytes may have, if the JSON may have `per_mib` in 1 MiB."""
    return per_mib * max(1, size / _MIB) * _WINDOW / _STRIDE


def _has_quotes_above(limit: float, sample: bytes) -> bool:
    quotes = sample.count(b'"')
    # Text has escaped quotation marks; those around strings are not escaped.
    return quotes > limit and quotes - sample.count(b'\\"') > limit
