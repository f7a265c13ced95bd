"""The number of clients that the limit of open files allows."""

import resource
import sys

MAX_REJECTING = 32
"""Clients above the limit that are getting an error response; further ones are disconnected without one."""

_OWN_DESCRIPTORS = 64
"""Open files for standard streams, the event loop, the exporter, name resolution and TLS files."""


def client_limit(descriptors: int) -> int:
    """The maximum number of clients with `descriptors` open files: each may also need a connection to the engine."""
    if descriptors == resource.RLIM_INFINITY:
        return sys.maxsize
    return max(1, (descriptors - _OWN_DESCRIPTORS - MAX_REJECTING) // 2)


def descriptors_for(clients: int) -> int:
    """The open files that a relay needs for so many clients."""
    return 2 * clients + _OWN_DESCRIPTORS + MAX_REJECTING


def process_client_limit() -> int:
    """The maximum number of clients of this process."""
    return client_limit(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
