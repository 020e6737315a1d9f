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
    """List the shipped recipes by purpose, or print one to start your own from: `regard recipes dates > mine.yaml`."""
    from regard.recipes.merge import describe_recipes, list_recipes, parse_yaml

    texts = list_recipes()
    if name is not None and name not in texts:
        raise UnknownName("recipe", name, texts)
    if name is not None:
        print(json.dumps(parse_yaml(texts[name], name)) if as_json else texts[name].rstrip("\n"))
        return
    found = describe_recipes()
    if as_json:
        print(json.dumps(found))
        return
    width = max(map(len, found)) + 2
    for purpose in dict.fromkeys(recipe["purpose"] for recipe in found.values()):
        print(purpose)
        for key in (key for key, recipe in found.items() if recipe["purpose"] == purpose):
            print(f"  {key:<{width}}{found[key]['about']}")
