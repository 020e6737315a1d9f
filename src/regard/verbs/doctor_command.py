"""`regard doctor`: check the installation."""

from __future__ import annotations

from typing import Annotated

import typer

from regard.verbs.options import Debug, Json, print_result


def doctor(
    build: Annotated[bool, typer.Option("--build", help="Compile the native engine, if it is not up to date")] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Check the installation, and what this machine supports. The exit code is 1 if something is wrong."""
    import regard

    found = regard.doctor(build=build)
    print_result(found, as_json)
    if not found.healthy:
        raise typer.Exit(1)
