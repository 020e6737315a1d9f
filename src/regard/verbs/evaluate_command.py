"""`regard eval`: score models on data."""

from __future__ import annotations

from typing import Annotated

import typer

from regard.registry import load_plugins
from regard.verbs.command import ProgressLine
from regard.verbs.options import Beam, Debug, Device, Json, OnBad, Plugin, Set, To, parse_settings, print_result


def evaluate(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model or run folder")],
    rest: Annotated[
        list[str], typer.Argument(metavar="DATA", help="Data as for training; before it, any number of other models")
    ],
    metric: Annotated[
        list[str], typer.Option(metavar="NAME", help="A score to compute; by default those of the task; repeatable")
    ] = [],  # noqa: B006
    on_bad: OnBad = None,
    sets: Set = [],  # noqa: B006
    beam: Beam = None,
    to: To = None,
    samples: Annotated[int, typer.Option(metavar="N", min=1, help="Bootstrap samples for the intervals")] = 1000,
    as_json: Json = False,
    device: Device = "auto",
    plugin: Plugin = [],  # noqa: B006
    debug: Debug = False,
) -> None:
    """Score one model or several on data.

    Every score has a 95 % bootstrap interval over the test items, and every model after the first a paired difference to the
    first. They are about these trained models, not about the methods by which they were trained."""
    load_plugins(plugin)
    import regard
    from regard.serialization.model_folder import identify_folder

    folders = [identify_folder(path) is not None for path in rest]
    with ProgressLine() as progress:
        found = regard.evaluate(
            [model, *(path for path, is_model in zip(rest, folders, strict=True) if is_model)],
            [path for path, is_model in zip(rest, folders, strict=True) if not is_model],
            metrics=metric, beam=beam, to=to, samples=samples, device=device, set=parse_settings(sets), on_bad=on_bad,
            notify=progress.say, progress=progress,
        )  # fmt: skip
    print_result(found, as_json)
