"""The built page: that of its sources, small, offline, and safe."""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from regard.serve.app import PAGE as BUILT
from regard.serve.gate import SECURITY_HEADERS

SOURCES = Path(__file__).parents[2] / "page"
MAX_BYTES = 200_000
"""Of all files, gzipped."""


def list_sources() -> list[Path]:
    return sorted(
        (path for path in SOURCES.rglob("*") if path.is_file() and "node_modules" not in path.parts),
        key=lambda path: path.relative_to(SOURCES).as_posix(),
    )


def test_the_built_page_is_that_of_the_sources() -> None:
    total = hashlib.sha256()
    for path in list_sources():
        total.update(path.relative_to(SOURCES).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    assert (BUILT / "sources.sha256").read_text().strip() == total.hexdigest(), "run `make page`"


def test_a_rebuild_gives_the_same_files(tmp_path: Path) -> None:
    vite = SOURCES / "node_modules" / ".bin" / "vite"
    node = shutil.which("node")
    if node is None or not vite.exists():
        pytest.skip("Node or Vite is not installed; run `make page`")
    subprocess.run(
        [str(vite), "build", "--logLevel", "error"], cwd=SOURCES, check=True, timeout=120,
        env=os.environ | {"PAGE_OUT": str(tmp_path / "out")},
    )  # fmt: skip
    built, again = ({path.name: path.read_bytes() for path in folder.iterdir()} for folder in (BUILT, tmp_path / "out"))
    assert again == built


def test_the_page_is_small() -> None:
    assert sum(len(gzip.compress(path.read_bytes())) for path in BUILT.iterdir()) <= MAX_BYTES


def test_the_page_asks_nobody_else() -> None:
    """No address but namespaces of SVG."""
    for path in BUILT.iterdir():
        found = set(re.findall(r"https?://[^\s\"'`)]+", path.read_text(encoding="utf-8")))
        assert {url for url in found if not url.startswith("http://www.w3.org/")} == set(), path


def test_texts_never_become_markup() -> None:
    for path in (SOURCES / "src").glob("*.ts"):
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|\beval\(", path.read_text()
        )
    page = (BUILT / "index.html").read_text()
    assert re.findall(r"<script(?![^>]* src=)|<style| style=| on\w+=", page) == []


def test_scripts_and_styles_come_from_the_server_alone() -> None:
    policy = dict(SECURITY_HEADERS)[b"content-security-policy"].decode()
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
