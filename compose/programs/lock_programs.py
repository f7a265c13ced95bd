"""`python -m compose.programs.lock_programs`: pins the versions in `programs.lock` by the checksums of the releases."""

import io
import json
import re
import sys

from compose.programs import release_archives
from compose.programs.release_archives import PLATFORMS, ArchiveUnavailableError, Lock, Release
from exporters.text.errors import UsageError

CHECKSUMS = "sha256sums.txt"
_LINE = re.compile(r"(?P<sha256>[0-9a-f]{64}) [ *](?P<file>\S+)")


def main() -> int:
    """0 when the lock file was written, 2 when a checksum was not available; then the file is unchanged."""
    path = release_archives.LOCK
    try:
        lock = release_archives.read_lock()
        pinned = {release.name: _pin(lock, release) for release in lock.releases}
    except (ArchiveUnavailableError, UsageError) as error:
        print(f"lock-programs: {error}; {path} is unchanged", file=sys.stderr)
        return 2
    # In one step, so that a killed process leaves no half-written file.
    temporary = path.with_name(f"{path.name}.new")
    temporary.write_text(json.dumps({"base": lock.base, "releases": pinned}, indent=2) + "\n", encoding="utf-8")
    temporary.replace(path)
    return 0


def _pin(lock: Lock, release: Release) -> dict[str, object]:
    url = lock.url(release, CHECKSUMS)
    file = io.BytesIO()
    release_archives.download(url, file, print)
    matches = map(_LINE.fullmatch, file.getvalue().decode("utf-8", "replace").splitlines())
    published = {match["file"]: match["sha256"] for match in matches if match}
    archives = [release.archive(target) for target in PLATFORMS]
    if absent := [archive for archive in archives if archive not in published]:
        raise UsageError(f"{url}: has no checksum of {', '.join(absent)}")
    print(f"{release.name} {release.version}: {len(archives)} checksums read from {url}")
    return {"version": release.version, "sha256": {archive: published[archive] for archive in archives}}


if __name__ == "__main__":
    raise SystemExit(main())
