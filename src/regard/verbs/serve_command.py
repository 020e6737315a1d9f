"""`regard serve`: the options of the server."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from regard.errors import SpecError, name_extra
from regard.verbs.options import Debug, Device, Engine, Plugin, Set, parse_settings


def serve(
    models: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME=]MODEL", help="Model or run folders; a name defaults to that of the folder"),
    ] = None,
    host: Annotated[
        str, typer.Option(metavar="HOST", help="Address to listen on; one that others can reach needs a key")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="N", min=0, help="Port; 0 chooses a free one")] = 5000,
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
        runs=None if runs is None else str(runs), engine=engine, device=device, set=parse_settings(sets),
        plugins=[str(path) for path in plugin], slots=slots, memory=None if memory is None else int(memory * 1e9),
        log_texts=log_texts, limits=parse_limits(limit),
    )  # fmt: skip
    try:
        from regard.serve.server import run_server
    except ImportError as error:
        raise SpecError(f"serving needs {error.name}; {name_extra('serve')}") from None
    run_server(settings)
