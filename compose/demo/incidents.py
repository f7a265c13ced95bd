"""Counts incidents and updates from the notifications of the webhook."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

from compose.lab.webhook import Notification
from exporters.vocabulary.signals import Label


@dataclass(frozen=True, slots=True)
class IncidentCount:
    """`opened`: notifications of a group that had nothing firing; `updates`: all later ones, also resolved ones."""

    opened: int
    updates: int


def count_incidents(
    notifications: Iterable[Notification],
    receiver: str,
    group_by: Sequence[str] = ("cluster", "namespace", Label.MODEL),
) -> IncidentCount:
    """The incidents at a receiver; `group_by` are the labels by which Alertmanager groups alerts."""

    def group(notification: Notification) -> tuple[str, ...]:
        return tuple(notification.labels.get(label, "") for label in group_by)

    opened = updates = 0
    firing: dict[tuple[str, ...], set[frozenset[tuple[str, str]]]] = {}
    received = sorted((each for each in notifications if each.receiver == receiver), key=attrgetter("arrived_at"))
    for _, arrived in groupby(received, key=lambda each: (each.arrived_at, group(each))):
        alerts = list(arrived)
        open_alerts = firing.setdefault(group(alerts[0]), set())
        was_open = bool(open_alerts)
        for each in alerts:
            labels = frozenset(each.labels.items())
            if each.status == "firing":
                open_alerts.add(labels)
            else:
                open_alerts.discard(labels)
        if open_alerts and not was_open:
            opened += 1
        else:
            updates += 1
    return IncidentCount(opened, updates)
