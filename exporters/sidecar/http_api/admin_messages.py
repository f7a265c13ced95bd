"""The messages and the token of the endpoints under /admin/, for the server and for the commands that call it."""

import re

import msgspec

from exporters.engines.changes.config_changes import DeclarationResult
from exporters.text.token_file import read_token

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,99}")
MAX_VALUE_LENGTH, MAX_NOTE_LENGTH = 200, 1000


def read_admin_token(path: str, flag: str) -> bytes:
    """Read the file of an admin token.

    Raises:
        UsageError: it contains no valid token; the message shows nothing of the file.
    """
    return read_token(path, flag, "; generate one with: openssl rand -hex 32").encode()


class Declaration(msgspec.Struct, forbid_unknown_fields=True):
    """The body of POST /admin/flip; without `engine` it applies to every engine."""

    set: dict[str, str]
    note: str = ""
    engine: str | None = None


class Accepted(msgspec.Struct):
    """The result for each setting, by engine."""

    engines: dict[str, dict[str, DeclarationResult]]


class Drained(msgspec.Struct, omit_defaults=True):
    """The response to POST /admin/drain."""

    seconds: float
    cut_requests: int
    """Requests that were open at the end of the drain."""
    engines: list[str] = []
    """A line for each engine that was wedged or down then."""


class Warmed(msgspec.Struct):
    """The response to POST /admin/warm: the engines that count as warm."""

    engines: list[str]


class Refused(msgspec.Struct):
    """All mistakes of a rejected declaration."""

    errors: list[str]


def mistakes(declaration: Declaration) -> list[str]:
    """The mistakes of a declaration that do not depend on the engines."""
    errors = (
        [] if declaration.set else ["set: is empty; declare at least one setting, such as scheduling_policy=priority"]
    )
    for name, value in declaration.set.items():
        if not _NAME.fullmatch(name):
            errors.append(
                f"set: {name[:100]!r} is not a valid name; write 1 to 100 letters, digits and _.:-, no digit first"
            )
        elif not value or len(value) > MAX_VALUE_LENGTH or not value.isprintable():
            errors.append(f"set: {name}: a value is 1 to {MAX_VALUE_LENGTH} printable characters")
    if len(declaration.note) > MAX_NOTE_LENGTH:
        errors.append(f"note: has {len(declaration.note)} characters; the limit is {MAX_NOTE_LENGTH}")
    return errors
