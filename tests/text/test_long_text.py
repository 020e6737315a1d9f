"""A long text has the tokens it would have in one piece, in bounded memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tokenizers import Tokenizer as Core
from tokenizers import models, pre_tokenizers, trainers

from regard.text import TOKENIZERS, Normalize, Tokenizer
from regard.text.long_text import cut_text

PROSE = "".join(
    f"The {word} of line {i}, said {word}s; 3.5 % of it.\n" + "\n" * (i % 3)
    for i, word in enumerate(["house", "Straße", "cafe\u0301", "tree", "été", "naïve"] * 12)
)
KEEPING = Normalize(unicode="none", spaces=False)


def learn(kind: str, normalize: Normalize) -> Tokenizer:
    spec = TOKENIZERS[kind](normalize=normalize)
    return Tokenizer.train(PROSE.splitlines(), spec)


@pytest.mark.parametrize("normalize", [Normalize(), KEEPING], ids=["spaces joined", "spaces kept"])
@pytest.mark.parametrize("kind", [kind for kind, spec in TOKENIZERS.items() if hasattr(spec, "normalize")])
def test_the_tokens_are_those_of_the_whole_text(
    kind: str, normalize: Normalize, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For every kind there is."""
    tokenizer = learn(kind, normalize)
    wanted = tokenizer.encode(PROSE)
    for limit in (250, 1500):
        pieces = [piece for _, piece in cut_text(PROSE, tokenizer._encode, limit)]
        assert len(pieces) >= len(PROSE) // limit
        assert max(map(len, pieces)) <= limit
        assert [token for ids in tokenizer._encode(pieces) for token in ids] == wanted
    monkeypatch.setattr("regard.text.tokenizer.MAX_PIECE", 300)
    assert tokenizer.encode_all(["a", PROSE, "b"]) == [tokenizer.encode("a"), wanted, tokenizer.encode("b")]


def test_a_tokenizer_that_keeps_spaces_with_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """GPT-2's pre-tokenizer, which puts nothing before a text."""
    core = Core(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.train_from_iterator([PROSE], trainers.BpeTrainer(vocab_size=400, show_progress=False))

    def encode(lines: list[str]) -> list[list[int]]:
        return [found.ids for found in core.encode_batch_fast(list(lines))]

    pieces = [piece for _, piece in cut_text(PROSE, encode, 500)]
    assert "".join(pieces) == PROSE
    assert [token for ids in encode(pieces) for token in ids] == encode([PROSE])[0]


def test_a_text_without_a_good_place_is_cut_all_the_same() -> None:
    pieces = list(cut_text("x" * 1000, lambda lines: [[len(line)] for line in lines], 300))
    assert [(start, len(piece)) for start, piece in pieces] == [(0, 300), (300, 300), (600, 300), (900, 100)]


def test_one_long_line_needs_bounded_memory() -> None:
    """3 MB without a single break: half a gigabyte before, when the library got all of it at once."""
    if not Path("/proc/self/status").exists():
        pytest.skip("this system does not tell how much memory is whose")
    code = """
import resource
from regard.text import Bpe, Tokenizer
tokenizer = Tokenizer.train(["abcabd abd"], Bpe(40))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
ids = tokenizer.encode("abcabd" * 500_000)
print(len(ids), (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    count, peak = map(int, told.split())
    assert count >= 1_000_000
    assert peak < 200
