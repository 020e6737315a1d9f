"""Language models beside the peers. `python -m bench.lm train` and `python -m bench.lm write`.

train   nanoGPT's configuration for a CPU: 4 layers of 4 heads, width 128, twelve windows of 64 characters a step
write   a GPT-2 of 124 million weights goes on from a prompt, one text at a time
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import chain, count
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.entry import Mode, choose, parse
from bench.race import best_and_median, divide, race, serve
from bench.results import write as save
from regard.report.table import Table

VOCAB, LAYERS, HEADS, WIDTH, CONTEXT, ROWS = 65, 4, 4, 128, 64, 12
GPT2_VOCAB, PROMPT, WRITTEN = 50257, 16, 24
Turn = Callable[[], int]
"""Does one step or writes one text; how many tokens that was."""


def windows() -> Callable[[], tuple[Tensor, Tensor]]:
    """Random windows on made text, drawn and stacked as nanoGPT does."""
    text = np.random.Generator(np.random.PCG64(1)).integers(0, VOCAB, 200_000).astype(np.uint16)

    def draw() -> tuple[Tensor, Tensor]:
        starts = torch.randint(len(text) - CONTEXT, (ROWS,)).tolist()
        given, wanted = (
            torch.stack([torch.from_numpy(text[i + k : i + k + CONTEXT].astype(np.int64)) for i in starts])
            for k in (0, 1)
        )
        return given, wanted

    return draw


# ---------------------------------------------------------------------------------------------------------- training


def train_regard() -> Turn:
    """Ours: the step of `regard train gpt`, on a text of as many different characters."""
    from regard.families import gpt
    from regard.machine import keep_large_blocks
    from regard.recipes.merge import read_recipe
    from regard.tasks.lm import Lm, LmData, Texts
    from regard.training.recipe import Recipe
    from regard.training.run.checkpoint import Checkpoints
    from regard.training.run.log import Log
    from regard.training.trainer import TrainData, Trainer

    keep_large_blocks()
    recipe = Recipe.parse(read_recipe("gpt"))
    settings = LmData.parse(recipe.data)
    draw = np.random.Generator(np.random.PCG64(1))
    text = "".join(map(chr, draw.integers(0x4E00, 0x4E00 + VOCAB, 200_000).tolist()))
    raw = Texts((text,), CONTEXT // 4)
    task = Lm(settings, Lm.prepare(settings, _Raw(raw)).tokenizer)
    shape = {k: v for k, v in recipe.model.items() if k != "family"}
    net = gpt.spec(**shape, **task.model_arguments()).build(seed=1)
    examples = task.encode(raw)
    aside = Path(tempfile.mkdtemp())
    trainer = Trainer(
        net, task, TrainData(examples, examples, []), recipe.train,
        checkpoints=Checkpoints(aside / "checkpoints"), log=Log(aside / "log.jsonl"),
    )  # fmt: skip
    updates = chain.from_iterable(map(trainer.updates, count()))
    return lambda: trainer._update(next(updates)).tokens


class _Raw:
    """What a task learns its vocabulary from."""

    def __init__(self, train: Any) -> None:
        self.train = train


class Heads(nn.Module):
    """nanoGPT's self-attention: one product for queries, keys and values, fused causal attention."""

    def __init__(self) -> None:
        super().__init__()
        self.read, self.out = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        b, n, d = x.shape
        q, k, v = (t.view(b, n, HEADS, d // HEADS).transpose(1, 2) for t in self.read(x).split(d, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).contiguous().view(b, n, d))  # type: ignore[no-any-return]


class NanoGPT(nn.Module):
    """nanoGPT's model with the settings of its CPU run: no dropout, no biases, one table for reading and writing."""

    def __init__(self) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(VOCAB, WIDTH), nn.Embedding(CONTEXT, WIDTH)

        def norm() -> nn.Module:
            return nn.LayerNorm(WIDTH, bias=False)

        def feed() -> nn.Module:
            return nn.Sequential(
                nn.Linear(WIDTH, 4 * WIDTH, bias=False), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH, bias=False)
            )

        self.blocks = nn.ModuleList(nn.ModuleList([norm(), Heads(), norm(), feed()]) for _ in range(LAYERS))
        self.norm, self.head = norm(), nn.Linear(WIDTH, VOCAB, bias=False)
        self.token.weight = self.head.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.token(ids) + self.place(torch.arange(ids.shape[1]))
        for block in self.blocks:
            before_mix, mix, before_feed, feed = block  # type: ignore[misc]
            x = x + mix(before_mix(x))
            x = x + feed(before_feed(x))
        return self.head(self.norm(x))  # type: ignore[no-any-return]


def train_with(net: nn.Module, logits: Callable[[Tensor], Tensor]) -> Turn:
    """nanoGPT's loop: AdamW without decay on vectors, clipping, the loss read at every step."""
    draw = windows()
    matrices, vectors = ([p for p in net.parameters() if (p.dim() > 1) == large] for large in (True, False))
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.99))
    net.train()

    def step() -> int:
        given, wanted = draw()
        loss = F.cross_entropy(logits(given).flatten(0, 1), wanted.flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
        return wanted.numel()

    return step


def train_nano() -> Turn:
    net = NanoGPT()
    return train_with(net, net)


def train_hf() -> Turn:
    net = gpt2(vocab_size=VOCAB, n_positions=CONTEXT, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS, **NO_DROPOUT)
    return train_with(net, lambda ids: net(ids, use_cache=False).logits)


# ---------------------------------------------------------------------------------------------------------- writing

NO_DROPOUT = dict(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
NAMES = {"width": "n_embd", "depth": "n_layer", "heads": "n_head"}
"""What GPT2Config calls our sizes."""


def gpt2(**settings: Any) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    settings = {NAMES[key]: value for key, value in size().items()} | settings
    return GPT2LMHeadModel(GPT2Config(**settings))


def prompt() -> list[int]:
    return np.random.Generator(np.random.PCG64(2)).integers(5, GPT2_VOCAB - 1, PROMPT).tolist()  # type: ignore[no-any-return]


def size() -> dict[str, int]:
    """What makes a GPT-2 smaller than it comes."""
    return {"width": 64, "depth": 2, "heads": 2} if Mode.smoke else {}


def write_regard() -> Turn:
    from regard.decode import Request, Search, SpecialTokens, generate
    from regard.families import gpt

    net, search = (
        gpt.spec(dropout=0.0, **size()).build(seed=1).eval(),
        Search(beam=1, max_extra=WRITTEN, repetition_guard=False),
    )

    def turn() -> int:
        return len(generate([net], Request([prompt()], search, SpecialTokens(bos=0, eos=-1, pad=0)))[0][0].tokens)

    return turn


def write_native(precision: Literal["float32", "int8"]) -> Turn:
    from regard.decode import Request, Search, SpecialTokens
    from regard.engine.choose_engine import open_native
    from regard.families import gpt

    engine = open_native(gpt.spec(dropout=0.0, **size()).build(seed=1).eval(), precision, torch.get_num_threads())
    search = Search(beam=1, max_extra=WRITTEN, repetition_guard=False)
    return lambda: len(engine.decode(Request([prompt()], search, SpecialTokens(bos=0, eos=-1, pad=0)))[0][0].tokens)


def write_hf() -> Turn:
    net = gpt2().eval()

    def turn() -> int:
        ids = torch.tensor([prompt()])
        net.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, min_new_tokens=WRITTEN, max_new_tokens=WRITTEN,
            pad_token_id=0,
        )  # fmt: skip
        return WRITTEN

    return turn


def write_ctranslate(kind: str) -> Turn:
    import ctranslate2
    from ctranslate2.converters.transformers import GPT2Loader

    loader = GPT2Loader()
    spec = loader.get_model_spec(gpt2().eval())
    words = [f"w{i}" for i in range(GPT2_VOCAB - 1)] + ["<|endoftext|>"]
    loader.set_vocabulary(spec, words)
    spec.config.bos_token = spec.config.eos_token = spec.config.unk_token = "<|endoftext|>"
    spec.validate()
    spec.optimize(quantization=kind)
    with tempfile.TemporaryDirectory() as folder:
        spec.save(folder)
        model = ctranslate2.Generator(folder, intra_threads=torch.get_num_threads(), compute_type=kind)

    def turn() -> int:
        found = model.generate_batch(
            [[words[i] for i in prompt()]], max_length=WRITTEN, min_length=WRITTEN, sampling_topk=1,
            include_prompt_in_result=False,
        )  # fmt: skip
        return len(found[0].sequences_ids[0])

    return turn


CONTENDERS: dict[str, dict[str, Callable[[], Turn]]] = {
    "train": {"regard": train_regard, "nanoGPT": train_nano, "transformers": train_hf},
    "write": {
        "regard": write_regard,
        "regard native float32": lambda: write_native("float32"),
        "regard native int8": lambda: write_native("int8"),
        "transformers": write_hf,
        "ctranslate2 float32": lambda: write_ctranslate("float32"),
        "ctranslate2 int8": lambda: write_ctranslate("int8"),
    },
}
TIMES = {"train": 30, "write": 1}
TITLES = {"train": "Training nanoGPT's CPU configuration", "write": "A 124 M decoder, one text at a time"}


def work(part: str, name: str) -> None:
    turn, times = CONTENDERS[part][name](), 1 if Mode.smoke else TIMES[part]
    for _ in range(max(times // 10, 1)):
        turn()

    def timed(case: str) -> dict[str, float]:
        began = time.perf_counter()
        tokens = sum(turn() for _ in range(times))
        return {"tokens_per_s": tokens / (time.perf_counter() - began)}

    serve(timed)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("part", choices=CONTENDERS)
    arguments.add_argument("--rounds", type=int, default=5)
    said = parse(arguments, contenders=chain(*CONTENDERS.values()))
    if said.worker:
        work(said.part, said.worker)
        return
    words, rounds = (["--smoke"], 1) if said.smoke else ([], said.rounds)
    names = choose(said, CONTENDERS[said.part])
    found = race({n: ["bench.lm", said.part, "--worker", n, *words] for n in names}, rounds)
    speeds = {name: best_and_median(rows, "tokens_per_s") for name, rows in found.items()}
    rows = []
    for name, (best, median) in speeds.items():
        kinds = ("regard native int8" if name.endswith("int8") else "regard native float32", "regard")
        ours = next((speeds[kind][0] for kind in kinds if kind in speeds), None)
        peak = max(r["peak_mb"] for r in found[name])
        rows.append((name, round(best), round(median), divide(ours, best), round(peak)))
    head = ("contender", "best tokens/s", "median", "regard is faster by", "peak MB")
    print(Table(head, tuple(rows)).markdown())
    if not said.only:
        path = save(
            f"bench-lm-{said.part}", title=TITLES[said.part],
            figures={row[0]: dict(zip(head[1:], row[1:], strict=True)) for row in rows}, threads=torch.get_num_threads(),
        )  # fmt: skip
        print(path, file=sys.stderr)


if __name__ == "__main__":
    main()
