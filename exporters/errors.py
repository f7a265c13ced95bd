"""The exception for mistakes that the user can fix; it never becomes a traceback."""


class UsageError(Exception):
    """A wrong flag, file or environment: the command line prints the text and exits with 2."""


def system_reason(error: OSError) -> str:
    """The operating system's reason, to be part of a message."""
    return (error.strerror or str(error)).lower()
