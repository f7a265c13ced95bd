"""Reads a bearer token from the file of a flag, or from text."""

from exporters.text.errors import UsageError, read_text


def read_token(path: str, flag: str, hint: str = "", *, what: str = "token") -> str:
    """Read the file of a token or of something else (`what`); `hint` ends the message about an invalid one.

    Raises:
        UsageError: it contains no valid token; the message shows nothing of the file.
    """
    return parse_token(read_text(path, flag), f"{flag}: {path}", hint, what=what)


def parse_token(text: str, source: str, hint: str = "", *, what: str = "token") -> str:
    """The token in a text from `source`.

    Raises:
        UsageError: it contains no valid token; the message shows nothing of the text.
    """
    words = text.split()
    if len(words) != 1 or not words[0].isascii() or not words[0].isprintable():
        raise UsageError(f"{source}: a {what} is one word of printable ASCII{hint}")
    return words[0]
