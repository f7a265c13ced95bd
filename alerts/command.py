"""`vllm-slo alerts`: checks the SLO file, explains and compares it, and renders the Prometheus rules."""

import argparse
import math
from functools import partial
from pathlib import Path

from rich.console import Console

from alerts.alertmanager import configuration, flags, receivers
from alerts.check import diagnostics, difference, explain, json_schema
from alerts.check.validation import Level, check
from alerts.engine_only import effective_spec, evaluate_slos
from alerts.group_limit import FEWEST, MAX_RULES, limited
from alerts.links import add_link_flags, read_links
from alerts.plan import Plan
from alerts.prices import add_price_flags, parse_prices
from alerts.rule_file import head, rules
from alerts.rule_object import KINDS, checked_labels, checked_name, rule_object
from alerts.rules.groups import Alert, to_yaml
from alerts.rules.wording import describe, rescaled
from alerts.source_flags import add_source_flags, with_source
from exporters.text.command_flags import add_format
from exporters.text.errors import UsageError, parse_flag
from exporters.text.output_files import write_file
from exporters.text.units import parse_duration, spell_duration
from exporters.text.yaml_reader import nearest
from exporters.vocabulary.alert_names import AlertName
from exporters.vocabulary.ceilings import read_ceilings
from exporters.vocabulary.slo_file import SloFile, Source, add_flag, load

_RUNBOOKS = Path(__file__).parent / "runbooks"
_ON_CALL = "oncall"
"""The page of commands to which the runbooks link."""


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    check_parser = actions.add_parser("check", help="check an SLO file and report all mistakes")
    add_flag(check_parser)
    add_format(check_parser)
    check_parser.add_argument("--strict", action="store_true", help="exit with 1 if there are warnings")
    check_parser.add_argument(
        "--retention", metavar="TIME", help="retention of Prometheus, such as 15d: warn if the period is longer"
    )
    check_parser.add_argument(
        "--roofline",
        metavar="FILE",
        help="output of `vllm-slo roofline --format json`: warn of thresholds that the hardware cannot meet",
    )
    add_source_flags(check_parser)
    check_parser.set_defaults(run=_check)
    explain_parser = actions.add_parser("explain", help="show what burns each budget and when each tier fires")
    add_flag(explain_parser)
    add_format(explain_parser)
    explain_parser.add_argument(
        "--rate", type=float, default=1.0, metavar="R", help="events per second in one class (default: %(default)g)"
    )
    explain_parser.add_argument(
        "--outage", metavar="TIME", help="length of an outage: show when its page comes and clears, and its budget"
    )
    explain_parser.add_argument(
        "--window", metavar="TIME", help="rolling window of the peak error rate with --outage (default: 1h)"
    )
    add_source_flags(explain_parser)
    explain_parser.set_defaults(run=_explain)
    diff_parser = actions.add_parser(
        "diff", help="show what changes with an SLO file: objectives, limits, alerts, series"
    )
    add_flag(diff_parser)
    diff_parser.add_argument(
        "--against", type=Path, required=True, metavar="FILE", help="the SLO file before the change"
    )
    add_format(diff_parser)
    diff_parser.set_defaults(run=_diff)
    schema_parser = actions.add_parser("schema", help="print the JSON Schema of SLO files, for editors")
    _add_out(schema_parser)
    schema_parser.set_defaults(run=_schema)
    render_parser = actions.add_parser("render", help="print the Prometheus rules of an SLO file")
    add_flag(render_parser)
    _add_out(render_parser)
    add_link_flags(render_parser)
    render_parser.add_argument(
        "--grafana", default="", metavar="URL", help="base of dashboard_url (default: alerts have no dashboard_url)"
    )
    add_price_flags(
        render_parser, "record the cost of tokens and good requests", "record what the same tokens would cost there"
    )
    render_parser.add_argument(
        "--autoscaling",
        action="store_true",
        help="record how close latencies and waits are to their thresholds, for an autoscaler such as KEDA",
    )
    render_parser.add_argument(
        "--format",
        choices=("plain", *KINDS),
        default="plain",
        help="rules.yaml for Prometheus and vmalert, or prometheusrule.yaml or vmrule.yaml for the operator of "
        "Prometheus or VictoriaMetrics (default: %(default)s)",
    )
    render_parser.add_argument(
        "--max-rules-per-group",
        type=int,
        default=MAX_RULES,
        metavar="N",
        help="split groups that have more rules, for evaluators with a limit such as Mimir (default: %(default)s)",
    )
    render_parser.add_argument("--name", help="name of the PrometheusRule or VMRule (default: vllm-slo)")
    render_parser.add_argument(
        "--label",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="label of the PrometheusRule or VMRule, for the operator's ruleSelector (repeatable)",
    )
    add_source_flags(render_parser)
    render_parser.set_defaults(run=_render)
    alertmanager_parser = actions.add_parser(
        "alertmanager", help="write an Alertmanager configuration: destinations of pages and tickets"
    )
    _add_out(alertmanager_parser)
    flags.configure(alertmanager_parser)
    alertmanager_parser.set_defaults(run=_alertmanager)
    runbook_parser = actions.add_parser("runbook", help="print the runbook of an alert, or the names of all")
    runbook_parser.add_argument(
        "name", nargs="?", metavar="NAME", help="name of the alert, or oncall: its commands (default: list the names)"
    )
    runbook_parser.set_defaults(run=_runbook)


