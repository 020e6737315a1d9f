"""The command line: a table of its commands.

Each command is a function in `verbs/`, whose parameters are its options: it parses them, calls the API and prints the result.
What it needs is imported when it runs, so that --help never waits for torch.
"""

from __future__ import annotations

from typing import Annotated

import typer

from regard.verbs.check_command import check
from regard.verbs.command import Verb, Verbs
from regard.verbs.convert_command import convert
from regard.verbs.doctor_command import doctor
from regard.verbs.evaluate_command import evaluate
from regard.verbs.look_command import look
from regard.verbs.recipes_command import recipes
from regard.verbs.run_command import run
from regard.verbs.serve_command import serve
from regard.verbs.show_command import show
from regard.verbs.study_command import studies
from regard.verbs.train_command import train

app = typer.Typer(
    name="regard",
    cls=Verbs,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(asked: bool) -> None:
    if asked:
        from regard import __version__

        print(f"regard {__version__}")
        raise typer.Exit


@app.callback()
def regard(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Train, run, explain and compare sequence models on the machine you have."""


for name, command, short_help in (
    ("train", train, "Train a model, or resume an interrupted run"),
    ("run", run, "Run a model: N lines in, exactly N lines out, in order"),
    ("serve", serve, "Serve models over HTTP: LibreTranslate's API, OpenAI's, our own"),
    ("eval", evaluate, "Score models, with intervals and differences"),
    ("look", look, "Look inside a model: what it attends to, layer by layer"),
    ("show", show, "Show a model as a tree: shapes, parameters, FLOPs"),
    ("check", check, "Check a mixer or position of your own against the laws"),
    ("convert", convert, "Convert models from and to other formats"),
    ("recipes", recipes, "List the shipped recipes, or print one"),
    ("doctor", doctor, "Check the installation and what this machine supports"),
):
    app.command(name, cls=Verb, short_help=short_help)(command)
app.add_typer(studies, name="study", help="Measure and compare on this machine: tables, figures, a report")
