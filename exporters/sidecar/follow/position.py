"""The position in a file of the followed log, which finds the file again after it was renamed, copied or compressed."""

from hashlib import blake2b

import msgspec

from exporters.sidecar.follow.log_parts import PartFile

TAIL = 4096
"""Bytes before the position that have to be the same: inodes are used again, and a log may be cut and grow again."""


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """The position behind the last line that was read, in one file."""

    device: int
    inode: int
    offset: int
    known: int  # the offset, or behind the first bytes if none was read; 0 if the file was empty
    tail: bytes  # a digest of the bytes before `known`, because the state must not have text of the log
    modified: int  # nanoseconds; when the file was written last
    skipping: bool = False  # within a line that is too long

    def is_in(self, file: PartFile) -> bool:
        """Whether the file has the known bytes.

        Raises:
            OSError: it cannot be read.
        """
        return digest(tail_of(file, self.known)) == self.tail


def tail_of(file: PartFile, offset: int) -> bytes:
    size = min(offset, TAIL)
    return file.read(offset - size, size)


def digest(tail: bytes) -> bytes:
    return blake2b(tail, digest_size=16).digest()
