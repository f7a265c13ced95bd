"""The written configuration is valid for amtool and routes correctly; all mistakes in flags are reported in one run."""

import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

from compose.cli import main
from compose.lab import rewrite_config
from compose.programs.tools import Tools
from exporters.vocabulary.slo_file import SHIPPED
from tests.alerts.alertmanager.live_alertmanager import PER_TENANT, ROOT, WEBHOOKS, render_configuration

GENERATED = ROOT / "alerts" / "generated"
SECRETS = "/etc/alertmanager/secrets"
SLACK = ("--slack-url-file", f"{SECRETS}/slack")
MAIL = ("--smtp", "mail.example.org:587", "--smtp-from", "alertmanager@example.org")
EVERY_KIND = (
    *("--page", f"pagerduty=@{SECRETS}/pagerduty", "--page", "slack=#llm-oncall", *SLACK),
    *("--ticket", "slack=#llm-tickets", "--ticket", "email=llm@example.org", *MAIL),
    *("--smtp-user", "alertmanager", "--smtp-password-file", f"{SECRETS}/mail"),
    *("--heartbeat", "https://heartbeat.example.org/ping"),
)
LAB = (
    *("--page", "webhook=http://webhook:9095/page", "--ticket", "webhook=http://webhook:9095/ticket"),
    *("--group-wait", "10s", "--group-interval", "1m", "--repeat-pages", "12h", "--repeat-tickets", "12h"),
)
ROUTES = (
    *("--route", "class=siso:page:pagerduty=@/s/siso", "--route", "class=siso:page:slack=#siso", *SLACK),
    *("--route", "class=other:ticket:webhook=http://other.example.org/"),
    *("--route", "tenant=team a:page:webhook=http://team-a.example.org/"),
)


@pytest.fixture(scope="module")
def tenants(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("slos") / "slos.yaml"
    path.write_text(PER_TENANT)
    return str(path)


def amtool(tools: Tools, *words: str | Path) -> str:
    done = subprocess.run([str(tools.amtool), *map(str, words)], capture_output=True, text=True, check=False)
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    return output


@pytest.mark.parametrize(
    "committed, flags",
    [
        pytest.param(GENERATED, EVERY_KIND, id="the example"),
        pytest.param(rewrite_config.ALERTMANAGER.parent, LAB, id="the lab's"),
    ],
)
def test_the_committed_files_are_up_to_date(tmp_path: Path, committed: Path, flags: tuple[str, ...]) -> None:
    render_configuration(tmp_path, *flags)
    for path in (path for path in tmp_path.rglob("*") if path.is_file()):
        assert (committed / path.relative_to(tmp_path)).read_text() == path.read_text()


def test_the_heading_is_the_command_that_generates_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["alerts", "alertmanager", "--out", "-", *LAB]) == 0
    heading = capsys.readouterr().out.split("\n\n")[0]
    _, *command = heading.replace("# ", "").replace("\\", "").split("\n")
    assert " ".join(command).split() == ["vllm-slo", "alerts", "alertmanager", *LAB]


@pytest.mark.parametrize(
    "flags",
    [
        pytest.param(WEBHOOKS, id="only webhooks"),
        pytest.param(EVERY_KIND, id="every kind"),
        pytest.param((*WEBHOOKS, *ROUTES), id="routes"),
        pytest.param((*WEBHOOKS, "--webhook-token", "http://pager.example.org/page=/s/token"), id="a token"),
        pytest.param((*WEBHOOKS, "--page", "email=a@example.org", *MAIL, "--smtp-tls", "off"), id="mail without TLS"),
        pytest.param((*WEBHOOKS, "--keep-apart", "cluster", "--keep-apart", "region"), id="labels kept apart"),
    ],
)
def test_amtool_accepts_the_configuration(tools: Tools, tenants: str, tmp_path: Path, flags: tuple[str, ...]) -> None:
    path = render_configuration(tmp_path, "--slos", tenants, *flags)
    output = amtool(tools, "check-config", path)
    assert "3 inhibit rules" in output
    assert f"{(tmp_path / 'templates').exists():d} templates" in output


def test_a_notification_covers_a_cluster_a_namespace_and_a_model(tmp_path: Path) -> None:
    path = render_configuration(tmp_path, *WEBHOOKS, "--keep-apart", "region", "--keep-apart", "cluster")
    route = yaml.safe_load(path.read_text())["route"]
    assert route["group_by"] == ["cluster", "namespace", "model", "region"]
    assert all("group_by" not in each for each in route["routes"])


def test_the_groups_of_the_slo_file_are_grouped_and_inhibited_separately(tmp_path: Path) -> None:
    slos = tmp_path / "slos.yaml"
    slos.write_text(f"{SHIPPED.read_text()}\ngroup_by: [region, namespace]\n")
    path = render_configuration(tmp_path, "--slos", str(slos), *WEBHOOKS, "--keep-apart", "replica")
    document = yaml.safe_load(path.read_text())
    assert document["route"]["group_by"] == ["cluster", "namespace", "model", "region", "replica"]
    assert [each["equal"][-3:] for each in document["inhibit_rules"]] == [["region", "namespace", "replica"]] * 3


