"""The part of the rendered chart that decides how a pod starts and stops, adapted to processes on one machine."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from compose.lab.rewrite_config import COMPOSE_DIRECTORY

POD = Path(__file__).parent / "pod.yaml"
"""Sidecar, hook and grace period as rendered from the chart by `python -m tests.compose.helm.golden_installs`."""

SCRIPTS = COMPOSE_DIRECTORY / "helm/vllm-slo/files"

ENGINE, RELAY, METRICS = 8000, 8001, 9464
"""The ports of each pod."""

_ADMIN, _SLOS, _DATA, _HOOK = "/etc/vllm-slo-admin", "/etc/vllm-slo", "/var/lib/vllm-slo", "/etc/vllm-slo-drain"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodManifest:
    """Words of the sidecar's and the hook's command as in the manifest; `grace` in seconds."""

    sidecar: tuple[str, ...]
    hook: tuple[str, ...]
    grace: float

    def sidecar_words(self, address: str, folder: Path, changed: Mapping[str, str]) -> tuple[str, ...]:
        """The words for a pod with this address and folder; `changed` has other values of flags, by flag."""
        places = dict.fromkeys(("127.0.0.1", "0.0.0.0"), address)  # noqa: S104 - is replaced
        places |= {f"{each}/": f"{folder}/" for each in (_ADMIN, _SLOS, _DATA)}
        words = []
        for word in self.sidecar:
            flag = word.partition("=")[0]
            words.append(f"{flag}={changed[flag]}" if flag in changed else _replaced(word, places))
        return tuple(words)

    def hook_words(self, address: str, folder: Path) -> tuple[str, ...]:
        """The words after the interpreter. The address and the token file differ from those of a pod."""
        script, seconds = (_replaced(word, {_HOOK: str(SCRIPTS)}) for word in self.hook[1:3])
        return (script, seconds, f"http://{address}:{METRICS}", str(folder / "token"))


def read(path: Path = POD) -> PodManifest:
    """The rendered pod."""
    pod: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return PodManifest(sidecar=tuple(pod["sidecar"]), hook=tuple(pod["hook"]), grace=float(pod["grace"]))


def _replaced(word: str, places: Mapping[str, str]) -> str:
    for place, other in places.items():
        word = word.replace(place, other)
    return word
