"""GGUF files: the weights and tokenizer of a model, and headers that lie."""

from __future__ import annotations

import inspect
import json
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import gguf as library
import numpy as np
import pytest
import tokenizers
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tokenizers import decoders, models, pre_tokenizers, trainers

from regard.conversion import gguf
from regard.conversion.gguf_file import GgufFile
from regard.conversion.gguf_tokenizer import _CUTS
from regard.conversion.task_config import make_lm
from regard.errors import CheckpointError, DataError, RegardError
from regard.nn.core.coords import Coords
from regard.nn.positions.position import Rotary
from regard.nn.positions.rope_scaling import LinearScaling
from regard.text import Tokenizer
from tests.conversion.makers import CORPUS
from tests.conversion.test_hf_tokenizer import TEXTS
from tests.text.test_importers import LINES, OTHERS, write_model


def write(path: Path, tensors: dict[str, tuple[NDArray[Any], str]], said: dict[str, Any], arch: str = "llama") -> Path:
    """A file as the package itself writes it; numbers in `tensors` are bytes where their kind is quantised."""
    file = library.GGUFWriter(path, arch)
    for key, value in said.items():
        if value is None:
            continue
        if isinstance(value, list):
            file.add_array(key, value)
        else:
            kinds = {bool: file.add_bool, int: file.add_uint32, float: file.add_float32, str: file.add_string}
            kinds[type(value)](key, value)
    for name, (data, kind) in tensors.items():
        file.add_tensor(name, data, raw_dtype=library.GGMLQuantizationType[kind])
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()
    return path


# ------------------------------------------------------------------------------------------------- models

WIDTH, HEADS, KV, HIDDEN, DEPTH = 32, 4, 2, 48, 2


@pytest.fixture(scope="module")
def bpe() -> tokenizers.Tokenizer:
    """Cuts as SmolLM2's does."""
    core = tokenizers.Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    core.decoder = decoders.ByteLevel()
    special, letters = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], pre_tokenizers.ByteLevel.alphabet()
    core.train_from_iterator(
        CORPUS, trainers.BpeTrainer(vocab_size=400, special_tokens=special, initial_alphabet=letters)
    )
    return core


def tokens_of(core: tokenizers.Tokenizer) -> dict[str, Any]:
    vocab = sorted(core.get_vocab().items(), key=lambda item: item[1])
    merges = json.loads(core.to_str())["model"]["merges"]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": [token for token, _ in vocab],
        "tokenizer.ggml.token_type": [3, 3, 3] + [1] * (len(vocab) - 3),
        "tokenizer.ggml.merges": [" ".join(pair) for pair in merges],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    }


def facts(arch: str = "llama", **changes: Any) -> dict[str, Any]:
    plain = {
        "block_count": DEPTH, "context_length": 64, "embedding_length": WIDTH, "feed_forward_length": HIDDEN,
        "attention.head_count": HEADS, "attention.head_count_kv": KV, "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.freq_base": 500.0,
    }  # fmt: skip
    return {f"{arch}.{key}": value for key, value in (plain | changes).items()}


def theirs(vocab: int, arch: str, tied: bool) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

    shape: dict[str, Any] = dict(
        vocab_size=vocab, hidden_size=WIDTH, intermediate_size=HIDDEN, num_hidden_layers=DEPTH, num_attention_heads=HEADS,
        num_key_value_heads=KV, head_dim=6 if arch == "qwen3" else WIDTH // HEADS, rms_norm_eps=1e-5,
        tie_word_embeddings=tied, max_position_embeddings=64, bos_token_id=1, eos_token_id=2,
        rope_parameters={"rope_type": "default", "rope_theta": 500.0},
    )  # fmt: skip
    made = Qwen3ForCausalLM(Qwen3Config(**shape)) if arch == "qwen3" else LlamaForCausalLM(LlamaConfig(**shape))
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return made.eval()


PARTS = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output", "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}  # fmt: skip


def renamed(net: Any, paired: bool) -> dict[str, tuple[NDArray[Any], str]]:
    """Their weights as llama.cpp stores them: neighbours instead of halves turn in Q and K."""
    out = {}
    for name, weight in net.state_dict().items():
        if name == "lm_head.weight" and net.config.tie_word_embeddings:
            continue
        data = weight.numpy()
        for part, heads in (("q_proj", HEADS), ("k_proj", KV)):
            if part in name and paired:
                data = data.reshape(heads, 2, -1, data.shape[1]).swapaxes(1, 2).reshape(data.shape)
        name = name.replace("model.layers.", "blk.")
        for old, new in PARTS.items():
            name = name.replace(old, new)
        out[name] = data, "F32"
    return out


