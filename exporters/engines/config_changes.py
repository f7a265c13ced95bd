"""Detects changes of an engine's configuration, from what the engine shows and what an operator declares."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

FINGERPRINT = "system_fingerprint"
"""The engine's hash of settings that it does not show by name: it shows that something changed, but not what."""

UNKNOWN = "unknown"
"""The old value of a setting that is declared for the first time."""

SAME_CHANGE_SECONDS = 600.0
"""A declaration within this time of a changed fingerprint describes the same config change."""

MAX_CHANGES = 200
"""The number of changes that are stored per engine; older ones are dropped."""


class DeclarationResult(StrEnum):
    """The effect of declaring one setting."""

    CHANGED = "flipped"
    NOTE_ADDED = "noted"  # the engine shows this value, and its change was recorded: that change gets the note
    PENDING = "awaited"  # the engine shows another value: a change to the declared value gets the note
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """One setting that changed; `at` in unix seconds."""

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
    """A declared value of a setting that the engine shows, while the engine shows another value."""

    value: str
    note: str


def revision(settings: Mapping[str, str]) -> str:
    """A short hash of all settings: equal for equal configurations, on any machine."""
    return hashlib.sha256(json.dumps(dict(sorted(settings.items()))).encode()).hexdigest()[:12]


@dataclass(slots=True)
class ConfigHistory:
    """The state of one engine that must survive a restart of the sidecar."""

    shown: dict[str, ShownValue] = field(default_factory=dict)
    declared: dict[str, str] = field(default_factory=dict)
    awaited: dict[str, PendingDeclaration] = field(default_factory=dict)
    changes: list[ConfigChange] = field(default_factory=list)
    start: float | None = None
    """The start time of the last process, as the engine states it."""
    began: float | None = None
    """The same time by our clock; None for the first process."""


class ConfigWatch:
    """The settings of one engine over time; a restart with the same settings is no change.

    Settings change only with a new process, so a different value has changed at the start of its process, however late
    it is read. A process has one fingerprint, so another one comes from another engine behind the same address.
    """

    def __init__(self, history: ConfigHistory | None = None, observed_at: float | None = None) -> None:
        """Continue a history whose last observation was at `observed_at`."""
        self.history = history or ConfigHistory()
        self.settings_pending = False
        """Whether a page that may name the setting behind a changed fingerprint has not been read yet."""
        self._observed_at = observed_at
        self._latest_fingerprint: str | None = None
        self._process_observed_at = 0.0  # when the present process was observed first
        self._declared_at: float | None = None

    @property
    def changes(self) -> list[ConfigChange]:
        return self.history.changes

    @property
    def settings(self) -> dict[str, str]:
        return self.history.declared | {setting: shown.value for setting, shown in self.history.shown.items()}

    @property
    def revision(self) -> str | None:
        return revision(self.settings) if self.settings else None

    def observe_fingerprint(self, fingerprint: str, at: float) -> None:
        """A response that ended at `at` carried this fingerprint."""
        if at > self._process_observed_at:  # an earlier response may come from the previous process
            self._latest_fingerprint = fingerprint
            self.observe({}, self.history.start, at)  # at once, so that this response is logged with the right revision

    def observe(self, settings: Mapping[str, str], start: float | None, now: float) -> list[ConfigChange]:
        """Record the settings shown at `now` (unix) by a process started at `start`; returns the config changes."""
        history = self.history
        if start is not None and start != history.start:
            if history.start is not None and self._observed_at is not None:
                # A start time outside this range is from a clock that differs from ours.
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
        """Record an operator's statement that the engine runs with these settings at `now`."""
        unexplained = next((each for each in reversed(self.history.changes) if _is_unexplained(each, now)), None)
        results = {}
        for setting, value in settings.items():
            shown = self.history.shown.get(setting)
            if shown is not None and shown.start == self.history.start:
                results[setting] = self._declare_shown(setting, shown.value, value, note)
                continue
            self.history.shown.pop(setting, None)  # shown by an earlier process only
            old = self.history.declared.get(setting, UNKNOWN) if shown is None else shown.value
            self.history.declared[setting] = value
            results[setting] = DeclarationResult.UNCHANGED if old == value else DeclarationResult.CHANGED
            if old != value:
                self._store(ConfigChange(setting, old, value, now if unexplained is None else unexplained.at, note))
        if unexplained is None and DeclarationResult.CHANGED in results.values():
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
            return {}  # of another engine behind the same address
        return {FINGERPRINT: fingerprint}

    def _pop_note(self, setting: str, value: str) -> str:
        pending = self.history.awaited.pop(setting, None)
        return pending.note if pending is not None and _is_same_value(pending.value, value) else ""

    def _is_explained(self, fingerprint_change: ConfigChange) -> bool:
        """Whether another change, or a declaration, is the cause of a changed fingerprint."""
        at = fingerprint_change.at
        if self._declared_at is not None and abs(self._declared_at - at) <= SAME_CHANGE_SECONDS:
            self._declared_at = None  # a declaration explains one change; the next one counts
            return True
        named = (change for change in self.history.changes if change.setting != FINGERPRINT)
        return any(self._is_same_time(change, fingerprint_change) for change in named)

    def _is_same_time(self, one: ConfigChange, other: ConfigChange) -> bool:
        """Whether both came with the same process; without known start times, whether that is possible."""
        if self.history.start is not None:
            return one.at == other.at
        return abs(one.at - other.at) <= SAME_CHANGE_SECONDS

    def _store(self, change: ConfigChange) -> None:
        """Append a change in place of those that it supersedes."""
        self.history.changes = [each for each in self.history.changes if not self._supersedes(change, each)]
        self.history.changes.append(change)
        del self.history.changes[:-MAX_CHANGES]

    def _supersedes(self, change: ConfigChange, older: ConfigChange) -> bool:
        """Whether `older` is the same change at an earlier time, or the fingerprint's change of the same process."""
        is_repeated = (older.setting, older.old, older.new) == (change.setting, change.old, change.new)
        is_fingerprint = older.setting == FINGERPRINT and change.setting != FINGERPRINT
        return is_repeated or (is_fingerprint and self._is_same_time(older, change))


def _is_unexplained(change: ConfigChange, now: float) -> bool:
    """Whether a declaration at `now` can name the setting behind a changed fingerprint."""
    return change.setting == FINGERPRINT and now - change.at <= SAME_CHANGE_SECONDS


def _is_same_value(shown: str, declared: str) -> bool:
    """Whether both values mean the same: vLLM writes `True`, operators write `true`."""
    return shown.casefold() == declared.casefold()
