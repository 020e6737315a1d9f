"""The systemd unit and the container file of the documentation."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from regard.cli import app

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    unit = (DOCS / "regard.service").read_text()
    (tmp_path / "regard.service").write_text(unit.replace("/opt/regard/bin/regard", "/bin/sh"))
    said = subprocess.run(
        ["systemd-analyze", "verify", tmp_path / "regard.service"], capture_output=True, text=True, check=False
    )
    assert (said.returncode, said.stdout, said.stderr) == (0, "", "")


def test_the_container_serves_with_a_key() -> None:
    entry = re.search(r"^ENTRYPOINT (.*)$", (DOCS / "Containerfile").read_text(), re.M)
    assert entry is not None
    found = CliRunner().invoke(app, json.loads(entry[1])[1:])
    assert found.exit_code == 2 and "the key file /keys cannot be read" in found.output
