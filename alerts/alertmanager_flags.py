"""Reads the flags of `vllm-slo alerts alertmanager`, and reports every mistake in them in one run."""

import argparse
import re
import shlex
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from alerts.alertmanager import Delivery, Mail, Route, Timing
from alerts.destinations import FORMS, Destination, SecretFile, Webhook, absolute_path, destination, webhook
from alerts.tiers import Severity
from exporters.addresses import parse_address
from exporters.errors import UsageError
from exporters.quantities import parse_duration, spell_duration
from exporters.signals import Label
from exporters.slos import SHIPPED, SloFile
from exporters.yaml_reader import nearest

_T = TypeVar("_T")
_ROUTE = re.compile(r"(class|tenant)=(.+?):(page|ticket):(.+)")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add all flags but --out."""
    parser.add_argument("--slos", type=Path, default=SHIPPED, help="names classes and tenants (default: the shipped)")
    where = parser.add_argument_group(
        "destinations", f"KIND=TARGET is {FORMS}. Alertmanager reads FILE, a secret: write the path as it is there."
    )
    _many(where, "--page", "KIND=TARGET", "pages")
    _many(where, "--ticket", "KIND=TARGET", "tickets")
    _many(
        where,
        "--route",
        "WHOSE:SEVERITY:KIND=TARGET",
        "destinations for one class or tenant instead, such as class=NAME:page:slack=#CHANNEL or tenant=NAME:page:...",
    )
    where.add_argument(
        "--heartbeat",
        metavar="URL|@FILE",
        help="the dead man's switch, which receives the Watchdog alert once a minute",
    )
    how = parser.add_argument_group("delivery")
    how.add_argument("--slack-url-file", metavar="FILE", help="file with the URL of Slack's incoming webhook")
    _many(how, "--webhook-token", "URL=FILE", "FILE holds the bearer token for this webhook")
    how.add_argument("--smtp", metavar="HOST:PORT", help="the mail server")
    how.add_argument("--smtp-from", metavar="ADDRESS", help="the sender of mail")
    how.add_argument("--smtp-user", metavar="NAME", help="user name at the mail server (default: no login)")
    how.add_argument("--smtp-password-file", metavar="FILE", help="file with the password")
    how.add_argument(
        "--smtp-tls", choices=("required", "off"), default="required", help="by STARTTLS (default: %(default)s)"
    )
    when, default = parser.add_argument_group("timing"), Timing()
    for name, what in (
        ("group_wait", "wait before the first notification of a group"),
        ("group_interval", "wait before a notification of changes in a group"),
        ("repeat_pages", "repeat the notification of a firing page"),
        ("repeat_tickets", "repeat the notification of a firing ticket"),
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
        "a label that your Prometheus adds, such as cluster: alerts that differ in it are neither grouped nor "
        "inhibited together",
    )


def _many(group: argparse._ArgumentGroup, flag: str, metavar: str, text: str) -> None:
    group.add_argument(flag, action="append", default=[], metavar=metavar, help=f"{text} (repeatable)")


def read(flags: argparse.Namespace, spec: SloFile) -> Delivery:
    """The destinations and timing that the flags describe.

    Raises:
        UsageError: everything that is wrong with them, a line each.
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

    def time(name: str) -> float:
        return parse_one(name, _time) or 0.0

    password, server = parse_one("smtp_password_file", _secret_file), parse_one("smtp", _host_and_port)
    login = (flags.smtp_user, password) if password else None
    tls = flags.smtp_tls == "required"
    delivery = Delivery(
        page=parse_all("page", flags.page, destination),
        ticket=parse_all("ticket", flags.ticket, destination),
        routes=_merge(parse_all("route", flags.route, lambda text: _route(text, spec))),
        heartbeat=parse_one("heartbeat", webhook),
        mail=Mail(smarthost=server, sender=flags.smtp_from, login=login, require_tls=tls) if server else None,
        slack_url=parse_one("slack_url_file", _secret_file),
        tokens=dict(parse_all("webhook-token", flags.webhook_token, _token)),
        timing=Timing(
            group_wait=time("group_wait"),
            group_interval=time("group_interval"),
            repeat_pages=time("repeat_pages"),
            repeat_tickets=time("repeat_tickets"),
        ),
        keep_apart=parse_all("keep-apart", flags.keep_apart, _label_name),
    )
    urls = [each.url for each in delivery.destinations if isinstance(each, Webhook) and isinstance(each.url, str)]
    mistakes += [
        f"--webhook-token: no webhook is {url!r}; {nearest(url, urls) if urls else 'there is none'}"
        for url in delivery.tokens
        if url not in urls
    ]
    if mistakes:
        raise UsageError("\n".join(mistakes))
    return delivery


