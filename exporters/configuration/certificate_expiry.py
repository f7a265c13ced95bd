"""The end of a certificate's validity, read from its DER encoding: `ssl` shows it only for a verified peer."""

from datetime import UTC, datetime

_CONTEXT_0, _UTC_TIME = 0xA0, 0x17


def expiry(der: bytes) -> float:
    """`notAfter` in unix seconds (RFC 5280, 4.1); raises ValueError if this is not the encoding of a certificate."""
    try:
        certificate, _ = _content(der)
        rest, _ = _content(certificate)
        if rest[0] == _CONTEXT_0:  # the version, which certificates of version 1 lack
            _, rest = _content(rest)
        for _field in ("serial number", "algorithm", "issuer"):
            _, rest = _content(rest)
        validity, _ = _content(rest)
        _, not_after = _content(validity)
        text = _content(not_after)[0].decode("ascii")
        year = "%y" if not_after[0] == _UTC_TIME else "%Y"
        end = datetime.strptime(text, f"{year}%m%d%H%M%SZ").replace(tzinfo=UTC)
    except (IndexError, ValueError) as error:
        raise ValueError("its validity cannot be read") from error
    if year == "%y" and end.year >= 2050:  # strptime reads 50 to 68 as 2050 to 2068; RFC 5280 as 1950 to 1968
        end = end.replace(year=end.year - 100)
    return end.timestamp()


def _content(der: bytes) -> tuple[bytes, bytes]:
    """The content of the first element, and what follows it."""
    start, length = 2, der[1]
    if length >= 0x80:
        start += length & 0x7F
        length = int.from_bytes(der[2:start], "big")
    if len(der) < start + length:
        raise ValueError("an element is cut off")
    return der[start : start + length], der[start + length :]
