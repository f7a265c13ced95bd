"""Derives the state of each engine in series for promtool from its scrapes, as the sidecar does."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import groupby

from exporters.engines.condition.evidence import Contact, Evidence, Requests, Scrape
from exporters.engines.condition.rule import LIMITS, Condition, State, observe
from exporters.text.units import number
from exporters.vocabulary.signals import ENGINE_START_TIME, ENGINE_STATE, ENGINE_STATE_CHANGED, ENGINE_UP, REQUESTS
from exporters.vocabulary.slo_file import SloFile, Source
from exporters.vocabulary.verdicts import SERVER_FAULT

_RUN = re.compile(r"(?:(-?[\d.e+]+?)([+-][\d.]+)?|(_))(?:x(\d+))?")


def samples(values: str) -> Iterator[float | None]:
    """The values of a series in the notation of promtool; None where there is none."""
    for part in values.split():
        match = _RUN.fullmatch(part)
        if match is None:  # `stale`
            yield None
            continue
        start, growth, missing, times = match.groups()
        if missing:
            yield from [None] * int(times or 1)
        else:
            yield from (float(start) + float(growth or 0) * at for at in range(int(times or 0) + 1))


def labels(series: str) -> dict[str, str]:
    return dict(re.findall(r'(\w+)="([^"]*)"', series))


def with_states(spec: SloFile, series: Mapping[str, str]) -> dict[str, str]:
    """The series, with the states of the engines behind sidecars unless the series have them."""
    found = dict(series)
    given = any(name.startswith(f"{ENGINE_STATE.name}{{") for name in series)
    for name, values in () if given or spec.source is not Source.SIDECAR else series.items():
        if name.startswith(f"{ENGINE_UP.name}{{"):
            found |= _states(spec, series, labels(name), name.removeprefix(ENGINE_UP.name)[1:-1], values)
    return found


def _states(spec: SloFile, series: Mapping[str, str], of: dict[str, str], here: str, values: str) -> dict[str, str]:
    same = [each for each in series if all(of.get(label, value) == value for label, value in labels(each).items())]
    failed = _sums(
        series[each] for each in same if each.startswith(REQUESTS.name) and labels(each).get("outcome") in SERVER_FAULT
    )
    started = _sums(series[each] for each in same if each.startswith(ENGINE_START_TIME.name))
    limits = replace(LIMITS, start=spec.start_limit())
    condition, states, changed = Condition(), list[State | None](), list[float | None]()
    scrape: Scrape | None = None
    for place, up in enumerate(samples(values)):
        at = place * spec.scrape_interval
        if up is None:
            condition, scrape = Condition(), None
            states.append(None)
            changed.append(None)
            continue
        if up:
            scrape = Scrape(at, started.get(place), work=(at,))
        contact = Contact.ANSWERS if up else Contact.REFUSED
        condition = observe(
            condition, Evidence(at, contact, scrape, Requests(failed=int(failed.get(place, 0)))), limits
        )
        states.append(condition.state)
        changed.append(condition.since)
    every = {
        f'{ENGINE_STATE.name}{{{here},state="{state}"}}': [
            None if each is None else float(each is state) for each in states
        ]
        for state in State
    }
    return {
        name: _notation(each) for name, each in {f"{ENGINE_STATE_CHANGED.name}{{{here}}}": changed, **every}.items()
    }


def _sums(of: Iterable[str]) -> dict[int, float]:
    """The sum of some series at each scrape."""
    sums: dict[int, float] = {}
    for values in of:
        for place, value in enumerate(samples(values)):
            sums[place] = sums.get(place, 0.0) + (value or 0.0)
    return sums


def _notation(values: list[float | None]) -> str:
    runs = ((value, len(list(run))) for value, run in groupby(values))
    return " ".join(f"_x{count}" if value is None else f"{number(value)}x{count - 1}" for value, count in runs)
