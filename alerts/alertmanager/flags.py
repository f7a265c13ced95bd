"""Reads the flags of `vllm-slo alerts alertmanager`, and reports all mistakes in one run."""

import argparse
import re
import shlex
from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import TypeVar

from alerts.alertmanager.configuration import Delivery, Mail, Route, Timing
from alerts.alertmanager.destinations import FORMS, Destination, SecretFile, Webhook, destination, secret_file, webhook
from alerts.tiers import Severity
from exporters.text.addresses import parse_address
from exporters.text.errors import UsageError
from exporters.text.units import parse_duration, spell_duration
from exporters.text.yaml_reader import nearest
from exporters.vocabulary import slo_file
from exporters.vocabulary.signals import Label
from exporters.vocabulary.slo_file import SloFile

_T = TypeVar("_T")
_ROUTE = re.compile(r"(class|tenant)=(.+?):(page|ticket):(.+)")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add all flags but --out."""
    slo_file.add_flag(parser)
    parser.add_argument(
        "--fragment",
        action="store_true",
        help="write alertmanager-fragment.yml, to merge into an existing configuration: it routes only these alerts",
    )
    where = parser.add_argument_group(
        "destinations",
        f"KIND=TARGET is {FORMS}. FILE holds a secret, which Alertmanager reads: give its path on that host.",
    )
    _many(where, "--page", "KIND=TARGET", "destination of pages")
    _many(where, "--ticket", "KIND=TARGET", "destination of tickets")
    _many(
        where,
        "--route",
        "LABEL=NAME:SEVERITY:KIND=TARGET",
        "replaces --page or --ticket for one class or tenant, such as class=siso:page:slack=#CHANNEL",
    )
    where.add_argument(
        "--heartbeat",
        metavar="URL|@FILE",
        help="dead man's switch, which receives the Watchdog alert once a minute",
    )
    how = parser.add_argument_group("delivery")
    how.add_argument("--slack-url-file", metavar="FILE", help="file with the URL of Slack's incoming webhook")
    _many(how, "--webhook-token", "URL=FILE", "file with the bearer token of this webhook")
    how.add_argument("--smtp", metavar="HOST:PORT", help="mail server")
    how.add_argument("--smtp-from", metavar="ADDRESS", help="sender address")
    how.add_argument("--smtp-user", metavar="NAME", help="user name at the mail server (default: no login)")
    how.add_argument("--smtp-password-file", metavar="FILE", help="file with the password")
    how.add_argument(
        "--smtp-tls", choices=("required", "off"), default="required", help="STARTTLS (default: %(default)s)"
    )
    when, default = parser.add_argument_group("timing"), Timing()
    for name, what in (
        ("group_wait", "wait before the first notification of a group"),
        ("group_interval", "wait before a notification of changes in a group"),
        ("repeat_pages", "interval of repeated notifications of a page"),
        ("repeat_tickets", "interval of repeated notifications of a ticket"),
    ):
        when.add_argument(
            f"--{name.replace('_', '-')}",
            default=spell_duration(getattr(default, name)),
            metavar="TIME",
            help=f"{what} (default: %(default)s)",
        )
    _many(
        when,
        "--keep-apart",
        "LABEL",
        "external label of Prometheus, such as cluster: alerts that differ in it are grouped and inhibited separately",
    )


def _many(group: argparse._ArgumentGroup, flag: str, metavar: str, text: str) -> None:
    group.add_argument(flag, action="append", default=[], metavar=metavar, help=f"{text} (repeatable)")


def read(flags: argparse.Namespace, spec: SloFile) -> Delivery:
    """The destinations and timing that the flags describe.

    Raises:
        UsageError: all mistakes, one per line.
    """
    mistakes = _missing_flags(flags)

    def parse_all(flag: str, texts: Iterable[str | None], parse: Callable[[str], _T]) -> tuple[_T, ...]:
        values = []
        for text in texts:
            if text is not None:
                try:
                    values.append(parse(text))
                except ValueError as error:
                    mistakes.append(f"--{flag}: {error}")
        return tuple(values)

    def parse_one(name: str, parse: Callable[[str], _T]) -> _T | None:
        return next(iter(parse_all(name.replace("_", "-"), [getattr(flags, name)], parse)), None)

    password, server = parse_one("smtp_password_file", secret_file), parse_one("smtp", _host_and_port)
    login = (flags.smtp_user, password) if password else None
    tls = flags.smtp_tls == "required"
    delivery = Delivery(
        page=parse_all("page", flags.page, destination),
        ticket=parse_all("ticket", flags.ticket, destination),
        routes=_merge(parse_all("route", flags.route, lambda text: _route(text, spec))),
        heartbeat=parse_one("heartbeat", webhook),
        mail=Mail(smarthost=server, sender=flags.smtp_from, login=login, require_tls=tls) if server else None,
        slack_url=parse_one("slack_url_file", secret_file),
        tokens=dict(parse_all("webhook-token", flags.webhook_token, _token)),
        timing=Timing(**{each.name: parse_one(each.name, _time) or 0.0 for each in fields(Timing)}),
        severities=spec.alerting.severities,
        fragment=flags.fragment,
        keep_apart=tuple(dict.fromkeys((*spec.group_by, *parse_all("keep-apart", flags.keep_apart, _label_name)))),
    )
    urls = [each.url for each in delivery.destinations if isinstance(each, Webhook) and isinstance(each.url, str)]
    mistakes += [
        f"--webhook-token: {url!r} is not a webhook destination; {nearest(url, urls) if urls else 'there is none'}"
        for url in delivery.tokens
        if url not in urls
    ]
    if mistakes:
        raise UsageError("\n".join(mistakes))
    return delivery


def heading(flags: argparse.Namespace) -> str:
    """The command that generates the file, as a comment: one flag per line, without defaults."""
    plain = argparse.ArgumentParser()
    configure(plain)
    words = ["vllm-slo alerts alertmanager"]
    for name, default in vars(plain.parse_args([])).items():
        value = getattr(flags, name)
        if value != default:
            flag = f"--{name.replace('_', '-')}"
            values = value if isinstance(value, list) else [value]
            words += [flag if each is True else f"{flag} {shlex.quote(str(each))}" for each in values]
    command = " \\\n#     ".join(words)
    return f"# Generated by this command. Do not edit; run it again with other flags.\n#   {command}\n\n"


def _missing_flags(flags: argparse.Namespace) -> list[str]:
    """A message for each flag that another flag requires."""
    routed = (match[4] for text in flags.route if (match := _ROUTE.fullmatch(text)))
    kinds = {target.partition("=")[0] for target in (*flags.page, *flags.ticket, *routed)}
    mail, slack = "email" in kinds, "slack" in kinds
    mail_flags = (flags.smtp, flags.smtp_from, flags.smtp_user, flags.smtp_password_file)
    requirements = [
        (not flags.page, f"--page: pages have no destination; add one: {FORMS}"),
        (not flags.ticket, f"--ticket: tickets have no destination; add one: {FORMS}"),
        (
            mail and not (flags.smtp and flags.smtp_from),
            "--smtp, --smtp-from: email needs a server and a sender; add --smtp HOST:PORT --smtp-from ADDRESS",
        ),
        (not mail and any(mail_flags), "--smtp...: no destination uses email; add email=ADDRESS"),
        (
            bool(flags.smtp_user) != bool(flags.smtp_password_file),
            "--smtp-user, --smtp-password-file: a login needs both",
        ),
        (
            slack and not flags.slack_url_file,
            "--slack-url-file: Slack needs the URL of its incoming webhook; pass the file that holds it",
        ),
        (
            not slack and bool(flags.slack_url_file),
            "--slack-url-file: no destination uses Slack; add slack=#CHANNEL",
        ),
    ]
    return [text for is_missing, text in requirements if is_missing]


def _route(text: str, spec: SloFile) -> Route:
    match = _ROUTE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not LABEL=NAME:SEVERITY:KIND=TARGET, such as class=siso:page:slack=#CHANNEL")
    label, value = Label(match[1]), match[2]
    if label is Label.TENANT and not spec.alerting.per_tenant:
        raise ValueError("alerts have no tenant label; set alerting: {per_tenant: true} in the SLO file")
    names = spec.class_names if label is Label.CLASS else spec.tenant_names
    if value not in names:
        raise ValueError(f"{label} {value!r} does not exist; {nearest(value, names)}")
    return Route(label, value, Severity(match[3]), (destination(match[4]),))


def _merge(routes: Iterable[Route]) -> tuple[Route, ...]:
    """Merge routes of the same alerts into one with all their destinations."""
    merged: dict[str, Route] = {}
    for route in routes:
        earlier: tuple[Destination, ...] = merged[route.name].destinations if route.name in merged else ()
        merged[route.name] = Route(route.label, route.value, route.severity, (*earlier, *route.destinations))
    return tuple(merged.values())


def _token(text: str) -> tuple[str, SecretFile]:
    url, equals, path = text.rpartition("=")
    if not equals:
        raise ValueError(f"{text!r} is not URL=FILE; write the URL of a webhook, =, and the file with its token")
    return url, secret_file(path)


def _host_and_port(text: str) -> str:
    return str(parse_address(text, "mail.example.org:587", needs_host=True))


def _time(text: str) -> float:
    return parse_duration(text, "30s or 5m")


def _label_name(text: str) -> str:
    if not _LABEL.fullmatch(text):
        raise ValueError(f"{text!r} is not a label name; use letters, digits and _")
    return text
