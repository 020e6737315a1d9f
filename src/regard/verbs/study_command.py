"""`regard study`: one command per study.

A command declares its own options and returns what was asked; those that studies share are written once, in `_shared`.
"""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.errors import SpecError
from regard.registry import load_plugins
from regard.verbs.command import ProgressLine, Verb, Verbs
from regard.verbs.options import Debug, Json, Plugin, parse_settings

studies = typer.Typer(cls=Verbs, no_args_is_help=True, rich_markup_mode=None)

Recipe = Annotated[str, typer.Argument(metavar="RECIPE", help="The recipe that is changed")]
Recipes = Annotated[list[str], typer.Argument(metavar="RECIPE", help="Recipes; the first one is the baseline")]
Vary = Annotated[
    list[str],
    typer.Option(metavar="PATH=V,V", help="One recipe with these values of a setting, the first is the baseline"),
]
Only = Annotated[list[str], typer.Option(metavar="NAME", help="Only these; repeatable")]
Metric = Annotated[
    str | None, typer.Option(metavar="NAME", show_default="the task's first", help="The score that decides")
]
Delta = Annotated[float | None, typer.Option(metavar="X", help="Largest difference of the metric that does not matter")]


def _shared(
    data: Annotated[list[str], typer.Option(metavar="FILE", help="Training data; for two files, give it twice")] = [],  # noqa: B006
    valid: Annotated[
        list[str], typer.Option(metavar="FILE", help="Validation data: it chooses checkpoints and rates")
    ] = [],  # noqa: B006
    test: Annotated[
        list[str],
        typer.Option(metavar="FILE", show_default="generated, or the validation data", help="Test data, used once"),
    ] = [],  # noqa: B006
    sets: Annotated[
        list[str], typer.Option("--set", metavar="PATH=VALUE", help="Change a setting of all; repeatable")
    ] = [],  # noqa: B006
    seeds: Annotated[
        int | None, typer.Option(metavar="N", min=1, show_default="5", help="Seeds of each; a verdict needs 5")
    ] = None,
    minutes: Annotated[float | None, typer.Option(metavar="N", help="Refuse a study that would take longer")] = None,
    device: Annotated[str, typer.Option(metavar="NAME", help="cpu, cuda or mps")] = "cpu",
    processes: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=0, show_default="one per core", help="Cells at once, of one thread each; 0: here"
        ),
    ] = None,
    on: Annotated[str, typer.Option(metavar="WHERE", help="Where cells run: here, or on a Ray cluster (ray)")] = "here",
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the run folders of finished cells, with their models")
    ] = False,
    anyway: Annotated[
        bool,
        typer.Option("--anyway", help="Take finished cells although plugins, test files or versions changed since"),
    ] = False,
    plugin: Plugin = [],  # noqa: B006
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", show_default="runs/STUDY", help="Folder for results; it also resumes there"),
    ] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """The options that studies share."""


SHARED = inspect.signature(_shared, eval_str=True).parameters
FILES = ("data", "valid", "test")
TRAINED = ("sets", "seeds", "minutes", "device", "processes", "on", "keep", "anyway", "plugin")
ALWAYS = ("out", "as_json", "debug")


class Asked:
    """Request of a command: recipes, and the settings of its study."""

    def __init__(self, *recipes: str, **settings: object) -> None:
        self.recipes, self.settings = recipes, settings


def _command(short_help: str, shared: Sequence[str]) -> Callable[[Callable[..., Asked]], None]:
    """Add a command with these shared options; its name is that of the study."""

    def add(own: Callable[..., Asked]) -> None:
        declared = inspect.signature(own, eval_str=True).parameters
        common = {name: SHARED[name] for name in (*shared, *ALWAYS)}

        @functools.wraps(own)
        def run(**given: Any) -> None:
            asked = own(**{name: given[name] for name in declared})
            _run(own.__name__, asked, **{name: given[name] for name in common})

        merged = [*declared.values(), *common.values()]
        order = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in merged]
        run.__signature__ = inspect.Signature(order)  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in order}
        studies.command(cls=Verb, short_help=short_help)(run)

    return add


