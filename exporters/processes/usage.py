"""CPU time and memory of this process."""

import resource
import time
from pathlib import Path

from exporters.records.messages import Footprint

_STATM = Path("/proc/self/statm")


def footprint() -> Footprint:
    """CPU time and memory from the kernel; the memory is unknown without /proc."""
    try:
        pages = int(_STATM.read_bytes().split()[1])
    except OSError:
        return Footprint(time.process_time(), None)
    return Footprint(time.process_time(), pages * resource.getpagesize())
