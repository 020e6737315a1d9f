"""Tokenizers as Hugging Face folders hold them, made here: one of every kind that a family uses."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from tests.text.test_importers import LINES, OTHERS

CORPUS = [*LINES * 3, *OTHERS, "don't you'll I've 1234 567", "unaffable  \n\n tabs\t and   spaces"]


def wordpiece(folder: Path, lower: bool = True) -> Path:
    core = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    core.normalizer = normalizers.BertNormalizer(lowercase=lower)
    core.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    core.train_from_iterator(CORPUS, trainers.WordPieceTrainer(vocab_size=260, special_tokens=special))
    rows = sorted(core.get_vocab().items(), key=lambda item: item[1])
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token, _ in rows), encoding="utf-8")
    return said(folder, "BertTokenizer", "bert", do_lower_case=lower)


def byte_bpe(folder: Path, kind: str = "gpt2") -> Path:
    special = ["<|endoftext|>"] if kind == "gpt2" else ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    core = tokenizers.Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    letters = pre_tokenizers.ByteLevel.alphabet()
    core.train_from_iterator(
        CORPUS, trainers.BpeTrainer(vocab_size=400, special_tokens=special, initial_alphabet=letters)
    )
    core.model.save(str(folder))
    return said(folder, {"gpt2": "GPT2Tokenizer"}.get(kind, "RobertaTokenizer"), kind)


def letters(folder: Path) -> Path:
    """GPT-1's BPE over letters."""
    core = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    core.normalizer, core.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    core.train_from_iterator(
        CORPUS, trainers.BpeTrainer(vocab_size=300, special_tokens=["<unk>"], end_of_word_suffix="</w>")
    )
    core.model.save(str(folder))
    return said(folder, "OpenAIGPTTokenizer", "openai-gpt")


def unigram(folder: Path) -> Path:
    """T5's, as the library's own file."""
    core = tokenizers.Tokenizer(models.Unigram())
    core.normalizer = normalizers.Sequence([normalizers.NFKC()])
    core.pre_tokenizer = pre_tokenizers.Metaspace()
    core.decoder = decoders.Metaspace()
    special = ["<pad>", "</s>", "<unk>", "<extra_id_1>", "<extra_id_0>"]
    trainer = trainers.UnigramTrainer(vocab_size=400, special_tokens=special, unk_token="<unk>", show_progress=False)
    core.train_from_iterator(CORPUS, trainer)
    core.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)]
    )
    core.save(str(folder / "tokenizer.json"))
    return said(folder, "PreTrainedTokenizerFast", "t5", pad_token="<pad>", eos_token="</s>", unk_token="<unk>",
                additional_special_tokens=["<extra_id_1>", "<extra_id_0>"])  # fmt: skip


def llama(folder: Path) -> Path:
    """Byte-level BPE as today's decoders have it."""
    core = tokenizers.Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    core.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    letters = pre_tokenizers.ByteLevel.alphabet()
    core.train_from_iterator(
        CORPUS, trainers.BpeTrainer(vocab_size=400, special_tokens=special, initial_alphabet=letters)
    )
    core.post_processor = processors.Sequence(
        [
            processors.ByteLevel(),
            processors.TemplateProcessing(
                "<|im_start|> $A", "<|im_start|> $A <|im_start|>:1 $B:1", [("<|im_start|>", 1)]
            ),
        ]
    )
    core.save(str(folder / "tokenizer.json"))
    return said(folder, "PreTrainedTokenizerFast", "llama", bos_token="<|im_start|>", eos_token="<|im_end|>",
                pad_token="<|im_end|>", unk_token="<|endoftext|>", add_bos_token=True)  # fmt: skip


def said(folder: Path, tokenizer_class: str, model: str, **config: Any) -> Path:
    told = {"tokenizer_class": tokenizer_class, **config}
    (folder / "tokenizer_config.json").write_text(json.dumps(told), encoding="utf-8")
    (folder / "config.json").write_text(json.dumps({"model_type": model}), encoding="utf-8")
    return folder


def saved(make: Callable[[Path], Path]) -> Callable[[Path], Path]:
    """The same tokenizer as `transformers` writes it."""

    def make_and_save(folder: Path) -> Path:
        from transformers import AutoTokenizer

        (folder / "first").mkdir()
        AutoTokenizer.from_pretrained(make(folder / "first")).save_pretrained(folder)
        shutil.copy(folder / "first" / "config.json", folder)
        return folder

    return make_and_save


MAKERS: dict[str, Callable[[Path], Path]] = {
    "bert": wordpiece,
    "bert-cased": lambda folder: wordpiece(folder, lower=False),
    "bert-saved": saved(wordpiece),
    "gpt2": byte_bpe,
    "gpt2-saved": saved(byte_bpe),
    "gpt1": letters,
    "roberta": lambda folder: byte_bpe(folder, "roberta"),
    "roberta-saved": saved(lambda folder: byte_bpe(folder, "roberta")),
    "bart-saved": saved(lambda folder: byte_bpe(folder, "bart")),
    "t5": unigram,
    "llama": llama,
}