def _run(
    name: str,
    asked: Asked,
    *,
    as_json: bool,
    debug: bool,
    plugin: Sequence[Path] = (),
    sets: Sequence[str] = (),
    **how: Any,
) -> None:
    load_plugins(list(plugin))
    import regard

    settings = how | asked.settings | ({"set": parse_settings(sets)} if sets else {})
    with ProgressLine() as progress:
        found = regard.study(
            name, *asked.recipes, notify=progress.say, progress=progress, plugins=list(map(str, plugin)), **settings
        )
    print(json.dumps(found.plain(), ensure_ascii=False) if as_json else found.render())


@_command("Time and memory of every mixer by length", ())
def complexity(
    mixers: Annotated[
        list[str], typer.Option(metavar="NAMES", help="Only these, separated by commas or repeated")
    ] = [],  # noqa: B006
    lengths: Annotated[
        str | None, typer.Option(metavar="N,N,…", show_default="512 to 32768", help="Lengths in tokens")
    ] = None,
    widths: Annotated[
        str, typer.Option(metavar="N,N,…", help="Widths at which recurrent layers are compared with attention")
    ] = "64,128,256",
    threads: Annotated[
        int, typer.Option(metavar="N", min=0, show_default="all cores", help="Number of threads of torch")
    ] = 0,
    minutes: Annotated[
        float | None, typer.Option(metavar="N", show_default="9", help="About how long it may take")
    ] = None,
) -> Asked:
    """Measure for each mixer how time and memory grow with the length, how many operations wait for one another, how many
    layers lie between two tokens, and from which length it is faster than full attention; recurrent layers by width, too."""
    from regard.studies.complexity import LENGTHS, parse_names
    from regard.studies.study_options import parse_numbers

    chosen = LENGTHS if lengths is None else parse_numbers(lengths, "--lengths")
    return Asked(
        mixers=parse_names(mixers), lengths=chosen, widths=parse_numbers(widths, "--widths"), threads=threads,
        minutes=minutes,
    )  # fmt: skip


@_command("Does a change help? Recipes against each other, over seeds", (*FILES, *TRAINED))
def compare(
    recipes: Recipes,
    vary: Vary = [],  # noqa: B006
    match: Annotated[
        str, typer.Option(metavar="WHAT", help="What is made equal: steps, parameters, flops or time")
    ] = "steps",
    resize: Annotated[str, typer.Option(metavar="HOW", help="Match parameters or flops by width or depth")] = "width",
    tune: Annotated[
        str | None, typer.Option(metavar="rate", help="Search the learning rate of each contender first")
    ] = None,
    metric: Metric = None,
    delta: Delta = None,
    paired: Annotated[
        bool, typer.Option("--paired", help="Compare seed by seed; declare it before the first look")
    ] = False,
) -> Asked:
    """Train every contender with every seed and say which is better, in words and numbers.

    All contenders see the same data in the same order. A verdict needs a difference that stands against other seeds and other
    test items, corrected for the number of contenders and of looks. The same command again continues;
    more --seeds add to it."""
    return Asked(
        *recipes, vary=vary, match=match, resize=resize, tune=tune, metric=metric, delta=delta, paired=paired
    )  # fmt: skip


@_command("Take one part at a time out of a recipe", (*FILES, *TRAINED))
def ablate(recipe: Recipe, only: Only = [], metric: Metric = None, delta: Delta = None) -> Asked:  # noqa: B006
    """Measure what each part is worth: no residual, no norm, no √d_k, one head, no positions, no warm-up, no smoothing, no
    feed-forward, no dropout, other head counts and key widths. Each is compared with the whole recipe."""
    return Asked(recipe, only=only, metric=metric, delta=delta)


@_command("Trained on short texts, tested on long ones, by position code", TRAINED)
def length(
    recipe: Annotated[str, typer.Argument(metavar="RECIPE", help="A recipe that generates pairs")] = "copy",
    n: Annotated[
        int, typer.Option("-n", metavar="N", min=2, help="Longest training text; tests go to four times that")
    ] = 12,
    only: Only = [],  # noqa: B006
) -> Asked:
    """Compare position codes by how they generalize to longer texts: none, sinusoidal, learned, rotary (also with scaled
    angles), ALiBi, T5, Shaw, XL."""
    return Asked(recipe, n=n, only=only)


