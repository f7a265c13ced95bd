"""Reads a bearer token from the file of a flag."""

from exporters.errors import UsageError, read_text


def read_token(path: str, flag: str, hint: str = "", *, what: str = "token") -> str:
    """Read the file of a token or of something else (`what`); `hint` ends the message about an invalid one.

    Raises:
        UsageError: it contains no valid token; the message shows nothing of the file.
    """
    words = read_text(path, flag).split()
    if len(words) != 1 or not words[0].isascii() or not words[0].isprintable():
        raise UsageError(f"{flag}: {path}: a {what} is one word of printable ASCII{hint}")
    return words[0]
