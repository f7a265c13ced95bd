"""Validates rendered objects, unknown fields refused: `python -m tests.compose.helm.object_validation` lists them.

Objects of Kubernetes by `kubernetes-validate`; custom resources by the npm packages in `schema/`: their TypeScript
types refuse unknown fields, and their validators check values and patterns.
"""

import contextlib
import io
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import kubernetes_validate

from exporters.text.errors import UsageError
from exporters.vocabulary.slo_file import SHIPPED
from tests.compose.helm.chart import Object, render, render_slos
from tests.compose.helm.installs import INSTALLS

VERSIONS = ("1.29", "1.33", "1.37")
"""The first with native sidecars by default, the first in which they are stable, and the newest known."""

SCHEMA = Path(__file__).parent / "schema"
CUSTOM_KINDS = frozenset(
    {
        *("AlertmanagerConfig", "Application", "GitRepository", "GrafanaDashboard", "HelmRelease"),
        *("PodMonitor", "PrometheusRule", "Rollout", "ScaledObject"),
    }
)
WITHOUT_SCHEMA = frozenset({"InferenceService", "LeaderWorkerSet"})
"""Kinds of the examples whose schema is in no package registry; the pods in them are validated."""

SCHEMAS = {
    "grafana.integreatly.org": "@kubernetes-models/grafana-operator 3.0.0",
    "keda.sh": "@kubernetes-models/keda 2.0.0",
    "monitoring.coreos.com": "@kubernetes-models/prometheus-operator 6.0.0",
}

_COMPILER = SCHEMA / "node_modules/typescript/bin/tsc"
_FLAGS = ("--noEmit", "--strict", "--skipLibCheck", "--target", "esnext", "--module", "preserve")


def name_of(each: Object) -> str:
    return f"{each['kind']}/{each['metadata']['name']}"


def is_custom(each: Object) -> bool:
    return each["kind"] in CUSTOM_KINDS


def why_no_custom_schemas() -> str | None:
    """Why custom resources cannot be validated here; None if they can."""
    if shutil.which("node") is None:
        return "node, which runs the schemas of custom resources, is not installed"
    return None if _COMPILER.exists() else "the schemas of custom resources are not installed: make test, with npm"


def core_error(each: Object, version: str) -> str:
    """What this version of Kubernetes refuses about its own object; empty if nothing."""
    try:
        kubernetes_validate.validate(each, version, strict=True)
    except kubernetes_validate.ValidationError as error:
        path = ".".join(map(str, error.path))
        return f"{name_of(each)}: {path}: {error.message}"
    except kubernetes_validate.SchemaNotFoundError as error:
        return f"{name_of(each)}: {error.message}"
    return ""


def custom_errors(custom: Sequence[Object]) -> list[str]:
    """What the operators refuse about each custom resource; empty if nothing."""
    validated = subprocess.run(
        ["node", SCHEMA / "validate.mjs"], input=json.dumps(custom), capture_output=True, text=True, check=False
    )
    assert validated.returncode == 0, validated.stderr
    return [
        f"{name_of(each)}: {'; '.join(errors)}" if (errors := [*filter(None, pair)]) else ""
        for each, *pair in zip(custom, json.loads(validated.stdout), _type_errors(custom), strict=True)
    ]


def _type_errors(custom: Sequence[Object]) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        for number, each in enumerate(custom):
            type_ = f'import("{SCHEMA / "objects"}").CustomResources["{each["kind"]}"]'
            (Path(folder) / f"{number}.ts").write_text(f"export const object: {type_} = {json.dumps(each)};\n")
        files = [f"{number}.ts" for number in range(len(custom))]
        compiled = subprocess.run([_COMPILER, *_FLAGS, *files], cwd=folder, capture_output=True, text=True, check=False)
    lines = compiled.stdout.splitlines()
    errors = [
        next((line for line in lines if line.startswith(f"{file}(")), "").partition(": error ")[2] for file in files
    ]
    assert compiled.returncode == 0 or any(errors), compiled.stdout
    return errors


def everything() -> list[Object]:
    """The objects of the shipped SLO file with all operators."""
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        rendered = render_slos(SHIPPED.read_text(encoding="utf-8"), Path(folder))
        return render(rendered, values=INSTALLS["operators"])


def main() -> int:
    """Print each object and the schemas that checked it; 1 if one is invalid."""
    try:
        rendered = everything()
    except UsageError as error:
        print(f"the objects of the chart are not validated: {error}", file=sys.stderr)
        return 0
    custom = [each for each in rendered if is_custom(each)]
    reason = why_no_custom_schemas()
    wrong = dict(zip(map(name_of, custom), [] if reason else custom_errors(custom), strict=False))
    failed = False
    for each in rendered:
        errors, schema = _checked(each, wrong, reason)
        failed = failed or bool(errors)
        print(f"{name_of(each):<45} {'; '.join(errors) or schema}")
    return int(failed)


def _checked(each: Object, wrong: dict[str, str], reason: str | None) -> tuple[list[str], str]:
    """What is wrong with an object, and the schemas that it passed."""
    if not is_custom(each):
        errors = [f"Kubernetes {version}: {text}" for version in VERSIONS if (text := core_error(each, version))]
        return errors, f"Kubernetes {', '.join(VERSIONS)} (kubernetes-validate)"
    if reason:
        return [], f"not validated: {reason}"
    text = wrong[name_of(each)]
    return [text] if text else [], f"{SCHEMAS[each['apiVersion'].partition('/')[0]]}"


if __name__ == "__main__":
    sys.exit(main())
