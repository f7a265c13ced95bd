"""The objects of five typical installs; `python -m tests.compose.helm.golden_installs` writes the files.

The first install is complete, the others are differences to it. Rules, boards and scripts are only named.
"""

import difflib
from pathlib import Path

import yaml

from compose.rolling_update.pod_manifest import POD
from tests.compose.helm.chart import Object, named, one, render
from tests.compose.helm.installs import INSTALLS, STUB

GOLDEN = Path(__file__).parent / "golden"
FIRST = "smallest"

_HEADER = "# The sidecar's command, the hook's command and the grace period of the chart's pod: see pod_manifest.py.\n"


def text_of(install: str) -> str:
    """The objects of an install, sorted by kind and name."""
    rendered = render(values={**STUB, **INSTALLS[install]})
    for each in rendered:
        if each["kind"] == "Secret":
            each["data"] = dict.fromkeys(each["data"], "random")
        if each["kind"] == "ConfigMap":
            each["data"] = dict.fromkeys(each["data"], "...")
    rendered.sort(key=lambda each: (each["kind"], each["metadata"]["name"]))
    return "".join(f"---\n{yaml.safe_dump(each)}" for each in rendered)


def files() -> dict[str, str]:
    """The golden files by name."""
    first = text_of(FIRST)
    found = {f"{FIRST}.yaml": first}
    for install in INSTALLS:
        if install != FIRST:
            lines = difflib.unified_diff(first.splitlines(), text_of(install).splitlines(), n=2, lineterm="")
            found[f"{install}.diff"] = "\n".join(list(lines)[2:]) + "\n"
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