def _add_out(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", default="-", metavar="DIR", help="output folder (default: -, standard output)")


def _check(arguments: argparse.Namespace) -> int:
    parse = partial(parse_duration, examples="15d or 52w")
    retention = None if arguments.retention is None else parse_flag("--retention", arguments.retention, parse)
    roofline = read_ceilings(Path(arguments.roofline)) if arguments.roofline else None
    result = check(arguments.slos, retention, lambda spec: with_source(spec, arguments), roofline)
    if arguments.format == "json":
        print(diagnostics.as_json(result))
    else:
        console = Console(highlight=False, soft_wrap=True)
        if result.findings:
            console.print(diagnostics.render_text(result))
        if result.spec:
            console.print(f"{arguments.slos}: OK: {_summary(effective_spec(result.spec))}", markup=False)
    if result.spec is None:
        return 2
    has_warning = any(finding.level is Level.WARNING for finding in result.findings)
    return 1 if arguments.strict and has_warning else 0


def _explain(arguments: argparse.Namespace) -> int:
    plan = Plan.of(with_source(load(arguments.slos), arguments))
    if not 0 < arguments.rate < math.inf:
        raise UsageError(f"--rate: {arguments.rate:g} is not a rate; write events per second above 0, such as 0.5")
    if arguments.outage is not None:
        return _explain_outage(arguments, plan)
    if arguments.window is not None:
        raise UsageError("--window: only an outage has a rolling window; add --outage TIME, such as --outage 5m")
    if arguments.format == "json":
        print(explain.as_json(plan, arguments.rate))
    else:
        explain.table(plan, arguments.rate, Console(highlight=False))
    return 0


def _explain_outage(arguments: argparse.Namespace, plan: Plan) -> int:
    parse = partial(parse_duration, examples="5m or 1h")
    outage = parse_flag("--outage", arguments.outage, parse)
    window = parse_flag("--window", arguments.window or "1h", parse)
    if outage > plan.spec.period:
        raise UsageError(
            f"--outage: {arguments.outage} is longer than the period; use at most {spell_duration(plan.spec.period)}"
        )
    if arguments.format == "json":
        print(explain.outage_as_json(plan, arguments.rate, outage, window))
    else:
        explain.outage_table(plan, arguments.rate, outage, window, Console(highlight=False))
    return 0


def _diff(arguments: argparse.Namespace) -> int:
    found = difference.difference(load(arguments.against), load(arguments.slos))
    print(difference.as_json(found) if arguments.format == "json" else difference.as_text(found))
    return 0


def _schema(arguments: argparse.Namespace) -> int:
    path = _write(json_schema.render(), arguments.out, "slos.schema.json")
    if path:
        print(f"{path}: JSON Schema of SLO files, for editors")
    return 0


def _summary(spec: SloFile) -> str:
    slos = ", ".join(f"{slo.name} ({describe(slo)})" for slo in spec.slos)
    classes = "1 class" if len(spec.classes) == 1 else f"{len(spec.classes)} classes"
    return f"{spell_duration(spec.period)} over {classes}: {slos}"


def _render(arguments: argparse.Namespace) -> int:
    spec = with_source(load(arguments.slos), arguments)
    links = read_links(arguments.runbooks, arguments.grafana, arguments.traces_url)
    prices = parse_prices(arguments.gpu_hour_price, arguments.gpus, arguments.api_price)
    most = arguments.max_rules_per_group
    if most < FEWEST:
        raise UsageError(f"--max-rules-per-group: {most} is too few; use {FEWEST} or more")
    if arguments.autoscaling and spec.source is Source.ENGINE:
        raise UsageError("--autoscaling: needs the series of the sidecar; remove it, or use --source sidecar")
    groups = limited(rules(spec, links, prices, autoscaling=arguments.autoscaling), most)
    if arguments.format in KINDS:
        name, labels = checked_name(arguments.name or "vllm-slo"), checked_labels(arguments.label)
        text = rule_object(arguments.format, groups, name, labels, head(spec))
    elif arguments.name or arguments.label:
        raise UsageError("--name, --label: only an object has these; add --format prometheusrule or vmrule")
    else:
        text = to_yaml(groups, head(spec))
    path = _write(text, arguments.out, f"{'rules' if arguments.format == 'plain' else arguments.format}.yaml")
    if path is None:
        return 0
    all_rules = [rule for group in groups for rule in group.rules]
    alerts = sum(isinstance(rule, Alert) for rule in all_rules)
    print(f"{path}: {len(all_rules) - alerts} recording rules, {alerts} alerts")
    _print_notes(spec)
    return 0


def _alertmanager(arguments: argparse.Namespace) -> int:
    delivery = flags.read(arguments, effective_spec(load(arguments.slos)))
    template = receivers.needs_template(delivery.destinations)
    if template and arguments.out == "-":
        raise UsageError(f"--out: all kinds but webhook need {receivers.TEMPLATE_PATH} beside the file; add --out DIR")
    path = _write(
        flags.heading(arguments) + configuration.config(delivery),
        arguments.out,
        "alertmanager-fragment.yml" if delivery.fragment else "alertmanager.yml",
    )
    if path is None:
        return 0
    template_path = _write(receivers.TEMPLATE, arguments.out, receivers.TEMPLATE_PATH) if template else None
    print(
        f"{path}: routes of pages, tickets and the Watchdog"
        + (f"; messages in {template_path}" if template_path else "")
    )
    if delivery.heartbeat is None:
        print("note: without --heartbeat, no notification is sent if Prometheus or Alertmanager itself is down")
    return 0


def _runbook(arguments: argparse.Namespace) -> int:
    name = arguments.name
    names = [*AlertName, _ON_CALL]
    if name is None:
        print(*names, sep="\n")
        return 0
    if name not in names:
        raise UsageError(f"{name}: there is no alert of this name; {nearest(name, names)}")
    print((_RUNBOOKS / f"{name}.md").read_text(encoding="utf-8"), end="")
    return 0


def _write(text: str, out: str, name: str) -> Path | None:
    """Write to a folder and return the path; for `-`, write to standard output."""
    if out == "-":
        print(text, end="")
        return None
    path = Path(out) / name
    write_file(path, text)
    return path


def _print_notes(spec: SloFile) -> None:
    for slo in effective_spec(spec).slos:
        for note in rescaled(slo, spec.period):
            print(f"note: {note}")
    if spec.source is Source.ENGINE:
        for each in evaluate_slos(spec):
            print(f"note: slo {each.slo.name}: {each.note}")
