"""Each kind of receiver gets the complete page from a real Alertmanager, and its resolution."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from compose.programs.tools import Tools
from tests.alerts.alertmanager.live_alertmanager import Alertmanager, running
from tests.alerts.alertmanager.receiver_servers import HttpSink, MailSink, http_sink, mail_sink
from tests.support.waiting import wait_until

ANNOTATIONS = {
    # Each line could be a YAML mapping; newer versions of Alertmanager parse details as YAML.
    "summary": "no page yet: siso requests to org/m burn the error budget of ttft 20.0 times too fast",
    "description": "A page at 14.4 times: 72 % bad events where 5 % are allowed.",
    "runbook_url": "https://runbooks.example.org/LLMErrorBudgetBurn.md",
    "dashboard_url": "http://grafana.example.org/d/vllm-slo-overview?var-class=siso&var-model=org%2Fm",
}
PAGE = {"alertname": "LLMErrorBudgetBurn", "severity": "page", "slo": "ttft", "class": "siso", "model": "org/m"}
LONG = PAGE | {"class": "liso"}
DOWN = {"alertname": "LLMEngineDown", "severity": "page", "instance": "s:1", "engine": "e:1", "model": "org/m"}
DOWN_ANNOTATIONS = {
    "summary": "the engine e:1 of org/m does not answer its sidecar",
    "description": "s:1 is up, but has not reached the engine e:1 for 1m or more.",
    "runbook_url": "https://runbooks.example.org/LLMEngineDown.md",
    "dashboard_url": "http://grafana.example.org/d/vllm-slo-engine?var-instance=s%3A1",
}


@dataclass(frozen=True)
class Site:
    alertmanager: Alertmanager
    http: HttpSink
    mail: MailSink


@pytest.fixture(scope="module")
def site(tools: Tools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A cause and two symptoms of one incident, sent and then resolved."""
    with http_sink() as http, mail_sink() as mail:
        folder = tmp_path_factory.mktemp("alertmanager")

        def secret(name: str, text: str) -> str:
            (folder / name).write_text(text)
            return str(folder / name)

        webhook = http.url("page")
        flags = (
            *("--page", f"webhook={webhook}", "--webhook-token", f"{webhook}={secret('token', 'let me in')}"),
            *("--page", f"pagerduty=@{secret('pagerduty', 'r' * 32)}"),
            *("--page", "slack=#oncall", "--slack-url-file", secret("slack", http.url("slack"))),
            *("--page", "email=oncall@example.org", "--smtp", f"127.0.0.1:{mail.port}", "--smtp-tls", "off"),
            *("--smtp-from", "slo@example.org", "--smtp-user", "u", "--smtp-password-file", secret("mail", "p")),
            *("--ticket", f"webhook={http.url('ticket')}", "--heartbeat", http.url("heartbeat")),
            *("--group-wait", "500ms", "--group-interval", "1s"),
        )
        with running(folder, tools, *flags, pagerduty_url=http.url("pagerduty")) as alertmanager:
            site = Site(alertmanager, http, mail)
            watchdog = {"alertname": "VLLMSLOWatchdog", "severity": "none"}
            alertmanager.post([PAGE, LONG, watchdog], ANNOTATIONS)
            alertmanager.post([DOWN], DOWN_ANNOTATIONS)
            assert wait_until(lambda: complete(site, 1)), http.arrived
            alertmanager.post([DOWN], DOWN_ANNOTATIONS, firing=False)
            alertmanager.post([PAGE, LONG], ANNOTATIONS, firing=False)
            assert wait_until(lambda: complete(site, 2)), http.arrived
            yield site


def complete(site: Site, count: int) -> bool:
    paths = ("page", "pagerduty", "slack")
    return len(site.mail.messages) == count and all(len(site.http.bodies(path)) == count for path in paths)


def test_a_webhook_gets_all_alerts_of_a_model_in_one_request_with_its_token(site: Site) -> None:
    fired, ended = site.http.bodies("page")
    assert [each.authorization for each in site.http.arrived if each.path == "/page"] == ["Bearer let me in"] * 2
    assert (fired["receiver"], fired["status"], ended["status"]) == ("page", "firing", "resolved")
    assert fired["groupLabels"] == {"model": "org/m"}
    assert sorted(each["labels"].get("class", "") for each in fired["alerts"]) == ["", "liso", "siso"]
    assert [each["annotations"] for each in fired["alerts"] if "class" in each["labels"]] == [ANNOTATIONS] * 2


def test_slack_gets_the_title_and_the_complete_text(site: Site) -> None:
    fired, ended = (body["attachments"][0] for body in site.http.bodies("slack"))
    assert [body["channel"] for body in site.http.bodies("slack")] == ["#oncall"] * 2
    assert fired["title"] == f"[PAGE] {DOWN_ANNOTATIONS['summary']} (1 of 3)"
    assert ended["title"] == f"[RESOLVED] {DOWN_ANNOTATIONS['summary']} (1 of 3)"
    assert (fired["color"], ended["color"]) == ("danger", "good")
    assert_complete(fired["text"], "FIRING")
    assert_complete(ended["text"], "RESOLVED")


def test_pagerduty_gets_an_event_with_details_and_its_resolution(site: Site) -> None:
    fired, ended = site.http.bodies("pagerduty")
    assert (fired["routing_key"], fired["event_action"], ended["event_action"]) == ("r" * 32, "trigger", "resolve")
    assert fired["dedup_key"] == ended["dedup_key"]
    assert fired["payload"]["summary"] == f"[PAGE] {DOWN_ANNOTATIONS['summary']} (1 of 3)"
    assert fired["payload"]["severity"] == "critical"
    details = fired["payload"]["custom_details"]
    assert details["model"] == "org/m"
    assert details["slo"] in {"", None}  # newer versions of Alertmanager parse details as YAML
    assert_complete(details["firing"], "FIRING")


def test_an_email_has_the_title_as_its_subject_and_plain_text(site: Site) -> None:
    fired, ended = site.mail.messages
    assert site.mail.logins == ["u p"] * 2
    assert (fired["From"], fired["To"]) == ("slo@example.org", "oncall@example.org")
    assert fired["Subject"] == f"[PAGE] {DOWN_ANNOTATIONS['summary']} (1 of 3)"
    assert ended["Subject"].startswith("[RESOLVED] ")
    (part,) = fired.iter_parts()
    assert part.get_content_type() == "text/plain"
    assert_complete(part.get_content().replace("\r\n", "\n"), "FIRING")


def test_the_heartbeat_gets_only_the_watchdog_and_tickets_get_no_page(site: Site) -> None:
    assert [[each["labels"]["alertname"] for each in body["alerts"]] for body in site.http.bodies("heartbeat")] == [
        ["VLLMSLOWatchdog"]
    ]
    assert site.http.bodies("ticket") == []


def assert_complete(text: str, status: str) -> None:
    """The cause is described, with its links and times; the symptoms are named."""
    assert text.startswith(f"*{status}* {DOWN_ANNOTATIONS['description']}\nSince ")
    assert (
        text.count(f"Runbook: {DOWN_ANNOTATIONS['runbook_url']}\nDashboard: {DOWN_ANNOTATIONS['dashboard_url']}\n") == 1
    )
    assert text.count(f"- {ANNOTATIONS['summary'][:59]}\N{HORIZONTAL ELLIPSIS}\n") == 2
