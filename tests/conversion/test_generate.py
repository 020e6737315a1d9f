"""Converted models write what theirs write, token by token: greedy and with a beam of four, remembering on both sides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from regard.conversion import hf
from regard.decode import Request, Search, SpecialTokens, generate
from regard.model.net import Net
from tests.conversion.tiny import BOTH, DECODERS, VOCAB, make, put, saved

pytestmark = pytest.mark.numeric

EXTRA = 8
NAMES = [*DECODERS, *BOTH]
SEEDS = {
    "gpt2, other words": 4,
    "openai-gpt": 1,
    "llama": 1,
    "mistral, far": 1,
    "qwen2, window": 4,
    "marian": 5,
    "marian, untied": 12,
}
"""Of random models that do not write the same thing always."""


def pair(name: str, place: Path) -> tuple[Any, Net]:
    """Both sides in double precision, so that no two scores are equal but for rounding."""
    model = make(name, SEEDS.get(name, 0), std=0.6, table=0.15).double()
    found = hf.read(saved(model, place))
    return model, put(found.spec.build().double(), found.weights)


def roles(name: str, model: Any) -> tuple[int, int, int]:
    """The tokens to start with, to end with and to pad with."""
    if name in DECODERS:
        return 1, 2, 1
    config = model.config
    return config.decoder_start_token_id, config.eos_token_id, config.pad_token_id


def theirs(name: str, model: Any, rows: list[list[int]], beam: int) -> list[tuple[int, ...]]:
    """What `generate` of theirs finds for rows of one length."""
    start, eos, pad = roles(name, model)
    read = torch.tensor(rows)
    given: dict[str, Any] = dict(eos_token_id=eos, pad_token_id=pad)
    if name in BOTH:
        given |= dict(decoder_start_token_id=start)
    found = model.generate(
        read, attention_mask=torch.ones_like(read), num_beams=beam, do_sample=False, length_penalty=0.6,
        early_stopping=False, suppress_tokens=sorted({start, pad} - {eos}),
        max_new_tokens=EXTRA + (len(rows[0]) if name in BOTH else 0), **given,
    )  # fmt: skip
    written = found[:, 1:] if name in BOTH else found[:, len(rows[0]) :]
    return [_cut(row, eos) for row in written.tolist()]


def _cut(row: list[int], eos: int) -> tuple[int, ...]:
    return tuple(row[: row.index(eos)] if eos in row else row)


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("name", NAMES)
def test_the_same_tokens(name: str, beam: int, tmp_path: Path) -> None:
    model, net = pair(name, tmp_path)
    start, eos, pad = roles(name, model)
    draw = torch.Generator().manual_seed(2)
    by_length = [torch.randint(3, VOCAB, (12, n), generator=draw).tolist() for n in (2, 5, 7)]
    wanted = [tokens for rows in by_length for tokens in theirs(name, model, rows, beam)]
    search = Search(beam=beam, length_penalty="power", alpha=0.6, max_extra=EXTRA, repetition_guard=False)
    given = [row for rows in by_length for row in rows]
    found = generate([net], Request(given, search, SpecialTokens(start, eos, pad)))
    assert [h.tokens for (h,) in found] == wanted
    assert len(set(wanted)) > 12, "outputs should be of many kinds"
    assert len({len(tokens) for tokens in wanted}) > 2, "and end at several lengths"
