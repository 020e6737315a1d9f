"""Choose the tokenizer of a converted model, and doubt it.

Some folders do not say how text is split into their tokens. A guess that is wrong gives unknown tokens, and a model that reads
nonsense without an error; so a guess is checked, and said.
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

from regard.conversion.hf_tokenizer import from_hf, read_vocabulary
from regard.conversion.vocabulary_kinds import CONTINUATION, KINDS, has_continuations, looks_cased
from regard.errors import DataError, SpecError
from regard.files.folder import read_file
from regard.text import Tokenizer
from regard.text.sandbox import MAX_FILE_BYTES
from regard.text.tokenizer import LARGE_SHARE

MAX_SHARE = 0.1
"""Share of unknown characters in a sample above which a warning is printed."""
_MADE = 500  # tokens of a vocabulary that are checked
_NAMES = {".json": "tokenizer.json", ".model": "tokenizer.model", ".txt": "vocab.txt"}
_CONFIGS = ("config.json", "generation_config.json", "tokenizer_config.json", "special_tokens_map.json")
HINT = f"name its tokenizer with --tokenizer: a tokenizer.json, a folder with one, or {', '.join(KINDS)}"


def choose_tokenizer(folder: Path, named: str) -> Tokenizer:
    """The tokenizer that a user names for a folder: a kind, a file, or another folder."""
    path = Path(named)
    if named in KINDS:
        found = from_hf(folder, kind=named)
    elif path.is_dir():
        found = from_hf(path)
    elif path.is_file() and path.suffix in _NAMES:
        found = _read_file(path, folder)
    else:
        raise SpecError(
            f"no tokenizer {named!r}; it should be a tokenizer.json, a SentencePiece .model, a folder with one of them, or a "
            f"kind: {', '.join(KINDS)}"
        )
    if found is None:
        raise DataError(f"{named} has no tokenizer")
    return found


def _read_file(path: Path, folder: Path) -> Tokenizer | None:
    """A tokenizer file, with the special tokens that the folder of the model names."""
    with tempfile.TemporaryDirectory() as made:
        for name in _CONFIGS:
            if (folder / name).exists():
                Path(made, name).write_bytes(read_file(folder, name, MAX_FILE_BYTES))
        Path(made, _NAMES[path.suffix]).write_bytes(read_file(path.parent, path.name, MAX_FILE_BYTES))
        return from_hf(Path(made))


def doubt_tokenizer(tokenizer: Tokenizer, folder: Path | None, texts: list[str]) -> list[str]:
    """Reasons to doubt a tokenizer: it does not know what its own tokens spell, or the `texts` that a user gave.

    `folder` is where it was read from, if nobody named it.
    """
    notes = []
    reasons = [] if folder is None else _doubt_vocabulary(folder)
    own = _average(tokenizer, _spell_tokens(tokenizer))
    if own > LARGE_SHARE:
        reasons.append(f"{own:.0%} of what its own tokens spell is unknown to it")
    if reasons:
        notes.append(f"the tokenizer may be wrong: {'; '.join(reasons)}; {HINT}")
    if texts and (given := _average(tokenizer, texts)) > MAX_SHARE:
        notes.append(f"{given:.0%} of the sample is unknown to the tokenizer; {HINT}")
    return notes


def _doubt_vocabulary(folder: Path) -> list[str]:
    """Tell what a folder with only a vocab.txt leaves open."""
    if (folder / "tokenizer.json").exists() or (folder / "source.spm").exists() or not (folder / "vocab.txt").exists():
        return []
    vocab, out = read_vocabulary(folder), []
    if not has_continuations(vocab):
        out.append("vocab.txt has no pieces with ##, so it is not WordPiece, as which it is read")
        if looks_cased(vocab):
            out.append("it has upper-case tokens, so case is kept")
    return out


def _spell_tokens(tokenizer: Tokenizer) -> list[str]:
    """Spell some tokens, each alone; not those that continue a word, which cannot stand alone."""
    ids = [i for i in range(tokenizer.size) if i not in tokenizer.marks]
    some = random.Random(0).sample(ids, min(len(ids), _MADE))
    texts = [tokenizer.decode([i]) for i in some if not tokenizer.spell(i).startswith(CONTINUATION)]
    return [text for text in texts if text.strip() and text.isprintable()]


def _average(tokenizer: Tokenizer, texts: list[str]) -> float:
    lengths = [max(len(text), 1) for text in texts]
    shares = zip(tokenizer.unknown_shares(texts), lengths, strict=True)
    return sum(share * n for share, n in shares) / sum(lengths) if texts else 0.0
