"""The same input to both sides, theirs run by `transformers` where it is installed: how far apart are the numbers?"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.conversion.hf import CONFIG, Found, read
from regard.errors import CheckpointError
from regard.model.net import Net
from regard.nn.core.coords import Coords

LENGTHS = (9, 6)
"""Of two rows of tokens, one of them padded."""


def installed() -> bool:
    """Whether there is another side to ask."""
    return importlib.util.find_spec("transformers") is not None


def difference(folder: Path, net: Net) -> float:
    """The largest difference between what `transformers` makes of a folder and what our model says, in float32."""
    return compared(read(folder), net)


def compared(found: Found, net: Net) -> float:
    """The same of a model of others that was read."""
    library = importlib.import_module("transformers")
    pad = _pad(found)
    with _quiet(library), torch.no_grad():
        given, ours = _probe(net, pad or 0)
        said = _asked(library, found, {} if pad is None else {"pad_token_id": pad}, given)
    ours = {name: value for name, value in ours.items() if getattr(said, name, None) is not None}
    return max(float((_kept(getattr(said, name), value) - value).abs().max()) for name, value in ours.items())


def _asked(library: Any, found: Found, roles: Mapping[str, int], given: Mapping[str, Any]) -> Any:
    """What they say. They never see the folder: only what we read of it, and of its settings those that we heeded.

    In a folder they would follow whatever its files name: other weights, links out of it, pickles.
    """
    name, _, more = found.use.partition(" ")  # a name of our own table, and perhaps a word on it
    made = {"add_pooling_layer": False} if more else {}
    try:
        kind = getattr(library, name)
        config = kind.config_class(**{**found.heeded, **roles})
        other = kind.from_pretrained(None, config=config, state_dict=dict(found.theirs), dtype=torch.float32, **made)
        return other.eval()(**given)
    except Exception as error:  # whatever it says of settings that it understands otherwise
        said = str(error).strip().partition("\n")[0]
        raise CheckpointError(f"transformers makes no model of this {CONFIG} and these weights: {said}") from None


def _pad(found: Found) -> int | None:
    """Which token is padding, where they say it and it is one."""
    tables = (found.spec.embed.vocab, (found.spec.source or found.spec.embed).vocab)
    pad = found.config.get("pad_token_id")
    return pad if type(pad) is int and 0 <= pad < min(tables) else None


def _probe(net: Net, pad: int) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What they are given, and what ours says of it by their names; of rows of tokens, the whole one."""
    draw = torch.Generator().manual_seed(0)
    if not net.spec.embed.vocab:
        ids, at = net.embed.sample(0)
        ids = torch.randn(ids.shape, generator=draw)
        stream = net(ids, at)
        out = net.logits(stream, at)
        return {"pixel_values": ids}, {"logits": out, "pooler_output": out, "last_hidden_state": stream}
    at = Coords.lengths(LENGTHS)
    ids = _tokens(net.spec.embed.vocab, at, pad, draw)
    given = {"input_ids": ids, "attention_mask": at.kept.long()}
    source = None
    if net.encoder is not None and net.decoder is not None:
        read = _tokens((net.spec.source or net.spec.embed).vocab, at, pad, draw)
        source = (read, at)
        given = {"input_ids": read, "attention_mask": at.kept.long(), "decoder_input_ids": ids}
    stream = net(ids, at, source)
    out = net.logits(stream, at)
    said = {"logits": out, "prediction_logits": out, "last_hidden_state": stream}
    if out.dim() == 2 and out.shape[1] == stream.shape[2]:
        said["pooler_output"] = out
    if net.beside is not None:
        said["seq_relationship_logits"] = net.logits_beside(stream, at)
    return given, {name: value[:1] if value.dim() == 3 else value for name, value in said.items()}


def _tokens(vocab: int, at: Coords, pad: int, draw: torch.Generator) -> Tensor:
    ids = torch.randint(vocab, (len(LENGTHS), at.n), generator=draw)
    ids[ids == pad] = (pad + 1) % vocab  # within a text it would count as padding
    return ids.masked_fill(~at.kept, pad)


def _kept(theirs: Tensor, ours: Tensor) -> Tensor:
    return theirs[: ours.shape[0]]


@contextlib.contextmanager
def _quiet(library: Any) -> Iterator[None]:
    """Its reports and bars are not for those who only compare."""
    log = library.utils.logging
    level, bars = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity_error()
    log.disable_progress_bar()
    try:
        yield
    finally:
        log.set_verbosity(level)
        if bars:
            log.enable_progress_bar()
