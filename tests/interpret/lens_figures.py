"""Figures of TransformerLens for a small random GPT-2: `python -m tests.interpret.lens_figures` in an environment that has it.

TransformerLens needs other versions of what we test with, so it has an environment of its own (`pip install torch
transformer-lens`), and its figures are stored in `transformer_lens.json`, which a test compares ours with. The weights are
drawn from numpy's generator, so both sides have the same.
"""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

WIDTH, DEPTH, HEADS, HIDDEN, VOCAB, LENGTH = 16, 3, 4, 32, 13, 12
CLEAN, CORRUPT = [3, 5, 4, 9, 7, 2, 11, 3], [3, 5, 8, 9, 7, 2, 11, 3]
STORED = Path(__file__).with_suffix("").parent / "transformer_lens.json"
SIZE = WIDTH // HEADS


def draw_weights() -> dict[str, NDArray[np.float64]]:
    """Weights by the names of TransformerLens, always the same."""
    draw = np.random.Generator(np.random.PCG64(18))

    def some(*shape: int, scale: float = 0.6, about: float = 0.0) -> NDArray[np.float64]:
        return (draw.random(shape) * 2 - 1) * scale + about

    out = {"embed.W_E": some(VOCAB, WIDTH), "pos_embed.W_pos": some(LENGTH, WIDTH)}
    for i in range(DEPTH):
        block = {
            "ln1.w": some(WIDTH, scale=0.3, about=1.0), "ln1.b": some(WIDTH, scale=0.1),
            "attn.W_Q": some(HEADS, WIDTH, SIZE), "attn.W_K": some(HEADS, WIDTH, SIZE), "attn.W_V": some(HEADS, WIDTH, SIZE),
            "attn.W_O": some(HEADS, SIZE, WIDTH), "attn.b_Q": some(HEADS, SIZE), "attn.b_K": some(HEADS, SIZE),
            "attn.b_V": some(HEADS, SIZE), "attn.b_O": some(WIDTH), "ln2.w": some(WIDTH, scale=0.3, about=1.0),
            "ln2.b": some(WIDTH, scale=0.1), "mlp.W_in": some(WIDTH, HIDDEN), "mlp.b_in": some(HIDDEN),
            "mlp.W_out": some(HIDDEN, WIDTH), "mlp.b_out": some(WIDTH),
        }  # fmt: skip
        out |= {f"blocks.{i}.{name}": value for name, value in block.items()}
    out |= {"ln_final.w": some(WIDTH, scale=0.3, about=1.0), "ln_final.b": some(WIDTH, scale=0.1)}
    return out | {"unembed.W_U": out["embed.W_E"].T, "unembed.b_U": np.zeros(VOCAB)}


def main() -> None:
    import torch
    import transformer_lens as lens

    config = lens.HookedTransformerConfig(
        n_layers=DEPTH, d_model=WIDTH, n_ctx=LENGTH, d_head=SIZE, n_heads=HEADS, d_mlp=HIDDEN, d_vocab=VOCAB,
        act_fn="gelu_new", normalization_type="LN", device="cpu", dtype=torch.float64, seed=1,
    )  # fmt: skip
    model = lens.HookedTransformer(config)
    weights = {name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in draw_weights().items()}
    unset = set(model.state_dict()) - set(weights)
    assert all(name.endswith(("mask", "IGNORE")) for name in unset), unset
    model.load_state_dict(weights, strict=False)
    clean, corrupt = torch.tensor([CLEAN]), torch.tensor([CORRUPT])
    wanted = clean[0, 1:]

    def log_probs(logits: torch.Tensor) -> torch.Tensor:
        return logits[0, :-1].log_softmax(-1).gather(1, wanted[:, None])[:, 0]

    with torch.no_grad():
        logits, cache = model.run_with_cache(clean)
        plain = log_probs(logits)
        ablation = []
        for layer in range(DEPTH):
            for head in range(HEADS):

                def clear(z: torch.Tensor, hook: object, head: int = head) -> torch.Tensor:
                    z[:, :, head] = 0
                    return z

                without = model.run_with_hooks(clean, fwd_hooks=[(f"blocks.{layer}.attn.hook_z", clear)])
                ablation.append(float((plain - log_probs(without)).mean()))
        last = -1
        bad, patching = log_probs(model(corrupt))[last], []
        for layer in range(DEPTH):
            row = []
            for position in range(len(CLEAN)):

                def put(x: torch.Tensor, hook: object, layer: int = layer, position: int = position) -> torch.Tensor:
                    x[:, position] = cache[f"blocks.{layer}.hook_resid_post"][:, position]
                    return x

                mixed = model.run_with_hooks(corrupt, fwd_hooks=[(f"blocks.{layer}.hook_resid_post", put)])
                row.append(float((log_probs(mixed)[last] - bad) / (plain[last] - bad)))
            patching.append(row)
        streams = [cache["blocks.0.hook_resid_pre"], *(cache[f"blocks.{i}.hook_resid_post"] for i in range(DEPTH))]
        read = [log_probs(model.unembed(model.ln_final(stream))).tolist() for stream in streams]
        patterns = [cache[f"blocks.{i}.attn.hook_pattern"][0].tolist() for i in range(DEPTH)]
    figures = {
        "version": metadata.version("transformer-lens"),
        "log_probs": plain.tolist(), "ablation": ablation, "patching": patching, "lens": read, "patterns": patterns,
    }  # fmt: skip
    rounded = json.loads(json.dumps(figures), parse_float=lambda text: round(float(text), 8))
    STORED.write_text(json.dumps(rounded) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
