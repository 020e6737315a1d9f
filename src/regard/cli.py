"""The command line: one function per verb.

Each verb parses its arguments, calls the API and prints the result. Imports are inside the functions, so that --help never
waits for torch.
"""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol, cast

import typer

from regard.errors import LawError, SpecError, UnknownName, make_printable
from regard.verbs.command import Verb, say
from regard.verbs.study import studies

if TYPE_CHECKING:
    from regard.api.look import Look
    from regard.api.run_texts import Long
    from regard.interpret.data_look import DataLook

app = typer.Typer(
    name="regard",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Device = Annotated[str, typer.Option(metavar="NAME", help="auto, cpu, cuda or mps")]
Engine = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="What generates outputs: auto, native, ctranslate2 or torch; `regard show` says which and why",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Machine-readable output")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error")]
Plugin = Annotated[
    list[Path], typer.Option(metavar="FILE", help="A Python file that adds your own mixer, task or metric; repeatable")
]
Set = Annotated[list[str], typer.Option("--set", metavar="PATH=VALUE", help="Change one setting; repeatable")]
OnBad = Annotated[
    str | None,
    typer.Option(
        metavar="error|drop", help="Bad pairs (not UTF-8, an empty side, …): stop with an error, or drop and count them"
    ),
]
Beam = Annotated[int | None, typer.Option(metavar="N", help="Beam size; 1 is greedy search")]
To = Annotated[str | None, typer.Option(metavar="LANG", help="Target language of a many-to-many model")]


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


@app.command(cls=Verb, short_help="Train a model, or resume an interrupted run")
def train(
    recipe: Annotated[
        str, typer.Argument(metavar="RECIPE", help="A shipped recipe's name (see `regard recipes`) or a YAML file")
    ],
    data: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="DATA",
            help="Two text files or one table of pairs; texts; a dictionary; images",
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
            "--anyway", help="Resume although the recipe, corpus, threads or torch changed, or a model was lost"
        ),
    ] = False,
    device: Device = "auto",
    plugin: Plugin = [],  # noqa: B006
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Also log for TensorBoard")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress")] = False,
    debug: Debug = False,
) -> None:
    """Train a model. The same command again resumes. The result is a self-contained folder, whose path is printed."""
    _plug_in(plugin)
    from regard.training.request import TrainRequest
    from regard.training.train import run_training

    changes = _changes(on_bad, sets)
    request = TrainRequest(
        recipe, tuple(data or ()), tuple(valid), changes, start=start, out=out, fresh=fresh,
        anyway=anyway, device=device, quiet=quiet, tensorboard=tensorboard, plugins=tuple(map(str, plugin)),
    )  # fmt: skip
    folder = run_training(request)
    if os.environ.get("RANK", "0") == "0":  # one of several processes prints
        print(folder)


