"""The text of a search for the largest rate: the expected duration, each probe, the answer."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from loadgen.report.tables import format_percent, new_table
from loadgen.search.attainment import Attainment, Tally, Verdicts
from loadgen.search.rate_search import Answer, Finding
from loadgen.search.results import Probe, Search
from loadgen.search.settings import FindMaxSettings, rounded_duration

_READ_AS = (
    "The confidence is that of each probe, not of the answer, which combines several; its two ends are a probe each."
)
_BRACKET = 2
"""Probes that bracket an answer within a factor of 2 of the first rate."""


def expected(settings: FindMaxSettings) -> str:
    """How long the search takes; it depends on the answer."""
    limits, demand = settings.limits, settings.demand
    name, slo = demand.binding
    probes = _BRACKET + limits.bisections
    shortest = demand.seconds(limits.start, settings.timing)
    return (
        f"{settings.run.plan.name}: a probe needs {demand.requests} requests, because {slo} of {name} needs "
        f"{demand.events} of its class: {rounded_duration(shortest)} at {limits.start:g} requests/s, "
        f"{rounded_duration(settings.timing.most)} at most.\n"
        f"About {probes} probes if the answer is within a factor of 2 of {limits.start:g} requests/s: "
        f"{rounded_duration(probes * shortest)} to {rounded_duration(probes * settings.timing.most)}; each further "
        "factor of 2 is one more probe."
    )


def line(number: int, probe: Probe, *, kept: bool = False) -> str:
    """The result of one probe."""
    why = "; ".join(reasons(probe.verdicts, 1))
    text = f"probe {number}: {probe.rate:g} requests/s: {probe.attainment} after {rounded_duration(probe.seconds)}"
    return f"{text}{f' ({why})' if why else ''}{' (of an earlier run)' if kept else ''}"


def show(search: Search, confidence: float, console: Console) -> None:
    """Print the table of all probes and the answer."""
    if search.probes:
        console.print(_table(search.probes))
    if search.stopped:
        console.print(Text(f"stopped: {search.stopped}", style="bold red"))
    console.print(Text(answer_text(search, confidence), style="bold"))
    if search.probes:
        console.print(Text(_READ_AS))


def answer_text(search: Search, confidence: float) -> str:
    """The answer in one sentence."""
    found = search.answer
    if found is None or not search.probes:
        return "largest rate: undecided: no probe was finished"
    trusted = f"({confidence * 100:g} % confidence per probe)"
    match found.finding:
        case Finding.BETWEEN:
            text = f"between {found.low:g} and {found.high:g} requests/s {trusted}"
        case Finding.NONE:
            text = f"none: {found.high:g} requests/s, the lowest rate that --max-probe can decide, is missed {trusted}"
        case Finding.ABOVE_CAP:
            text = f"above the cap: {found.low:g} requests/s (--cap) is met {trusted}"
        case Finding.UNDECIDED:
            text = f"undecided: {_known(found, search.stopped)} {trusted}"
    binding = next((probe for probe in search.probes if probe.rate == found.high), None)
    why = [] if binding is None else reasons(binding.verdicts, 2)
    if binding is not None and why:
        text += f"; at {binding.rate:g} requests/s: {'; '.join(why)}"
    return f"largest rate: {text}"


def _known(found: Answer, stopped: str | None) -> str:
    if found.low is not None and found.high is not None:
        text = f"between {found.low:g} and {found.high:g} requests/s"
    else:
        met = "no rate is met" if found.low is None else f"{found.low:g} requests/s is met"
        text = f"{met}, {'none is missed' if found.high is None else f'{found.high:g} is missed'}"
    if found.undecided:
        rates = ", ".join(f"{rate:g}" for rate in found.undecided)
        text += f", and a longer --max-probe (in a new folder) is needed to decide {rates}"
    elif stopped:
        text += "; run it again with the same settings to continue the search"
    return text


def reasons(verdicts: Verdicts, most: int) -> list[str]:
    """Why a probe is not met, the worst classes and SLOs first."""
    if (found := verdicts.saturated) is not None:
        rates = f"{found.offered:.3g} requests/s offered, {found.completed:.3g} ended"
        return [f"the server was saturated from about {found.since:.0f} s on: {rates}"]
    return [_reason(tally) for tally in verdicts.deciding()[:most]]


def _reason(tally: Tally) -> str:
    verb = "misses" if tally.attainment is Attainment.MISSED else "does not decide"
    return (
        f"{tally.request_class} {verb} {tally.slo}, good: {format_percent(tally.good)} of {tally.events} "
        f"[{format_percent(tally.low)}, {format_percent(tally.high)}], objective {format_percent(tally.objective)}"
    )


def _table(probes: Sequence[Probe]) -> Table:
    table = new_table("probes", (), ("requests/s", "seconds"))
    for heading in ("result", "class and SLO nearest to a miss"):
        table.add_column(heading, no_wrap=True)
    for heading in ("events", "bad", "good", "objective"):
        table.add_column(heading, justify="right", no_wrap=True)
    for probe in sorted(probes, key=lambda each: each.rate):
        worst = probe.verdicts.nearest
        if worst is None:
            continue
        table.add_row(
            f"{probe.rate:g}",
            f"{probe.seconds:.0f}",
            probe.attainment,
            f"{worst.request_class} {worst.slo}",
            str(worst.events),
            str(worst.bad),
            format_percent(worst.good),
            format_percent(worst.objective),
        )
    return table
