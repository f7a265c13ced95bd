"""`vllm-slo alerts`: checks the SLO file and renders the Prometheus rules."""

import argparse
from pathlib import Path

from alerts.burn import promise, rescaled
from alerts.rule import Alert
from alerts.rules import render, rules
from alerts.wording import Links
from exporters.slos import SHIPPED, SloFile, load
from exporters.usage import UsageError
from exporters.yamlfile import spell_duration

OUT = Path("alerts/generated")


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    check = actions.add_parser("check", help="read an SLO file and name every mistake in it")
    check.add_argument("file", nargs="?", type=Path, default=SHIPPED, help="the SLO file (default: the shipped one)")
    check.set_defaults(run=_check)
    make = actions.add_parser("render", help="write the Prometheus rules of an SLO file")
    make.add_argument("--slos", type=Path, default=SHIPPED, help="the SLO file (default: the shipped one)")
    make.add_argument(
        "--out", default=str(OUT), metavar="DIR", help="folder for rules.yaml, - for standard output (%(default)s)"
    )
    defaults = Links()
    make.add_argument(
        "--runbooks", default=defaults.runbooks, metavar="URL", help="base of runbook_url (default: %(default)s)"
    )
    make.add_argument(
        "--grafana", default=defaults.grafana, metavar="URL", help="base of dashboard_url (default: %(default)s)"
    )
    make.set_defaults(run=_render)


def _check(arguments: argparse.Namespace) -> int:
    spec = load(arguments.file)
    print(f"{arguments.file}: OK: {_summary(spec)}")
    _print_notes(spec)
    return 0


def _summary(spec: SloFile) -> str:
    slos = ", ".join(f"{slo.name} ({promise(slo)})" for slo in spec.slos)
    return f"{spell_duration(spec.period)} over {len(spec.classes)} classes: {slos}"


def _render(arguments: argparse.Namespace) -> int:
    spec = load(arguments.slos)
    links = Links(arguments.runbooks, arguments.grafana)
    text = render(spec, links)
    if arguments.out == "-":
        print(text, end="")
        return 0
    path = Path(arguments.out) / "rules.yaml"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {(error.strerror or str(error)).lower()}") from error
    made = [rule for group in rules(spec, links) for rule in group.rules]
    alerts = sum(isinstance(rule, Alert) for rule in made)
    print(f"{path}: {len(made) - alerts} recording rules, {alerts} alerts")
    _print_notes(spec)
    return 0


def _print_notes(spec: SloFile) -> None:
    for note in rescaled(spec):
        print(f"note: {note}")
    if spec.alerting.per_tenant:
        print("note: alerting.per_tenant: this release renders no rules per tenant; budgets are shared by all tenants")
