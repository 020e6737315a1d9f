"""`regard train`: train a model, or resume a run."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from regard.registry import load_plugins
from regard.verbs.options import Debug, Device, Json, OnBad, Plugin, Set, parse_settings


def train(
    recipe: Annotated[
        str, typer.Argument(metavar="RECIPE", help="A shipped recipe's name (see `regard recipes`) or a YAML file")
    ],
    data: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="DATA",
            help="Files or folders that the task reads: two text files or a table of pairs, texts, images, MIDI files, …",
        ),
    ] = None,
    valid: Annotated[
        list[str],
        typer.Option(metavar="FILE", help="Validation data in the same form; for two files, give --valid twice"),
    ] = [],  # noqa: B006
    on_bad: OnBad = None,
    sets: Set = [],  # noqa: B006
    start: Annotated[
        str | None, typer.Option("--from", metavar="MODEL", help="Start from this model's weights")
    ] = None,
    out: Annotated[str | None, typer.Option(metavar="RUN", show_default="runs/RECIPE", help="The run folder")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start over instead of resuming")] = False,
    anyway: Annotated[
        bool,
        typer.Option(
            "--anyway",
            help="Resume even if the recipe, corpus, plugins, threads or torch changed, or a model is missing",
        ),
    ] = False,
    device: Device = "auto",
    plugin: Plugin = [],  # noqa: B006
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Also log for TensorBoard")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress")] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Train a model. The same command again resumes. The result is a self-contained folder, whose path is printed."""
    load_plugins(plugin)
    from regard.training.request import TrainRequest
    from regard.training.train import run_training

    changes = parse_settings(sets, on_bad)
    request = TrainRequest(
        recipe, tuple(data or ()), tuple(valid), changes, start=start, out=out, fresh=fresh,
        anyway=anyway, device=device, quiet=quiet, tensorboard=tensorboard, plugins=tuple(map(str, plugin)),
    )  # fmt: skip
    folder = run_training(request)
    if os.environ.get("RANK", "0") == "0":  # one of several processes prints
        print(json.dumps(describe_run(request.folder, folder), ensure_ascii=False) if as_json else folder)


def describe_run(run: Path, model: Path) -> dict[str, object]:
    """Return what a finished run has to say for programs: its model, scores, and the facts that they depend on."""
    from regard.serialization.model_folder import LOG
    from regard.training.run.resume import find_done_event
    from regard.training.run.run_folder import read_facts

    done = find_done_event(run) or {}
    facts = {key: value for key, value in read_facts(run).items() if key not in ("requested", "finished")}
    kept = {key: done.get(key) for key in ("step", "scores", "seconds")}
    return {"run": str(run), "model": str(model), "log": str(run / LOG), **kept, "facts": facts}
