"""Renders the configuration of Alertmanager: routes, grouping, receivers and inhibition rules."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from alerts.alertmanager.destinations import Destination, SecretFile, Webhook
from alerts.alertmanager.receivers import TEMPLATE_PATH, needs_template, receiver
from alerts.labels import severity_value
from alerts.promql.expression import quote
from alerts.rules.annotations import ALERT_SOURCE
from alerts.rules.groups import dump
from alerts.tiers import Severity
from exporters.text.units import spell_duration
from exporters.vocabulary.alert_names import AlertName
from exporters.vocabulary.signals import Label
from exporters.vocabulary.slo_file import Severities

_PAGE, _TICKET, _HEARTBEAT = Severity.PAGE, Severity.TICKET, "heartbeat"


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Intervals of notifications, in seconds."""

    group_wait: float = 30.0
    group_interval: float = 300.0
    repeat_pages: float = 4 * 3600.0
    repeat_tickets: float = 86400.0


@dataclass(frozen=True, slots=True)
class Route:
    """Alerts of one severity with this value of `label` go to these destinations instead of the default ones."""

    label: Label
    value: str
    severity: Severity
    destinations: tuple[Destination, ...]

    @property
    def name(self) -> str:
        return f"{self.severity}-{self.label}-{self.value}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mail:
    """How Alertmanager sends email; `login` is a user and the file with the password."""

    smarthost: str
    sender: str
    login: tuple[str, SecretFile] | None = None
    require_tls: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """All destinations; alerts that differ in a label of `keep_apart` are grouped and inhibited separately."""

    page: tuple[Destination, ...]
    ticket: tuple[Destination, ...]
    routes: tuple[Route, ...] = ()
    heartbeat: Webhook | None = None
    mail: Mail | None = None
    slack_url: SecretFile | None = None
    tokens: Mapping[str, SecretFile] = field(default_factory=dict)
    timing: Timing = Timing()
    keep_apart: tuple[str, ...] = ()
    severities: Severities = field(default_factory=Severities)
    fragment: bool = False
    """A part for an existing configuration: it routes only alerts of these rules; names of receivers have a prefix."""

    def receiver(self, name: str) -> str:
        """The name of a receiver in the file."""
        return f"{ALERT_SOURCE}-{name}" if self.fragment else name

    def severity(self, severity: Severity) -> str:
        """The matcher of a severity."""
        return _matcher(Label.SEVERITY, severity_value(self.severities, severity))

    @property
    def destinations(self) -> tuple[Destination, ...]:
        routed = (where for route in self.routes for where in route.destinations)
        return (*self.page, *self.ticket, *routed, *([self.heartbeat] if self.heartbeat else []))


@dataclass(frozen=True, slots=True)
class Inhibition:
    """`target` alerts are not sent while a `source` alert fires that has equal values of these labels."""

    reason: str
    source: tuple[AlertName, ...]
    target: tuple[AlertName, ...]
    equal: tuple[Label, ...]
    required_label: Label
    """Must exist on both alerts, as Alertmanager treats two absent labels as equal."""
    ticket_of_page: bool = False
    """Only pages inhibit, and only tickets are inhibited."""


_ENGINE_TICKETS = (
    *(AlertName.ENGINE_RESTARTS, AlertName.QUEUE, AlertName.KV_CACHE, AlertName.PREFIX_CACHE),
    AlertName.KV_TRANSFERS,
)
_ALSO_TICKETS = (AlertName.CERTIFICATE, AlertName.SIDECAR_DOWN, AlertName.ENGINE_DOWN, AlertName.ENGINE_WEDGED)
INHIBITIONS = (
    Inhibition(
        "A page inhibits the ticket of the same alert, which fires beside it.",
        _ALSO_TICKETS,
        _ALSO_TICKETS,
        (Label.ALERTNAME, Label.INSTANCE, Label.ENGINE),
        Label.INSTANCE,
        ticket_of_page=True,
    ),
    Inhibition(
        "The page for an engine that is down explains its tickets, and no alert of another engine.",
        (AlertName.ENGINE_DOWN,),
        _ENGINE_TICKETS,
        (Label.INSTANCE, Label.ENGINE),
        Label.ENGINE,
    ),
    Inhibition(
        "The page for a sidecar that is down explains its tickets and those of its engines: their data is stale.",
        (AlertName.SIDECAR_DOWN,),
        (*_ENGINE_TICKETS, AlertName.DROPPING, AlertName.LOG_LINES, AlertName.LOST, AlertName.RELOAD_FAILED),
        (Label.INSTANCE,),
        Label.INSTANCE,
    ),
)
"""No page is inhibited: pages of one incident share a group, and Alertmanager drops inhibited alerts from its text."""

