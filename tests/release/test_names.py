"""The version and the addresses are in one place, and a release takes its notes from the change log."""

import re
import subprocess
import zipfile
from pathlib import Path

import pytest
import yaml

from tests.release import names
from tests.release.names import FILES, ROOT, change_log, current

WORKFLOW = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", FILES)
def test_a_file_has_the_version_and_addresses_of_the_project(path: str) -> None:
    assert (ROOT / path).read_text(encoding="utf-8") == current(path)


@pytest.mark.parametrize("path", FILES)
def test_another_version_and_repository_reach_every_file(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    known = names.names()
    other = {
        "version": "9.8.7",
        "source": "https://code.test/x",
        "documentation": "https://docs.test/",
        "registry": "images.test/team",
    }
    monkeypatch.setattr(names, "names", lambda: {**known, **other})
    text = current(path)
    if path in names.VERSIONED:
        assert "9.8.7" in text
        assert not re.search(rf"vllm-slo(-\w+)?:{re.escape(known['version'])}", text)
    if path in names.PULLED:
        assert "images.test/team/" in text
        assert known["registry"] not in text
    if path in names.ADDRESSED:
        assert "code.test" in text or "docs.test" in text
        assert known["documentation"] not in text.replace(f'Documentation = "{known["documentation"]}"', "")


def test_no_other_file_has_an_image_of_this_version_or_an_address() -> None:
    known = names.names()
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    allowed = {*FILES, "CHANGELOG.md", "docs/renamed.md", "pyproject.toml"}
    wanted = re.compile(
        rf"\bvllm-slo(-\w+)?:{re.escape(known['version'])}|{re.escape(known['source'])}|{re.escape(known['registry'])}"
    )
    found = {
        path
        for path in tracked.split("\0")
        if path
        and not path.startswith(("tests/", "docs/pictures/"))
        and (ROOT / path).is_file()
        and path not in allowed
        if wanted.search((ROOT / path).read_text(encoding="utf-8", errors="replace"))
    }
    assert found == set()


def test_the_notes_of_a_release_are_its_section_of_the_change_log() -> None:
    notes = change_log("0.2.0")
    assert notes.startswith("### ")
    assert "\n## " not in notes


def test_a_release_without_a_section_is_refused() -> None:
    message = r"^CHANGELOG.md: has no section '## \[7.7.7\]'; rename 'Unreleased' and add the date$"
    with pytest.raises(ValueError, match=message):
        change_log("7.7.7")


def test_the_workflow_builds_for_both_platforms_what_the_dockerfile_has_and_publishes_only_tags() -> None:
    assert WORKFLOW[True] == {"push": {"tags": ["v*"]}}  # YAML 1.1 reads the key `on` as true
    images = WORKFLOW["jobs"]["images"]
    (build,) = (step["with"] for step in images["steps"] if "build-push-action" in step.get("uses", ""))
    assert build["platforms"] == "linux/amd64,linux/arm64"
    targets = {each["target"] for each in images["strategy"]["matrix"]["include"]}
    dockerfile = (ROOT / "compose/Dockerfile").read_text(encoding="utf-8")
    assert targets == set(re.findall(r"^FROM runtime AS (\w+)$", dockerfile, re.MULTILINE))
    for job in WORKFLOW["jobs"].values():
        for step in job["steps"]:
            assert "uses" not in step or re.search(r"@v\d+", step["uses"]), step


@pytest.mark.slow
def test_the_wheel_and_the_source_distribution_have_the_packages_and_no_test_in_the_wheel(tmp_path: Path) -> None:
    subprocess.run([ROOT / ".venv/bin/hatchling", "build", "-d", tmp_path], cwd=ROOT, check=True, capture_output=True)
    (wheel,), (_,) = tmp_path.glob("*.whl"), tmp_path.glob("*.tar.gz")
    folders = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {each for each in folders if not each.endswith(".dist-info")} == {
        "exporters",
        "alerts",
        "dashboards",
        "loadgen",
        "compose",
    }