@pytest.mark.parametrize(
    "labels, receiver",
    [
        pytest.param("alertname=LLMEngineDown severity=page alert_source=vllm-slo", "vllm-slo-page", id="our page"),
        pytest.param("alertname=X severity=ticket alert_source=vllm-slo", "vllm-slo-ticket", id="our ticket"),
        pytest.param(
            "severity=page class=siso alert_source=vllm-slo", "vllm-slo-page-class-siso", id="our page of a class"
        ),
        pytest.param(
            "alertname=VLLMSLOWatchdog severity=none alert_source=vllm-slo", "vllm-slo-heartbeat", id="our watchdog"
        ),
        pytest.param("alertname=NodeDown severity=page", "page", id="the page of others"),
        pytest.param("alertname=Watchdog severity=none", "mine", id="the watchdog of others"),
    ],
)
def test_a_fragment_merged_into_a_configuration_routes_only_our_alerts(
    tools: Tools, tenants: str, tmp_path: Path, labels: str, receiver: str
) -> None:
    render_configuration(tmp_path, "--slos", tenants, "--fragment", *WEBHOOKS, *ROUTES)
    text = (tmp_path / "alertmanager-fragment.yml").read_text()
    fragment = yaml.safe_load(text)
    assert "#   vllm-slo alerts alertmanager \\\n" in text
    assert "#     --fragment \\\n" in text
    existing = {
        "global": fragment.get("global", {}),
        "templates": fragment["templates"],
        "route": {
            "receiver": "mine",
            "routes": [*fragment["route"]["routes"], {"matchers": ['severity="page"'], "receiver": "page"}],
        },
        "receivers": [{"name": "mine"}, {"name": "page"}, *fragment["receivers"]],
        "inhibit_rules": fragment["inhibit_rules"],
    }
    merged = tmp_path / "merged.yml"
    merged.write_text(yaml.safe_dump(existing))
    amtool(tools, "check-config", merged)
    flags = (f"--config.file={merged}", f"--verify.receivers={receiver}")
    amtool(tools, "config", "routes", "test", *flags, *shlex.split(labels))


def test_a_secret_url_stays_in_its_file(tools: Tools, tmp_path: Path) -> None:
    path = render_configuration(tmp_path, *WEBHOOKS, "--page", "webhook=@/s/hook", "--heartbeat", "@/s/heartbeat")
    receivers = {each["name"]: each for each in yaml.safe_load(path.read_text())["receivers"]}
    assert receivers["page"]["webhook_configs"][1] == {"url_file": "/s/hook", "send_resolved": True}
    assert receivers["heartbeat"]["webhook_configs"] == [{"url_file": "/s/heartbeat", "send_resolved": False}]
    version = subprocess.run([tools.amtool, "--version"], capture_output=True, text=True, check=True).stdout
    if "version 0.25" in version:
        pytest.skip("url_file needs Alertmanager 0.26")
    amtool(tools, "check-config", path)


@pytest.mark.parametrize(
    "labels, receiver",
    [
        pytest.param("alertname=LLMErrorBudgetBurn severity=page class=liso", "page", id="page"),
        pytest.param("alertname=LLMErrorBudgetBurn severity=ticket class=liso", "ticket", id="ticket"),
        pytest.param("alertname=VLLMSLOWatchdog severity=none", "heartbeat", id="watchdog"),
        pytest.param("alertname=Unknown severity=critical", "ticket", id="an unknown severity is a ticket"),
        pytest.param("alertname=Unknown", "ticket", id="no severity is a ticket"),
        pytest.param("severity=page class=siso", "page-class-siso", id="page of a class"),
        pytest.param("severity=ticket class=siso", "ticket", id="ticket of a class with a route for pages"),
        pytest.param("severity=ticket class=other", "ticket-class-other", id="ticket of the class other"),
        pytest.param("severity=page class=siso tenant='team a'", "page-tenant-team a", id="tenant before class"),
        pytest.param("severity=page class=siso tenant=team-b", "page-class-siso", id="class of another tenant"),
    ],
)
def test_each_alert_is_routed_to_its_receiver(
    tools: Tools, tenants: str, tmp_path: Path, labels: str, receiver: str
) -> None:
    path = render_configuration(tmp_path, "--slos", tenants, *WEBHOOKS, *ROUTES)
    flags = (f"--config.file={path}", f"--verify.receivers={receiver}")
    amtool(tools, "config", "routes", "test", *flags, *shlex.split(labels))