@app.command(cls=Verb, short_help="Run a model: N lines in, exactly N lines out, in order")
def run(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model or run folder, or the address of a server")],
    texts: Annotated[
        list[str] | None,
        typer.Argument(metavar="TEXT", help="Inputs; by default stdin, or a prompt at a terminal"),
    ] = None,
    beam: Beam = None,
    alpha: Annotated[float | None, typer.Option(metavar="X", help="Strength of the length penalty")] = None,
    n_best: Annotated[
        int | None,
        typer.Option(metavar="N", help="Number of outputs per input, with --json; widens the beam if needed"),
    ] = None,
    sample: Annotated[
        bool | None,
        typer.Option("--sample/--no-sample", help="Sample, or search; by default as the recipe says"),
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(metavar="X", help="Below 1, unlikely tokens become rarer")
    ] = None,
    top_k: Annotated[int | None, typer.Option(metavar="N", help="Sample from the N most likely tokens")] = None,
    top_p: Annotated[
        float | None, typer.Option(metavar="P", help="Sample from the most likely tokens of this total probability")
    ] = None,
    min_p: Annotated[
        float | None, typer.Option(metavar="P", help="Sample from tokens at least this likely, relative to the best")
    ] = None,
    seed: Annotated[int | None, typer.Option(metavar="N", help="Random seed for sampling")] = None,
    to: To = None,
    prefix: Annotated[str | None, typer.Option(metavar="TEXT", help="Every output begins with this")] = None,
    glossary: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Required translations: on each line a term, a tab, its translation"),
    ] = None,
    long: Annotated[
        str,
        typer.Option(metavar="HOW", help="Inputs longer than the model reads: split (outputs are joined) or cut"),
    ] = "split",
    ensemble: Annotated[
        list[str], typer.Option("--with", metavar="MODEL", help="Another model for an ensemble; repeatable")
    ] = [],  # noqa: B006
    batch: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, show_default="1024, at a terminal 1", help="Number of lines that are run together"
        ),
    ] = None,
    stream: Annotated[
        bool,
        typer.Option("--stream", help="Show each output while it is written; with --beam 1 or --sample"),
    ] = False,
    as_json: Json = False,
    device: Device = "auto",
    engine: Engine = "auto",
    plugin: Plugin = [],  # noqa: B006
    debug: Debug = False,
) -> None:
    """Run a model: N lines in, exactly N lines out, in order. An empty line gives an empty line.

    So does an input that cannot be read, such as a damaged image: stderr says why, --json has the reason as "error", and the
    exit code is 2 after the last line. A line break in an output is written as \\n; --json, a single TEXT and the prompt have
    it as it is."""
    _plug_in(plugin)
    if n_best is not None and n_best > 1 and not as_json:
        raise SpecError(f"--n-best {n_best} needs --json: a line of plain output has room for one")
    if stream and (as_json or ensemble or glossary):
        raise SpecError("--stream shows the text of one model; leave out --json, --with and --glossary")
    import regard
    from regard.serve.remote_model import RemoteModel, is_address, read_glossary
    from regard.tasks.common.capabilities import ReadsImages, supports
    from regard.verbs.run import read_arguments, read_prompt, read_stdin, stream_outputs, write_outputs

    given = dict(
        beam=beam, alpha=alpha, n_best=n_best, sample=sample, temperature=temperature, top_k=top_k, top_p=top_p,
        min_p=min_p, seed=seed,
    )  # fmt: skip
    options = {name: value for name, value in given.items() if value is not None}
    at_terminal = texts is None and sys.stdin is not None and sys.stdin.isatty()
    multiline = at_terminal or (texts is not None and len(texts) == 1)
    if is_address(model):
        if ensemble:
            raise SpecError("a server runs one model at a time; leave out --with")
        lines = read_arguments(texts) if texts is not None else read_prompt() if at_terminal else read_stdin()
        remote = RemoteModel(model).run_lazily(
            lines, to=to, prefix=prefix, glossary=None if glossary is None else read_glossary(glossary),
            batch=batch or (1 if at_terminal else 32), options=options,
        )  # fmt: skip
        write_outputs(remote, sys.stdout, as_json=as_json, multiline=multiline)
        return
    light = None
    if engine in ("auto", "native") and not (as_json or ensemble or glossary or plugin):  # all of which need torch
        from regard.api.light_model import open_light

        light = open_light(model, device=device)
    handle = light or regard.load(model, device=device, engine=engine)
    if as_json and isinstance(handle, regard.Model) and "words" in handle.options:
        options["words"] = True
    paths = supports(handle.task, ReadsImages)
    lines = read_arguments(texts, paths=paths) if texts is not None else read_prompt() if at_terminal else read_stdin()
    if stream:
        way: dict[str, Any] = {"to": to, "prefix": prefix, "long": long, "notify": say, **options}
        stream_outputs(partial(handle.stream, **way), lines, sys.stdout)
        return
    batches = handle.run_lazily(
        lines, others=[regard.load(path, device=device) for path in ensemble], to=to, prefix=prefix, glossary=glossary,
        long=cast("Long", long), notify=say, batch=batch or (1 if at_terminal else 1024), **options,
    )  # fmt: skip
    write_outputs(batches, sys.stdout, as_json=as_json, multiline=multiline)


