"""Every class and option of theirs that we convert: in, the same numbers; out, and loaded by them, the same numbers again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from regard.conversion import hf
from regard.nn.core.coords import Coords
from tests.conversion.tiny import BOTH, DECODERS, MODELS, VOCAB, compared, make, put, saved

pytestmark = pytest.mark.numeric

CLOSE = 1e-5
UNREAD = {"cls.predictions.bias"}
"""Of an untied masked head, which reads its decoder's."""


def ids_of(model: Any) -> dict[str, int]:
    """The tokens that have a role for a model of theirs."""
    names = ("pad_token_id", "eos_token_id", "decoder_start_token_id")
    return {name: i for name in names if (i := getattr(model.config, name, None)) is not None}


def loaded(folder: Path, *, pooler: bool = True) -> tuple[Any, Any]:
    """What `transformers` makes of a folder, and what it says of it."""
    name = json.loads((folder / "config.json").read_text())["architectures"][0]
    more = {} if pooler else {"add_pooling_layer": False}
    model, said = getattr(transformers, name).from_pretrained(folder, output_loading_info=True, **more)
    return model.eval(), said


@pytest.mark.parametrize("name", [*DECODERS, *BOTH])
def test_cached_decoding(name: str, tmp_path: Path) -> None:
    """Some tokens, then a few at a time, both sides remembering; sources are padded."""
    model = make(name)
    found = hf.read(saved(model, tmp_path))
    net = put(found.spec.build(), found.weights)
    draw = torch.Generator().manual_seed(3)
    ids, state, cache = torch.randint(3, VOCAB, (2, 9), generator=draw), net.start(2, 9), dict[str, Any]()
    given: dict[str, Any] = {}
    memory = None
    with torch.no_grad():
        if name in BOTH:
            at, source = Coords.lengths([7, 4]), torch.randint(3, VOCAB, (2, 7), generator=draw)
            memory = net.encode(source, at)
            seen = model.get_encoder()(input_ids=source, attention_mask=at.kept.long())
            given = dict(encoder_outputs=seen, attention_mask=at.kept.long())
        for a, b in [(0, 5), (5, 6), (6, 7), (7, 9)]:
            stream, state = net.decode(ids[:, a:b], Coords.span(b - a, a), memory, state)  # type: ignore[assignment]
            assert float((net.logits(stream) - theirs(model, ids, a, b, given, cache)).abs().max()) <= CLOSE


def theirs(model: Any, ids: torch.Tensor, a: int, b: int, given: dict[str, Any], cache: dict[str, Any]) -> torch.Tensor:
    """The logits of tokens a to b, which follow those that `cache` remembers; GPT-1 remembers none, and reads all again."""
    read = "decoder_input_ids" if given else "input_ids"
    if model.config.model_type == "openai-gpt":
        return model(input_ids=ids[:, :b]).logits[:, a:]  # type: ignore[no-any-return]
    said = model(**{read: ids[:, a:b]}, **given, **cache, use_cache=True)
    cache["past_key_values"] = said.past_key_values
    return said.logits  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", MODELS)
def test_both_ways(name: str, tmp_path: Path) -> None:
    model = make(name)
    found = hf.read(saved(model, tmp_path / "theirs"))
    net = put(found.spec.build(), found.weights)
    assert compared(name, model, net) <= CLOSE
    if name in DECODERS:
        assert compared(name, model, net, left=True) <= CLOSE

    (tmp_path / "ours").mkdir()
    for file, data in hf.write(found.spec, found.weights, ids_of(model)).items():
        (tmp_path / "ours" / file).write_bytes(data)
    again, said = loaded(tmp_path / "ours", pooler="without" not in name)
    assert not said["missing_keys"] - UNREAD
    assert not said["unexpected_keys"] and not said["mismatched_keys"]
    assert compared(name, again, net) <= CLOSE
    assert hf.read(tmp_path / "ours").spec == found.spec
