"""What the person at the keyboard has to mend, as one exception that never becomes a traceback."""


class UsageError(Exception):
    """A wrong flag, file or environment: the command line prints the text and exits with 2."""


def system_reason(error: OSError) -> str:
    """The system's own reason, to stand within a message."""
    return (error.strerror or str(error)).lower()
