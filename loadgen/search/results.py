"""The results of a search for the largest rate, kept in its folder, so that a search can be continued."""

from dataclasses import dataclass
from pathlib import Path

import msgspec

from exporters.text.errors import UsageError, system_reason
from exporters.text.output_files import writing
from loadgen.results.record import write_json
from loadgen.results.saturation import Saturation
from loadgen.search.attainment import Attainment, Tally, Verdicts
from loadgen.search.rate_search import Answer, Limits, answer

FIND_MAX = "find-max.json"


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """A finished probe; `seconds` is when a look or a saturation decided it, in seconds since its start.

    `emptied`: the target had no running or waiting request before the next probe, None if it reports none.
    """

    folder: str
    rate: float
    seed: int
    seconds: float
    attainment: Attainment
    tallies: list[Tally]
    emptied: bool | None
    saturated: Saturation | None = None

    @property
    def verdicts(self) -> Verdicts:
        return Verdicts(self.tallies, self.saturated)


class Search(msgspec.Struct, kw_only=True):
    """The file: the settings, the probes in their order, and the answer so far."""

    settings: dict[str, str | float]
    limits: Limits
    probes: list[Probe] = []
    answer: Answer | None = None
    stopped: str | None = None


@dataclass(slots=True)
class SearchStore:
    """The folder of a search."""

    folder: Path
    search: Search

    def find(self, rate: float) -> Probe | None:
        return next((probe for probe in self.search.probes if probe.rate == rate), None)

    def new_folder(self) -> tuple[int, Path]:
        """The number and the folder of the next probe; that of an unfinished one stays as it is."""
        number = 1
        while (folder := self.folder / f"probe-{number:02}").exists():
            number += 1
        return number, folder

    def add(self, probe: Probe) -> None:
        self.search.probes.append(probe)
        self.save()

    def stop(self, reason: str) -> None:
        self.search.stopped = reason
        self.save()

    def save(self) -> None:
        """Write the file.

        Raises:
            UsageError: it cannot be written.
        """
        results = {probe.rate: probe.attainment for probe in self.search.probes}
        self.search.answer = answer(results, self.search.limits)
        with writing(f"--out {self.folder}"):
            self.folder.mkdir(parents=True, exist_ok=True)
            write_json(self.folder / FIND_MAX, self.search)


def open_store(folder: Path, settings: dict[str, str | float], limits: Limits) -> SearchStore:
    """The store of a new search, or of an earlier one with the same settings.

    Raises:
        UsageError: the folder has a search with other settings, or a file that cannot be read.
    """
    path = folder / FIND_MAX
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Search)
    except FileNotFoundError:
        return SearchStore(folder, Search(settings=settings, limits=limits))
    except OSError as error:
        raise UsageError(f"--out {folder}: {FIND_MAX} cannot be read: {system_reason(error)}") from error
    except msgspec.DecodeError as error:
        raise UsageError(f"{path}: not the output of find-max: {error}") from error
    changed = [
        f"{name} was {found.settings.get(name, 'not set')}, is {value}"
        for name, value in settings.items()
        if found.settings.get(name) != value
    ]
    if changed:
        raise UsageError(
            f"--out {folder}: contains a search with other settings ({'; '.join(changed)}); choose another folder, or "
            "use these settings to continue it"
        )
    found.stopped = None
    return SearchStore(folder, found)
