"""Tiny random models of `transformers`, one for each class and option that we convert, and what they say of a batch."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers as hf
from torch import Tensor, nn

from regard.model.net import Net
from regard.nn.core.coords import Coords

VOCAB, LENGTHS = 23, [11, 7, 3]
_BERT: dict[str, Any] = dict(
    vocab_size=VOCAB, hidden_size=16, num_hidden_layers=2, num_attention_heads=4, intermediate_size=24,
    max_position_embeddings=14, num_labels=5,
)  # fmt: skip
_ROBERTA = _BERT | dict(max_position_embeddings=16, pad_token_id=1, type_vocab_size=1, layer_norm_eps=1e-5)
_DISTIL: dict[str, Any] = dict(
    vocab_size=VOCAB, dim=16, n_layers=2, n_heads=4, hidden_dim=24, max_position_embeddings=14, num_labels=5
)
_GPT: dict[str, Any] = dict(vocab_size=VOCAB, n_embd=16, n_layer=3, n_head=4, n_positions=16)
_LLAMA: dict[str, Any] = dict(
    vocab_size=VOCAB, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=32,
)  # fmt: skip
_T5: dict[str, Any] = dict(
    vocab_size=VOCAB, d_model=16, d_kv=6, d_ff=24, num_layers=2, num_heads=4, relative_attention_num_buckets=8,
    relative_attention_max_distance=10, pad_token_id=0, eos_token_id=1, decoder_start_token_id=0,
)  # fmt: skip
_BART: dict[str, Any] = dict(
    vocab_size=VOCAB, d_model=16, encoder_layers=2, decoder_layers=3, encoder_attention_heads=4,
    decoder_attention_heads=2, encoder_ffn_dim=24, decoder_ffn_dim=20, max_position_embeddings=32, pad_token_id=1,
    eos_token_id=2, decoder_start_token_id=2, forced_eos_token_id=None,
)  # fmt: skip
_MARIAN = _BART | dict(
    eos_token_id=0, decoder_start_token_id=1, activation_function="swish", scale_embedding=True, bos_token_id=None
)
_VIT: dict[str, Any] = dict(
    hidden_size=16, num_hidden_layers=2, num_attention_heads=4, intermediate_size=24, patch_size=4, image_size=12,
    num_channels=2, num_labels=5,
)  # fmt: skip


def _rope(base: float, kind: str = "default", **more: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": base, **more}}


MODELS: dict[str, Callable[[], Any]] = {
    "gpt2": lambda: hf.GPT2LMHeadModel(hf.GPT2Config(**_GPT)),
    "gpt2, other words": lambda: hf.GPT2LMHeadModel(
        hf.GPT2Config(
            **_GPT, n_inner=20, activation_function="relu", layer_norm_epsilon=1e-3, tie_word_embeddings=False
        )
    ),
    "openai-gpt": lambda: hf.OpenAIGPTLMHeadModel(hf.OpenAIGPTConfig(**_GPT)),
    "llama": lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**_LLAMA, tie_word_embeddings=False, **_rope(500.0))),
    "llama, tied": lambda: hf.LlamaForCausalLM(
        hf.LlamaConfig(
            **_LLAMA, tie_word_embeddings=True, attention_bias=True, head_dim=6, rms_norm_eps=1e-3, **_rope(1e4)
        )
    ),
    "llama, linear": lambda: _llama(_rope(50.0, "linear", factor=3.0)),
    "llama, llama3": lambda: _llama(
        _rope(
            50.0, "llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=3.0, original_max_position_embeddings=20
        )
    ),
    "llama, yarn": lambda: _llama(
        _rope(50.0, "yarn", factor=4.0, beta_fast=2.0, beta_slow=0.5, original_max_position_embeddings=16)
    ),
    "llama, yarn's strength": lambda: _llama(
        _rope(
            50.0,
            "yarn",
            factor=4.0,
            beta_fast=3.0,
            mscale=1.5,
            mscale_all_dim=0.5,
            original_max_position_embeddings=16,
            truncate=False,
        )
    ),
    "mistral": lambda: hf.MistralForCausalLM(hf.MistralConfig(**_LLAMA, sliding_window=3, **_rope(1e3))),
    "mistral, far": lambda: hf.MistralForCausalLM(hf.MistralConfig(**_LLAMA, sliding_window=None, **_rope(1e3))),
    "qwen2, window": lambda: hf.Qwen2ForCausalLM(
        hf.Qwen2Config(**_LLAMA, use_sliding_window=True, sliding_window=4, max_window_layers=0, **_rope(1e3))
    ),
    "qwen2": lambda: hf.Qwen2ForCausalLM(hf.Qwen2Config(**_LLAMA, tie_word_embeddings=True, **_rope(1e6))),
    "qwen3": lambda: hf.Qwen3ForCausalLM(hf.Qwen3Config(**_LLAMA, tie_word_embeddings=False, head_dim=6, **_rope(1e4))),
    "bert, both heads": lambda: hf.BertForPreTraining(hf.BertConfig(**_BERT)),
    "bert, masked": lambda: hf.BertForMaskedLM(hf.BertConfig(**_BERT, hidden_act="gelu_new", layer_norm_eps=1e-3)),
    "bert, untied": lambda: hf.BertForMaskedLM(hf.BertConfig(**_BERT, tie_word_embeddings=False)),
    "bert, body": lambda: hf.BertModel(hf.BertConfig(**_BERT)),
    "bert, body without pooler": lambda: hf.BertModel(hf.BertConfig(**_BERT), add_pooling_layer=False),
    "bert, classes": lambda: hf.BertForSequenceClassification(hf.BertConfig(**_BERT)),
    "bert, next sentence": lambda: hf.BertForNextSentencePrediction(hf.BertConfig(**_BERT)),
    "bert, tags": lambda: hf.BertForTokenClassification(hf.BertConfig(**_BERT)),
    "roberta, masked": lambda: hf.RobertaForMaskedLM(hf.RobertaConfig(**_ROBERTA)),
    "roberta, body": lambda: hf.RobertaModel(hf.RobertaConfig(**_ROBERTA)),
    "roberta, classes": lambda: hf.RobertaForSequenceClassification(hf.RobertaConfig(**_ROBERTA)),
    "roberta, tags": lambda: hf.RobertaForTokenClassification(hf.RobertaConfig(**_ROBERTA)),
    "distilbert, masked": lambda: hf.DistilBertForMaskedLM(hf.DistilBertConfig(**_DISTIL)),
    "distilbert, body": lambda: hf.DistilBertModel(hf.DistilBertConfig(**_DISTIL)),
    "distilbert, classes": lambda: hf.DistilBertForSequenceClassification(hf.DistilBertConfig(**_DISTIL)),
    "distilbert, tags": lambda: hf.DistilBertForTokenClassification(hf.DistilBertConfig(**_DISTIL)),
    "t5, 1.0": lambda: hf.T5ForConditionalGeneration(hf.T5Config(**_T5, tie_word_embeddings=True)),
    "t5, 1.1": lambda: _two_tables(hf.T5ForConditionalGeneration(_t5v11())),
    "t5, 1.1 tied": lambda: hf.T5ForConditionalGeneration(_t5v11()),
    "t5 body, 1.0": lambda: hf.T5EncoderModel(hf.T5Config(**_T5)),
    "t5 body, 1.1": lambda: hf.T5EncoderModel(_t5v11()),
    "bart": lambda: hf.BartForConditionalGeneration(hf.BartConfig(**_BART)),
    "bart, untied": lambda: _one_table(
        hf.BartForConditionalGeneration(
            hf.BartConfig(**_BART, tie_word_embeddings=False, scale_embedding=True, activation_function="relu")
        )
    ),
    "marian": lambda: hf.MarianMTModel(hf.MarianConfig(**_MARIAN)),
    "marian, untied": lambda: _one_table(hf.MarianMTModel(hf.MarianConfig(**_MARIAN, tie_word_embeddings=False))),
    "marian, two vocabularies": lambda: hf.MarianMTModel(
        hf.MarianConfig(
            **_MARIAN | dict(vocab_size=29, decoder_vocab_size=VOCAB, share_encoder_decoder_embeddings=False)
        )
    ),
    "vit": lambda: hf.ViTForImageClassification(hf.ViTConfig(**_VIT)),
    "vit, body": lambda: hf.ViTModel(hf.ViTConfig(**_VIT, layer_norm_eps=1e-6)),
    "vit, body without pooler": lambda: hf.ViTModel(hf.ViTConfig(**_VIT), add_pooling_layer=False),
}
_WRITERS = ("gpt2", "openai-gpt", "llama", "qwen2", "qwen3", "mistral")
DECODERS = [name for name in MODELS if name.split(",")[0] in _WRITERS]
BOTH = [name for name in MODELS if name.split(",")[0] in ("t5", "bart", "marian")]
ENCODERS = [name for name in MODELS if "bert" in name.split(",")[0] or "body" in name.split(",")[0]]
IMAGES = [name for name in MODELS if name.startswith("vit")]


def _llama(rope: dict[str, Any]) -> Any:
    shape = _LLAMA | dict(head_dim=8, max_position_embeddings=64)
    return hf.LlamaForCausalLM(hf.LlamaConfig(**shape, tie_word_embeddings=False, **rope))


def _t5v11() -> Any:
    return hf.T5Config(**_T5, feed_forward_proj="gated-gelu", num_decoder_layers=1, tie_word_embeddings=False)


def _two_tables(model: Any) -> Any:
    """Theirs ties a new model's head in any case; the published models of 1.1 have two tables."""
    model.lm_head.weight = nn.Parameter(model.lm_head.weight.detach().clone())
    return model


