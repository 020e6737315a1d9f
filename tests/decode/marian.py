"""A tiny random Marian model of `transformers` and the same weights in a model of ours, both in float64."""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import MarianConfig, MarianMTModel

from regard.decode import Hypothesis
from regard.families import transformer
from regard.model.net import Net
from regard.nn.positions.position import sinusoid

EOS, PAD, BOS, VOCAB = 0, 1, 2, 24
WIDTH, HEADS, HIDDEN, DEPTH, POSITIONS = 16, 2, 24, 2, 64

NAMES = (
    (r"^model\.shared\.weight$", "embed.weight"),
    (r"^lm_head\.weight$", "head.weight"),
    (r"^final_logits_bias$", "head.bias"),
    (r"^model\.(encoder|decoder)\.layers\.(\d+)\.", r"\1.blocks.\2."),
    (r"self_attn\.", "mix."),
    (r"encoder_attn\.", "cross."),
    (r"_proj\.", "."),
    (r"self_attn_layer_norm", "mix_norm"),
    (r"encoder_attn_layer_norm", "cross_norm"),
    (r"final_layer_norm", "feed_norm"),
    (r"fc1", "feed.up"),
    (r"fc2", "feed.down"),
)


def pair(seed: int, *, eos_bias: float, start: int = PAD) -> tuple[MarianMTModel, Net]:
    """Theirs and ours. `eos_bias` moves the score of the end mark: the higher, the shorter the outputs."""
    config = MarianConfig(
        vocab_size=VOCAB, d_model=WIDTH, encoder_layers=DEPTH, decoder_layers=DEPTH, encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS, encoder_ffn_dim=HIDDEN, decoder_ffn_dim=HIDDEN, max_position_embeddings=POSITIONS,
        activation_function="swish", scale_embedding=True, eos_token_id=EOS, pad_token_id=PAD,
        decoder_start_token_id=start, forced_eos_token_id=None, tie_word_embeddings=False,
    )  # fmt: skip
    theirs = MarianMTModel(config).double().eval()
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, weight in theirs.named_parameters():
            if "norm" not in name and "positions" not in name:
                # tokens weigh little beside positions: then outputs end at all kinds of lengths
                weight.normal_(std=0.12 if "shared" in name else 0.5 if "lm_head" in name else 0.3)
        theirs.final_logits_bias[:, EOS] = eos_bias
        for half in (theirs.model.encoder, theirs.model.decoder):  # whose own positions are rounded to float32
            half.embed_tokens.weight.copy_(theirs.model.shared.weight)
            half.embed_positions.weight.copy_(sinusoid(torch.arange(POSITIONS), WIDTH, "halves", torch.float64))
    spec = transformer.spec(
        width=WIDTH, depth=DEPTH, heads=HEADS, hidden=HIDDEN, vocab=VOCAB, dropout=0.0, activation="silu", tied=False
    )
    spec = spec.replace("embed.position.layout", "halves").replace("head.bias", True)
    ours = spec.build().double().eval()
    ours.load_state_dict(_ours(theirs.state_dict()))
    return theirs, ours


def _ours(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    out = {}
    for name, value in weights.items():
        if "embed_tokens" in name or "embed_positions" in name:
            continue
        for theirs, ours in NAMES:
            name = re.sub(theirs, ours, name)
        out[name] = value.flatten() if name == "head.bias" else value
    return out


def their_generate(
    model: MarianMTModel,
    sources: Sequence[Sequence[int]],
    *,
    extra: int,
    start: int,
    n_best: int = 1,
    **settings: object,
) -> list[list[Hypothesis]]:
    """What `model.generate` finds for each source, sources of equal length at once so that none is padded."""
    out: list[list[Hypothesis]] = [[] for _ in sources]
    for n in {len(s) for s in sources}:
        indices = [i for i, s in enumerate(sources) if len(s) == n]
        found = model.generate(
            torch.tensor([sources[i] for i in indices]), max_new_tokens=n + extra, do_sample=False, use_cache=True,
            bad_words_ids=[[t] for t in {PAD, start}], num_return_sequences=n_best, return_dict_in_generate=True,
            output_scores=True, **settings,
        )  # fmt: skip
        scores = getattr(found, "sequences_scores", None)
        for j, i in enumerate(i for i in indices for _ in range(n_best)):
            tokens = tuple(t for t in found.sequences[j, 1:].tolist() if t not in (EOS, PAD))
            out[i].append(Hypothesis(tokens, 0.0, 0.0 if scores is None else float(scores[j])))
    return out
