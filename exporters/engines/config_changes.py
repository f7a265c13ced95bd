"""Notices when an engine's configuration changes, by what it shows and by what an operator declares."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

FINGERPRINT = "system_fingerprint"
"""A hash of settings that have no name outside the engine: it tells that something changed, and not what."""

UNKNOWN = "unknown"
"""The old value of what is declared for the first time."""

SAME_FLIP_SECONDS = 600.0
"""A declaration so near a changed fingerprint says what changed there: they are one flip."""

KEPT = 200
"""Changes of an engine that are remembered, the newest."""


class Taken(StrEnum):
    """What became of one declared setting."""

    FLIPPED = "flipped"
    NOTED = "noted"  # the engine shows it by itself, and has flipped: the note goes there
    AWAITED = "awaited"  # the engine shows another value: the flip counts, with its note, when it shows this one
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True)
class Change:
    """One setting that changed; `at` in unix seconds."""

    setting: str
    old: str
    new: str
    at: float
    note: str = ""


@dataclass(frozen=True, slots=True)
class Shown:
    """A value that the engine shows, and the start time of the process that showed it last."""

    value: str
    start: float | None


@dataclass(frozen=True, slots=True)
class Awaited:
    """What an operator said of a setting that the engine will show by itself."""

    value: str
    note: str


def revision(settings: Mapping[str, str]) -> str:
    """A short hash of all settings: equal for equal configurations, on any machine."""
    return hashlib.sha256(json.dumps(dict(sorted(settings.items()))).encode()).hexdigest()[:12]


@dataclass(slots=True)
class Known:
    """All that must outlive the sidecar, of one engine."""

    shown: dict[str, Shown] = field(default_factory=dict)
    declared: dict[str, str] = field(default_factory=dict)
    awaited: dict[str, Awaited] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    start: float | None = None
    """Start time of the process that was seen last, as it says itself."""
    began: float | None = None
    """When that was by our clock, if the one before was seen too."""


class ConfigWatch:
    """The settings of one engine over time; a restart with the same settings is no change.

    Settings only change with a new process. So what a new one shows otherwise has changed at its start, however late
    it was asked; and a process has one fingerprint, so another one comes from another engine behind the same address.
    """

    def __init__(self, known: Known | None = None, seen_at: float | None = None) -> None:
        """Go on from what was known at `seen_at`."""
        self.known = known or Known()
        self.more_to_come = False
        """Whether the engine has still to tell settings that may name what its fingerprint tells of."""
        self._seen_at = seen_at
        self._answered: str | None = None
        self._noticed_at = 0.0  # when the present process was seen first
        self._declared_at: float | None = None

    @property
    def changes(self) -> list[Change]:
        return self.known.changes

    @property
    def settings(self) -> dict[str, str]:
        return self.known.declared | {setting: shown.value for setting, shown in self.known.shown.items()}

    @property
    def revision(self) -> str | None:
        return revision(self.settings) if self.settings else None

    def answered(self, fingerprint: str, at: float) -> None:
        """An answer of the engine that ended at `at` carried this fingerprint."""
        if at > self._noticed_at:  # else it may be of the process before
            self._answered = fingerprint
            self.observe({}, self.known.start, at)  # at once, so that its own line in the log has the right revision

    def observe(self, settings: Mapping[str, str], start: float | None, now: float) -> list[Change]:
        """The settings as seen at `now` (unix), of a process started at `start`; returns what counts as changed."""
        if start is not None and start != self.known.start:
            if self.known.start is not None and self._seen_at is not None:
                self.known.began = start if self._seen_at - 1 <= start <= now else now  # else its clock is not ours
                self._answered, self._noticed_at = None, now
            self.known.start = start
        self._seen_at = now
        changed = []
        for setting, value in sorted({**settings, **self._fingerprint(start)}.items()):
            before = self.known.shown.get(setting)
            self.known.shown[setting] = Shown(value, start)
            if before is not None and before.value != value:
                came_with_process = start is not None and before.start not in {start, None}
                at = self.known.began if came_with_process and self.known.began is not None else now
                change = Change(setting, before.value, value, at, self._note(setting, value))
                if setting != FINGERPRINT or not self._explained(change):
                    changed.append(change)
        named = [change for change in changed if change.setting != FINGERPRINT]
        for change in named or changed:
            self._keep(change)
        return named or changed

    def declare(self, settings: Mapping[str, str], note: str, now: float) -> dict[str, Taken]:
        """An operator says that these settings hold now."""
        nameless = next((each for each in reversed(self.known.changes) if _nameless(each, now)), None)
        taken = {}
        for setting, value in settings.items():
            shown = self.known.shown.get(setting)
            if shown is not None and shown.start == self.known.start:
                taken[setting] = self._declare_shown(setting, shown.value, value, note)
                continue
            self.known.shown.pop(setting, None)  # by a process before this one
            old = self.known.declared.get(setting, UNKNOWN) if shown is None else shown.value
            self.known.declared[setting] = value
            taken[setting] = Taken.UNCHANGED if old == value else Taken.FLIPPED
            if old != value:
                self._keep(Change(setting, old, value, now if nameless is None else nameless.at, note))
        if nameless is None and Taken.FLIPPED in taken.values():
            self._declared_at = now
        return taken

    def _declare_shown(self, setting: str, shown: str, value: str, note: str) -> Taken:
        if not _same(shown, value):
            self.known.awaited[setting] = Awaited(value, note)
            return Taken.AWAITED
        changes = self.known.changes
        for index in reversed(range(len(changes))):
            if (changes[index].setting, changes[index].new) == (setting, shown):
                changes[index] = replace(changes[index], note=note)
                return Taken.NOTED
        return Taken.UNCHANGED

    def _fingerprint(self, start: float | None) -> dict[str, str]:
        known = self.known.shown.get(FINGERPRINT)
        if self._answered is None or self.more_to_come:
            return {}
        strange = known is not None and start is not None and known.start == start and known.value != self._answered
        return {} if strange else {FINGERPRINT: self._answered}

    def _note(self, setting: str, value: str) -> str:
        awaited = self.known.awaited.pop(setting, None)
        return awaited.note if awaited is not None and _same(awaited.value, value) else ""

    def _explained(self, change: Change) -> bool:
        """Whether another change is what the fingerprint tells of."""
        if self._declared_at is not None and abs(self._declared_at - change.at) <= SAME_FLIP_SECONDS:
            self._declared_at = None  # a declaration explains one flip, or the next one would be missed
            return True
        return any(self._at_once(each, change) for each in self.known.changes if each.setting != FINGERPRINT)

    def _at_once(self, one: Change, other: Change) -> bool:
        """Whether both came with the same process; where no start is known, whether they may have."""
        return one.at == other.at if self.known.start is not None else abs(one.at - other.at) <= SAME_FLIP_SECONDS

    def _keep(self, change: Change) -> None:
        """A flip back and forth keeps the last time of each direction, and one that is named loses its fingerprint."""
        self.known.changes = [each for each in self.known.changes if not self._replaces(change, each)]
        self.known.changes.append(change)
        del self.known.changes[:-KEPT]

    def _replaces(self, change: Change, each: Change) -> bool:
        again = (each.setting, each.old, each.new) == (change.setting, change.old, change.new)
        named = each.setting == FINGERPRINT and change.setting != FINGERPRINT and self._at_once(each, change)
        return again or named


def _nameless(change: Change, now: float) -> bool:
    """Whether nobody has yet said what changed there, and may still."""
    return change.setting == FINGERPRINT and now - change.at <= SAME_FLIP_SECONDS


def _same(shown: str, declared: str) -> bool:
    """Whether they mean the same: vLLM spells values as Python does, operators write true."""
    return shown.casefold() == declared.casefold()
