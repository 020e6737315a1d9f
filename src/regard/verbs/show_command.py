"""`regard show`: a model as a tree."""

from __future__ import annotations

from typing import Annotated

import typer

from regard.registry import load_plugins
from regard.verbs.command import say
from regard.verbs.options import Debug, Json, Plugin, Set, parse_settings, print_result


def show(
    what: Annotated[
        str,
        typer.Argument(metavar="SIZE|RECIPE|MODEL", help="A size (tiny, base, big, gpt2 …), recipe or model folder"),
    ],
    sets: Set = [],  # noqa: B006
    length: Annotated[int, typer.Option(metavar="N", min=1, help="Number of tokens that costs are given for")] = 32,
    as_json: Json = False,
    plugin: Plugin = [],  # noqa: B006
    debug: Debug = False,
) -> None:
    """Show a model as a tree: shapes, parameters, FLOPs and memory per token, and how attention runs.

    A recipe that chooses its size from the data is shown as training would choose for a typical corpus."""
    load_plugins(plugin)
    import regard

    found = regard.show(what, set=parse_settings(sets), length=length)
    for note in found.notes:
        say(note)
    print_result(found, as_json)
