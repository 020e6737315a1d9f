"""Ablation, patching, lens and weights are those of TransformerLens, whose figures are stored."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from regard.data.batch import IGNORE
from regard.families import gpt
from regard.interpret import interventions, logit_lens
from regard.model.net import Net
from regard.tasks.common.forward_pass import ForwardPass
from tests.interpret import lens_figures as theirs

pytestmark = pytest.mark.numeric

FIGURES = json.loads(theirs.STORED.read_text(encoding="utf-8"))
NEAR = 1e-5


def our_name(name: str) -> str | None:
    """The weight of ours that one of TransformerLens is; None if we have none."""
    ends = {
        "embed.W_E": "embed.weight", "pos_embed.W_pos": "embed.position.weight", "ln_final.w": "decoder.norm.weight",
        "ln_final.b": "decoder.norm.bias",
    }  # fmt: skip
    parts = {
        "ln1": "mix_norm", "ln2": "feed_norm", "W_Q": "mix.q.weight", "W_K": "mix.k.weight", "W_V": "mix.v.weight",
        "W_O": "mix.out.weight", "b_Q": "mix.q.bias", "b_K": "mix.k.bias", "b_V": "mix.v.bias", "b_O": "mix.out.bias",
        "W_in": "feed.up.weight", "b_in": "feed.up.bias", "W_out": "feed.down.weight", "b_out": "feed.down.bias",
    }  # fmt: skip
    if not name.startswith("blocks."):
        return ends.get(name)
    _, layer, part, last = name.split(".")
    if part in ("ln1", "ln2"):
        return f"decoder.blocks.{layer}.{parts[part]}.{'weight' if last == 'w' else 'bias'}"
    return f"decoder.blocks.{layer}.{parts[last]}"


def our_weight(name: str, value: np.ndarray) -> torch.Tensor:
    last, tensor = name.rpartition(".")[2], torch.from_numpy(np.ascontiguousarray(value))
    if last in ("W_Q", "W_K", "W_V"):
        return tensor.permute(0, 2, 1).reshape(theirs.WIDTH, theirs.WIDTH)
    if last == "W_O":
        return tensor.reshape(theirs.WIDTH, theirs.WIDTH).T
    return tensor.T if last in ("W_in", "W_out") else tensor.flatten() if last.startswith("b_") else tensor


@pytest.fixture(scope="module")
def net() -> Net:
    sizes = dict(width=theirs.WIDTH, depth=theirs.DEPTH, heads=theirs.HEADS, hidden=theirs.HIDDEN, vocab=theirs.VOCAB)
    net = gpt.spec(**sizes, length=theirs.LENGTH, dropout=0.0).build(seed=1).double().eval()
    given = {our: our_weight(name, value) for name, value in theirs.draw_weights().items() if (our := our_name(name))}
    assert set(given) == set(net.state_dict())
    net.load_weights(given)
    return net


def read(net: Net, ids: list[int]) -> ForwardPass:
    return ForwardPass.of(net, ids, [*theirs.CLEAN[1:], IGNORE])


def test_predictions_and_weights(net: Net) -> None:
    clean = read(net, theirs.CLEAN)
    with torch.no_grad():
        assert clean.log_probs(net)[0].tolist() == pytest.approx(FIGURES["log_probs"], abs=NEAR)
    weights, _, _ = clean.attention(net)
    for mine, pattern in zip(weights.values(), FIGURES["patterns"], strict=True):
        torch.testing.assert_close(mine, torch.tensor(pattern).double(), rtol=0, atol=NEAR)


def test_ablation_of_every_head(net: Net) -> None:
    clean = read(net, theirs.CLEAN)
    found = interventions.ablate(net, [clean], interventions.list_places(net, clean, "*.head.*"))
    assert [worth.zero.score for worth in found] == pytest.approx(FIGURES["ablation"], abs=NEAR)


def test_patching_of_the_stream(net: Net) -> None:
    places = [f"decoder.blocks.{i}" for i in range(theirs.DEPTH)]
    last = len(theirs.CLEAN) - 2
    found = interventions.patch(net, read(net, theirs.CLEAN), read(net, theirs.CORRUPT), places, prediction=last)
    torch.testing.assert_close(found.restored, torch.tensor(FIGURES["patching"]).double(), rtol=0, atol=NEAR)


def test_the_lens(net: Net) -> None:
    found = logit_lens.read_layers(net, read(net, theirs.CLEAN))
    for layer, wanted in zip(found, FIGURES["lens"], strict=True):
        assert layer.wanted_log_prob.tolist() == pytest.approx(wanted, abs=NEAR)
