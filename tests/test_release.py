"""What a release is made of: one version, a changelog, a citation, and workflows for the Pythons that are promised."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import regard

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_version_is_written_in_one_place() -> None:
    path = ROOT / PROJECT["tool"]["hatch"]["version"]["path"]
    assert PROJECT["project"]["dynamic"] == ["version"] and "version" not in PROJECT["project"]
    written = re.findall(r'^__version__ = "(\d+\.\d+\.\d+)"$', path.read_text(encoding="utf-8"), flags=re.M)
    assert path == Path(regard.__file__) and written == [regard.__version__]