def heading(flags: argparse.Namespace) -> str:
    """The command that generates the file, as a comment: one flag a line, without those that have their default."""
    plain = argparse.ArgumentParser()
    configure(plain)
    words = ["vllm-slo alerts alertmanager"]
    for name, default in vars(plain.parse_args([])).items():
        value = getattr(flags, name)
        if value != default:
            values = value if isinstance(value, list) else [value]
            words += [f"--{name.replace('_', '-')} {shlex.quote(str(value))}" for value in values]
    command = " \\\n#     ".join(words)
    return f"# Made by this command; run it again with other flags instead of changing the file.\n#   {command}\n\n"


def _missing_flags(flags: argparse.Namespace) -> list[str]:
    """A message for each flag that another flag requires."""
    routed = (match[4] for text in flags.route if (match := _ROUTE.fullmatch(text)))
    kinds = {target.partition("=")[0] for target in (*flags.page, *flags.ticket, *routed)}
    mail, slack = "email" in kinds, "slack" in kinds
    mail_flags = (flags.smtp, flags.smtp_from, flags.smtp_user, flags.smtp_password_file)
    requirements = [
        (not flags.page, f"--page: nobody would be notified of a page; write where it goes: {FORMS}"),
        (not flags.ticket, f"--ticket: nobody would be notified of a ticket; write where it goes: {FORMS}"),
        (
            mail and not (flags.smtp and flags.smtp_from),
            "--smtp, --smtp-from: mail needs a server and a sender; add --smtp HOST:PORT --smtp-from ADDRESS",
        ),
        (not mail and any(mail_flags), "--smtp...: nothing is sent by mail; add a destination email=ADDRESS"),
        (
            bool(flags.smtp_user) != bool(flags.smtp_password_file),
            "--smtp-user, --smtp-password-file: a login needs both",
        ),
        (
            slack and not flags.slack_url_file,
            "--slack-url-file: Slack needs the URL of its incoming webhook, a secret; name the file that holds it",
        ),
        (
            not slack and bool(flags.slack_url_file),
            "--slack-url-file: nothing is sent to Slack; add a destination slack=#CHANNEL",
        ),
    ]
    return [text for is_missing, text in requirements if is_missing]


def _route(text: str, spec: SloFile) -> Route:
    match = _ROUTE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no WHOSE:SEVERITY:KIND=TARGET, such as class=NAME:page:slack=#CHANNEL")
    label, value = Label(match[1]), match[2]
    if label is Label.TENANT and not spec.alerting.per_tenant:
        raise ValueError("no alert names a tenant; write alerting: {per_tenant: true} in the SLO file")
    names = spec.class_names if label is Label.CLASS else spec.tenant_names
    if value not in names:
        raise ValueError(f"no {label} is called {value!r}; {nearest(value, names)}")
    return Route(label, value, Severity(match[3]), (destination(match[4]),))


def _merge(routes: Iterable[Route]) -> tuple[Route, ...]:
    """Merge routes of the same alerts into one with all their destinations."""
    merged: dict[str, Route] = {}
    for route in routes:
        earlier: tuple[Destination, ...] = merged[route.name].destinations if route.name in merged else ()
        merged[route.name] = Route(route.label, route.value, route.severity, (*earlier, *route.destinations))
    return tuple(merged.values())


def _secret_file(text: str) -> SecretFile:
    return SecretFile(absolute_path(text))


def _token(text: str) -> tuple[str, SecretFile]:
    url, equals, path = text.rpartition("=")
    if not equals:
        raise ValueError(f"{text!r} is no URL=FILE; write the URL of a webhook, =, and the file with its token")
    return url, _secret_file(path)


def _host_and_port(text: str) -> str:
    return str(parse_address(text, "mail.example.org:587", needs_host=True))


def _time(text: str) -> float:
    return parse_duration(text, "30s or 5m")


def _label_name(text: str) -> str:
    if not _LABEL.fullmatch(text):
        raise ValueError(f"{text!r} is no name of a label; use letters, digits and _")
    return text
