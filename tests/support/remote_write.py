"""Requests of Prometheus' remote write protocol 1.0, each with all series of a target."""

from collections.abc import Iterable, Mapping, Sequence
from http.client import HTTPConnection
from struct import pack_into

_HEADERS = {
    "Content-Type": "application/x-protobuf",
    "Content-Encoding": "snappy",
    "X-Prometheus-Remote-Write-Version": "0.1.0",
}


class WriteRequest:
    """The series of a target with a number of samples each; their labels are encoded once."""

    def __init__(self, series: Iterable[Mapping[str, str]], samples: int = 1) -> None:
        self._body, self._places = bytearray(), list[int]()
        for labels in series:
            pairs = (_field(1, name.encode()) + _field(2, value.encode()) for name, value in sorted(labels.items()))
            self._body += _field(1, b"".join(_field(1, pair) for pair in pairs) + samples * _SAMPLE)
            self._places.append(len(self._body) - samples * len(_SAMPLE) + 3)

    def at(self, samples: Iterable[tuple[int, Sequence[float]]]) -> bytes:
        """The compressed request, from times in seconds and the values of all series. Its Snappy has one literal."""
        for number, (seconds, values) in enumerate(samples):
            time, later = b"\x10" + _varint(1000 * seconds), number * len(_SAMPLE)
            for place, value in zip(self._places, values, strict=True):
                pack_into("<d7s", self._body, place + later, value, time)
        return _varint(len(self._body)) + b"\xfc" + (len(self._body) - 1).to_bytes(4, "little") + self._body


def write(server: HTTPConnection, body: bytes) -> None:
    """Send a request, and wait until it is accepted."""
    server.request("POST", "/api/v1/write", body, _HEADERS)
    response = server.getresponse()
    text = response.read()
    assert response.status == 204, text


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


_SAMPLE = _field(2, b"\x09" + bytes(8) + b"\x10" + bytes(6))
"""A tag and the 8 bytes of a value, a tag and the 6 bytes of a time."""
