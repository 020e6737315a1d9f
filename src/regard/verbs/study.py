"""`regard study`: one command per study."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.errors import SpecError
from regard.verbs.command import ProgressLine, Verb, say

studies = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

Json = Annotated[bool, typer.Option("--json", help="Machine-readable output")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error")]
Recipes = Annotated[list[str], typer.Argument(metavar="RECIPE", help="Recipes; the first one is the baseline")]
Data = Annotated[list[str], typer.Option(metavar="FILE", help="Training data; for two files, give it twice")]
Valid = Annotated[list[str], typer.Option(metavar="FILE", help="Validation data: it chooses checkpoints and rates")]
Test = Annotated[
    list[str],
    typer.Option(metavar="FILE", show_default="generated, or the validation data", help="Test data, used once"),
]
Set = Annotated[list[str], typer.Option("--set", metavar="PATH=VALUE", help="Change a setting of all; repeatable")]
Seeds = Annotated[int, typer.Option(metavar="N", help="Seeds per contender: 5 or more for a verdict")]
Metric = Annotated[
    str | None, typer.Option(metavar="NAME", show_default="the task's first", help="The score that decides")
]
Minutes = Annotated[float | None, typer.Option(metavar="N", help="Refuse a study that would take longer")]
Processes = Annotated[
    int | None,
    typer.Option(metavar="N", min=0, show_default="one per core", help="Cells at once, of one thread each; 0: here"),
]
Out = Annotated[
    Path | None,
    typer.Option(metavar="DIR", show_default="runs/STUDY", help="Folder for results; it also resumes there"),
]
Keep = Annotated[bool, typer.Option("--keep", help="Keep the run folders of finished cells, with their models")]
Device = Annotated[str, typer.Option(metavar="NAME", help="cpu, cuda or mps")]
Plugin = Annotated[
    list[Path], typer.Option(metavar="FILE", help="A Python file that adds your own mixer, task or metric; repeatable")
]


@studies.command(cls=Verb, short_help="Time and memory of every mixer by length")
def complexity(
    mixers: Annotated[
        list[str], typer.Option(metavar="NAMES", help="Only these, separated by commas or repeated")
    ] = [],  # noqa: B006
    lengths: Annotated[
        str | None, typer.Option(metavar="N,N,…", show_default="512 to 32768", help="Lengths in tokens")
    ] = None,
    threads: Annotated[
        int, typer.Option(metavar="N", min=0, show_default="all cores", help="Number of threads of torch")
    ] = 0,
    minutes: Annotated[float, typer.Option(metavar="N", help="About how long it may take")] = 9.0,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for JSON, figures and report")] = Path(
        "runs/complexity"
    ),
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Measure for each mixer how time and memory grow with the length, how many operations wait for one another, how many
    layers lie between two tokens, and from which length it is faster than full attention."""
    import regard
    from regard.studies.complexity import LENGTHS, parse_lengths, parse_names

    chosen = LENGTHS if lengths is None else parse_lengths(lengths)
    names = parse_names(mixers)
    found = regard.study(
        "complexity", out=out, mixers=names, lengths=chosen, threads=threads, minutes=minutes, notify=say
    )
    print(json.dumps(found.plain(), ensure_ascii=False) if as_json else found.render())


