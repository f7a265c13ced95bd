"""Version and addresses of a release: each is in pyproject.toml, and written from there to the other files.

`python -m tests.release.names` writes them, as `make generate` does; with --outputs it prints them for a workflow.
"""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]

VERSIONED = (
    "compose/Dockerfile",
    "compose/compose.yaml",
    "compose/helm/vllm-slo/Chart.yaml",
    "docs/images.md",
    "docs/kubernetes.md",
    "compose/gitops/argocd/application.yaml",
)
ADDRESSED = ("compose/Dockerfile", "mkdocs.yml", ".github/ISSUE_TEMPLATE/config.yml", "pyproject.toml")
PULLED = ("compose/helm/vllm-slo/values.yaml", "docs/kubernetes.md", "compose/gitops/argocd/application.yaml")
"""Files that name the registry of images and charts."""
FILES = tuple(dict.fromkeys([*VERSIONED, *ADDRESSED, *PULLED]))

_NUMBER = r"\d+\.\d+\.\d+[\w.]*"


def names() -> dict[str, str]:
    """Version, repository, documentation, package index and registry, as pyproject.toml has them."""
    content = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    urls, release = content["project"]["urls"], content["tool"]["vllm-slo"]["release"]
    return {
        "version": content["project"]["version"],
        "source": urls["Source"],
        "documentation": urls["Documentation"],
        **release,
    }


def current(path: str) -> str:
    """The file with the version and addresses of pyproject.toml."""
    text, known = (ROOT / path).read_text(encoding="utf-8"), names()
    if path in VERSIONED:
        text = re.sub(
            rf'(\bvllm-slo(?:-loadgen|-tools)?:|image\.version="|(?m:^(?:version|appVersion): "?)|Revision: |'
            rf"vllm-slo --version |(?m:^ *tag: )){_NUMBER}",
            lambda found: found[1] + known["version"],
            text,
        )
    if path in ADDRESSED:
        source, documentation = known["source"], known["documentation"]
        text = re.sub(r'(image\.source=")[^"]*', rf"\g<1>{source}", text)
        text = re.sub(r'(image\.documentation="|(?m:^site_url: ))[^"\s]*', rf"\g<1>{documentation}", text)
        text = re.sub(r"https://\S+?(/blob/main/|/issues\b)", rf"{source}\1", text)
    if path in PULLED:
        registry = known["registry"]
        text = re.sub(r"(repository: |repoURL: |-t )[\w.:/-]+(/vllm-slo|/charts)\b", rf"\g<1>{registry}\2", text)
    return text


def change_log(version: str) -> str:
    """The section of a version in the change log, without its heading.

    Raises:
        ValueError: it has none, or an empty one.
    """
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    found = re.search(rf"^## \[{re.escape(version)}\].*\n((?:(?!## ).*\n)*)", text, re.MULTILINE)
    if found is None or not found[1].strip():
        raise ValueError(f"CHANGELOG.md: has no section '## [{version}]'; rename 'Unreleased' and add the date")
    return found[1].strip() + "\n"


def main() -> int:
    match sys.argv[1:]:
        case []:
            for path in FILES:
                if (text := current(path)) != (ROOT / path).read_text(encoding="utf-8"):  # or make would set up again
                    (ROOT / path).write_text(text, encoding="utf-8")
        case ["--outputs"]:
            print("\n".join(f"{name}={value}" for name, value in names().items()))
        case ["--change-log", tag]:
            try:
                print(change_log(tag.removeprefix("v")), end="")
            except ValueError as error:
                print(error, file=sys.stderr)
                return 2
        case _:
            print("usage: python -m tests.release.names [--outputs | --change-log TAG]", file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
