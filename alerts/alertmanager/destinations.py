"""Parses alert destinations (webhook, email address, Slack channel, PagerDuty), written as `KIND=TARGET`."""

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from exporters.text.yaml_reader import nearest

FORMS = "webhook=URL, webhook=@FILE, email=ADDRESS, slack=#CHANNEL or pagerduty=@FILE"


@dataclass(frozen=True, slots=True)
class SecretFile:
    """The path of a secret that Alertmanager reads itself, so that the configuration does not contain it."""

    path: str


@dataclass(frozen=True, slots=True)
class Webhook:
    url: str | SecretFile


@dataclass(frozen=True, slots=True)
class Email:
    to: str


@dataclass(frozen=True, slots=True)
class Slack:
    channel: str


@dataclass(frozen=True, slots=True)
class PagerDuty:
    routing_key: SecretFile


Destination = Webhook | Email | Slack | PagerDuty


def destination(text: str) -> Destination:
    """Parse `KIND=TARGET`.

    Raises:
        ValueError: the text is not a destination; the message gives the reason.
    """
    kind, equals, target = text.partition("=")
    match kind if equals else None:
        case "webhook":
            return webhook(target)
        case "email":
            if not re.fullmatch(r"[^@\s,]+@[^@\s,]+", target):
                raise ValueError(f"{target!r} is not an email address; write for example email=oncall@example.org")
            return Email(target)
        case "slack":
            if not re.fullmatch(r"[#@][^\s,]+", target):
                raise ValueError(
                    "slack takes a #channel or @user, such as slack=#oncall; the URL of Slack's webhook is a secret: "
                    "put it in a file and pass the path with --slack-url-file"
                )
            return Slack(target)
        case "pagerduty":
            if not target.startswith("@"):
                raise ValueError(
                    "the routing key of PagerDuty is a secret: put it in a file and pass the path, such as "
                    "pagerduty=@/etc/alertmanager/secrets/pagerduty"
                )
            return PagerDuty(secret_file(target[1:]))
        case _ if equals and kind.isalpha():
            raise ValueError(
                f"{kind!r} is not a kind of receiver; {nearest(kind, ('webhook', 'email', 'slack', 'pagerduty'))}"
            )
        case _:
            raise ValueError(f"{text!r} is not KIND=TARGET; write {FORMS}")


def webhook(target: str) -> Webhook:
    """Parse `URL` or `@FILE`.

    Raises:
        ValueError: it is neither.
    """
    if target.startswith("@"):
        return Webhook(secret_file(target[1:]))
    if not is_url(target):
        raise ValueError(f"{target!r} is not a webhook URL; write http://HOST/PATH, or @FILE if the URL is a secret")
    return Webhook(target)


def is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
    # An unclosed IPv6 bracket.
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and bool(parts.hostname) and text == "".join(text.split())


def secret_file(path: str) -> SecretFile:
    """The file of a secret.

    Raises:
        ValueError: the path is relative.
    """
    if not path.startswith("/"):
        raise ValueError(f"the path {path!r} is relative to the working directory of Alertmanager; write /PATH")
    return SecretFile(path)
