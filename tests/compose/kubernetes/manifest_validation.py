"""Validates the rendered manifests, unknown fields refused: `python -m tests.compose.kubernetes.manifest_validation`.

Objects of Kubernetes by `kubernetes-validate`; custom resources by the npm packages in `schema/`: their TypeScript
types refuse unknown fields, and their validators check values and patterns.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import kubernetes_validate

from exporters.text.errors import UsageError
from tests.compose.kubernetes.kustomize import OPTIONAL, Object, objects, with_components

VERSIONS = ("1.29", "1.33", "1.37")
"""The first with native sidecars by default, the first in which they are stable, and the newest known."""

SCHEMA = Path(__file__).parent / "schema"
CUSTOM_GROUPS = frozenset({"grafana.integreatly.org", "keda.sh", "monitoring.coreos.com"})
_COMPILER = SCHEMA / "node_modules/typescript/bin/tsc"
_FLAGS = ("--noEmit", "--strict", "--skipLibCheck", "--target", "esnext", "--module", "preserve")


def name_of(each: Object) -> str:
    return f"{each['kind']}/{each['metadata']['name']}"


def is_custom(each: Object) -> bool:
    return each["apiVersion"].partition("/")[0] in CUSTOM_GROUPS


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
    """The objects of the base with all components."""
    with tempfile.TemporaryDirectory() as folder:
        return objects(with_components(Path(folder), OPTIONAL))


def main() -> int:
    """Print what was validated; 1 if an object is invalid."""
    try:
        rendered = everything()
    except UsageError as error:
        print(f"the manifests of Kubernetes are not validated: {error}", file=sys.stderr)
        return 0
    core = [each for each in rendered if not is_custom(each)]
    custom = [each for each in rendered if is_custom(each)]
    errors = [
        f"Kubernetes {version}: {text}" for version in VERSIONS for each in core if (text := core_error(each, version))
    ]
    if not errors:
        print(f"valid in Kubernetes {', '.join(VERSIONS)}: {', '.join(map(name_of, core))}")
    if reason := why_no_custom_schemas():
        print(f"custom resources are not validated: {reason}", file=sys.stderr)
    elif wrong := [*filter(None, custom_errors(custom))]:
        errors += wrong
    else:
        print(f"valid custom resources: {', '.join(map(name_of, custom))}")
    print("\n".join(errors), file=sys.stderr, end="\n" if errors else "")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
