"""The directory of one run of the lab: its files, and a lock against a second run."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from compose.processes.folder_lock import locked_folder


class RunDirectory:
    """The paths of one run; `root` is absolute, because child processes have other working directories."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.logs = root / "logs"
        self.rules = root / "rules"
        self.load = root / "load"
        self.request_log = root / "requests.jsonl"
        self.notifications = root / "pages.jsonl"
        self.prometheus_config = root / "prometheus.yml"
        self.prometheus_data = root / "prometheus"
        self.alertmanager_config = root / "alertmanager.yml"
        self.alertmanager_data = root / "alertmanager"
        self.traces = root / "traces"
        self.grafana = root / "grafana"
        self.dashboards = root / "dashboards"

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the directory and delete the files of an earlier run; other files remain.

        Raises:
            UsageError: another lab uses the directory, or it cannot be written.
        """
        with locked_folder(self.root, "--out", "lab", "--out"):
            for path in vars(self).values():
                if path.is_dir() and path != self.root:
                    shutil.rmtree(path, ignore_errors=True)
                elif path != self.root:
                    path.unlink(missing_ok=True)
            yield
