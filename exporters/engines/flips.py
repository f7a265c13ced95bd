"""Notices when an engine's visible configuration changes, and when that was."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Change:
    """One setting that changed; `at` in unix seconds."""

    setting: str
    old: str
    new: str
    at: float


def revision(settings: Mapping[str, str]) -> str:
    """A short hash of all settings: equal for equal configurations, on any machine."""
    return hashlib.sha256(json.dumps(dict(sorted(settings.items()))).encode()).hexdigest()[:12]


class ConfigWatch:
    """The settings of one engine over time; a restart with the same settings is no change."""

    def __init__(self) -> None:
        self.settings: dict[str, str] = {}
        self.changes: dict[tuple[str, str, str], Change] = {}
        self._seen_at: float | None = None

    def observe(self, settings: Mapping[str, str], start_time: float | None, now: float) -> list[Change]:
        """The engine's settings as seen at `now` (unix); returns what is different from the time before.

        Settings only change with a new process, so the change is dated to the engine's start where that is
        known and lies since the last look; else to this look.
        """
        changed: list[Change] = []
        if self._seen_at is not None:
            started = start_time is not None and self._seen_at - 1 <= start_time <= now
            at = start_time if started and start_time is not None else now
            for setting in sorted(self.settings.keys() & settings.keys()):
                old, new = self.settings[setting], settings[setting]
                if old != new:
                    changed.append(Change(setting, old, new, at))
        for change in changed:
            self.changes[change.setting, change.old, change.new] = change
        self.settings = {**self.settings, **settings}
        self._seen_at = now
        return changed

    @property
    def revision(self) -> str | None:
        return revision(self.settings) if self.settings else None
