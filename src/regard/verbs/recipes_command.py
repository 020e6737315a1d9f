"""`regard recipes`: list the shipped recipes, or print one."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from regard.errors import UnknownName
from regard.verbs.options import Debug, Json


def recipes(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Print this recipe")] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """List the shipped recipes, or print one to start your own from: `regard recipes dates > mine.yaml`."""
    from regard.recipes.merge import list_recipes, parse_yaml

    texts = list_recipes()
    if name is not None and name not in texts:
        raise UnknownName("recipe", name, texts)
    if name is not None:
        print(json.dumps(parse_yaml(texts[name], name)) if as_json else texts[name].rstrip("\n"))
        return
    found = {key: str(parse_yaml(text, key).get("about", "")) for key, text in texts.items()}
    width = max(map(len, found)) + 2
    print(json.dumps(found) if as_json else "\n".join(f"{key:<{width}}{about}" for key, about in found.items()))
