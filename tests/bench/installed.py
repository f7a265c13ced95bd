"""Peers that are installed with pip, each in its own virtual environment in the user's cache."""

import os
import subprocess
import venv
from collections.abc import Callable
from pathlib import Path

from exporters.text.errors import UsageError
from tests.bench.proxies import Place, Proxy

LITELLM = """
model_list:
  - model_name: m
    litellm_params: {{model: openai/m, api_base: "http://127.0.0.1:{upstream}/v1", api_key: sk-bench}}
general_settings: {{dangerously_permit_weak_or_unset_master_key: true}}  # on loopback only
"""


def vllm_router() -> Proxy:
    home, version = _installed("vllm-router", "vllm-router")

    def start(place: Place) -> list[str]:
        return [
            *(str(home / "bin" / "vllm-router"), "--worker-urls", f"http://127.0.0.1:{place.upstream}"),
            *("--host", "127.0.0.1", "--port", str(place.port), "--prometheus-port", str(place.metrics_port)),
            *("--policy", "round_robin", "--log-level", "error"),
        ]

    return Proxy(f"vllm-router {version}", start)


def litellm() -> Proxy:
    home, version = _installed("litellm", "litellm[proxy]")

    def start(place: Place) -> list[str]:
        config = place.folder / "litellm.yaml"
        config.write_text(LITELLM.format(upstream=place.upstream))
        return [
            *("env", "LITELLM_LOCAL_MODEL_COST_MAP=True", str(home / "bin" / "litellm"), "--config", str(config)),
            *("--host", "127.0.0.1", "--port", str(place.port), "--telemetry", "False"),
        ]

    return Proxy(f"litellm {version}", start, most_connections=20)


PEERS: dict[str, Callable[[], Proxy]] = {"vllm-router": vllm_router, "litellm": litellm}


def _installed(name: str, requirement: str) -> tuple[Path, str]:
    """The virtual environment, created at the first use, and the installed version."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    home = cache / "vllm-slo" / f"bench-{name}"
    if not (home / "bin" / name).exists():
        venv.create(home, clear=True, with_pip=True)
        done = subprocess.run(
            [home / "bin" / "pip", "install", "--disable-pip-version-check", requirement], check=False
        )
        if done.returncode:
            raise UsageError(f"pip could not install {requirement} into {home}; see its output above")
    ask = f"from importlib.metadata import version; print(version({name!r}))"
    version = subprocess.run([home / "bin" / "python", "-c", ask], check=True, capture_output=True, text=True).stdout
    return home, version.strip()
