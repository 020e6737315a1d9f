"""Compare a converted model with the original.

Both read the same tokens and the same texts, the original run by `transformers` if it is installed.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.conversion.hf import CONFIG, HfModel, read
from regard.conversion.text_proof import TextProof, compare_texts
from regard.errors import CheckpointError
from regard.model.net import Net
from regard.nn.core.coords import Coords
from regard.tasks.common.task import Task

LENGTHS = (9, 6)
"""The lengths of two rows of tokens, so that one is padded."""


def is_available() -> bool:
    """True if `transformers` is installed."""
    return importlib.util.find_spec("transformers") is not None


def compare_folder(folder: Path, net: Net) -> float:
    """The largest difference between the outputs of `transformers` for a folder and those of a model, in float32."""
    return compare(read(folder), net)


def compare(found: HfModel, net: Net) -> float:
    """Compare like `compare_folder`, for a folder that was read."""
    library = importlib.import_module("transformers")
    with _quiet(library), torch.no_grad():
        return _compare_outputs(found, net, _build_transformers(library, found))


def compare_all(
    found: HfModel, net: Net, folder: Path, task: Task, own: Net, texts: Sequence[str]
) -> tuple[float, TextProof | str]:
    """Compare like `compare`, and both sides from text to text, where `own` is the model that runs `task`."""
    library = importlib.import_module("transformers")
    with _quiet(library), torch.no_grad():
        other = _build_transformers(library, found)
        return _compare_outputs(found, net, other), compare_texts(library, other, folder, found, own, task, texts)


def _compare_outputs(found: HfModel, net: Net, other: Any) -> float:
    given, ours = _probe(net, _pad(found) or 0)
    with _explain_refusal():
        said = other(**given)
    ours = {name: value for name, value in ours.items() if getattr(said, name, None) is not None}
    return max(float((_kept(getattr(said, name), value) - value).abs().max()) for name, value in ours.items())


def _build_transformers(library: Any, found: HfModel) -> Any:
    """The model of `transformers`, built from the weights and settings that were read.

    It never sees the folder itself, where it would follow whatever the files name: other weights, links, pickles.
    """
    name, _, more = found.use.partition(" ")  # a name from our own table, perhaps with a remark
    made = {"add_pooling_layer": False} if more else {}
    pad = _pad(found)
    roles = {} if pad is None else {"pad_token_id": pad}
    with _explain_refusal():
        kind = getattr(library, name)
        config = kind.config_class(**{**found.used_config, **roles})
        other = kind.from_pretrained(None, config=config, state_dict=dict(found.originals), dtype=torch.float32, **made)
        return other.eval()


@contextlib.contextmanager
def _explain_refusal() -> Iterator[None]:
    try:
        yield
    except Exception as error:  # whatever it raises for settings that it interprets differently
        said = str(error).strip().partition("\n")[0]
        raise CheckpointError(
            f"transformers cannot build a model from this {CONFIG} and these weights: {said}"
        ) from None


def _pad(found: HfModel) -> int | None:
    """The padding token, if the config has a valid one."""
    tables = (found.spec.embed.vocab, (found.spec.source or found.spec.embed).vocab)
    pad = found.config.get("pad_token_id")
    return pad if type(pad) is int and 0 <= pad < min(tables) else None


def _probe(net: Net, pad: int) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Inputs for `transformers`, and our outputs for them by its names; of two rows of tokens only the unpadded one."""
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
    ids[ids == pad] = (pad + 1) % vocab  # inside a text it would count as padding
    return ids.masked_fill(~at.kept, pad)


def _kept(theirs: Tensor, ours: Tensor) -> Tensor:
    return theirs[: ours.shape[0]]


@contextlib.contextmanager
def _quiet(library: Any) -> Iterator[None]:
    """Turn off its messages and progress bars."""
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
