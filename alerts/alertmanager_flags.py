"""The flags of `vllm-slo alerts alertmanager`: where pages, tickets and heartbeats go, and every mistake at once."""

import argparse
import re
import shlex
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from alerts.alertmanager import Delivery, Mail, Route, Timing
from alerts.destinations import FORMS, Destination, InFile, Webhook, absolute, destination, webhook
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
    """All but --out."""
    parser.add_argument("--slos", type=Path, default=SHIPPED, help="names classes and tenants (default: the shipped)")
    where = parser.add_argument_group(
        "where to", f"KIND=TARGET is {FORMS}. Alertmanager reads FILE, a secret: write the path as it is there."
    )
    _many(where, "--page", "KIND=TARGET", "pages")
    _many(where, "--ticket", "KIND=TARGET", "tickets")
    _many(
        where,
        "--route",
        "WHOSE:SEVERITY:KIND=TARGET",
        "where a class's or tenant's go instead, such as class=NAME:page:slack=#CHANNEL or tenant=NAME:page:...",
    )
    where.add_argument(
        "--heartbeat", metavar="URL|@FILE", help="the dead man's switch, which hears the Watchdog once a minute"
    )
    how = parser.add_argument_group("how to get there")
    how.add_argument("--slack-url-file", metavar="FILE", help="holds the URL of Slack's incoming webhook")
    _many(how, "--webhook-token", "URL=FILE", "FILE holds the bearer token for this webhook")
    how.add_argument("--smtp", metavar="HOST:PORT", help="the server that takes mail")
    how.add_argument("--smtp-from", metavar="ADDRESS", help="the sender of mail")
    how.add_argument("--smtp-user", metavar="NAME", help="who logs in there (default: nobody)")
    how.add_argument("--smtp-password-file", metavar="FILE", help="holds the password")
    how.add_argument(
        "--smtp-tls", choices=("required", "off"), default="required", help="by STARTTLS (default: %(default)s)"
    )
    when, usual = parser.add_argument_group("when"), Timing()
    for name, what in (
        ("group_wait", "gather what fires together before the first notification"),
        ("group_interval", "and before the next, once more fires or some has ended"),
        ("repeat_pages", "say again that a page still fires"),
        ("repeat_tickets", "say again that a ticket does"),
    ):
        when.add_argument(
            f"--{name.replace('_', '-')}",
            default=spell_duration(getattr(usual, name)),
            metavar="TIME",
            help=f"{what} (default: %(default)s)",
        )
    _many(
        when,
        "--keep-apart",
        "LABEL",
        "one that your Prometheus adds, such as cluster: alerts that differ in it share no notification, and none "
        "silences the other",
    )


def _many(group: argparse._ArgumentGroup, flag: str, metavar: str, text: str) -> None:
    group.add_argument(flag, action="append", default=[], metavar=metavar, help=f"{text} (repeatable)")


def read(flags: argparse.Namespace, spec: SloFile) -> Delivery:
    """What the flags ask for.

    Raises:
        UsageError: everything that is wrong with them, a line each.
    """
    mistakes = _missing(flags)

    def every(flag: str, texts: Iterable[str | None], parse: Callable[[str], _T]) -> tuple[_T, ...]:
        found = []
        for text in texts:
            if text is not None:
                try:
                    found.append(parse(text))
                except ValueError as error:
                    mistakes.append(f"--{flag}: {error}")
        return tuple(found)

    def one(name: str, parse: Callable[[str], _T]) -> _T | None:
        return next(iter(every(name.replace("_", "-"), [getattr(flags, name)], parse)), None)

    def time(name: str) -> float:
        return one(name, _time) or 0.0

    password, server = one("smtp_password_file", _file), one("smtp", _server)
    login = (flags.smtp_user, password) if password else None
    tls = flags.smtp_tls == "required"
    made = Delivery(
        page=every("page", flags.page, destination),
        ticket=every("ticket", flags.ticket, destination),
        routes=_merged(every("route", flags.route, lambda text: _route(text, spec))),
        heartbeat=one("heartbeat", webhook),
        mail=Mail(smarthost=server, sender=flags.smtp_from, login=login, require_tls=tls) if server else None,
        slack_url=one("slack_url_file", _file),
        tokens=dict(every("webhook-token", flags.webhook_token, _token)),
        timing=Timing(
            group_wait=time("group_wait"),
            group_interval=time("group_interval"),
            repeat_pages=time("repeat_pages"),
            repeat_tickets=time("repeat_tickets"),
        ),
        keep_apart=every("keep-apart", flags.keep_apart, _label),
    )
    urls = [each.url for each in made.destinations if isinstance(each, Webhook) and isinstance(each.url, str)]
    mistakes += [
        f"--webhook-token: no webhook is {url!r}; {nearest(url, urls) if urls else 'there is none'}"
        for url in made.tokens
        if url not in urls
    ]
    if mistakes:
        raise UsageError("\n".join(mistakes))
    return made


