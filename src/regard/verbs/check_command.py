"""`regard check`: try the laws on a plugin's parts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from regard.errors import LawError
from regard.registry import load_plugins
from regard.verbs.options import Debug, Json


def check(
    plugin: Annotated[Path, typer.Argument(metavar="FILE", help="A Python file that adds mixers or positions")],
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Try the laws on the parts of a plugin: causality, streaming, padding, packing, twin, refusal, round trip, inspection."""
    from regard.laws.check_plugin import check_plugin, render, summarize

    results = check_plugin(plugin, lambda: load_plugins([plugin]))
    if as_json:
        print(json.dumps([{**vars(result), "status": result.status} for result in results], ensure_ascii=False))
    else:
        print("\n".join(render(results)))
    if broken := summarize(results):
        raise LawError(broken)
