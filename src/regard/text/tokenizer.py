"""Text in, token ids out, and back: one tokenizer for every kind, kept in the `tokenizers` library's own JSON file.

The tokens with a role are known by their names, `<pad> <s> </s> <unk>`; every other special token is a tag, such as
`<2de>` for "into German". Both are reached by name only: text that spells one is text like any other. A tokenizer that came
with a model of others spells them as it always did (`[PAD]`), and its file says which is which; one token may have two roles.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Self

from tokenizers import Tokenizer as Core

from regard.errors import CheckpointError, DataError, SpecError, UnknownName
from regard.text.sandbox import check_tokenizer_file
from regard.text.template import Template, read_names
from regard.text.tokenizer_specs import BOS, EOS, ROLES, TokenizerSpec, byte_alphabet, check_lines, translate_errors

TAG = re.compile(r"<[\w.:/-]*[A-Za-z0-9][\w.:/-]*>", re.ASCII)
_CHUNK = 10_000  # lines that the library holds as objects of its own at one time


class Tokenizer:
    """Made by `train` or `load`, or by `from_sentencepiece` and `from_subword_nmt` from what other tools wrote."""

    def __init__(self, core: Core) -> None:
        core.no_padding()
        core.no_truncation()
        core.encode_special_tokens = True  # what spells a special token in text is text; the file cannot say so
        special, post = _special_tokens(core), _read_post_processor(core)
        named = special | read_names(post)
        self._core = core
        self.size = core.get_vocab_size()
        self.pad, self.bos, self.eos, self.unk = roles = [named[role] for role in ROLES]
        self._tags = {name: i for name, i in named.items() if i not in roles}
        self._sealed = frozenset(special.values()) - {self.unk}
        self.template = Template.read(post)

    @classmethod
    def train(cls, lines: Iterable[str], spec: TokenizerSpec, tags: Sequence[str] = ()) -> Self:
        """Learn a vocabulary from text: the same lines give the same tokenizer, to the byte."""
        return cls(spec.learn(lines, [*ROLES, *check_tags(tags)]))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        try:
            data = Path(path).read_bytes()
        except OSError as error:
            raise CheckpointError(f"cannot read the tokenizer {path}: {error}") from None
        return cls.from_bytes(data, path)

    @classmethod
    def from_bytes(cls, data: bytes, path: str | Path) -> Self:
        """A tokenizer from the bytes of its file, tried in a child first; `path` is what errors call it."""
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise CheckpointError(f"cannot read the tokenizer {path}: {error}") from None
        check_tokenizer_file(data, path)
        with translate_errors(CheckpointError, f"{path} is not a tokenizer"):
            core = Core.from_str(text)
        if faults := _find_faults(core):
            raise CheckpointError(f"{path} is not a tokenizer we can use: {'; '.join(faults)}")
        return cls(core)

    def save(self, path: str | Path) -> None:
        """Write the one file that `load` reads; so does `tokenizers.Tokenizer.from_file`."""
        Path(path).write_bytes(self.to_bytes())

    @property
    def core(self) -> Core:
        """The library's own tokenizer."""
        return self._core

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of the file that `save` writes."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    @property
    def tags(self) -> tuple[str, ...]:
        return tuple(self._tags)

    def tag(self, name: str) -> int:
        """The id of a tag, by its full spelling: `tag("<2de>")`."""
        if name not in self._tags:
            raise UnknownName("tag", name, self._tags)
        return self._tags[name]

    @property
    def marks(self) -> frozenset[int]:
        """The tokens that are no part of a text: those with a role, `<unk>` too, and tags."""
        return frozenset([self.pad, self.bos, self.eos, self.unk, *self._tags.values()])

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, nothing added; never a special token but `<unk>`."""
        return self.encode_all([text])[0]

    def encode_all(self, lines: Iterable[str]) -> list[list[int]]:
        """The tokens of each line; many lines at once are much quicker than one by one."""
        rest, out = check_lines(lines), list[list[int]]()
        while chunk := list(islice(rest, _CHUNK)):
            with translate_errors(DataError, "the tokenizer failed on this text"):
                encodings = self._core.encode_batch_fast(chunk, add_special_tokens=False)
            out.extend(self._seal(encoding.ids) for encoding in encodings)
        return out

    def mostly_unknown(self, lines: Iterable[str]) -> list[int]:
        """Which of these lines it makes `<unk>` of, at least half of their tokens: another script, or another language."""
        found = enumerate(self.encode_all(lines))
        return [i for i, ids in found if ids and 2 * ids.count(self.unk) >= len(ids)]

    def frame(self, first: Sequence[int], second: Sequence[int] | None = None) -> tuple[list[int], list[int]]:
        """One text or two as a model reads them: special tokens around them, and the segment each token lies in.

        A tokenizer without a template frames them as BERT does.
        """
        template = self.template or Template.bert(BOS, EOS, {BOS: self.bos, EOS: self.eos})
        return template.fill(first, second)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of tokens; special ones, `<unk>` too, leave no trace."""
        known = self._known(ids)
        with translate_errors(DataError, "the tokenizer failed on these tokens"):
            return self._core.decode(known)

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """What to write under a picture: each token as printable text, with ▁ for a space."""
        return [self._label(i) for i in self._known(ids)]

    def __repr__(self) -> str:
        return f"<Tokenizer of {self.size} tokens, {self.fingerprint[:12]}>"

    def __reduce__(self) -> tuple[type[Self], tuple[Core]]:
        return type(self), (self._core,)  # the library's own pickling forgets `encode_special_tokens`

    def to_bytes(self) -> bytes:
        """The bytes that `save` writes."""
        return (self._core.to_str(pretty=True) + "\n").encode()

    def _seal(self, ids: list[int]) -> list[int]:
        """Our files never let a special token through; one from elsewhere may, and then it is unknown."""
        return ids if self._sealed.isdisjoint(ids) else [self.unk if i in self._sealed else i for i in ids]

    def _known(self, ids: Iterable[int]) -> list[int]:
        known = [int(i) for i in ids]
        if wrong := [i for i in known if not 0 <= i < self.size]:
            raise DataError(f"token ids should be 0 to {self.size - 1}, got {wrong[0]}; is this the model's tokenizer?")
        return known

    def _label(self, i: int) -> str:
        token = self._core.id_to_token(i)
        assert token is not None
        if i == self.unk or i in self._sealed:
            return token
        if "ByteLevel" in repr(self._core.decoder) and _BYTES.keys() >= {*token}:
            token = bytes(map(_BYTES.__getitem__, token)).decode(errors="backslashreplace")
        if suffix := getattr(self._core.model, "end_of_word_suffix", None):
            token = token.removesuffix(suffix) if token.endswith(suffix) else f"{token}@@"
        return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in token).replace(" ", "▁")


