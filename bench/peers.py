"""The contenders: each builds a model of the same shape and gives a function that trains on the rows of one batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from bench.corpus import VOCAB
from bench.entry import Mode
from regard.data.batch import IGNORE, Batch
from regard.machine import keep_large_blocks, limit_kernel_caches, machine

SHAPES = {
    "tiny": dict(width=128, depth=4, heads=4, hidden=256),
    "base": dict(width=512, depth=6, heads=8, hidden=2048),
}
SMOKE_SHAPE = dict(width=16, depth=1, heads=2, hidden=32)
DROPOUT, SMOOTHING = 0.1, 0.1
Rows = NDArray[np.int64]
Make = Callable[[Rows], Batch]
Train = Callable[[Rows], None]


def shape_of(name: str) -> dict[str, int]:
    """The sizes of a shape; in a smoke run those of none."""
    return SMOKE_SHAPE if Mode.smoke else SHAPES[name]


def regard(shape: dict[str, int], make: Make, threads: bool = True) -> Train:
    """Ours, as it comes: rows divided among threads, fused loss, cheap dropout, fused Adam, clipping."""
    from regard.families import transformer
    from regard.nn.core.coords import Coords
    from regard.nn.core.rng import new_seed
    from regard.training.step.data_parallel import ThreadGroup, split_rows

    keep_large_blocks()
    limit_kernel_caches(torch.get_num_threads())
    net = transformer.spec(**shape, vocab=VOCAB, dropout=DROPOUT).build(seed=1)  # type: ignore[arg-type]
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)
    bf16 = machine().bf16
    group = ThreadGroup.choose(torch.get_num_threads() if threads else 1, 4096, "cpu")

    def train(rows: Rows) -> None:
        batches = [make(part) for part in split_rows(rows, group.count)]
        tokens = sum(batch.tokens for batch in batches)

        def work(batch: Batch) -> tuple[Tensor, float]:
            assert batch.source is not None
            with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
                source = (batch.source.ids, Coords.lengths(batch.source.lengths))
                stream = net(batch.given.ids, Coords.lengths(batch.given.lengths), source)
                loss, plain = net.loss(stream, batch.wanted, SMOOTHING)
            return loss / tokens, float(plain)

        group.run(net, work, [(batch, new_seed()) for batch in batches])
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return train


def marian_net(shape: dict[str, int]) -> Any:
    """A random MarianMTModel of transformers."""
    from transformers import MarianConfig, MarianMTModel

    sides = {f"{side}_{name}": shape[key] for side in ("encoder", "decoder") for name, key in (
        ("layers", "depth"), ("attention_heads", "heads"), ("ffn_dim", "hidden"))}  # fmt: skip
    config = MarianConfig(
        vocab_size=VOCAB, d_model=shape["width"], **sides, dropout=DROPOUT, activation_function="relu", pad_token_id=0,
        eos_token_id=2, decoder_start_token_id=1, bos_token_id=1, scale_embedding=True, max_position_embeddings=128,
    )  # fmt: skip
    return MarianMTModel(config)


def marian(shape: dict[str, int], make: Make, *, tuned: bool = False, bf16: bool = False) -> Train:
    """transformers' MarianMTModel, eager; `tuned` gives it our allocator settings."""
    if tuned:
        keep_large_blocks()
    net = marian_net(shape)

    def logits(batch: Batch) -> Tensor:
        assert batch.source is not None
        return net(  # type: ignore[no-any-return]
            input_ids=batch.source.ids, attention_mask=(batch.source.ids != 0).long(), decoder_input_ids=batch.given.ids,
            use_cache=False,
        ).logits  # fmt: skip

    return _loop(net, make, logits, bf16)


def torch_nn(shape: dict[str, int], make: Make, *, bf16: bool = False) -> Train:
    """torch.nn.Transformer with embeddings around it, and our allocator settings."""
    keep_large_blocks()
    width = shape["width"]

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = torch.nn.Embedding(VOCAB, width, padding_idx=0)
            self.position = torch.nn.Embedding(128, width)
            self.body = torch.nn.Transformer(
                width, shape["heads"], shape["depth"], shape["depth"], shape["hidden"], DROPOUT, batch_first=True
            )

        def forward(self, source: Tensor, given: Tensor) -> Tensor:
            def read(ids: Tensor) -> Tensor:
                return self.embed(ids) * width**0.5 + self.position.weight[: ids.shape[1]]

            n = given.shape[1]
            causal = torch.triu(torch.full((n, n), True), 1)
            pads = source == 0
            out = self.body(
                read(source), read(given), tgt_mask=causal, src_key_padding_mask=pads, memory_key_padding_mask=pads,
                tgt_is_causal=True,
            )  # fmt: skip
            return F.linear(out, self.embed.weight)

    net = Model()
    return _loop(net, make, lambda batch: net(batch.source.ids, batch.given.ids), bf16)  # type: ignore[union-attr]


def x_transformers(shape: dict[str, int], make: Make) -> Train:
    """lucidrains' x-transformers, encoder and decoder with cross-attention, and our allocator settings."""
    from x_transformers import Decoder, Encoder, TransformerWrapper

    keep_large_blocks()
    width, heads = shape["width"], shape["heads"]
    layers: dict[str, Any] = dict(
        dim=width, depth=shape["depth"], heads=heads, attn_dim_head=width // heads, ff_mult=shape["hidden"] // width,
        attn_flash=True, layer_dropout=0.0, ff_dropout=DROPOUT,
    )  # fmt: skip
    encoder = TransformerWrapper(num_tokens=VOCAB, max_seq_len=128, attn_layers=Encoder(**layers))
    decoder = TransformerWrapper(num_tokens=VOCAB, max_seq_len=128, attn_layers=Decoder(cross_attend=True, **layers))
    net = torch.nn.ModuleList([encoder, decoder])

    def logits(batch: Batch) -> Tensor:
        assert batch.source is not None
        mask = batch.source.ids != 0
        memory = encoder(batch.source.ids, mask=mask, return_embeddings=True)
        return decoder(batch.given.ids, context=memory, context_mask=mask)  # type: ignore[no-any-return]

    return _loop(net, make, logits, False)


def _loop(net: torch.nn.Module, make: Make, logits: Callable[[Batch], Tensor], bf16: bool) -> Train:
    """The training step people write around a model that gives logits."""
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    net.train()

    def train(rows: Rows) -> None:
        batch = make(rows)
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            out = logits(batch)
        loss = F.cross_entropy(
            out.float().flatten(0, 1), batch.wanted.flatten(), ignore_index=IGNORE, label_smoothing=SMOOTHING
        )
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return train


CONTENDERS: dict[str, tuple[Callable[[dict[str, int], Make], Train], str]] = {
    # name: how to build it, and which batches it gets
    "regard": (regard, "bucketed"),
    "regard, threads in each operator": (lambda *a: regard(*a, threads=False), "bucketed"),
    "marian": (marian, "shuffled"),
    "marian, our batches and allocator": (lambda *a: marian(*a, tuned=True), "bucketed"),
    "marian bf16, our batches and allocator": (lambda *a: marian(*a, tuned=True, bf16=True), "bucketed"),
    "torch.nn.Transformer, our batches and allocator": (torch_nn, "bucketed"),
    "x-transformers, our batches and allocator": (x_transformers, "bucketed"),
}