FORMS = "webhook=URL, webhook=@FILE, email=ADDRESS, slack=#CHANNEL or pagerduty=@FILE"
HOOK = "webhook=http://x"
SLACK_URL = (
    "slack takes a #channel or @user, such as slack=#oncall; the URL of Slack's webhook is a secret: put it in a file "
    "and pass the path with --slack-url-file"
)
PAGERDUTY_KEY = (
    "the routing key of PagerDuty is a secret: put it in a file and pass the path, such as "
    "pagerduty=@/etc/alertmanager/secrets/pagerduty"
)


@pytest.mark.parametrize(
    "flags, mistakes",
    [
        pytest.param(
            [],
            [
                f"--page: pages have no destination; add one: {FORMS}",
                f"--ticket: tickets have no destination; add one: {FORMS}",
            ],
            id="no destinations",
        ),
        pytest.param(
            [*WEBHOOKS, "--page", "telegram", "--page", "slak=#x", "--page", "webhook=ftp://x"],
            [
                f"--page: 'telegram' is not KIND=TARGET; write {FORMS}",
                "--page: 'slak' is not a kind of receiver; did you mean 'slack'?",
                "--page: 'ftp://x' is not a webhook URL; write http://HOST/PATH, or @FILE if the URL is a secret",
            ],
            id="invalid destinations",
        ),
        pytest.param(
            [*WEBHOOKS, "--page", "email=x", *MAIL, "--page", "slack=https://x", *SLACK, "--page", "pagerduty=0"],
            [
                "--page: 'x' is not an email address; write for example email=oncall@example.org",
                f"--page: {SLACK_URL}",
                f"--page: {PAGERDUTY_KEY}",
            ],
            id="secrets on the command line",
        ),
        pytest.param(
            [*WEBHOOKS, "--page", "pagerduty=@key"],
            ["--page: the path 'key' is relative to the working directory of Alertmanager; write /PATH"],
            id="a relative path",
        ),
        pytest.param(
            [*WEBHOOKS, "--page", "email=a@example.org", "--page", "slack=#x", "--smtp-user", "u"],
            [
                "--smtp, --smtp-from: email needs a server and a sender; add --smtp HOST:PORT --smtp-from ADDRESS",
                "--smtp-user, --smtp-password-file: a login needs both",
                "--slack-url-file: Slack needs the URL of its incoming webhook; pass the file that holds it",
            ],
            id="missing flags",
        ),
        pytest.param(
            [*WEBHOOKS, *MAIL, *SLACK, "--webhook-token", "http://pager.example.org=/s/token"],
            [
                "--smtp...: no destination uses email; add email=ADDRESS",
                "--slack-url-file: no destination uses Slack; add slack=#CHANNEL",
                "--webhook-token: 'http://pager.example.org' is not a webhook destination; did you mean 'http://pager.example.org/page'?",
            ],
            id="unused flags",
        ),
        pytest.param(
            [*WEBHOOKS, "--route", "siso", "--route", f"class=sis:page:{HOOK}", "--route", f"tenant=a:page:{HOOK}"],
            [
                "--route: 'siso' is not LABEL=NAME:SEVERITY:KIND=TARGET, such as class=siso:page:slack=#CHANNEL",
                "--route: class 'sis' does not exist; did you mean 'siso'?",
                "--route: alerts have no tenant label; set alerting: {per_tenant: true} in the SLO file",
            ],
            id="routes without alerts",
        ),
        pytest.param(
            [*WEBHOOKS, "--group-wait", "5", "--repeat-pages", "0s", "--keep-apart", "a-b", "--heartbeat", "ping"],
            [
                "--heartbeat: 'ping' is not a webhook URL; write http://HOST/PATH, or @FILE if the URL is a secret",
                "--group-wait: '5' is not a valid duration; write a number with a unit, such as 30s or 5m",
                "--repeat-pages: '0s' is not a valid duration; write a number with a unit, such as 30s or 5m",
                "--keep-apart: 'a-b' is not a label name; use letters, digits and _",
            ],
            id="times and labels",
        ),
    ],
)
def test_all_mistakes_are_reported_in_one_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], mistakes: list[str]
) -> None:
    assert main(["alerts", "alertmanager", "--out", str(tmp_path / "out"), *flags]) == 2
    assert capsys.readouterr().err == "vllm-slo: " + "\n".join(mistakes) + "\n"
    assert not (tmp_path / "out").exists()


def test_a_template_cannot_go_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["alerts", "alertmanager", "--out", "-", *EVERY_KIND]) == 2
    assert capsys.readouterr().err == (
        "vllm-slo: --out: all kinds but webhook need templates/vllm-slo.tmpl beside the file; add --out DIR\n"
    )


def test_a_missing_heartbeat_is_noted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = render_configuration(tmp_path, *WEBHOOKS)
    assert capsys.readouterr().out == (
        f"{path}: routes of pages, tickets and the Watchdog\n"
        "note: without --heartbeat, no notification is sent if Prometheus or Alertmanager itself is down\n"
    )
