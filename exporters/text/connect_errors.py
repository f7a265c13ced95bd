"""Why a connection to an engine could not be opened, as a text and as the value of a label."""

import os
import re
import socket
import ssl

from exporters.text.errors import system_reason

_CODES = re.compile(r"^\[[^]]*\] | \(_ssl\.c:\d+\)$")

LOOKUP, REFUSED, TIMEOUT, TLS, OTHER_FAILURE = KINDS = ("lookup", "refused", "timeout", "tls", "other")
"""Label values; `lookup` is a host name that cannot be resolved."""


def tls_reason(error: ssl.SSLError) -> str:
    """The reason of a TLS error, without OpenSSL's codes and source lines."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message.rstrip('.')}"
    return _CODES.sub("", str(error)).lower()


def connect_reason(error: Exception) -> str:
    """The reason for a message."""
    if isinstance(error, ssl.SSLError):
        return tls_reason(error)
    if _ended_in_handshake(error):
        return "the connection was closed in the TLS handshake"
    if isinstance(error, OSError) and error.errno and error.errno > 0:
        return os.strerror(error.errno).lower()  # the loop has its own texts
    text = system_reason(error) if isinstance(error, OSError) else str(error).lower()
    return text or type(error).__name__


def connect_kind(error: Exception) -> str:
    """The kind of error for the label `reason`."""
    if isinstance(error, socket.gaierror | UnicodeError):
        return LOOKUP
    if isinstance(error, ConnectionRefusedError):
        return REFUSED
    if isinstance(error, TimeoutError):
        return TIMEOUT
    return TLS if isinstance(error, ssl.SSLError) or _ended_in_handshake(error) else OTHER_FAILURE


def _ended_in_handshake(error: Exception) -> bool:
    """Whether the event loop reports the end of a connection."""
    return isinstance(error, ConnectionError) and not error.args
