"""BERT: a bidirectional encoder for masked tokens.

Devlin et al. 2018. Post-norm.

Pre-training has a second head for next-sentence prediction. RoBERTa (Liu et al. 2019) and DistilBERT (Sanh et al. 2019) drop
it; RoBERTa has a single segment, DistilBERT none.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Literal

from regard.errors import SpecError, UnknownName
from regard.families.named_sizes import Settings, resolve_size
from regard.families.published import ACTIVATIONS, CLASSES, Config, Form, Key, Use
from regard.families.weight_map import Drop, Name, Rows, Tied
from regard.model.model_spec import ModelSpec
from regard.nn.blocks.block import Block
from regard.nn.blocks.body import Stack
from regard.nn.blocks.embedding import Tokens
from regard.nn.blocks.head import Classes, HeadSpec, Masked, Vector
from regard.nn.blocks.wiring import PostNorm
from regard.nn.layers.feedforward import FeedForward
from regard.nn.layers.norm import LayerNorm
from regard.nn.mixers import Full
from regard.nn.positions.position import Learned

_BERT: Settings = dict(vocab=30522, segments=2, next_sentence=True, shift=0, eps=1e-12, squash="tanh")
_ROBERTA: Settings = dict(vocab=50265, segments=1, next_sentence=False, shift=2, eps=1e-5, squash="tanh")
_BASE: Settings = dict(width=768, depth=12, heads=12, hidden=3072)
_LARGE: Settings = dict(width=1024, depth=24, heads=16, hidden=4096)

SIZES: dict[str, Settings] = {
    "distilbert-base": _BASE | _BERT | dict(depth=6, segments=0, next_sentence=False, squash="relu"),
    "bert-base": _BASE | _BERT,
    "roberta-base": _BASE | _ROBERTA,
    "bert-large": _LARGE | _BERT,
    "roberta-large": _LARGE | _ROBERTA,
}

PAPER = {"distilbert-base": 66e6, "bert-base": 110e6, "bert-large": 340e6, "roberta-large": 355e6}
"""Without heads; our count includes those of pre-training."""

Head = Literal["masked", "classes", "tags", "vector", "mean"]


def spec(
    size: str = "bert-base",
    *,
    width: int | None = None,
    depth: int | None = None,
    heads: int | None = None,
    hidden: int | None = None,
    vocab: int | None = None,
    segments: int | None = None,
    next_sentence: bool | None = None,
    shift: int | None = None,
    eps: float | None = None,
    squash: str | None = None,
    activation: str = "gelu",
    tied: bool = True,
    head: Head | None = None,
    classes: int | None = None,
    length: int = 512,
    dropout: float = 0.1,
    attention_dropout: float | None = None,
) -> ModelSpec:
    """Build an encoder-only model with the pre-training `head` (`masked`) or another one.

    Heads: `classes` for each row (the default if a number of classes is given), `tags` for each token, the `vector` of the
    pooler, or the `mean` of all tokens. `next_sentence` adds the head for next-sentence prediction; `shift` leaves unused rows
    before the first position, as in RoBERTa; `squash` is the activation of a classifier's hidden layer.
    """
    shape = resolve_size(
        SIZES, size, width=width, depth=depth, heads=heads, hidden=hidden, vocab=vocab, segments=segments,
        next_sentence=next_sentence, shift=shift, eps=eps, squash=squash,
    )  # fmt: skip
    norm, count = LayerNorm(shape["eps"]), 2 if classes is None else classes
    head = head or ("masked" if classes is None else "classes")
    ends: dict[Head, HeadSpec] = {
        "masked": Masked(activation, norm, tied),
        "classes": Classes(count, hidden=True, dropout=dropout, activation=shape["squash"]),
        "tags": Classes(count, None, dropout=dropout),
        "vector": Vector(hidden=True),
        "mean": Vector("mean"),
    }
    if head not in ends:
        raise UnknownName("head", head, ends)
    look = Full(shape["heads"], dropout=dropout if attention_dropout is None else attention_dropout)
    return ModelSpec(
        width=shape["width"],
        length=length,
        embed=Tokens(
            shape["vocab"],
            position=Learned(shape["shift"]),
            norm=norm,
            dropout=dropout,
            segments=shape["segments"],
        ),
        encoder=Stack(
            Block(mix=look, feed=FeedForward(shape["hidden"], activation)),
            depth=shape["depth"],
            wiring=PostNorm(norm, dropout),
        ),
        head=ends[head],
        beside=Classes(2, hidden=True) if head == "masked" and shape["next_sentence"] else None,
        init="normal",
    )


# ------------------------------------------------------------------------------------------------- published form


def _layers(*rows: tuple[str, str]) -> Rows:
    return tuple(Name(f"encoder.blocks.{{}}.{ours}", theirs) for ours, theirs in rows)


def _body(name: str) -> Rows:
    """Weight names that BERT and RoBERTa share."""
    layer = f"{name}.encoder.layer.{{}}"
    return (
        Name("embed", f"{name}.embeddings.word_embeddings"),
        Name("embed.position", f"{name}.embeddings.position_embeddings"),
        Name("embed.segment", f"{name}.embeddings.token_type_embeddings.weight"),
        Name("embed.norm", f"{name}.embeddings.LayerNorm"),
        *_layers(
            ("mix.q", f"{layer}.attention.self.query"),
            ("mix.k", f"{layer}.attention.self.key"),
            ("mix.v", f"{layer}.attention.self.value"),
            ("mix.out", f"{layer}.attention.output.dense"),
            ("mix_norm", f"{layer}.attention.output.LayerNorm"),
            ("feed.up", f"{layer}.intermediate.dense"),
            ("feed.down", f"{layer}.output.dense"),
            ("feed_norm", f"{layer}.output.LayerNorm"),
        ),
        Drop(f"{name}.embeddings.position_ids"),
        Drop(f"{name}.embeddings.token_type_ids"),
    )


def _segments(count: int) -> int:
    if count == 0:
        raise SpecError("the model has no segments")
    return count


def _infer_pooler(config: Config, names: Iterable[str]) -> Config:
    """Tell a body with a pooler from one without, and a masked model that kept its next-sentence head."""
    names, made = set(names), list(config.get("architectures") or ())
    if made == ["BertForMaskedLM"] and "cls.seq_relationship.weight" in names:
        return {**config, "architectures": ["BertForPreTraining"]}
    body = len(made) == 1 and made[0] in ("BertModel", "RobertaModel")
    pooled = any(name.endswith("pooler.dense.weight") for name in names)
    return {**config, "architectures": [f"{made[0]} without a pooler"]} if body and not pooled else config


_MEAN = Use("embed", fixed=dict(head="mean", next_sentence=False), bare=True)
_TAGS = Use("tag", (Name("head.classes", "classifier"),), dict(head="tags", next_sentence=False), (CLASSES,))


def _ends(decoder: str, bias: str | None, table: str) -> Rows:
    """Weight names of a masked head's table and bias.

    A tied head saves neither the table nor the bias of its `decoder`; an untied one reads both and has another, unused bias.
    """
    copies = (Name("head.weight", f"{decoder}.weight"), Tied(f"{decoder}.weight", of=table))
    if bias is None:
        return (Name("head.bias", f"{decoder}.bias"), *copies)
    own = Name("head.bias", f"{decoder}.bias", when="head")
    return (own, Name("head.bias", bias), *copies, Tied(f"{decoder}.bias", of=bias), Drop(bias))


_MLM = (
    Name("head.dense", "cls.predictions.transform.dense"),
    Name("head.norm", "cls.predictions.transform.LayerNorm"),
    *_ends("cls.predictions.decoder", "cls.predictions.bias", "bert.embeddings.word_embeddings.weight"),
)
_NSP = (Name("beside.dense", "bert.pooler.dense"), Name("beside.classes", "cls.seq_relationship"))
_KEYS = (
    Key("width", "width", "hidden_size", 768),
    Key("depth", "encoder.depth", "num_hidden_layers", 12),
    Key("heads", "encoder.block.mix.heads", "num_attention_heads", 12),
    Key("hidden", "encoder.block.feed.width", "intermediate_size", 3072),
    Key("segments", "embed.segments", "type_vocab_size", 2, back=_segments),
    Key("eps", "encoder.wiring.norm.eps", "layer_norm_eps", 1e-12),
    Key("activation", "encoder.block.feed.activation", "hidden_act", "gelu", ACTIVATIONS),
    Key("dropout", "encoder.wiring.dropout", "hidden_dropout_prob", 0.1),
    Key("attention_dropout", "encoder.block.mix.dropout", "attention_probs_dropout_prob", 0.1),
)
_TIED = Key("tied", "head.tied", "tie_word_embeddings", True)
_ONLY: Settings = dict(position_embedding_type=("absolute",), is_decoder=(False,), add_cross_attention=(False,))

_BERT_FORM = Form(
    "bert",
    spec,
    keys=(*_KEYS, Key("vocab", "embed.vocab", "vocab_size", 30522), Key("length", "length", "max_position_embeddings", 512)),
    names=_body("bert"),
    uses={
        "BertForPreTraining": Use("mlm", (*_MLM, *_NSP), dict(head="masked", next_sentence=True), (_TIED,)),
        "BertForMaskedLM": Use("mlm", _MLM, dict(head="masked", next_sentence=False), (_TIED,)),
        "BertModel": Use(
            "embed", (Name("head.dense", "bert.pooler.dense"),), dict(head="vector", next_sentence=False), bare=True,
        ),
        "BertModel without a pooler": _MEAN,
        "BertForSequenceClassification": Use(
            "classify", (Name("head.dense", "bert.pooler.dense"), Name("head.classes", "classifier")),
            dict(head="classes", next_sentence=False), (CLASSES,),
        ),
        "BertForNextSentencePrediction": Use(
            "classify", (Name("head.dense", "bert.pooler.dense"), Name("head.classes", "cls.seq_relationship")),
            dict(head="classes", classes=2, next_sentence=False), settings=dict(pair=True),
        ),
        "BertForTokenClassification": _TAGS,
    },
    prefix="bert.",
    fixed=dict(size="bert-base", shift=0, squash="tanh"),
    only=_ONLY,
    infer=_infer_pooler,
)  # fmt: skip

_ROBERTA_FORM = Form(
    "roberta",
    spec,
    keys=(
        *_KEYS,
        Key("vocab", "embed.vocab", "vocab_size", 50265),
        Key(  # their table has two more rows, before the first position
            "length", "length", "max_position_embeddings", read=lambda c: c.get("max_position_embeddings", 512) - 2,
            write=lambda v: {"max_position_embeddings": v + 2},
        ),
    ),
    names=_body("roberta"),
    uses={
        "RobertaForMaskedLM": Use(
            "mlm",
            (
                Name("head.dense", "lm_head.dense"),
                Name("head.norm", "lm_head.layer_norm"),
                *_ends("lm_head.decoder", "lm_head.bias", "roberta.embeddings.word_embeddings.weight"),
            ),
            dict(head="masked"), (_TIED,),
        ),
        "RobertaModel": Use("embed", (Name("head.dense", "roberta.pooler.dense"),), dict(head="vector"), bare=True),
        "RobertaModel without a pooler": _MEAN,
        "RobertaForSequenceClassification": Use(
            "classify", (Name("head.dense", "classifier.dense"), Name("head.classes", "classifier.out_proj")),
            dict(head="classes"), (CLASSES,),
        ),
        "RobertaForTokenClassification": _TAGS,
    },
    prefix="roberta.",
    fixed=dict(size="roberta-base", shift=2, next_sentence=False, squash="tanh"),
    only=_ONLY | dict(pad_token_id=(1,)),
    facts=dict(pad_token_id=1),
    infer=_infer_pooler,
)  # fmt: skip

_LAYER = "distilbert.transformer.layer.{}"
_DISTIL_FORM = Form(
    "distilbert",
    spec,
    keys=(
        Key("width", "width", "dim", 768),
        Key("depth", "encoder.depth", "n_layers", 6),
        Key("heads", "encoder.block.mix.heads", "n_heads", 12),
        Key("hidden", "encoder.block.feed.width", "hidden_dim", 3072),
        Key("vocab", "embed.vocab", "vocab_size", 30522),
        Key("length", "length", "max_position_embeddings", 512),
        Key("activation", "encoder.block.feed.activation", "activation", "gelu", ACTIVATIONS),
        Key("dropout", "encoder.wiring.dropout", "dropout", 0.1),
        Key("attention_dropout", "encoder.block.mix.dropout", "attention_dropout", 0.1),
    ),
    names=(
        Name("embed", "distilbert.embeddings.word_embeddings"),
        Name("embed.position", "distilbert.embeddings.position_embeddings"),
        Name("embed.norm", "distilbert.embeddings.LayerNorm"),
        *_layers(
            ("mix.q", f"{_LAYER}.attention.q_lin"),
            ("mix.k", f"{_LAYER}.attention.k_lin"),
            ("mix.v", f"{_LAYER}.attention.v_lin"),
            ("mix.out", f"{_LAYER}.attention.out_lin"),
            ("mix_norm", f"{_LAYER}.sa_layer_norm"),
            ("feed.up", f"{_LAYER}.ffn.lin1"),
            ("feed.down", f"{_LAYER}.ffn.lin2"),
            ("feed_norm", f"{_LAYER}.output_layer_norm"),
        ),
        Drop("distilbert.embeddings.position_ids"),
    ),
    uses={
        "DistilBertForMaskedLM": Use(
            "mlm",
            (
                Name("head.dense", "vocab_transform"),
                Name("head.norm", "vocab_layer_norm"),
                *_ends("vocab_projector", None, "distilbert.embeddings.word_embeddings.weight"),
            ),
            dict(head="masked"), (_TIED,),
        ),
        "DistilBertModel": dataclasses.replace(_MEAN, fixed=dict(head="mean")),
        "DistilBertForSequenceClassification": Use(
            "classify", (Name("head.dense", "pre_classifier"), Name("head.classes", "classifier")),
            dict(head="classes"), (CLASSES,),
        ),
        "DistilBertForTokenClassification": _TAGS,
    },
    prefix="distilbert.",
    fixed=dict(size="distilbert-base", segments=0, next_sentence=False, shift=0, eps=1e-12, squash="relu"),
)  # fmt: skip

FORMS = (_BERT_FORM, _ROBERTA_FORM, _DISTIL_FORM)
