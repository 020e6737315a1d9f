"""MkDocs hook: generate the reference, results, tree and trace while the site is built."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
os.environ.setdefault("OMP_NUM_THREADS", "1")

from mkdocs.structure.files import File, Files  # noqa: E402

from docs.generators import api, claims, reference, results, trace, tree  # noqa: E402

PAGES = {
    reference.RECIPE: reference.recipe,
    reference.DATA: reference.data,
    reference.MODELS: reference.models,
    "results.md": results.page,
    "claims.md": claims.page,
}
PARTS = {"api": api.page, "tree": tree.page, "trace": trace.page}
"""What `<!-- generate: NAME -->` in a page stands for."""


def on_files(files: Files, config: Any) -> Files:
    for path, make in PAGES.items():
        files.append(File.generated(config, path, content=make()))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    for name, make in PARTS.items():
        mark = f"<!-- generate: {name} -->"
        if mark in markdown:
            markdown = markdown.replace(mark, make())
    return markdown
