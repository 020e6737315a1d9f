"""What a release is made of: one version, a changelog, a citation, and workflows for the Pythons that are promised."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

import regard

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_version_is_written_in_one_place() -> None:
    path = ROOT / PROJECT["tool"]["hatch"]["version"]["path"]
    assert PROJECT["project"]["dynamic"] == ["version"] and "version" not in PROJECT["project"]
    written = re.findall(r'^__version__ = "(\d+\.\d+\.\d+)"$', path.read_text(encoding="utf-8"), flags=re.M)
    assert path == Path(regard.__file__) and written == [regard.__version__]


def test_the_changelog_says_what_each_version_changed() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## (.+)$", text, flags=re.M)
    assert versions[0] == "[Unreleased]"
    assert all(re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", version) for version in versions[1:]), versions
    groups = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert set(re.findall(r"^### (.+)$", text, flags=re.M)) <= groups


def test_the_citation_repeats_nothing_that_can_become_wrong() -> None:
    said = read_yaml("CITATION.cff")
    assert said["cff-version"] == "1.2.0" and said["authors"] and said["license"] == PROJECT["project"]["license"]
    assert "version" not in said and said["abstract"] == PROJECT["project"]["description"]


def test_the_workflow_runs_every_python_that_is_promised() -> None:
    jobs = read_yaml(".github/workflows/test.yml")["jobs"]
    promised = re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["project"]["classifiers"]))
    assert promised and (ROOT / ".ci" / "run").exists()
    for job in jobs.values():
        assert set(promised) <= set(job["strategy"]["matrix"]["python"]) and job["steps"][-1] == {"run": ".ci/run"}


def test_issue_forms_can_be_read() -> None:
    for path in sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")):
        form = read_yaml(f".github/ISSUE_TEMPLATE/{path.name}")
        if path.stem != "config":
            fields = [part for part in form["body"] if part["type"] != "markdown"]
            assert form["name"] and form["description"]
            assert len({part["id"] for part in fields}) == len(fields) > 2


def read_yaml(path: str) -> Any:
    return YAML(typ="safe", pure=True).load((ROOT / path).read_text(encoding="utf-8"))
