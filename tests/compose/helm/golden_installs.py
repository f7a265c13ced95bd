"""The objects of five typical installs; `python -m tests.compose.helm.golden_installs` writes the files.

The first install is complete, the others are differences to it. Rules, boards, routes and scripts are only named: their
contents have golden files or tests of their own.
"""

import difflib
from collections.abc import Mapping
from pathlib import Path

import yaml

from compose.rolling_update.pod_manifest import POD
from tests.compose.helm.chart import Object, named, one, render
from tests.compose.helm.installs import INSTALLS, STUB

GOLDEN = Path(__file__).parent / "golden"
FIRST = "smallest"

_HEADER = "# The sidecar's command, the hook's command and the grace period of the chart's pod: see pod_manifest.py.\n"


def texts_of(install: str) -> dict[str, str]:
    """Each object of an install as YAML, by kind and name; a Deployment and a StatefulSet are both the workload."""
    found = {}
    for each in render(values={**STUB, **INSTALLS[install]}):
        if each["kind"] in ("Secret", "ConfigMap"):
            each["data"] = dict.fromkeys(each["data"], "...")
        if each["kind"] in ("AlertmanagerConfig", "PrometheusRule"):
            each["spec"] = "..."
        kind = "workload" if each["kind"] in ("Deployment", "StatefulSet") else each["kind"]
        found[f"{kind}/{each['metadata']['name']}"] = yaml.safe_dump(each)
    return found


def difference(first: Mapping[str, str], second: Mapping[str, str]) -> str:
    """The objects that differ; one that the second lacks is only named."""
    found = []
    for name in sorted(first.keys() | second.keys()):
        if name not in second:
            found.append(f"removed: {name}\n")
        elif first.get(name) != second[name]:
            before, after = first.get(name, "").splitlines(), second[name].splitlines()
            changes = list(difflib.unified_diff(before, after, n=1, lineterm=""))[2:]
            found.append("\n".join([f"{'changed' if name in first else 'added'}: {name}", *changes, ""]))
    return "".join(found)


def files() -> dict[str, str]:
    """The golden files by name."""
    first = texts_of(FIRST)
    found = {f"{FIRST}.yaml": "".join(f"---\n{first[name]}" for name in sorted(first))}
    for install in INSTALLS:
        if install != FIRST:
            found[f"{install}.diff"] = difference(first, texts_of(install))
    return found


def pod() -> str:
    """The file of `compose/rolling_update`."""
    spec = one(render(values=STUB), "Deployment")["spec"]["template"]["spec"]
    engine: Object = spec["containers"][0]
    content = {
        "sidecar": named(spec["initContainers"], "sidecar")["args"],
        "hook": engine["lifecycle"]["preStop"]["exec"]["command"],
        "grace": spec["terminationGracePeriodSeconds"],
    }
    return _HEADER + yaml.safe_dump(content, sort_keys=False)


def main() -> None:
    GOLDEN.mkdir(exist_ok=True)
    for name, text in files().items():
        (GOLDEN / name).write_text(text)
    POD.write_text(pod())


if __name__ == "__main__":
    main()