def _one_table(model: Any) -> Any:
    """Theirs, told not to tie its head, does not tie the two sides either; those who train it do."""
    model.model.encoder.embed_tokens.weight = model.model.decoder.embed_tokens.weight = model.model.shared.weight
    return model


TABLES = ("shared", "wte", "tokens_embed", "embed_tokens", "word_embeddings")


def make(name: str, seed: int = 0, *, std: float = 0.3, table: float = 0.3) -> Any:
    """A model of theirs with every weight far from where it starts, norms near one."""
    torch.manual_seed(seed)
    model = MODELS[name]().eval()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if "norm" in key.lower() or ".ln_" in key:
                parameter.normal_(mean=1.0 if key.endswith("weight") else 0.0, std=0.2)
            elif "embed_positions" not in key or "bart" in name:  # Marian's are computed
                parameter.normal_(std=table if any(word in key for word in TABLES) else std)
        if hasattr(model, "final_logits_bias") and name.startswith("marian"):
            model.final_logits_bias.normal_(std=table)
    return model


def put(net: Net, weights: dict[str, Tensor]) -> Net:
    net.load_weights(weights)
    return net.eval()


def compared(name: str, model: Any, net: Net, *, left: bool = False) -> float:
    """The largest difference between theirs and ours, on a batch with padding (and segments, where there are some)."""
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        if name in IMAGES:
            return _images(model, net, draw)
        at = Coords.lengths(LENGTHS, left=left)
        ids = torch.randint(3, VOCAB, (3, 11), generator=draw)
        if name in BOTH:
            return _both(model, net, at, ids, draw)
        if name in DECODERS:
            said = model(input_ids=ids, attention_mask=at.kept.long(), position_ids=at.pos.clamp(min=0)).logits
            return _far(net.logits(net(ids, at))[at.kept], said[at.kept])
        return _encoder(name, model, net, at, ids, draw)