@studies.command(cls=Verb, short_help="Does a change help? Recipes against each other, over seeds")
def compare(
    recipes: Recipes,
    data: Data = [],  # noqa: B006
    valid: Valid = [],  # noqa: B006
    test: Test = [],  # noqa: B006
    vary: Annotated[
        list[str],
        typer.Option(metavar="PATH=V,V", help="One recipe with these values of a setting, the first is the baseline"),
    ] = [],  # noqa: B006
    sets: Set = [],  # noqa: B006
    seeds: Seeds = 5,
    match: Annotated[
        str, typer.Option(metavar="WHAT", help="What is made equal: steps, parameters, flops or time")
    ] = "steps",
    resize: Annotated[str, typer.Option(metavar="HOW", help="Match parameters or flops by width or depth")] = "width",
    tune: Annotated[
        str | None, typer.Option(metavar="rate", help="Search the learning rate of each contender first")
    ] = None,
    metric: Metric = None,
    delta: Annotated[
        float | None, typer.Option(metavar="X", help="Largest difference of the metric that does not matter")
    ] = None,
    paired: Annotated[
        bool, typer.Option("--paired", help="Compare seed by seed; declare it before the first look")
    ] = False,
    minutes: Minutes = None,
    processes: Processes = None,
    out: Out = None,
    keep: Keep = False,
    device: Device = "cpu",
    plugin: Plugin = [],  # noqa: B006
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Train every contender with every seed and say which is better, in words and numbers.

    All contenders see the same data in the same order. A verdict needs a difference that stands against other seeds and other
    test items, corrected for the number of contenders and of looks. The same command again continues;
    more --seeds add to it."""
    _run(
        "compare", recipes, as_json, plugin, data=data, valid=valid, test=test, vary=vary, set=_changes(sets), seeds=seeds,
        match=match, resize=resize, tune=tune, metric=metric, delta=delta, paired=paired, minutes=minutes,
        processes=processes, out=out, keep=keep, device=device,
    )  # fmt: skip


Only = Annotated[list[str], typer.Option(metavar="NAME", help="Only these; repeatable")]


@studies.command(cls=Verb, short_help="Take one part at a time out of a recipe")
def ablate(
    recipe: Annotated[str, typer.Argument(metavar="RECIPE", help="The recipe whose parts are taken out")],
    data: Data = [],  # noqa: B006
    valid: Valid = [],  # noqa: B006
    test: Test = [],  # noqa: B006
    only: Only = [],  # noqa: B006
    sets: Set = [],  # noqa: B006
    seeds: Seeds = 5,
    metric: Metric = None,
    delta: Annotated[
        float | None, typer.Option(metavar="X", help="Largest difference of the metric that does not matter")
    ] = None,
    minutes: Minutes = None,
    processes: Processes = None,
    out: Out = None,
    keep: Keep = False,
    device: Device = "cpu",
    plugin: Plugin = [],  # noqa: B006
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Measure what each part is worth: no residual, no norm, no √d_k, one head, no positions, no warm-up, no smoothing, no
    feed-forward, no dropout, other head counts and key widths. Each is compared with the whole recipe."""
    _run(
        "ablate", [recipe], as_json, plugin, data=data, valid=valid, test=test, only=only, set=_changes(sets), seeds=seeds,
        metric=metric, delta=delta, minutes=minutes, processes=processes, out=out, keep=keep, device=device,
    )  # fmt: skip


@studies.command(cls=Verb, short_help="Trained on short texts, tested on long ones, by position code")
def length(
    recipe: Annotated[str, typer.Argument(metavar="RECIPE", help="A recipe that generates pairs")] = "copy",
    n: Annotated[
        int, typer.Option("-n", metavar="N", min=2, help="Longest training text; tests go to four times that")
    ] = 12,
    only: Only = [],  # noqa: B006
    sets: Set = [],  # noqa: B006
    seeds: Seeds = 5,
    minutes: Minutes = None,
    processes: Processes = None,
    out: Out = None,
    keep: Keep = False,
    device: Device = "cpu",
    plugin: Plugin = [],  # noqa: B006
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Compare position codes by how they generalize to longer texts: none, sinusoidal, learned, rotary (also with scaled
    angles), ALiBi, T5, Shaw, XL."""
    _run(
        "length", [recipe], as_json, plugin, n=n, only=only, set=_changes(sets), seeds=seeds, minutes=minutes,
        processes=processes, out=out, keep=keep, device=device,
    )  # fmt: skip


@studies.command(cls=Verb, short_help="Do probabilities mean what they say, with label smoothing?")
def calibration(
    recipes: Recipes,
    data: Data = [],  # noqa: B006
    valid: Valid = [],  # noqa: B006
    test: Test = [],  # noqa: B006
    vary: Annotated[
        list[str], typer.Option(metavar="PATH=V,V", show_default="label smoothing 0 and 0.1", help="As for compare")
    ] = [],  # noqa: B006
    sets: Set = [],  # noqa: B006
    seeds: Seeds = 5,
    minutes: Minutes = None,
    processes: Processes = None,
    out: Out = None,
    keep: Keep = False,
    device: Device = "cpu",
    plugin: Plugin = [],  # noqa: B006
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Compare calibration: expected calibration error, Brier score, reliability diagrams, and the temperature that mends it."""
    _run(
        "calibration", recipes, as_json, plugin, data=data, valid=valid, test=test, vary=vary, set=_changes(sets),
        seeds=seeds, minutes=minutes, processes=processes, out=out, keep=keep, device=device,
    )  # fmt: skip


@studies.command(cls=Verb, short_help="How far gradients reach, by kind of layer")
def gradients(
    n: Annotated[int, typer.Option("-n", metavar="N", min=8, help="Tokens")] = 64,
    width: Annotated[int, typer.Option(metavar="N", min=4, help="Width of the layers")] = 64,
    seeds: Seeds = 5,
    only: Only = [],  # noqa: B006
    processes: Processes = 0,
    out: Out = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Measure the gradient of the last output with respect to inputs at every distance, for recurrent layers and attention as
    they are initialized; it takes seconds."""
    _run("gradients", [], as_json, [], n=n, width=width, seeds=seeds, only=only, processes=processes, out=out)


@studies.command(cls=Verb, short_help="Do modifications help on every task?")
def transfer(
    task: Annotated[
        list[str],
        typer.Option(metavar="NAME=RECIPE,FILE", help="A task: its name, recipe and files; repeatable"),
    ],
    only: Only = [],  # noqa: B006
    sets: Set = [],  # noqa: B006
    seeds: Seeds = 5,
    minutes: Minutes = None,
    processes: Processes = None,
    out: Out = None,
    keep: Keep = False,
    device: Device = "cpu",
    plugin: Plugin = [],  # noqa: B006
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Compare eight modifications (RMSNorm, gated feed-forward, rotary positions, one key head, normalized queries and keys,
    sparse attention, linear attention, Muon) with the plain recipe on every task."""
    _run(
        "transfer", [], as_json, plugin, tasks=task, only=only, set=_changes(sets), seeds=seeds, minutes=minutes,
        processes=processes, out=out, keep=keep, device=device,
    )  # fmt: skip


@studies.command(cls=Verb, short_help="A ladder of sizes, a scaling law, and a prediction")
def scaling(
    recipe: Annotated[str, typer.Argument(metavar="RECIPE", help="The recipe that is made smaller and larger")],
    data: Data = [],  # noqa: B006
    valid: Valid = [],  # noqa: B006
    test: Test = [],  # noqa: B006
    widths: Annotated[str, typer.Option(metavar="N,N,…", help="Widths of the ladder")] = "32,48,64,96",
    steps: Annotated[str, typer.Option(metavar="N,N,…", help="Training steps of the ladder")] = "500,1000,2000",
    held_out: Annotated[
        str, typer.Option(metavar="N,N", help="Width and steps of the run that is predicted")
    ] = "128,4000",
    sets: Set = [],  # noqa: B006
    seeds: Annotated[int, typer.Option(metavar="N", min=1, help="Seeds of each size")] = 1,
    processes: Processes = None,
    out: Out = None,
    keep: Keep = False,
    device: Device = "cpu",
    plugin: Plugin = [],  # noqa: B006
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Train a ladder of sizes, fit L(N, D) = E + A/N^α + B/D^β with intervals, write down what a run at least four times larger
    should reach, train that, and say by how much the prediction missed."""
    from regard.studies.complexity import parse_lengths

    last = parse_lengths(held_out)
    if len(last) != 2:
        raise SpecError(f"--held-out takes a width and a number of steps, such as 128,4000; got {held_out!r}")
    _run(
        "scaling", [recipe], as_json, plugin, data=data, valid=valid, test=test, widths=parse_lengths(widths),
        steps=parse_lengths(steps), held_out=last, set=_changes(sets), seeds=seeds, processes=processes, out=out,
        keep=keep, device=device,
    )  # fmt: skip


def _run(name: str, recipes: list[str], as_json: bool, plugins: list[Path], **settings: Any) -> None:
    from regard.registry import load_plugins

    load_plugins(plugins)
    import regard

    with ProgressLine() as progress:
        found = regard.study(
            name, *recipes, notify=progress.say, progress=progress, plugins=[str(path) for path in plugins], **settings
        )
    print(json.dumps(found.plain(), ensure_ascii=False) if as_json else found.render())


def _changes(sets: list[str]) -> dict[str, str]:
    out = {}
    for text in sets:
        path, equals, value = text.partition("=")
        if not equals or not path:
            raise SpecError(f"--set takes PATH=VALUE, such as train.steps=500, got {text!r}")
        out[path] = value
    return out
