"""Detects config changes, from the settings that an engine shows and those that an operator declares."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import inf

FINGERPRINT = "system_fingerprint"
"""The engine's hash of its settings: a change of it does not show which setting changed."""

UNKNOWN = "unknown"
"""The old value of a setting that is declared for the first time."""

SAME_CHANGE_SECONDS = 600.0
"""A declaration within this time of a changed fingerprint describes the same config change."""

FINGERPRINT_WAIT = 60.0
"""Seconds for which responses of APIs without a fingerprint may precede one with it."""

MAX_CHANGES = 200
"""The number of changes that are stored per engine; older ones are dropped."""


class DeclarationResult(StrEnum):
    """The effect of declaring one setting."""

    CHANGED = "flipped"
    # The engine shows this value: the recorded change to it gets the note.
    NOTE_ADDED = "noted"
    # The engine shows another value: a later change to the declared value gets the note.
    PENDING = "awaited"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """The change of one setting; `at` in unix seconds."""

    setting: str
    old: str
    new: str
    at: float
    note: str = ""


@dataclass(frozen=True, slots=True)
class ShownValue:
    """A value that the engine shows, and the start time of the last process that showed it."""

    value: str
    start: float | None


@dataclass(frozen=True, slots=True)
class PendingDeclaration:
    """A declared value that the engine does not show yet."""

    value: str
    note: str


def revision(settings: Mapping[str, str]) -> str:
    """A short hash of the settings, equal for equal settings on any machine."""
    return hashlib.sha256(json.dumps(dict(sorted(settings.items()))).encode()).hexdigest()[:12]


@dataclass(slots=True)
class ConfigHistory:
    """The state of one engine that is stored."""

    shown: dict[str, ShownValue] = field(default_factory=dict)
    declared: dict[str, str] = field(default_factory=dict)
    awaited: dict[str, PendingDeclaration] = field(default_factory=dict)
    changes: list[ConfigChange] = field(default_factory=list)
    start: float | None = None
    """The start time of the last process, by the engine's clock."""
    began: float | None = None
    """The same time by our clock; None for the first process."""


