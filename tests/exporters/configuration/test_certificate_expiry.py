"""The end of validity, from encodings by hand; `test_tls.py` compares it with what openssl shows."""

import pytest

from exporters.configuration.certificate_expiry import expiry


def element(tag: int, content: bytes) -> bytes:
    size = len(content)
    length = bytes([size]) if size < 128 else bytes([0x82, *size.to_bytes(2, "big")])
    return bytes([tag]) + length + content


def certificate(not_after: bytes, *, version: bytes = b"", issuer: int = 10) -> bytes:
    validity = element(0x30, element(0x17, b"200101000000Z") + not_after)
    fields = version + element(2, b"\1") + element(0x30, b"") + element(0x30, bytes(issuer)) + validity
    return element(0x30, element(0x30, fields) + element(0x30, b""))


VERSION_3 = element(0xA0, element(2, b"\2"))


@pytest.mark.parametrize(
    "der, end",
    [
        pytest.param(certificate(element(0x17, b"300101000000Z")), 1893456000.0, id="version 1, UTCTime"),
        pytest.param(certificate(element(0x17, b"300101000000Z"), version=VERSION_3), 1893456000.0, id="version 3"),
        pytest.param(certificate(element(0x17, b"300101000000Z"), issuer=300), 1893456000.0, id="long lengths"),
        pytest.param(certificate(element(0x17, b"500101000000Z")), -631152000.0, id="UTCTime of 50 is 1950"),
        pytest.param(certificate(element(0x18, b"20500101000000Z")), 2524608000.0, id="GeneralizedTime"),
    ],
)
def test_the_expiry_is_the_second_time_of_the_validity(der: bytes, end: float) -> None:
    assert expiry(der) == end


@pytest.mark.parametrize(
    "der",
    [
        pytest.param(b"", id="empty"),
        pytest.param(certificate(element(0x17, b"300101000000Z"))[:40], id="cut off"),
        pytest.param(certificate(element(0x17, b"no time")), id="not a time"),
        pytest.param(b"\x30\x00", id="no fields"),
    ],
)
def test_what_is_not_a_certificate_is_refused(der: bytes) -> None:
    with pytest.raises(ValueError, match="its validity cannot be read"):
        expiry(der)
