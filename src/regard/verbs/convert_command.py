"""`regard convert`: from and to other formats."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from regard.verbs.command import say
from regard.verbs.options import Debug, Json, print_result


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
    shortlist: Annotated[
        list[str],
        typer.Option(
            metavar="FILE", help="Training data, to limit the outputs of an int8 or int4 model to; twice for two files"
        ),
    ] = [],  # noqa: B006
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Convert a model from or to another format. Then both versions read the same tokens and the same texts, and the
    differences are printed."""
    import regard

    found = regard.convert(
        src, dst, to=to, trust_pickle=trust_pickle, tokenizer=tokenizer, sample=sample,  # type: ignore[arg-type]
        shortlist=shortlist, notify=say,
    )  # fmt: skip
    print_result(found, as_json)
