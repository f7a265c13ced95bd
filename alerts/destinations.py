"""Parses destinations of alerts: a webhook, a mailbox, a Slack channel or PagerDuty, written as `KIND=TARGET`."""

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from exporters.yaml_reader import nearest

FORMS = "webhook=URL, webhook=@FILE, email=ADDRESS, slack=#CHANNEL or pagerduty=@FILE"


@dataclass(frozen=True, slots=True)
class SecretFile:
    """A secret that Alertmanager reads from this file, so that it is in no configuration."""

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
        ValueError: the text is no destination, with the reason.
    """
    kind, equals, target = text.partition("=")
    match kind if equals else None:
        case "webhook":
            return webhook(target)
        case "email":
            if not re.fullmatch(r"[^@\s,]+@[^@\s,]+", target):
                raise ValueError(f"{target!r} is no mail address; write one, such as email=oncall@example.org")
            return Email(target)
        case "slack":
            if not re.fullmatch(r"[#@][^\s,]+", target):
                raise ValueError(
                    "slack takes a #channel or @user, such as slack=#oncall; the URL that Slack gave you is a secret: "
                    "put it in a file and name that with --slack-url-file"
                )
            return Slack(target)
        case "pagerduty":
            if not target.startswith("@"):
                raise ValueError(
                    "a routing key of PagerDuty is a secret: put it in a file and name that, such as "
                    "pagerduty=@/etc/alertmanager/secrets/pagerduty"
                )
            return PagerDuty(SecretFile(absolute_path(target[1:])))
        case _ if equals and kind.isalpha():
            raise ValueError(
                f"{kind!r} is no kind of receiver; {nearest(kind, ('webhook', 'email', 'slack', 'pagerduty'))}"
            )
        case _:
            raise ValueError(f"{text!r} is no KIND=TARGET; write {FORMS}")


def webhook(target: str) -> Webhook:
    """Parse `URL` or `@FILE`.

    Raises:
        ValueError: it is neither.
    """
    if target.startswith("@"):
        return Webhook(SecretFile(absolute_path(target[1:])))
    if not is_url(target):
        raise ValueError(f"{target!r} is no URL of a webhook; write http://HOST/PATH, or @FILE where it is a secret")
    return Webhook(target)


def is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:  # a bracket of IPv6 that nothing closes
        return False
    return parts.scheme in {"http", "https"} and bool(parts.hostname) and text == "".join(text.split())


def absolute_path(path: str) -> str:
    """The path of a secret.

    Raises:
        ValueError: it is relative.
    """
    if not path.startswith("/"):
        raise ValueError(f"the file {path!r} is relative to wherever Alertmanager is started; write /PATH")
    return path
