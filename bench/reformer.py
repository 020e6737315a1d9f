"""The Reformer's copy task, scaled: 0w0w, where the second w is to be foretold (Kitaev et al. 2020, §5; papers.md, target 11).

Every symbol of the second half stood in the first, `length / 2` places before; attention that hashes must put both places
near one another to find it. All who share a chunk may look, bucket or not (`loose`): with 1024 buckets for 64 tokens hardly
anybody would meet anybody at first, and there would be little to learn from.

`python -m bench.reformer` trains until nothing is wrong any more, or for so many minutes, and then counts what is right with
1, 2, 4 and 8 rounds; the same command again goes on.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import torch
from torch import Tensor

from bench.entry import Mode, parse
from bench.results import write
from regard.files.tensors import pack, unpack
from regard.model.model_spec import ModelSpec
from regard.model.net import Net
from regard.nn.blocks.block import Block
from regard.nn.blocks.body import Stack
from regard.nn.blocks.embedding import Tokens
from regard.nn.blocks.head import Vocab
from regard.nn.blocks.reversible import Reversible
from regard.nn.core.coords import Coords
from regard.nn.layers.feedforward import FeedForward
from regard.nn.layers.norm import LayerNorm
from regard.nn.mixers import Lsh
from regard.nn.mixers.lsh import LshMixer
from regard.nn.positions.position import Learned

SYMBOLS, LENGTH, ROUNDS = 13, 64, 2
IGNORE = -100
TESTS = 2048


def spec(rounds: int = ROUNDS) -> ModelSpec:
    """The scaled model: three reversible layers of width 256."""
    mix = Lsh(4, chunk=16, buckets=(32, 32), rounds=rounds, loose=True)
    stack = Stack(Block(mix=mix, feed=FeedForward(512)), depth=3, causal=True, wiring=Reversible(LayerNorm()))
    embed = Tokens(SYMBOLS, position=Learned())
    return ModelSpec(256, LENGTH, embed, decoder=stack, head=Vocab(tied=False), init="xavier")


def examples(count: int, chance: torch.Generator) -> tuple[Tensor, Tensor]:
    """0w0w as read, and as wanted: each next symbol, of which those of the second w count."""
    w = torch.randint(1, SYMBOLS, (count, LENGTH // 2 - 1), generator=chance)
    half = torch.cat([torch.zeros(count, 1, dtype=torch.long), w], 1)
    ids = torch.cat([half, half], 1)
    wanted = torch.full_like(ids, IGNORE)
    wanted[:, LENGTH // 2 : -1] = ids[:, LENGTH // 2 + 1 :]
    return ids, wanted


@torch.no_grad()
def right(net: Net, rounds: int, count: int = TESTS) -> float:
    """Per cent of the second w's symbols foretold."""
    count = min(count, 4) if Mode.smoke else count
    for part in net.modules():
        if isinstance(part, LshMixer):
            part.draw(rounds)
    ids, wanted = examples(count, torch.Generator().manual_seed(0))
    net.eval()
    hits = 0
    for i in range(0, count, 128):
        told = net.logits(net(ids[i : i + 128], Coords.span(LENGTH))).argmax(-1)
        hits += int((told == wanted[i : i + 128]).sum())
    return 100.0 * hits / (count * (LENGTH // 2 - 1))


def train(minutes: float, *, batch: int, rate: float, warmup: int, seed: int, folder: Path) -> tuple[Net, int, float]:
    """Until nothing is wrong or the time is over; gives the net, its steps and the minutes they took."""
    torch.manual_seed(seed)
    net = spec().build(seed)
    optimizer = torch.optim.AdamW(net.parameters(), lr=rate, betas=(0.9, 0.98), weight_decay=0.0)
    step, spent, saved = 0, 0.0, folder / "state.safetensors"
    if saved.exists():
        kept = unpack(saved.read_bytes(), saved)
        step, spent = int(kept.pop("step")), float(kept.pop("spent"))
        net.load_weights({name: t for name, t in kept.items() if "/" not in name})
        moments = {i: {k: kept[f"{name}/{k}"] for k in ("step", "exp_avg", "exp_avg_sq")}
                 for i, (name, _) in enumerate(net.named_parameters())}  # fmt: skip
        optimizer.load_state_dict({"state": moments, "param_groups": optimizer.state_dict()["param_groups"]})
    while spent < minutes:
        began = time.perf_counter()
        loss = torch.zeros(())
        for _ in range(1 if Mode.smoke else 50):
            step += 1
            net.train()
            net.before_step(step)
            ids, wanted = examples(batch, torch.Generator().manual_seed(seed * 1_000_003 + step))
            for group in optimizer.param_groups:
                group["lr"] = rate * min(1.0, step / warmup)
            loss, _ = net.loss(net(ids, Coords.span(LENGTH)), wanted)
            (loss / (wanted != IGNORE).sum()).backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        now = right(net, ROUNDS, 256)
        spent += (time.perf_counter() - began) / 60
        state = {f"{n}/{k}": v for n, p in net.named_parameters() for k, v in optimizer.state[p].items()}
        folder.mkdir(parents=True, exist_ok=True)
        aside = saved.with_suffix(".partial")
        aside.write_bytes(pack({**net.state_dict(), **state, "step": torch.tensor(step), "spent": torch.tensor(spent)}))
        aside.replace(saved)
        each = float(loss.detach()) / (batch * (LENGTH // 2 - 1))
        print(f"step {step}  loss {each:.3f}  right {now:.1f} %  {spent:.1f} min", file=sys.stderr, flush=True)
        if now == 100.0:
            break
    return net, step, spent


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--minutes", type=float, default=30.0)
    arguments.add_argument("--batch", type=int, default=32)
    arguments.add_argument("--rate", type=float, default=1e-3)
    arguments.add_argument("--warmup", type=int, default=50)
    arguments.add_argument("--seed", type=int, default=1)
    said = parse(arguments, out="runs/reformer")
    if said.smoke:
        said.minutes, said.batch = 0.0001, 2
    net, steps, minutes = train(
        said.minutes, batch=said.batch, rate=said.rate, warmup=said.warmup, seed=said.seed, folder=said.out
    )
    figures: dict[str, float] = {f"right, {rounds} rounds": round(right(net, rounds), 3) for rounds in (1, 2, 4, 8)}
    figures |= {"steps": steps, "minutes": round(minutes, 1), "parameters": sum(p.numel() for p in net.parameters())}
    print(figures)
    print(write("reformer", title="Reformer, copy of 31 symbols", figures=figures), file=sys.stderr)


if __name__ == "__main__":
    main()