def heading(flags: argparse.Namespace) -> str:
    """The command that makes the file, as a comment: one flag a line, those that have their default left out."""
    plain = argparse.ArgumentParser()
    configure(plain)
    words = ["vllm-slo alerts alertmanager"]
    for name, usual in vars(plain.parse_args([])).items():
        given = getattr(flags, name)
        if given != usual:
            values = given if isinstance(given, list) else [given]
            words += [f"--{name.replace('_', '-')} {shlex.quote(str(value))}" for value in values]
    command = " \\\n#     ".join(words)
    return f"# Made by this command; run it again with other flags instead of changing the file.\n#   {command}\n\n"


def _missing(flags: argparse.Namespace) -> list[str]:
    """What one flag needs of another."""
    routed = (match[4] for text in flags.route if (match := _ROUTE.fullmatch(text)))
    kinds = {target.partition("=")[0] for target in (*flags.page, *flags.ticket, *routed)}
    mail, slack = "email" in kinds, "slack" in kinds
    mail_flags = (flags.smtp, flags.smtp_from, flags.smtp_user, flags.smtp_password_file)
    found = [
        (not flags.page, f"--page: nobody would hear of a page; write where it goes: {FORMS}"),
        (not flags.ticket, f"--ticket: nobody would hear of a ticket; write where it goes: {FORMS}"),
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
    return [text for is_missing, text in found if is_missing]


def _route(text: str, spec: SloFile) -> Route:
    match = _ROUTE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no WHOSE:SEVERITY:KIND=TARGET, such as class=NAME:page:slack=#CHANNEL")
    label, value = Label(match[1]), match[2]
    if label is Label.TENANT and not spec.alerting.per_tenant:
        raise ValueError("no alert names a tenant; write alerting: {per_tenant: true} in the SLO file")
    known = spec.class_names if label is Label.CLASS else spec.tenant_names
    if value not in known:
        raise ValueError(f"no {label} is called {value!r}; {nearest(value, known)}")
    return Route(label, value, Severity(match[3]), (destination(match[4]),))


def _merged(routes: Iterable[Route]) -> tuple[Route, ...]:
    """One for all destinations of the same alerts."""
    found: dict[str, Route] = {}
    for route in routes:
        before: tuple[Destination, ...] = found[route.name].destinations if route.name in found else ()
        found[route.name] = Route(route.label, route.value, route.severity, (*before, *route.destinations))
    return tuple(found.values())


def _file(text: str) -> InFile:
    return InFile(absolute(text))


def _token(text: str) -> tuple[str, InFile]:
    url, equals, path = text.rpartition("=")
    if not equals:
        raise ValueError(f"{text!r} is no URL=FILE; write the URL of a webhook, =, and the file with its token")
    return url, _file(path)


def _server(text: str) -> str:
    return str(parse_address(text, "mail.example.org:587", needs_host=True))


def _time(text: str) -> float:
    return parse_duration(text, "30s or 5m")


def _label(text: str) -> str:
    if not _LABEL.fullmatch(text):
        raise ValueError(f"{text!r} is no name of a label; use letters, digits and _")
    return text