_ROUTING = """\
# Alerts with an unknown severity go to the ticket receiver, so that they do not page.
# One notification covers one cluster, namespace and model: an incident opens one page.
"""


def config(delivery: Delivery) -> str:
    """The configuration below the heading, as YAML; for Alertmanager 0.25 and later, with `url_file` 0.26."""
    settings = _global(delivery)
    inhibitions = (f"# {each.reason}\n{dump([_inhibition(each, delivery)])}" for each in INHIBITIONS)
    return "\n".join(
        [
            *([dump({"global": settings})] if settings else []),
            *([dump({"templates": [TEMPLATE_PATH]})] if needs_template(delivery.destinations) else []),
            _ROUTING + dump({"route": _route(delivery)}),
            dump({"receivers": _receivers(delivery)}),
            "inhibit_rules:\n" + "".join(inhibitions),
        ]
    )


def _global(delivery: Delivery) -> dict[str, object]:
    mail = delivery.mail
    settings: dict[str, object] = {}
    if mail:
        settings |= {"smtp_smarthost": mail.smarthost, "smtp_from": mail.sender, "smtp_require_tls": mail.require_tls}
    if mail and mail.login:
        user, password = mail.login
        settings |= {"smtp_auth_username": user, "smtp_auth_password_file": password.path}
    if delivery.slack_url:
        settings["slack_api_url_file"] = delivery.slack_url.path
    return settings


def _route(delivery: Delivery) -> dict[str, object]:
    route = _root(delivery)
    return (
        {"routes": [{"matchers": [_matcher(Label.ALERT_SOURCE, ALERT_SOURCE)], **route}]}
        if delivery.fragment
        else route
    )


def _root(delivery: Delivery) -> dict[str, object]:
    timing = delivery.timing
    repeat = {_PAGE: spell_duration(timing.repeat_pages), _TICKET: spell_duration(timing.repeat_tickets)}
    return {
        "receiver": delivery.receiver(_TICKET),
        "group_by": [*dict.fromkeys(("cluster", "namespace", Label.MODEL, *delivery.keep_apart))],
        "group_wait": spell_duration(timing.group_wait),
        "group_interval": spell_duration(timing.group_interval),
        "repeat_interval": repeat[_TICKET],
        "routes": [
            {
                "matchers": [_matcher("alertname", AlertName.WATCHDOG)],
                "receiver": delivery.receiver(_HEARTBEAT),
                "group_wait": "0s",
                "group_interval": "30s",
                # Below 1m, so that every second group interval sends it.
                "repeat_interval": "55s",
            },
            *(
                {
                    "matchers": [_matcher(route.label, route.value), delivery.severity(route.severity)],
                    "receiver": delivery.receiver(route.name),
                    "repeat_interval": repeat[route.severity],
                }
                # Alerts of a tenant also have a class, so routes of tenants come first.
                for route in sorted(delivery.routes, key=lambda route: route.label != Label.TENANT)
            ),
            {
                "matchers": [delivery.severity(_PAGE)],
                "receiver": delivery.receiver(_PAGE),
                "repeat_interval": repeat[_PAGE],
            },
        ],
    }


def _receivers(delivery: Delivery) -> list[dict[str, object]]:
    heartbeats = () if delivery.heartbeat is None else (delivery.heartbeat,)
    return [
        receiver(delivery.receiver(_PAGE), delivery.page, Severity.PAGE, delivery.tokens),
        receiver(delivery.receiver(_TICKET), delivery.ticket, Severity.TICKET, delivery.tokens),
        *(
            receiver(delivery.receiver(route.name), route.destinations, route.severity, delivery.tokens)
            for route in delivery.routes
        ),
        receiver(delivery.receiver(_HEARTBEAT), heartbeats, Severity.NONE, delivery.tokens),
    ]


def _inhibition(each: Inhibition, delivery: Delivery) -> dict[str, object]:
    def matchers(names: tuple[AlertName, ...], severity: Severity) -> list[str]:
        only = [delivery.severity(severity)] if each.ticket_of_page else []
        return [f'alertname=~"{"|".join(names)}"', *only, f'{each.required_label}!=""']

    return {
        "source_matchers": matchers(each.source, _PAGE),
        "target_matchers": matchers(each.target, _TICKET),
        "equal": [*each.equal, *delivery.keep_apart],
    }


def _matcher(label: str, value: str) -> str:
    return f"{label}={quote(value)}"