class ConfigWatch:
    """The settings of one engine over time; a restart with the same settings is not a change.

    Settings change only with a new process, so the time of a change is the start of the process, even if the setting is
    read later. A process has one fingerprint, so another fingerprint is from another engine at the same address.
    """

    def __init__(self, history: ConfigHistory | None = None, observed_at: float | None = None) -> None:
        """Continue a stored history whose last observation was at `observed_at`."""
        self.history = history or ConfigHistory()
        self.settings_pending = False
        """Whether a response that may show the setting behind a changed fingerprint has not been read yet."""
        self.fingerprint_pending = False
        """Whether the first fingerprint may still come; once it is known, this has no effect."""
        self._without_fingerprint_since = inf
        self._observed_at = observed_at
        self._latest_fingerprint: str | None = None
        # The first observation of the current process.
        self._process_observed_at = 0.0
        self._declared_at: float | None = None

    @property
    def changes(self) -> list[ConfigChange]:
        return self.history.changes

    @property
    def settings(self) -> dict[str, str]:
        return self.history.declared | {setting: shown.value for setting, shown in self.history.shown.items()}

    @property
    def revision(self) -> str | None:
        """None until the first fingerprint is known, which would otherwise look like a config change."""
        if not self.settings or (self.fingerprint_pending and FINGERPRINT not in self.history.shown):
            return None
        return revision(self.settings)

    def observe_no_fingerprint(self, at: float, *, certain: bool) -> None:
        """Record a response without a fingerprint; `certain`: its API has one, so this engine has none."""
        self._without_fingerprint_since = min(self._without_fingerprint_since, at)
        if certain or at - self._without_fingerprint_since >= FINGERPRINT_WAIT:
            self.fingerprint_pending = False

    def observe_fingerprint(self, fingerprint: str, at: float) -> None:
        """Record the fingerprint of a response that ended at `at`."""
        # An earlier response may be from the previous process.
        if at > self._process_observed_at:
            self._latest_fingerprint = fingerprint
            # Immediately, so that this response is logged with the right revision.
            self.observe({}, self.history.start, at)

    def observe(self, settings: Mapping[str, str], start: float | None, now: float) -> list[ConfigChange]:
        """Record the settings shown at `now` (unix) by a process started at `start`; returns the config changes."""
        history = self.history
        if start is not None and start != history.start:
            if history.start is not None and self._observed_at is not None:
                # Outside this range, the engine's clock differs from ours.
                history.began = start if self._observed_at - 1 <= start <= now else now
                self._latest_fingerprint, self._process_observed_at = None, now
            history.start = start
        self._observed_at = now
        changes = []
        for setting, value in sorted({**settings, **self._shown_fingerprint(start)}.items()):
            previous = history.shown.get(setting)
            history.shown[setting] = ShownValue(value, start)
            if previous is not None and previous.value != value:
                is_new_process = start is not None and previous.start not in {start, None}
                at = history.began if is_new_process and history.began is not None else now
                change = ConfigChange(setting, previous.value, value, at, self._pop_note(setting, value))
                if setting != FINGERPRINT or not self._is_explained(change):
                    changes.append(change)
        named = [change for change in changes if change.setting != FINGERPRINT]
        for change in named or changes:
            self._store(change)
        return named or changes

    def declare(self, settings: Mapping[str, str], note: str, now: float) -> dict[str, DeclarationResult]:
        """Record an operator's declaration at `now` that the engine runs with these settings."""
        # A declaration names the setting behind a recent change of the fingerprint, and gets its time.
        fingerprint_changes = [change.at for change in self.changes if change.setting == FINGERPRINT]
        unexplained = [at for at in fingerprint_changes if now - at <= SAME_CHANGE_SECONDS]
        results = {}
        for setting, value in settings.items():
            shown = self.history.shown.get(setting)
            if shown is not None and shown.start == self.history.start:
                results[setting] = self._declare_shown(setting, shown.value, value, note)
                continue
            # Only an earlier process showed it.
            self.history.shown.pop(setting, None)
            old = self.history.declared.get(setting, UNKNOWN) if shown is None else shown.value
            self.history.declared[setting] = value
            results[setting] = DeclarationResult.UNCHANGED if old == value else DeclarationResult.CHANGED
            if old != value:
                self._store(ConfigChange(setting, old, value, unexplained[-1] if unexplained else now, note))
        if not unexplained and DeclarationResult.CHANGED in results.values():
            self._declared_at = now
        return results

    def _declare_shown(self, setting: str, shown: str, value: str, note: str) -> DeclarationResult:
        if not _is_same_value(shown, value):
            self.history.awaited[setting] = PendingDeclaration(value, note)
            return DeclarationResult.PENDING
        changes = self.history.changes
        for index in reversed(range(len(changes))):
            if (changes[index].setting, changes[index].new) == (setting, shown):
                changes[index] = replace(changes[index], note=note)
                return DeclarationResult.NOTE_ADDED
        return DeclarationResult.UNCHANGED

    def _shown_fingerprint(self, start: float | None) -> dict[str, str]:
        fingerprint, previous = self._latest_fingerprint, self.history.shown.get(FINGERPRINT)
        if fingerprint is None or self.settings_pending:
            return {}
        if previous is not None and start is not None and previous.start == start and previous.value != fingerprint:
            # The fingerprint is from another engine at the same address.
            return {}
        return {FINGERPRINT: fingerprint}

    def _pop_note(self, setting: str, value: str) -> str:
        pending = self.history.awaited.pop(setting, None)
        return pending.note if pending is not None and _is_same_value(pending.value, value) else ""

    def _is_explained(self, fingerprint_change: ConfigChange) -> bool:
        """Whether another change or a declaration belongs to the same config change."""
        at = fingerprint_change.at
        if self._declared_at is not None and abs(self._declared_at - at) <= SAME_CHANGE_SECONDS:
            # A declaration explains only one change.
            self._declared_at = None
            return True
        named = (change for change in self.history.changes if change.setting != FINGERPRINT)
        return any(self._is_same_time(change, fingerprint_change) for change in named)

    def _is_same_time(self, one: ConfigChange, other: ConfigChange) -> bool:
        """Whether both are of the same process; without known start times, whether they are close in time."""
        if self.history.start is not None:
            return one.at == other.at
        return abs(one.at - other.at) <= SAME_CHANGE_SECONDS

    def _store(self, change: ConfigChange) -> None:
        """Append a change and remove the changes that it supersedes."""
        self.history.changes = [each for each in self.history.changes if not self._supersedes(change, each)]
        self.history.changes.append(change)
        del self.history.changes[:-MAX_CHANGES]

    def _supersedes(self, change: ConfigChange, older: ConfigChange) -> bool:
        """Whether `older` is an earlier equal change, or the change of the fingerprint with the same process."""
        is_repeated = (older.setting, older.old, older.new) == (change.setting, change.old, change.new)
        is_fingerprint = older.setting == FINGERPRINT and change.setting != FINGERPRINT
        return is_repeated or (is_fingerprint and self._is_same_time(older, change))


def _is_same_value(shown: str, declared: str) -> bool:
    """Whether both values mean the same: vLLM writes `True`, operators write `true`."""
    return shown.casefold() == declared.casefold()
