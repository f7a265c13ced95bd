"""The configuration of an exporter that runs in the process of a test, with the shipped SLO file."""

from typing import Any

from exporters.configuration.child import ChildConfig, Slos
from exporters.configuration.sidecar import SidecarConfig
from exporters.vocabulary import slo_file

SLOS = Slos(file=slo_file.load(slo_file.SHIPPED), read_at=1_700_000_000.0)


def exporter_config(*, restarts: dict[str, int] | None = None, **settings: Any) -> ChildConfig:
    """`settings` are those of the sidecar."""
    upstream, file = "http://127.0.0.1:1", str(slo_file.SHIPPED)
    return ChildConfig(
        sidecar=SidecarConfig(upstream=upstream, slos=file, listen="", metrics="", **settings),
        slos=SLOS,
        process="exporter",
        run_id="exporter-1",
        restarts=restarts or {},
        salt=b"salt",
        socket_fds=(),
    )