@_command("Calibration with and without label smoothing", (*FILES, *TRAINED))
def calibration(recipes: Recipes, vary: Vary = []) -> Asked:  # noqa: B006
    """Compare calibration: expected calibration error, Brier score, reliability diagrams, and the temperature that corrects it.
    One recipe is compared without and with label smoothing, unless --vary says otherwise."""
    return Asked(*recipes, vary=vary)


@_command("How far gradients reach, by kind of layer", ("seeds",))
def gradients(
    n: Annotated[int, typer.Option("-n", metavar="N", min=8, help="Tokens")] = 64,
    width: Annotated[int, typer.Option(metavar="N", min=4, help="Width of the layers")] = 64,
    only: Only = [],  # noqa: B006
    delays: Annotated[
        str, typer.Option(metavar="N,N,…", show_default="none", help="Also train to recall letters after these delays")
    ] = "",
    processes: Annotated[int, typer.Option(metavar="N", min=0, help="Cells at once; 0: in this process")] = 0,
) -> Asked:
    """Measure the gradient of the last output with respect to inputs at every distance, for recurrent layers and attention as
    they are initialized; it takes seconds. With --delays, the copy-memory task is trained beside it, which takes minutes."""
    from regard.studies.study_options import parse_numbers

    waits = parse_numbers(delays, "--delays") if delays else ()
    return Asked(n=n, width=width, only=only, delays=waits, processes=processes)


@_command("Do modifications help on every task?", TRAINED)
def transfer(
    task: Annotated[
        list[str],
        typer.Option(metavar="NAME=RECIPE,FILE", help="A task: its name, recipe and files; repeatable"),
    ],
    only: Only = [],  # noqa: B006
) -> Asked:
    """Compare eight modifications (RMSNorm, gated feed-forward, rotary positions, one key head, normalized queries and keys,
    sparse attention, linear attention, Muon) with the plain recipe on every task."""
    return Asked(tasks=task, only=only)


@_command("A ladder of sizes, a scaling law, and a prediction", (*FILES, *TRAINED))
def scaling(
    recipe: Recipe,
    widths: Annotated[str, typer.Option(metavar="N,N,…", help="Widths of the ladder")] = "32,48,64,96",
    steps: Annotated[str, typer.Option(metavar="N,N,…", help="Training steps of the ladder")] = "250,500,1000,2000",
    held_out: Annotated[
        str, typer.Option(metavar="N,N", help="Width and steps of the run that is predicted")
    ] = "128,6000",
    flops: Annotated[
        list[float],
        typer.Option(metavar="C", help="A budget of FLOPs for every width, to find the best size; repeatable"),
    ] = [],  # noqa: B006
) -> Asked:
    """Train a ladder of sizes, fit L(N, D) = E + A/N^α + B/D^β, L(N) and L(D) with intervals, write down what a run at least
    four times larger should reach, train that, and say by how much the prediction missed. One seed each, unless --seeds
    says more."""
    from regard.studies.study_options import parse_numbers

    last = parse_numbers(held_out, "--held-out")
    if len(last) != 2:
        raise SpecError(f"--held-out takes a width and a number of steps, such as 128,6000; got {held_out!r}")
    sizes = {"widths": parse_numbers(widths, "--widths"), "steps": parse_numbers(steps, "--steps")}
    return Asked(recipe, **sizes, held_out=last, flops=flops)


@_command("The best learning rate by width, with muP and without", (*FILES, *TRAINED))
def rates(
    recipe: Recipe,
    widths: Annotated[str, typer.Option(metavar="N,N,…", help="Widths; the smallest is the base of muP")] = "64,256",
    count: Annotated[int, typer.Option(metavar="N", min=3, help="Rates, each twice the one before")] = 7,
) -> Asked:
    """Train every width with several learning rates around the recipe's own, in the standard parametrization and with muP
    (model.mup_base), and say how far the best rate moves. One seed each, unless --seeds says more."""
    from regard.studies.study_options import parse_numbers

    return Asked(recipe, widths=parse_numbers(widths, "--widths"), count=count)


@_command("Variances, symmetries and reach of layers, without training", ("seeds",))
def properties(only: Only = []) -> Asked:  # noqa: B006
    """Measure what papers say of layers as such: the variance of scores, whether order is visible, gradients by the place of
    the norm, the reach of windows and memories, operations; it takes seconds."""
    return Asked(only=only, processes=0)
