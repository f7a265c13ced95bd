"""Renders the receivers of Alertmanager, and the template of their texts."""

from collections.abc import Iterable, Mapping

from alerts.destinations import Destination, Email, PagerDuty, SecretFile, Slack, Webhook
from alerts.tiers import Severity

TEMPLATE_PATH = "templates/vllm-slo.tmpl"
TEMPLATE = """\
{{/* Made by `vllm-slo alerts alertmanager`. The texts of Slack, PagerDuty and mail; a webhook gets them as JSON.
     A text begins with an asterisk: newer Alertmanagers read PagerDuty's details as YAML, and take for a list or a
     mapping what looks like one, but no asterisk begins a YAML. */}}
{{ define "vllm_slo.title" -}}
{{ $firing := eq .Status "firing" }}{{ $first := index .Alerts 0 -}}
{{ if $firing }}{{ $first = index .Alerts.Firing 0 }}{{ end -}}
[{{ if $firing }}{{ or .CommonLabels.severity .Status | toUpper }}{{ else }}RESOLVED{{ end }}]
{{- " " }}{{ or $first.Annotations.summary $first.Labels.alertname }}
{{- if gt (len .Alerts) 1 }} (one of {{ len .Alerts }}){{ end }}
{{- end }}

{{ define "vllm_slo.alerts" -}}
{{ range . -}}
*{{ .Status | toUpper }}* {{ or .Annotations.summary .Labels.alertname }}
{{ with .Annotations.description }}{{ . }}
{{ end -}}
Runbook: {{ or .Annotations.runbook_url "none" }}
Dashboard: {{ or .Annotations.dashboard_url "none" }}
Since {{ .StartsAt.UTC.Format "2006-01-02 15:04:05 UTC" }}
{{- if eq .Status "resolved" }} until {{ .EndsAt.UTC.Format "2006-01-02 15:04:05 UTC" }}{{ end }}:
{{- range .Labels.SortedPairs }} {{ .Name }}={{ .Value }}{{ end }}

{{ end }}
{{- end }}

{{ define "vllm_slo.text" }}{{ template "vllm_slo.alerts" .Alerts.Firing -}}
{{ template "vllm_slo.alerts" .Alerts.Resolved }}{{ end }}
"""
_TITLE, _TEXT = '{{ template "vllm_slo.title" . }}', '{{ template "vllm_slo.text" . }}'

# `class` and the like are empty where the alerts of a notification differ in them; its text has each.
_DETAILS = {
    **{name: f"{{{{ .CommonLabels.{name} }}}}" for name in ("slo", "class", "model", "tenant", "instance", "engine")},
    "runbook": "{{ .CommonAnnotations.runbook_url }}",
    "dashboard": "{{ .CommonAnnotations.dashboard_url }}",
    "firing": '{{ template "vllm_slo.alerts" .Alerts.Firing }}',
    "resolved": '{{ template "vllm_slo.alerts" .Alerts.Resolved }}',
}


def needs_template(destinations: Iterable[Destination]) -> bool:
    return any(not isinstance(each, Webhook) for each in destinations)


def receiver(
    name: str, destinations: Iterable[Destination], severity: Severity, tokens: Mapping[str, SecretFile]
) -> dict[str, object]:
    """One receiver of Alertmanager; `tokens` are the files with the bearer tokens of webhooks, by URL."""
    kinds: dict[str, list[dict[str, object]]] = {}
    for each in destinations:
        kind, settings = _settings(each, severity, tokens)
        kinds.setdefault(kind, []).append({**settings, "send_resolved": severity is not Severity.NONE})
    return {"name": name, **kinds}


def _settings(
    where: Destination, severity: Severity, tokens: Mapping[str, SecretFile]
) -> tuple[str, dict[str, object]]:
    match where:
        case Webhook(url):
            if isinstance(url, SecretFile):
                return "webhook_configs", {"url_file": url.path}
            token = {"http_config": {"authorization": {"credentials_file": tokens[url].path}}} if url in tokens else {}
            return "webhook_configs", {"url": url, **token}
        case Email(to):
            # An empty `html` sends the text alone.
            return "email_configs", {"to": to, "headers": {"Subject": _TITLE}, "html": "", "text": _TEXT}
        case Slack(channel):
            color = "danger" if severity is Severity.PAGE else "warning"
            return "slack_configs", {
                "channel": channel,
                "color": f'{{{{ if eq .Status "firing" }}}}{color}{{{{ else }}}}good{{{{ end }}}}',
                "title": _TITLE,
                "fallback": _TITLE,  # what a phone shows
                "text": _TEXT,
            }
        case PagerDuty(routing_key):
            return "pagerduty_configs", {
                "routing_key_file": routing_key.path,
                "severity": "critical" if severity is Severity.PAGE else "warning",
                "description": _TITLE,
                "details": dict(_DETAILS),
            }