@pytest.mark.parametrize(("arch", "tied"), [("llama", True), ("llama", False), ("qwen3", True)])
def test_logits_are_theirs(arch: str, tied: bool, bpe: tokenizers.Tokenizer, tmp_path: Path) -> None:
    other = theirs(bpe.get_vocab_size(), arch, tied)
    said = facts(arch, **({"attention.key_length": 6, "attention.value_length": 6} if arch == "qwen3" else {}))
    path = write(tmp_path / "x.gguf", renamed(other, arch == "llama"), said | tokens_of(bpe), arch)
    spec, weights, _ = gguf.read(path)
    net = spec.build()
    net.load_weights(weights)
    ids = torch.randint(bpe.get_vocab_size(), (2, 13))
    with torch.no_grad():
        wanted = other(input_ids=ids).logits
        found = net.eval().logits(net(ids, Coords.span(13)))
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5 * float(wanted.abs().max()))


@pytest.fixture(scope="module")
def whole(bpe: tokenizers.Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small file with nothing wrong."""
    return tiny(tmp_path_factory.mktemp("whole") / "x.gguf", bpe)


def tiny(
    path: Path, bpe: tokenizers.Tokenizer, change: Any = None, drop: str = "", facts_: dict[str, Any] | None = None
) -> Path:
    shapes = {
        "attn_norm": (WIDTH,), "attn_q": (WIDTH, WIDTH), "attn_k": (WIDTH // 2, WIDTH), "attn_v": (WIDTH // 2, WIDTH),
        "attn_output": (WIDTH, WIDTH), "ffn_norm": (WIDTH,), "ffn_gate": (HIDDEN, WIDTH), "ffn_up": (HIDDEN, WIDTH),
        "ffn_down": (WIDTH, HIDDEN),
    }  # fmt: skip
    names = {f"blk.{i}.{name}.weight": shape for i in range(DEPTH) for name, shape in shapes.items()}
    names |= {"token_embd.weight": (bpe.get_vocab_size(), WIDTH), "output_norm.weight": (WIDTH,)} | (change or {})
    tensors = {n: (np.zeros(s, np.float32), "F32") for n, s in names.items() if n != drop}
    return write(path, tensors, facts() | tokens_of(bpe) | (facts_ or {}))


def test_every_weight_that_does_not_fit_is_listed(bpe: tokenizers.Tokenizer, tmp_path: Path) -> None:
    changes = {"blk.1.attn_k.weight": (WIDTH, WIDTH), "blk.0.attn_q.bias": (WIDTH,)}
    path = tiny(tmp_path / "x.gguf", bpe, changes, drop="blk.0.ffn_up.weight")
    with pytest.raises(CheckpointError, match=r"do not fit its model: ") as caught:
        gguf.read(path)
    for fault in (
        "blk.0.ffn_up.weight is missing",
        "blk.0.attn_q.bias is not part of this model",
        "blk.1.attn_k.weight should be (16, 32), got (32, 32)",
    ):
        assert fault in str(caught.value)


def test_thousands_of_control_tokens_are_added_at_once(bpe: tokenizers.Tokenizer, tmp_path: Path) -> None:
    size, more, said = bpe.get_vocab_size(), 20_000, tokens_of(bpe)
    names = [*said["tokenizer.ggml.tokens"], *(f"<c{i}>" for i in range(more))]
    kinds = [*said["tokenizer.ggml.token_type"], *([3, 4] * (more // 2))]
    told = {"tokenizer.ggml.tokens": names, "tokenizer.ggml.token_type": kinds}
    path = tiny(tmp_path / "x.gguf", bpe, {"token_embd.weight": (size + more, WIDTH)}, facts_=told)
    began = time.process_time()
    *_, found = gguf.read(path)
    assert time.process_time() - began < 10
    there = found.core.get_added_tokens_decoder()
    assert [there[size + i].content for i in range(more)] == names[size:]
    assert [there[size + i].special for i in range(4)] == [True, False, True, False]


@pytest.mark.parametrize("key", ["model", "pre", "token_type", "scores", "tokens", "merges", "eos_token_id"])
@pytest.mark.parametrize("value", [["x"], [1], 1, "x", [0.5]], ids=str)
def test_what_is_said_of_tokens_in_another_kind(
    key: str, value: Any, bpe: tokenizers.Tokenizer, tmp_path: Path
) -> None:
    for kind in ("gpt2", "llama"):
        said = {"tokenizer.ggml.model": kind, "tokenizer.ggml.scores": [0.0] * bpe.get_vocab_size()}
        path = tiny(tmp_path / "x.gguf", bpe, facts_=said | {f"tokenizer.ggml.{key}": value})
        try:
            *_, found = gguf.read(path)
        except RegardError as error:
            assert str(path) in str(error)
        else:
            assert found.size == bpe.get_vocab_size(), "of no consequence"


@pytest.mark.parametrize("letters", [1001, 900_000])
def test_a_token_that_is_a_text_is_refused(letters: int, bpe: tokenizers.Tokenizer, tmp_path: Path) -> None:
    names = [*tokens_of(bpe)["tokenizer.ggml.tokens"][:-1], "a" * letters]
    for kind in ("gpt2", "llama"):
        told = {
            "tokenizer.ggml.tokens": names,
            "tokenizer.ggml.model": kind,
            "tokenizer.ggml.scores": [0.0] * len(names),
        }
        with pytest.raises(CheckpointError, match=f"its pieces have up to {letters} characters"):
            gguf.read(tiny(tmp_path / "x.gguf", bpe, facts_=told))


def test_stretched_positions(bpe: tokenizers.Tokenizer, tmp_path: Path) -> None:
    told = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}
    spec, *_ = gguf.read(tiny(tmp_path / "x.gguf", bpe, facts_=told))
    assert spec.decoder.position == Rotary(500.0, rope_scaling=LinearScaling(4.0))  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"llama.block_count": 400}, r"decoder.depth is 400, but there are only 20 weights"),
        ({"llama.embedding_length": 0}, r"llama.embedding_length should be a number above 0, got 0"),
        ({"llama.embedding_length": "wide"}, r"llama.embedding_length should be a number above 0, got 'wide'"),
        ({"llama.context_length": None}, r"llama.context_length should be a number above 0, got None"),
        ({"llama.attention.head_count": 5}, r"cannot make a model of .*x.gguf: .*5"),
        ({"llama.rope.dimension_count": 4}, r"keys are 8 wide, 4 of it rotated, and values 8; only equal widths"),
        ({"llama.rope.scaling.type": "yarn"}, r"its RoPE scaling is 'yarn', and only 'linear' is read"),
        ({"llama.rope.scaling.type": "linear"}, r"llama.rope.scaling.factor should be a number above 0, got None"),
        ({"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 0.5}, r"factor: input should be greater than"),
        ({"llama.expert_count": 8}, r"it is a mixture of experts"),
        ({"llama.feed_forward_length": 2**31}, r"blk.0.ffn_gate.weight should be \(2147483648, 32\), got \(48, 32\)"),
        ({"tokenizer.ggml.tokens": ["a"] * 3}, r"it should have 400 tokens, at most as many as its table has rows, .* got 3"),
        ({"tokenizer.ggml.eos_token_id": 400}, r"tokenizer.ggml.eos_token_id should be 0 to 399, got 400"),
        ({"tokenizer.ggml.merges": ["q"]}, r"has a damaged tokenizer: "),
        ({"tokenizer.ggml.merges": None}, r"a tokenizer of kind 'gpt2' should have merges"),
        ({"tokenizer.ggml.model": "llama"}, r"a tokenizer of kind 'llama' should have a score for each token"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(
    change: dict[str, Any], fault: str, bpe: tokenizers.Tokenizer, tmp_path: Path
) -> None:
    with pytest.raises(CheckpointError, match=fault):
        gguf.read(tiny(tmp_path / "x.gguf", bpe, facts_=change))


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"tokenizer.ggml.model": "bert"}, r"has a tokenizer of kind 'bert'; only gpt2 and llama are supported"),
        (
            {"tokenizer.ggml.pre": "tekken"},
            r"splits words as 'tekken' does; only gpt-2, smollm, llama-bpe, qwen2 are",
        ),
        (
            {"tokenizer.ggml.eos_token_id": None, "tokenizer.ggml.bos_token_id": None},
            r"does not say which token ends a text \(tokenizer.ggml.eos_token_id\)",
        ),
    ],
)
def test_what_we_do_not_know_is_refused(
    change: dict[str, Any], fault: str, bpe: tokenizers.Tokenizer, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=fault):
        gguf.read(tiny(tmp_path / "x.gguf", bpe, facts_=change))


def test_another_architecture_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "x.gguf", {"w": (np.zeros(4, np.float32), "F32")}, {}, "mamba")
    with pytest.raises(DataError, match="holds a model of kind 'mamba'; only llama and qwen3 are supported"):
        gguf.read(path)


# ------------------------------------------------------------------------------------------------- tokenizers


def test_byte_level_ids(whole: Path, bpe: tokenizers.Tokenizer) -> None:
    ours = gguf.read(whole)[2]
    bpe.encode_special_tokens = True
    assert (ours.pad, ours.bos, ours.eos, ours.unk, ours.size) == (2, 1, 2, 0, bpe.get_vocab_size())
    assert ours.frame([7])[0] == [7]

    @given(st.text())
    def any_text(text: str) -> None:
        assert ours.encode(text) == bpe.encode(text, add_special_tokens=False).ids

    any_text()
    for text in [*TEXTS, "12 345 x6"]:
        assert ours.encode(text) == bpe.encode(text, add_special_tokens=False).ids
        assert ours.decode(ours.encode(text)) == text


def test_the_beginning_is_added_where_the_file_says_so(bpe: tokenizers.Tokenizer, tmp_path: Path) -> None:
    spec, weights, ours = gguf.read(tiny(tmp_path / "x.gguf", bpe, facts_={"tokenizer.ggml.add_bos_token": True}))
    assert ours.frame([7])[0] == [1, 7]
    _, task, _ = make_lm(spec, ours)
    net = spec.build()
    net.load_weights(weights)
    _, source, _ = task.forward_pass(net.eval(), "Two", " men").attention(net.eval())
    assert source[0] == "<|im_start|>"  # and so the model reads it first


def test_words_are_cut_as_others_cut_them() -> None:
    from transformers.convert_slow_tokenizer import TikTokenConverter
    from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

    assert _CUTS["qwen2"] == [PRETOKENIZE_REGEX]
    assert _CUTS["llama-bpe"] == [inspect.signature(TikTokenConverter).parameters["pattern"].default]
    ours = pre_tokenizers.Sequence([pre_tokenizers.Split(tokenizers.Regex(_CUTS["gpt-2"][0]), "isolated"),
                                    pre_tokenizers.ByteLevel(False, use_regex=False)])  # fmt: skip
    for text in TEXTS:
        assert ours.pre_tokenize_str(text) == pre_tokenizers.ByteLevel(False).pre_tokenize_str(text)


def test_sentencepiece_ids(bpe: tokenizers.Tokenizer, tmp_path: Path) -> None:
    options = {"byte_fallback": True, "normalization_rule_name": "identity", "remove_extra_whitespaces": False}
    _, model = write_model(tmp_path, model_type="bpe", vocab_size=600, **options)
    size = model.get_piece_size()
    kinds = [
        2 if model.is_unknown(i) else 3 if model.is_control(i) else 6 if model.is_byte(i) else 1 for i in range(size)
    ]
    said = {
        "tokenizer.ggml.model": "llama", "tokenizer.ggml.pre": "default", "tokenizer.ggml.merges": None,
        "tokenizer.ggml.tokens": [model.id_to_piece(i) for i in range(size)],
        "tokenizer.ggml.scores": [float(model.get_score(i)) for i in range(size)],
        "tokenizer.ggml.token_type": kinds,
    }  # fmt: skip
    path = tiny(tmp_path / "x.gguf", bpe, {"token_embd.weight": (size, WIDTH)}, facts_=said)
    ours: Tokenizer = gguf.read(path)[2]
    for text in [*LINES, *OTHERS]:
        assert ours.encode(text) == model.encode(text)
        assert ours.decode(ours.encode(text)) == model.decode(model.encode(text))
    assert ours.frame([7])[0] == [1, 7]


def test_a_cut_or_damaged_file_is_refused_or_harmless(whole: Path, tmp_path: Path) -> None:
    data, path = whole.read_bytes(), tmp_path / "x.gguf"
    start = min(stored.start for stored in GgufFile(whole).tensors.values())

    @given(st.integers(0, len(data) - 1))
    def cut(at: int) -> None:
        path.write_bytes(data[:at])
        with pytest.raises(CheckpointError):
            gguf.read(path)

    @given(st.integers(0, start), st.binary(min_size=1, max_size=8))
    def changed(at: int, some: bytes) -> None:
        path.write_bytes(data[:at] + some + data[at + len(some) :])
        with suppress(RegardError):
            gguf.read(path)

    cut()
    changed()
