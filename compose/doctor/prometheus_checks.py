"""Checks of Prometheus: our targets, their interval, the rules, exemplars and the format of histograms."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from alerts.scrape_jobs import jobs
from compose.doctor.finding import Finding, Place, State, Unread
from compose.doctor.prometheus_reading import PrometheusReading
from compose.doctor.rule_difference import Match
from exporters.analysis.label_collisions import COST
from exporters.text.errors import InvalidValueError
from exporters.text.units import parse_duration, spell_duration
from exporters.vocabulary import signals
from exporters.vocabulary.signals import Label
from exporters.vocabulary.slo_file import SloFile

_KEEPS_CLASSIC = ("always_scrape_classic_histograms", "scrape_classic_histograms")
"""Names of the setting; the second is that of Prometheus 2."""
_NAMESPACE, _POD = "__meta_kubernetes_namespace", "__meta_kubernetes_pod_name"


def server(reading: PrometheusReading) -> Finding:
    """Whether Prometheus responds."""
    if isinstance(reading.version, Unread):
        return reading.place.finding(reading.version, "no alert fires, and dashboards are empty")
    return Finding(State.OK, reading.place.url, f"version {reading.version}")


def targets(reading: PrometheusReading, spec: SloFile) -> Finding:
    """Whether Prometheus scrapes the job that the rules read, without errors."""
    names = jobs(spec)
    looked_at = f"targets of the job {', '.join(names)}"
    cost = "dashboards, alerts and budgets miss the requests and the engines of these targets"
    if isinstance(reading.targets, Unread):
        return reading.targets.not_checked(looked_at)
    ours = _our_targets(reading.targets, spec)
    if not ours:
        jobs_found = sorted({str(each.get("labels", {}).get(Label.JOB)) for each in reading.targets})
        found = f"there are none; jobs with targets: {', '.join(jobs_found) or 'none'}"
        fix = f"name the scrape job {names[0]}, or set scrape_job in the SLO file"
        return Finding(State.FAILED, looked_at, found, cost, fix)
    failing = [each for each in ours if each.get("health") != "up"]
    if failing:
        first = failing[0]
        found = (
            f"{len(failing)} of {len(ours)} are not up: {first['labels'].get(Label.INSTANCE)}: "
            f"{first.get('lastError') or 'no scrape yet'}"
        )
        return Finding(State.FAILED, looked_at, found, cost, f"curl {first.get('scrapeUrl')}")
    return Finding(State.OK, looked_at, f"{len(ours)} up")


def target_names(reading: PrometheusReading, spec: SloFile) -> Finding:
    """Whether the instance of each target that is a pod has the name of the pod."""
    looked_at = f"label {Label.INSTANCE} of the targets"
    if isinstance(ours := _present_targets(reading, spec), Unread):
        return ours.not_checked(looked_at)
    found = [
        f"{instance} is the pod {discovered.get(_NAMESPACE)}/{discovered[_POD]}"
        for each in ours
        if _POD in (discovered := each.get("discoveredLabels") or {})
        and discovered[_POD] not in (instance := str(each["labels"].get(Label.INSTANCE)))
    ]
    if not found:
        return Finding(State.OK, looked_at, "no pod is named by its address")
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    return Finding(
        State.WARNING,
        looked_at,
        f"{found[0]}{more}",
        "pages and boards name an address, for which the pod must be searched",
        f"relabel: source_labels: [{_NAMESPACE}, {_POD}], separator: /, target_label: {Label.INSTANCE}, as "
        "the PodMonitor of the chart does",
    )


def scrape_interval(reading: PrometheusReading, spec: SloFile | Unread) -> Finding:
    """Whether the interval of our targets is the one for which the rules are rendered."""
    looked_at = "scrape_interval of the targets"
    if isinstance(spec, Unread):
        return spec.not_checked(looked_at)
    if isinstance(ours := _present_targets(reading, spec), Unread):
        return ours.not_checked(looked_at)
    try:
        intervals = {parse_duration(str(each["scrapeInterval"])) for each in ours}
    except (KeyError, InvalidValueError):
        return Unread("the server does not show the interval of its targets").not_checked(looked_at)
    expected = spell_duration(spec.scrape_interval)
    found = f"{', '.join(map(spell_duration, sorted(intervals)))}, and the SLO file has {expected}"
    if intervals == {spec.scrape_interval}:
        return Finding(State.OK, looked_at, f"{expected}, as in the SLO file")
    return Finding(
        State.FAILED,
        looked_at,
        found,
        "counts of a step are less accurate, and alerts on targets that are down or stalled are late or silent",
        f"set scrape_interval: {expected} for the job {jobs(spec)[0]}, or correct the SLO file and render again",
    )


def label_collisions(reading: PrometheusReading) -> Finding:
    """Whether our series have the labels that the sidecar writes, and none as `exported_*`."""
    looked_at = "labels of the series llm_*"
    if isinstance(reading.collisions, Unread):
        return reading.collisions.not_checked(looked_at)
    if not reading.collisions:
        return Finding(State.OK, looked_at, "none is exported_*")
    found = "; ".join(each.found for each in reading.collisions)
    fixes = dict.fromkeys(each.fix for each in reading.collisions)
    return Finding(State.FAILED, looked_at, found, COST, "; ".join(fixes))


def rule_content(match: Match | Unread, place: Place | Path | str, slos: Path | None) -> Finding:
    """Whether the rules in Prometheus, or in a file, are those of the SLO file."""
    looked_at, out, then = str(place), "DIR", "reload Prometheus"
    if isinstance(place, Place):
        looked_at, then = f"{place.url}/api/v1/rules", f"curl -X POST {place.url}/-/reload"
    elif isinstance(place, Path):
        out = str(place.parent)
    if isinstance(match, Unread):
        return match.not_checked(looked_at)
    fix = f"vllm-slo alerts render --slos {slos or 'FILE'} --out {out}, then: {then}"
    if not match.difference.count:
        return Finding(State.OK, looked_at, f"all {match.total} rules are those of {match.name}")
    if len(match.difference.missing) == match.total:
        cost = "no alert of vllm-slo fires, and no budget is recorded"
        return Finding(State.FAILED, looked_at, "it has none of the rules", cost, fix)
    if slos is None:
        return Unread(
            f"the rules are not those of {match.name} ({match.difference})", "vllm-slo doctor --slos FILE"
        ).not_checked(looked_at)
    return Finding(
        State.FAILED,
        looked_at,
        f"the rules are not those of {match.name}: {match.difference}",
        "alerts and budgets follow objectives, thresholds or formulas that the SLO file or this version does not have",
        fix,
    )


def exemplars(reading: PrometheusReading) -> Finding:
    """Whether exemplars are stored."""
    looked_at = "--enable-feature, storage.exemplars"
    if isinstance(reading.flags, Unread):
        return reading.flags.not_checked(looked_at)
    features = reading.flags.get("enable-feature", "").split(",")
    storage = {} if isinstance(reading.config, Unread) else (reading.config.get("storage") or {})
    most = (storage.get("exemplars") or {}).get("max_exemplars")
    if "exemplar-storage" in features and most != 0:
        return Finding(State.OK, looked_at, "exemplars are stored")
    found = "max_exemplars is 0" if most == 0 else "exemplar-storage is not enabled"
    cost = "points of latency panels have no links to traces"
    fix = "remove max_exemplars: 0" if most == 0 else "prometheus --enable-feature=exemplar-storage"
    return Finding(State.WARNING, looked_at, found, cost, fix)


def classic_histograms(reading: PrometheusReading, spec: SloFile) -> Finding:
    """Whether the buckets of our histograms stay series (`_bucket`), which rules and panels read."""
    looked_at = "convert_classic_histograms_to_nhcb"
    if isinstance(reading.config, Unread):
        return reading.config.not_checked(looked_at)
    if isinstance(ours := _present_targets(reading, spec), Unread):
        return ours.not_checked(looked_at)
    pools = {each.get("scrapePool") for each in ours}
    common = reading.config.get("global") or {}
    converted = [
        str(job["job_name"])
        for job in reading.config.get("scrape_configs") or ()
        if job.get("job_name") in pools and _converts({**common, **job})
    ]
    if not converted:
        return Finding(State.OK, looked_at, "histograms keep their _bucket series")
    return Finding(
        State.FAILED,
        looked_at,
        f"true for the job {', '.join(converted)}: the _bucket series are not stored",
        "panels of quantiles are empty, and rules on engine histograms read nothing",
        f"set convert_classic_histograms_to_nhcb: false, or {_KEEPS_CLASSIC[0]}: true, for this job",
    )


def config_revisions(reading: PrometheusReading) -> Finding:
    """Whether each config revision of the last day but the first has a config change."""
    looked_at = f"{signals.ENGINE_CONFIG_INFO.name} of the last day"
    if isinstance(reading.revisions, Unread):
        return reading.revisions.not_checked(looked_at)
    if isinstance(reading.changed_settings, Unread):
        return reading.changed_settings.not_checked(looked_at)
    if not reading.revisions:
        return Unread("there are no series of an engine").not_checked(looked_at)
    for (instance, engine), revisions in sorted(reading.revisions.items()):
        changes = reading.changed_settings.get((instance, engine), 0)
        if revisions - 1 > changes:
            return Finding(
                State.WARNING,
                looked_at,
                f"{instance}, engine {engine}: {revisions} revisions, {changes} changed settings",
                "a new revision looks like a config change on boards and in `vllm-slo compare`; its cause is unknown",
                "update the sidecar, and start it with --state FILE, so that it knows the settings before its restart",
            )
    return Finding(State.OK, looked_at, f"no revision without a change; engines: {len(reading.revisions)}")


def _present_targets(reading: PrometheusReading, spec: SloFile) -> list[Mapping[str, Any]] | Unread:
    """Our targets, at least one."""
    if isinstance(reading.targets, Unread):
        return reading.targets
    none = Unread("there are no targets", f"name the scrape job {jobs(spec)[0]}")
    return _our_targets(reading.targets, spec) or none


def _our_targets(active: Sequence[Mapping[str, Any]], spec: SloFile) -> list[Mapping[str, Any]]:
    """The targets whose job the rules read."""
    names = jobs(spec)
    return [each for each in active if each.get("labels", {}).get(Label.JOB) in names]


def _converts(config: Mapping[str, Any]) -> bool:
    return bool(config.get("convert_classic_histograms_to_nhcb")) and not any(config.get(key) for key in _KEEPS_CLASSIC)