@app.command(cls=Verb, short_help="Serve models over HTTP, to clients that exist")
def serve(
    models: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME=]MODEL", help="Model or run folders; a name is by default that of its folder"),
    ] = None,
    host: Annotated[
        str, typer.Option(metavar="HOST", help="Where to listen; elsewhere than here needs a key")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="N", min=0, help="0: any free one")] = 5000,
    key_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="API keys, one per line; or one in the variable REGARD_API_KEY"),
    ] = None,
    allow_host: Annotated[
        list[str], typer.Option(metavar="NAME", help="A name by which clients may call this server; repeatable")
    ] = [],  # noqa: B006
    tls_cert: Annotated[Path | None, typer.Option(metavar="FILE", help="TLS certificate (PEM)")] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help="TLS key (PEM)")] = None,
    runs: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Show the training of the runs in this folder")
    ] = None,
    slots: Annotated[int, typer.Option(metavar="N", min=1, help="Hypotheses that are decoded together")] = 64,
    memory: Annotated[
        float | None,
        typer.Option(metavar="GB", min=0.001, help="Memory for models; more are loaded when they are needed"),
    ] = None,
    limit: Annotated[
        list[str],
        typer.Option(metavar="NAME=N", help="A limit: body, items, characters, beams, tokens, seconds, requests, …"),
    ] = [],  # noqa: B006
    log_texts: Annotated[
        bool, typer.Option("--log-texts", help="Log what clients send; by default no text is logged")
    ] = False,
    sets: Set = [],  # noqa: B006
    device: Device = "cpu",
    engine: Engine = "auto",
    plugin: Plugin = [],  # noqa: B006
    debug: Debug = False,
) -> None:
    """Serve models over HTTP until Ctrl-C or SIGTERM, which finishes what was begun.

    The server listens on this machine only, unless --host says otherwise; then clients need a key."""
    from regard.serve.server_settings import ServerSettings, name_models, parse_limits, read_keys

    keys = [] if key_file is None else read_keys(key_file)
    keys += [key] if (key := os.environ.get("REGARD_API_KEY")) else []
    settings = ServerSettings(
        name_models(models or []), host=host, port=port, keys=keys, allowed_hosts=allow_host,
        tls_certificate=None if tls_cert is None else str(tls_cert), tls_key=None if tls_key is None else str(tls_key),
        runs=None if runs is None else str(runs), engine=engine, device=device, set=_changes(None, sets),
        plugins=[str(path) for path in plugin], slots=slots, memory=None if memory is None else int(memory * 1e9),
        log_texts=log_texts, limits=parse_limits(limit),
    )  # fmt: skip
    try:
        from regard.serve.server import run_server
    except ImportError as error:
        raise SpecError(f"serving needs {error.name}; pip install 'regard[serve]'") from None
    run_server(settings)


@app.command("eval", cls=Verb, short_help="Score models, with intervals and differences")
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
    _plug_in(plugin)
    import regard
    from regard.serialization.model_folder import identify_folder
    from regard.verbs.command import ProgressLine

    folders = [identify_folder(path) is not None for path in rest]
    with ProgressLine() as progress:
        found = regard.evaluate(
            [model, *(path for path, is_model in zip(rest, folders, strict=True) if is_model)],
            [path for path, is_model in zip(rest, folders, strict=True) if not is_model],
            metrics=metric, beam=beam, to=to, samples=samples, device=device, set=_changes(None, sets), on_bad=on_bad,
            notify=progress.say, progress=progress,
        )  # fmt: skip
    _print(found, as_json)


@app.command(cls=Verb, short_help="Look inside a model: what it attends to, layer by layer")
def look(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model or run folder")],
    texts: Annotated[
        list[str],
        typer.Argument(
            metavar="TEXT|DATA",
            help="What the model reads: a text, or the path of an image; after --faithful, --ablate or --heads, data files",
        ),
    ],
    output: Annotated[
        str | None, typer.Option(metavar="TEXT", show_default="the model's own", help="What it should write")
    ] = None,
    against: Annotated[str | None, typer.Option(metavar="TEXT", help="A second text to compare with")] = None,
    link: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="WORD WORD", help="Rank the heads by how much the first word attends to the second"),
    ] = None,
    head: Annotated[
        list[str],
        typer.Option(metavar="LAYER.head.N", help="A head whose weights are exact even if the page cannot hold all"),
    ] = [],  # noqa: B006
    faithful: Annotated[
        bool, typer.Option("--faithful", help="Measure on DATA whether explanations name what predictions rest on")
    ] = False,
    parts: Annotated[
        str | None,
        typer.Option(
            "--ablate", metavar="PARTS", help="Measure on DATA what heads, layers or places (a pattern) are worth"
        ),
    ] = None,
    heads: Annotated[
        bool, typer.Option("--heads", help="Describe each head on DATA: where it looks, which words it links")
    ] = False,
    examples: Annotated[
        int, typer.Option(metavar="N", min=1, help="Number of examples of DATA, drawn at random")
    ] = 100,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The page to write")] = Path("look.html"),
    as_text: Annotated[bool, typer.Option("--text", help="A picture in the terminal instead of a page")] = False,
    as_json: Json = False,
    device: Device = "auto",
    plugin: Plugin = [],  # noqa: B006
    debug: Debug = False,
) -> None:
    """Look at what a model does with one text, and write a self-contained page, whose path is printed.

    It shows the attention of all heads, what averaging over them loses, what each layer would predict, and how much each
    prediction falls without each token. Attention shows where a model looks, not why: --faithful measures on your data
    whether it, and other explanations, beat a random one."""
    _plug_in(plugin)
    import regard
    from regard.verbs.command import ProgressLine

    found: Look | DataLook
    if faithful or parts or heads:
        if output or against or link or head:
            raise SpecError("--output, --against, --link and --head are about one text, not about data; leave them out")
        with ProgressLine() as progress:
            found = regard.look_at_data(
                model, texts, faithful=faithful, ablate_parts=parts, describe=heads, examples=examples, device=device,
                progress=progress,
            )  # fmt: skip
    elif len(texts) > 1:
        raise SpecError(
            f"look shows one text, got {len(texts)}; quote it, compare two with --against, or measure on data with --faithful"
        )
    else:
        found = regard.look(model, texts[0], output, against=against, link=link, heads=head, device=device)
    if as_text or as_json:
        _print(found, as_json)
    else:
        print(found.save(out))


