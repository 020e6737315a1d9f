"""The command line: one verb a function, each importing its part when called, so that --help never waits for torch."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.errors import SpecError

app = typer.Typer(
    name="regard",
    help="Train, run, explain and fairly compare sequence models on the machine you have.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Device = Annotated[str, typer.Option(help="auto, cpu, cuda or mps")]
Json = Annotated[bool, typer.Option("--json", help="Machine-readable output")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error")]
Plugin = Annotated[list[Path], typer.Option(help="A Python file with a mixer, task or metric of your own")]
Set = Annotated[list[str], typer.Option("--set", metavar="PATH=VALUE", help="Change one setting; may be repeated")]


@app.command()
def train(
    recipe: Annotated[str, typer.Argument(help="A shipped recipe's name (see `regard recipes`) or a YAML file")],
    data: Annotated[list[str] | None, typer.Argument(help="Two text files, or one .tsv, .csv or .jsonl file")] = None,
    valid: Annotated[
        list[str] | None, typer.Option(help="Validation files, in the same form; give it once a file")
    ] = None,
    sets: Set = [],  # noqa: B006
    start: Annotated[
        str | None, typer.Option("--from", metavar="MODEL", help="Start from this model's weights")
    ] = None,
    out: Annotated[str | None, typer.Option(metavar="RUN", help="The run folder (runs/RECIPE)")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start over instead of resuming")] = False,
    device: Device = "auto",
    plugin: Plugin = [],  # noqa: B006
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Also log for TensorBoard")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress")] = False,
    debug: Debug = False,
) -> None:
    """Train a model. The same command again resumes; the result is one self-contained folder."""
    _plug_in(plugin)
    from regard.training.run import Order, execute

    order = Order(
        recipe, tuple(data or ()), tuple(valid or ()), dict(_setting(s) for s in sets), start=start, out=out, fresh=fresh,
        device=device, quiet=quiet, tensorboard=tensorboard,
    )  # fmt: skip
    print(execute(order))


@app.command()
def run(
    model: Annotated[
        list[str], typer.Argument(help="A model or run folder, then texts; without texts, lines of stdin")
    ],
    beam: Annotated[int | None, typer.Option(help="Hypotheses side by side; 1 is greedy")] = None,
    alpha: Annotated[float | None, typer.Option(help="Strength of the length penalty")] = None,
    n_best: Annotated[int | None, typer.Option(help="How many outputs an input (with --json)")] = None,
    sample: Annotated[bool, typer.Option("--sample", help="Draw at random instead of searching")] = False,
    temperature: Annotated[float | None, typer.Option(help="Below 1 bolder choices get rarer")] = None,
    top_k: Annotated[int | None, typer.Option(help="Draw among the k likeliest tokens")] = None,
    top_p: Annotated[
        float | None, typer.Option(help="Draw among the likeliest tokens of this total probability")
    ] = None,
    min_p: Annotated[
        float | None, typer.Option(help="Draw among tokens at least this likely, relative to the best")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of the draw")] = None,
    to: Annotated[str | None, typer.Option(metavar="LANG", help="Target language of a many-to-many model")] = None,
    prefix: Annotated[str | None, typer.Option(help="Every output begins with this")] = None,
    ensemble: Annotated[list[str], typer.Option("--with", metavar="MODEL", help="Another model to average with")] = [],  # noqa: B006
    as_json: Json = False,
    device: Device = "auto",
    plugin: Plugin = [],  # noqa: B006
    debug: Debug = False,
) -> None:
    """Run a model: N lines in, exactly N lines out, in order."""
    _plug_in(plugin)
    import regard
    from regard.verbs.run import run_lines, stdin_lines

    handle = regard.load(model[0], device=device)
    others = [regard.load(path, device=device) for path in ensemble]
    options: dict[str, Any] = {
        k: v
        for k, v in dict(
            beam=beam,
            alpha=alpha,
            n_best=n_best,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            seed=seed,
        ).items()
        if v is not None
    }
    if sample:
        options |= {"sample": True, "n_best": 1}
    if to is not None:
        options["tag"] = f"2{to}"
    lines = iter(model[1:]) if len(model) > 1 else stdin_lines()
    run_lines(handle, lines, sys.stdout, as_json=as_json, others=others, prefix=prefix, options=options)


@app.command(name="eval")
def evaluate(
    model: Annotated[list[str], typer.Argument(help="One or two models, then the data files")],
    metric: Annotated[list[str] | None, typer.Option(help="A score to compute; without, the task's own")] = None,
    beam: Annotated[int | None, typer.Option(help="Hypotheses side by side; 1 is greedy")] = None,
    samples: Annotated[int, typer.Option(help="Bootstrap samples when two models are compared")] = 1000,
    as_json: Json = False,
    device: Device = "auto",
    plugin: Plugin = [],  # noqa: B006
    debug: Debug = False,
) -> None:
    """Score a model on data; with two models, their difference with a paired bootstrap interval."""
    _plug_in(plugin)
    from regard.verbs.evaluate import evaluate_models, told

    models = [path for path in model if Path(path).is_dir()]
    files = [path for path in model if not Path(path).is_dir()]
    found = evaluate_models(models, files, metrics=metric, beam=beam, samples=samples, device=device)
    print(json.dumps(found, ensure_ascii=False) if as_json else told(found))


@app.command()
def show(
    what: Annotated[str, typer.Argument(help="A recipe, a size (tiny, base, big, gpt2 …) or a model folder")],
    sets: Set = [],  # noqa: B006
    length: Annotated[int, typer.Option(help="Tokens for which costs are given")] = 32,
    as_json: Json = False,
    plugin: Plugin = [],  # noqa: B006
    debug: Debug = False,
) -> None:
    """A model as a tree: shapes, parameters, FLOPs and memory a token, and how attention runs."""
    _plug_in(plugin)
    from regard.model.show import summary, tree
    from regard.verbs.show import net_of

    net = net_of(what, dict(_setting(s) for s in sets))
    print(json.dumps(summary(net, length), ensure_ascii=False) if as_json else tree(net, length))


@app.command()
def recipes(
    name: Annotated[str | None, typer.Argument(help="Print this recipe")] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """The shipped recipes, or one of them to start your own from."""
    from regard.training.recipe import parse_yaml, read_recipe, shipped

    if name is not None:
        read_recipe(name)
        print(shipped().get(name, ""), end="")
        return
    found = {key: str(parse_yaml(text, key).get("about", "")) for key, text in shipped().items()}
    if as_json:
        print(json.dumps(found))
    else:
        print("\n".join(f"{key:<12}{about}" for key, about in found.items()))


@app.command()
def doctor(as_json: Json = False, debug: Debug = False) -> None:
    """Is this installation healthy, and what does this machine support?"""
    from regard.verbs.doctor import examine, told

    findings = examine()
    print(json.dumps([f.__dict__ for f in findings]) if as_json else told(findings))
    if not all(f.healthy for f in findings):
        raise typer.Exit(1)


def _setting(text: str) -> tuple[str, str]:
    path, equals, value = text.partition("=")
    if not equals or not path:
        raise SpecError(f"--set takes PATH=VALUE, such as train.steps=500, got {text!r}")
    return path, value


def _plug_in(files: list[Path]) -> None:
    """Run the user's own files: they add to our tables. Only the command line can name them, never a model folder."""
    import importlib.util

    for file in files:
        if not file.is_file():
            raise SpecError(f"no plugin {file}: it should be a Python file")
        spec = importlib.util.spec_from_file_location(f"regard_plugin_{file.stem}", file)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
