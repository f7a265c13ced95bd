"""The directory of one run of the lab: its files, and a lock against a second run."""

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from exporters.errors import UsageError, system_reason


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """An absolute path, because children have other working directories."""

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
    def notifications(self) -> Path:
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
    def dashboards(self) -> Path:
        """Rendered dashboards."""
        return self.root / "dashboards"

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the directory and remove the files of an earlier run, and no others.

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
                self.dashboards,
            ):
                shutil.rmtree(folder, ignore_errors=True)
            for file in (self.request_log, self.notifications, self.prometheus_config, self.alertmanager_config):
                file.unlink(missing_ok=True)
            yield
