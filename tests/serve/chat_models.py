"""Tiny chat models of `transformers`, converted: what they are, and what `transformers` makes of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tokenizers
import torch
import transformers
from tokenizers import AddedToken, decoders, models, pre_tokenizers, trainers

from regard.conversion.convert import convert
from tests.conversion.makers import CORPUS

CHATML = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nBe brief.<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""As SmolLM2 and Qwen have it."""
INSTRUCTIONS = (
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}"
    "{{ '[INST] ' + message['content'] | trim + ' [/INST]' }}{% elif message['role'] == 'assistant' %}"
    "{{ ' ' + message['content'] + eos_token }}{% else %}{{ raise_exception('only user and assistant speak here') }}"
    "{% endif %}{% endfor %}"
)
"""As Llama 2 and Mistral have it."""


@dataclasses.dataclass(frozen=True)
class ChatModel:
    """A converted model beside the one that it was made from."""

    path: Path
    theirs: Any
    tokenizer: Any

    @property
    def ends(self) -> set[int]:
        """The tokens that end an answer."""
        said = self.theirs.generation_config.eos_token_id
        return {said} if isinstance(said, int) else {*said}

    @property
    def unwritten(self) -> list[int]:
        """Tokens that a trained model has no reason to write, and that ours never do."""
        known = self.tokenizer
        named = {known.bos_token_id, known.unk_token_id, known.pad_token_id} - {None, *self.ends}
        return sorted(named)

    def encode(self, messages: Sequence[dict[str, str]]) -> list[int]:
        found = self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
        return list(found)

    def answer(self, messages: Sequence[dict[str, str]], most: int) -> tuple[str, int]:
        """The greedy answer of `transformers`, and its number of tokens without the one that ends it."""
        ids = self.encode(messages)
        with torch.no_grad():
            out = self.theirs.generate(
                torch.tensor([ids]), max_new_tokens=most, do_sample=False, suppress_tokens=self.unwritten
            )
        written, ends = out[0, len(ids) :].tolist(), self.ends
        count = next((i for i, token in enumerate(written) if token in ends), len(written))
        return self.tokenizer.decode(written[:count], skip_special_tokens=True), count


def make_chatml(folder: Path, seed: int = 1) -> ChatModel:
    """Byte-level BPE, two tokens that end an answer, and the template in a file of its own."""
    core = tokenizers.Tokenizer(models.BPE())
    core.pre_tokenizer, core.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    letters = pre_tokenizers.ByteLevel.alphabet()
    core.train_from_iterator(
        CORPUS, trainers.BpeTrainer(vocab_size=320, special_tokens=special, initial_alphabet=letters)
    )
    made = transformers.PreTrainedTokenizerFast(
        tokenizer_object=core, bos_token="<|im_start|>", eos_token="<|im_end|>", unk_token="<|endoftext|>",
        pad_token="<|im_end|>", chat_template=CHATML,
    )  # fmt: skip
    return _make(folder, made, seed, [2, 0])


def make_instructions(folder: Path, seed: int = 1) -> ChatModel:
    """SentencePiece's way with spaces: a space before the first word, and none after a special token."""
    core = tokenizers.Tokenizer(models.BPE(unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    core.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse()])
    special = ["<unk>", "<s>", "</s>"]
    core.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=300, special_tokens=special))
    core.add_special_tokens([AddedToken("[INST]", special=True), AddedToken("[/INST]", special=True)])
    made = transformers.PreTrainedTokenizerFast(
        tokenizer_object=core, bos_token="<s>", eos_token="</s>", unk_token="<unk>", chat_template=INSTRUCTIONS
    )
    return _make(folder, made, seed, 2)


def _make(folder: Path, tokenizer: Any, seed: int, ends: int | list[int]) -> ChatModel:
    torch.manual_seed(seed)
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=256, initializer_range=0.6, bos_token_id=tokenizer.bos_token_id,
        eos_token_id=ends, pad_token_id=tokenizer.pad_token_id, tie_word_embeddings=False,
    )  # fmt: skip
    theirs = transformers.LlamaForCausalLM(config).eval()
    theirs.generation_config.eos_token_id = ends
    (folder / "hf").mkdir(parents=True)
    theirs.save_pretrained(folder / "hf")
    tokenizer.save_pretrained(folder / "hf")
    convert(folder / "hf", folder / "ours")
    return ChatModel(folder / "ours", theirs, tokenizer)