@app.command(cls=Verb, short_help="Show a model as a tree: shapes, parameters, FLOPs")
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
    _plug_in(plugin)
    import regard

    found = regard.show(what, set=_changes(None, sets), length=length)
    for note in found.notes:
        say(note)
    _print(found, as_json)


@app.command(cls=Verb, short_help="Check a mixer or position of your own against the laws")
def check(
    plugin: Annotated[Path, typer.Argument(metavar="FILE", help="A Python file that adds mixers or positions")],
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Try the laws on the parts of a plugin: causality, streaming, padding, packing, twin, refusal, round trip, inspection."""
    from regard.verbs.check import check_plugin, render, summarize

    results = check_plugin(plugin, lambda: _plug_in([plugin]))
    if as_json:
        print(json.dumps([{**vars(result), "status": result.status} for result in results], ensure_ascii=False))
    else:
        print("\n".join(render(results)))
    if broken := summarize(results):
        raise LawError(broken)


app.add_typer(studies, name="study", help="Measure and compare on this machine: tables, figures, a report")


@app.command(cls=Verb, short_help="Convert models from and to other formats")
def convert(
    src: Annotated[
        str, typer.Argument(metavar="SRC", help="A Hugging Face folder, a .gguf file, or a model or run folder")
    ],
    dst: Annotated[str, typer.Argument(metavar="DST", help="The folder to write")],
    to: Annotated[
        str | None,
        typer.Option(metavar="FORMAT", help="hf, regard, int8 or int4; by default hf or regard, which SRC is not"),
    ] = None,
    trust_pickle: Annotated[
        bool, typer.Option("--trust-pickle", help="Open pickled weights (.bin), as weights only, in a separate process")
    ] = False,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|KIND",
            help="Another tokenizer: a tokenizer.json, a folder, or wordpiece, wordpiece-cased, words, chars, smiles",
        ),
    ] = None,
    sample: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Texts, one per line, to compare both versions on")
    ] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Convert a model from or to another format. Then both versions read the same tokens and the same texts, and the
    differences are printed."""
    import regard

    found = regard.convert(
        src, dst, to=to, trust_pickle=trust_pickle, tokenizer=tokenizer, sample=sample, notify=say,  # type: ignore[arg-type]
    )  # fmt: skip
    _print(found, as_json)


@app.command(cls=Verb, short_help="List the shipped recipes, or print one")
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


@app.command(cls=Verb, short_help="Check the installation and what this machine supports")
def doctor(
    build: Annotated[bool, typer.Option("--build", help="Compile the native engine, if it is not up to date")] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Check the installation, and what this machine supports. The exit code is 1 if something is wrong."""
    import regard

    found = regard.doctor(build=build)
    _print(found, as_json)
    if not found.healthy:
        raise typer.Exit(1)


class Printable(Protocol):
    """What a function of the API returns: for programs and for people."""

    def plain(self) -> object: ...
    def render(self) -> str: ...


def _print(found: Printable, as_json: bool) -> None:
    if as_json:
        print(json.dumps(found.plain(), ensure_ascii=False))
    else:
        print("\n".join(map(make_printable, found.render().split("\n"))))


def _changes(on_bad: str | None, sets: list[str]) -> dict[str, str]:
    """The settings of a command line, by path."""
    return ({} if on_bad is None else {"data.on_bad": on_bad}) | dict(_setting(s) for s in sets)


def _setting(text: str) -> tuple[str, str]:
    path, equals, value = text.partition("=")
    if not equals or not path:
        raise SpecError(f"--set takes PATH=VALUE, such as train.steps=500, got {text!r}")
    return path, value


def _plug_in(files: list[Path]) -> None:
    """Run the user's plugins. Only the command line can name them, never a model folder."""
    from regard.registry import load_plugins

    load_plugins(files)
