"""The lock files of the images."""

import re
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
LOCKS = "compose/locks"


def pinned(name: str) -> dict[str, tuple[str, frozenset[str]]]:
    """Version and hashes by package of a lock file, without packages of other platforms."""
    found: dict[str, tuple[str, frozenset[str]]] = {}
    for entry in (ROOT / name).read_text(encoding="utf-8").replace("\\\n", " ").splitlines():
        words = entry.partition("--hash")[0]
        requirement = Requirement(words)
        if requirement.marker is None or requirement.marker.evaluate():
            found[requirement.name] = str(requirement.specifier), frozenset(re.findall(r"--hash=(\S+)", entry))
    return found
