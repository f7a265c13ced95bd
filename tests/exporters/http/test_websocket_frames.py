"""Finding the close frame of a WebSocket, without sockets."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporters.http.websocket_frames import MAX_FRAMES, FrameScanner

CLOSE = b"\x88\x00"


def frame(opcode: int, size: int, *, masked: bool, final: bool) -> bytes:
    """A frame whose payload would be close frames if it were taken for headers."""
    bit = 0x80 if masked else 0
    if size < 126:
        length = bytes([bit | size])
    elif size < 65_536:
        length = bytes([bit | 126]) + size.to_bytes(2, "big")
    else:
        length = bytes([bit | 127]) + size.to_bytes(8, "big")
    return bytes([0x80 * final | opcode]) + length + b"mask" * masked + (CLOSE * size)[:size]


FRAMES = st.builds(
    frame,
    st.sampled_from([0, 1, 2, 9, 10]),
    st.sampled_from([0, 1, 2, 125, 126, 300, 65_535, 65_536]),
    masked=st.booleans(),
    final=st.booleans(),
)


@settings(max_examples=60)
@given(st.lists(FRAMES, max_size=6), st.booleans(), st.lists(st.integers(0, 500_000)))
def test_a_close_frame_is_found_in_any_sequence_and_any_split(
    frames: list[bytes], has_close: bool, cuts: list[int]
) -> None:
    data = b"".join(frames) + frame(8, 2, masked=True, final=True) * has_close
    scanner = FrameScanner()
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    for start, end in itertools.pairwise(edges):
        scanner.feed(data[start:end])
    assert scanner.closed == has_close


def test_a_close_frame_is_found_byte_by_byte() -> None:
    scanner = FrameScanner()
    for byte in frame(9, 300, masked=True, final=True) + CLOSE:
        assert not scanner.closed
        scanner.feed(bytes([byte]))
    scanner.feed(b"\x00")
    assert scanner.closed


@pytest.mark.parametrize("frames, found", [(MAX_FRAMES - 1, True), (MAX_FRAMES, False)])
def test_a_read_of_more_frames_is_not_searched(frames: int, found: bool) -> None:
    scanner = FrameScanner()
    scanner.feed(b"\x82\x00" * frames + CLOSE)
    assert scanner.closed == found
    scanner.feed(CLOSE)
    assert scanner.closed == found