def _far(ours: Tensor, theirs: Tensor) -> float:
    assert ours.shape == theirs.shape
    return float((ours - theirs).abs().max())


def _encoder(name: str, model: Any, net: Net, at: Coords, ids: Tensor, draw: torch.Generator) -> float:
    given: dict[str, Any] = dict(input_ids=ids, attention_mask=at.kept.long())
    if name.startswith("roberta"):
        given["input_ids"] = ids.masked_fill(~at.kept, 1)
    if name.startswith("bert"):
        at = dataclasses.replace(at, segment=torch.randint(2, (3, 11), generator=draw))
        given |= dict(token_type_ids=at.segment, position_ids=at.pos.clamp(min=0))
    said = model(**given)
    stream = net(ids, at)
    out = net.logits(stream, at)
    if "body" in name:
        pooled = said.get("pooler_output")
        far = _far(stream[at.kept], said.last_hidden_state[at.kept])
        return far if pooled is None else max(far, _far(out, pooled))
    if "both heads" in name:
        far = _far(out[at.kept], said.prediction_logits[at.kept])
        return max(far, _far(net.logits_beside(stream, at), said.seq_relationship_logits))
    return _far(out, said.logits) if said.logits.dim() == 2 else _far(out[at.kept], said.logits[at.kept])


def _both(model: Any, net: Net, at_t: Coords, target: Tensor, draw: torch.Generator) -> float:
    at_s, source = Coords.lengths([4, 15, 9]), torch.randint(3, VOCAB, (3, 15), generator=draw)
    said = model(
        input_ids=source, attention_mask=at_s.kept.long(), decoder_input_ids=target,
        decoder_attention_mask=at_t.kept.long(),
    ).logits  # fmt: skip
    return _far(net.logits(net(target, at_t, (source, at_s)))[at_t.kept], said[at_t.kept])


def _images(model: Any, net: Net, draw: torch.Generator) -> float:
    far = 0.0
    for size in ((12, 12), (20, 20), (8, 16)):
        images = torch.randn(3, 2, *size, generator=draw)
        at = Coords.span(net.spec.embed.tokens(*size))  # type: ignore[attr-defined]
        said = model(pixel_values=images, interpolate_pos_encoding=size != (12, 12))
        stream = net(images, at)
        if hasattr(said, "logits"):
            far = max(far, _far(net.logits(stream, at), said.logits))
            continue
        far = max(far, _far(stream, said.last_hidden_state))
        if said.pooler_output is not None:
            far = max(far, _far(net.logits(stream, at), said.pooler_output))
    return far


def saved(model: Any, folder: Path) -> Path:
    model.save_pretrained(folder)
    return folder
