"""`regard run`: its options, and who runs the texts."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from regard.errors import SpecError
from regard.registry import load_plugins
from regard.verbs.command import say
from regard.verbs.options import Beam, Debug, Device, Engine, Json, Plugin, To

if TYPE_CHECKING:
    from regard.api.run_texts import Long


def run(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model or run folder, or the address of a server")],
    texts: Annotated[
        list[str] | None,
        typer.Argument(metavar="TEXT", help="Inputs; by default stdin, or a prompt at a terminal"),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(metavar="FILE:LINE:COLUMN", help="Complete the code at this place of a file; both count from 1"),
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
            metavar="N",
            min=1,
            show_default="1024, fewer with a beam above 8, at a terminal 1",
            help="Number of lines that are run together",
        ),
    ] = None,
    stream: Annotated[
        bool,
        typer.Option("--stream", help="Show each output while it is written; with --beam 1 or --sample"),
    ] = False,
    length: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Maximum number of new tokens; by default as the recipe says")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE|FOLDER", help="Where files go, if outputs are files, such as music"),
    ] = None,
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
    load_plugins(plugin)
    if n_best is not None and n_best > 1 and not as_json:
        raise SpecError(f"--n-best {n_best} needs --json: a line of plain output has room for one")
    if stream and (as_json or ensemble or glossary or out):
        raise SpecError("--stream shows the text of one model; leave out --json, --with, --glossary and --out")
    from regard.serve.remote_model import RemoteModel, is_address, read_glossary

    if at is not None and (texts is not None or stream or is_address(model)):
        raise SpecError(
            "--at completes at one place, with a model of this machine; leave out TEXT, --stream and addresses"
        )
    light = None
    if engine in ("auto", "native") and not (
        as_json or at is not None or ensemble or glossary or plugin or is_address(model)
    ):  # all of which need torch, or a server
        from regard.api.open_light import open_light

        light = open_light(model, device=device)
    import regard
    from regard.api.run_texts import choose_batch
    from regard.data.cursor import Cursor
    from regard.tasks.common.capabilities import Completes, ReadsFiles, ReadsImages, require, supports
    from regard.verbs.lines import read_arguments, read_prompt, read_stdin, stream_outputs, write_outputs

    given = dict(
        beam=beam, alpha=alpha, n_best=n_best, sample=sample, temperature=temperature, top_k=top_k, top_p=top_p,
        min_p=min_p, seed=seed, max_extra=length,
    )  # fmt: skip
    options = {name: value for name, value in given.items() if value is not None}
    cursor = None if at is None else Cursor.read(at)
    at_terminal = texts is None and cursor is None and sys.stdin is not None and sys.stdin.isatty()
    single = texts is not None and len(texts) == 1
    multiline = at_terminal or cursor is not None or single
    if is_address(model):
        if ensemble or out or stream:
            raise SpecError(
                "a server runs one model at a time and gives whole texts; leave out --with, --out and --stream"
            )
        lines = read_arguments(texts) if texts is not None else read_prompt() if at_terminal else read_stdin()
        remote = RemoteModel(model).run_lazily(
            lines, to=to, prefix=prefix, glossary=None if glossary is None else read_glossary(glossary),
            batch=batch or (1 if at_terminal else 32), options=options, notify=say,
        )  # fmt: skip
        write_outputs(remote, sys.stdout, as_json=as_json, multiline=multiline)
        return
    handle = light or regard.load(model, device=device, engine=engine)
    if as_json and isinstance(handle, regard.Model) and "words" in handle.options:
        options["words"] = True
    paths = supports(handle.task, ReadsImages) or supports(handle.task, ReadsFiles)
    lines = read_arguments(texts, paths=paths) if texts is not None else read_prompt() if at_terminal else read_stdin()
    inputs: Iterable[object] = lines
    if cursor is not None:
        require(handle.task, Completes)
        inputs = [cursor]
    if out is not None:
        from regard.verbs.output_files import check_target

        check_target(out, handle.task, single=single)
    if stream:
        way: dict[str, Any] = {"to": to, "prefix": prefix, "long": long, "notify": say, **options}
        stream_outputs(partial(handle.stream, **way), lines, sys.stdout)
        return
    lines_at_once = batch or (1 if at_terminal else choose_batch(beam or handle.search.beam))
    batches = handle.run_lazily(
        inputs, others=[regard.load(path, device=device) for path in ensemble], to=to, prefix=prefix, glossary=glossary,
        long=cast("Long", long), notify=say, batch=lines_at_once, **options,
    )  # fmt: skip
    if out is not None:
        from regard.verbs.output_files import write_files

        batches = write_files(batches, out, single=single)
    write_outputs(batches, sys.stdout, as_json=as_json, multiline=multiline)
