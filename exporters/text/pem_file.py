"""Files with certificates and keys. Only the supervisor reads them: a child that restarts needs no valid file."""

import contextlib
import os
from collections.abc import Iterator
from io import FileIO
from pathlib import Path

import msgspec

from exporters.text.errors import UsageError, system_reason


class PemFile(msgspec.Struct, frozen=True):
    """The content of a file, and its path for messages."""

    path: str
    content: bytes

    def __repr__(self) -> str:
        return f"PemFile({self.path!r})"  # the content may be a private key

    @contextlib.contextmanager
    def in_memory(self) -> Iterator[str]:
        """The path of a file in memory with the content, as OpenSSL reads only files; not on Linux, the file itself."""
        try:
            descriptor = os.memfd_create("pem")
        except (AttributeError, OSError):
            yield self.path
            return
        with FileIO(descriptor, "w") as file:
            file.write(self.content)
            yield f"/proc/self/fd/{descriptor}"


def read(path: str, name: str) -> PemFile:
    """Read a file; `name` is its flag or variable, for messages. Raises UsageError if the file cannot be read."""
    try:
        return PemFile(path, Path(path).read_bytes())
    except OSError as error:
        raise UsageError(f"{name}: {path} cannot be read: {system_reason(error)}") from error
