"""BERT and its kin against `transformers`: streams and logits of every head with padding and segments, and sizes."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.families import bert
from regard.nn.coords import Coords
from tests.families.naming import close, count, put, saved

TINY: dict[str, Any] = dict(width=16, depth=2, heads=4, hidden=24, vocab=23)
LENGTHS = [11, 7, 3]
IDS = torch.randint(3, 23, (3, 11), generator=torch.Generator().manual_seed(0))
ROBERTA = (
    ("head.dense", "lm_head.dense"),
    ("head.norm", "lm_head.layer_norm"),
    ("head.bias", "lm_head.bias"),
    ("head.bias", "lm_head.decoder.bias"),
    ("head.weight", "lm_head.decoder.weight"),
    *((ours, name.replace("bert.", "roberta.")) for ours, name in bert.NAMES),
)
DISTIL = (
    ("embed", "distilbert.embeddings.word_embeddings"),
    ("embed.position", "distilbert.embeddings.position_embeddings"),
    ("embed.norm", "distilbert.embeddings.LayerNorm"),
    ("encoder.blocks.{}.mix.q", "distilbert.transformer.layer.{}.attention.q_lin"),
    ("encoder.blocks.{}.mix.k", "distilbert.transformer.layer.{}.attention.k_lin"),
    ("encoder.blocks.{}.mix.v", "distilbert.transformer.layer.{}.attention.v_lin"),
    ("encoder.blocks.{}.mix.out", "distilbert.transformer.layer.{}.attention.out_lin"),
    ("encoder.blocks.{}.mix_norm", "distilbert.transformer.layer.{}.sa_layer_norm"),
    ("encoder.blocks.{}.feed.up", "distilbert.transformer.layer.{}.ffn.lin1"),
    ("encoder.blocks.{}.feed.down", "distilbert.transformer.layer.{}.ffn.lin2"),
    ("encoder.blocks.{}.feed_norm", "distilbert.transformer.layer.{}.output_layer_norm"),
    ("head.dense", "vocab_transform"),
    ("head.norm", "vocab_layer_norm"),
    ("head.bias", "vocab_projector.bias"),
    ("head.weight", "vocab_projector.weight"),
)


def config(shape: dict[str, Any], length: int = 512) -> dict[str, Any]:
    return dict(
        vocab_size=shape["vocab"], hidden_size=shape["width"], num_hidden_layers=shape["depth"],
        num_attention_heads=shape["heads"], intermediate_size=shape["hidden"], type_vocab_size=shape["segments"],
        max_position_embeddings=length + shape["shift"], layer_norm_eps=shape["eps"],
    )  # fmt: skip


def berts(shape: dict[str, Any], **more: Any) -> Any:
    from transformers import BertConfig, BertForPreTraining, BertForSequenceClassification

    made = BertConfig(**config(shape), **more)
    return (BertForSequenceClassification if more else BertForPreTraining)(made).eval()


def robertas(shape: dict[str, Any]) -> Any:
    from transformers import RobertaConfig, RobertaForMaskedLM

    return RobertaForMaskedLM(RobertaConfig(**config(shape), pad_token_id=1)).eval()


def distilberts(shape: dict[str, Any]) -> Any:
    from transformers import DistilBertConfig, DistilBertForMaskedLM

    sizes = dict(vocab_size=shape["vocab"], dim=shape["width"], n_layers=shape["depth"], n_heads=shape["heads"])
    return DistilBertForMaskedLM(DistilBertConfig(**sizes, hidden_dim=shape["hidden"])).eval()


@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
def test_both_heads_are_berts(left: bool, tmp_path: Path) -> None:
    shape = bert.SIZES["bert-base"] | TINY
    other = berts(shape)
    net = put(bert.spec(**TINY).build(), saved(other, tmp_path), bert.NAMES)
    at = Coords.lengths(LENGTHS, left=left)
    at = dataclasses.replace(at, segment=torch.randint(2, (3, 11)))
    with torch.no_grad():
        said = other(
            input_ids=IDS,
            attention_mask=at.kept.long(),
            token_type_ids=at.segment,
            position_ids=at.pos.clamp(min=0),
            output_hidden_states=True,
        )
        stream = net(IDS, at)
        close(stream[at.kept], said.hidden_states[-1][at.kept])
        close(net.logits(stream)[at.kept], said.prediction_logits[at.kept])
        if not left:  # theirs pools the first column, even where it is padding
            close(net.logits_beside(stream, at), said.seq_relationship_logits)
        else:
            close(net.logits_beside(stream, at)[:1], said.seq_relationship_logits[:1])


def test_a_classifier_is_berts(tmp_path: Path) -> None:
    shape = bert.SIZES["bert-base"] | TINY
    other = berts(shape, num_labels=5)
    net = put(bert.spec(**TINY, classes=5).build(), saved(other, tmp_path), (*bert.CLASSIFIER, *bert.NAMES))
    at = Coords.lengths(LENGTHS)
    with torch.no_grad():
        wanted = other(input_ids=IDS, attention_mask=at.kept.long()).logits  # without segments: all of the first
        close(net.logits(net(IDS, at), at), wanted)


def test_logits_are_robertas(tmp_path: Path) -> None:
    other = robertas(bert.SIZES["roberta-base"] | TINY)
    net = put(bert.spec("roberta-base", **TINY).build(), saved(other, tmp_path), ROBERTA)
    at = Coords.lengths(LENGTHS)
    with torch.no_grad():
        wanted = other(input_ids=IDS.masked_fill(~at.kept, 1), attention_mask=at.kept.long()).logits
        close(net.logits(net(IDS, at))[at.kept], wanted[at.kept])


def test_logits_are_distilberts(tmp_path: Path) -> None:
    other = distilberts(bert.SIZES["distilbert-base"] | TINY)
    net = put(bert.spec("distilbert-base", **TINY).build(), saved(other, tmp_path), DISTIL)
    at = Coords.lengths(LENGTHS)
    with torch.no_grad():
        wanted = other(input_ids=IDS, attention_mask=at.kept.long()).logits
        close(net.logits(net(IDS, at))[at.kept], wanted[at.kept])


PUBLISHED = {"bert-base": 110_106_428, "bert-large": 336_226_108}
"""With both heads; the paper says 110 and 340 million."""


@pytest.mark.parametrize("size", bert.SIZES)
def test_as_many_parameters_as_theirs(size: str) -> None:
    make = {"bert": berts, "roberta": robertas, "distilbert": distilberts}[size.split("-")[0]]
    with torch.device("meta"):
        ours = count(bert.spec(size).build())
        assert ours == count(make(bert.SIZES[size]))
    assert ours == PUBLISHED.get(size, ours)


def test_the_base_model_is_the_papers() -> None:
    plain = bert.spec().plain()
    assert (plain["width"], plain["length"], plain["encoder"]["depth"]) == (768, 512, 12)
    assert plain["encoder"]["wiring"] == {
        "kind": "post_norm", "norm": {"kind": "layer_norm", "eps": 1e-12, "bias": True}, "dropout": 0.1,
    }  # fmt: skip
    assert plain["beside"] == {"kind": "classes", "count": 2, "pool": "first", "hidden": True, "dropout": 0.0}
    assert bert.spec(follows=False).beside is None