_BYTES = {letter: byte for byte, letter in enumerate(byte_alphabet())}


def check_tags(tags: Sequence[str]) -> Sequence[str]:
    """The tags, if no two are alike and each can be told from text."""
    for i, tag in enumerate(tags):
        if not TAG.fullmatch(tag):
            raise SpecError(f"a tag should be letters or digits in angle brackets, such as '<2de>', got {tag!r}")
        if tag in ROLES or tag in tags[:i]:
            raise SpecError(f"there already is a token {tag!r}; choose another name for the tag")
    return tags


def _special_tokens(core: Core) -> dict[str, int]:
    return {token.content: i for i, token in sorted(core.get_added_tokens_decoder().items()) if token.special}


def _read_post_processor(core: Core) -> dict[str, Any] | None:
    """What the file says of the template, without writing the vocabulary for it."""
    post = core.post_processor
    return None if post is None else json.loads(post.__getstate__())


def _find_faults(core: Core) -> list[str]:
    """What keeps a tokenizer of the library from being one of ours, all of it."""
    faults, special, post = [], _special_tokens(core), _read_post_processor(core)
    names = read_names(post)
    if missing := [role for role in ROLES if role not in special and role not in names]:
        faults.append(f"no special token {', '.join(missing)}")
    if wrong := [name for name, i in names.items() if i not in special.values()]:
        faults.append(f"what it calls {', '.join(wrong)} is no special token")
    try:
        template = Template.read(post)
    except DataError as error:
        faults.append(str(error))
    else:
        if template and not {i for ids in template.ids.values() for i in ids} <= set(core.get_vocab().values()):
            faults.append("its template has tokens that are not in its vocabulary")
    if sorted(core.get_vocab().values()) != list(range(core.get_vocab_size())):
        faults.append("its ids have gaps")
    if getattr(core.model, "dropout", None) or getattr(core.model, "alpha", None):
        faults.append("it cuts the same text differently each time (dropout or sampling); switch that off")
    return faults
