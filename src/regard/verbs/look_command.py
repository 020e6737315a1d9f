"""`regard look`: one text, or heads and parts on data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.errors import SpecError
from regard.files.storage import check_output, is_stream
from regard.registry import load_plugins
from regard.verbs.command import ProgressLine
from regard.verbs.options import Debug, Device, Json, Plugin, print_result

if TYPE_CHECKING:
    from regard.api.look import Look
    from regard.interpret.data_look import DataLook


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
    if not (as_text or as_json):
        check_output(out)
    load_plugins(plugin)
    import regard

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
        print_result(found, as_json)
    else:
        found.save(out)
        if not is_stream(out):  # the page itself may be on stdout
            print(out)
