"""The folder of one run of the lab: what lies where in it, and the guard against two runs in one folder."""

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from exporters.errors import UsageError, system_reason


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Absolute, for children with another working directory."""

    root: Path

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def rules(self) -> Path:
        return self.root / "rules"

    @property
    def load(self) -> Path:
        return self.root / "load"

    @property
    def request_log(self) -> Path:
        return self.root / "requests.jsonl"

    @property
    def pages(self) -> Path:
        return self.root / "pages.jsonl"

    @property
    def prometheus_config(self) -> Path:
        return self.root / "prometheus.yml"

    @property
    def prometheus_data(self) -> Path:
        return self.root / "prometheus"

    @property
    def alertmanager_config(self) -> Path:
        return self.root / "alertmanager.yml"

    @property
    def alertmanager_data(self) -> Path:
        return self.root / "alertmanager"

    @property
    def grafana(self) -> Path:
        return self.root / "grafana"

    @property
    def drawn(self) -> Path:
        """Pages of the dashboards as they were."""
        return self.root / "dashboards"

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Holds the folder, emptied of an earlier run's files and of nothing else.

        Raises:
            UsageError: another lab runs in it, or it cannot be written.
        """
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            lock = (self.root / "lock").open("w")
        except OSError as error:
            raise UsageError(f"--dir {self.root}: cannot be written: {system_reason(error)}") from error
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise UsageError(
                    f"--dir {self.root}: another lab runs there; stop it, or give another --dir"
                ) from error
            for folder in (
                self.logs,
                self.rules,
                self.load,
                self.prometheus_data,
                self.alertmanager_data,
                self.grafana,
                self.drawn,
            ):
                shutil.rmtree(folder, ignore_errors=True)
            for file in (self.request_log, self.pages, self.prometheus_config, self.alertmanager_config):
                file.unlink(missing_ok=True)
            yield
