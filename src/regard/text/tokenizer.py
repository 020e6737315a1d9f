"""The tokenizer: text to token ids and back.

One class for every kind, stored in the JSON format of the `tokenizers` library. Four tokens have a role: `<pad> <s> </s>
<unk>`. All other special tokens are tags, such as `<2de>` for "into German". Special tokens are only accessible by name: text
that spells one is ordinary text. Imported tokenizers keep their spellings (`[PAD]`), and their files map the roles to them; one
token may have two roles.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple, Self

from tokenizers import Tokenizer as Core

from regard.errors import CheckpointError, DataError, SpecError, UnknownName, make_printable
from regard.files.storage import write_file
from regard.files.user_file import read_user_file
from regard.text.long_text import MAX_PIECE, Encode, cut_text, find_cut
from regard.text.native_calls import translate_errors
from regard.text.sandbox import MAX_FILE_BYTES, check_tokenizer_file
from regard.text.template import Template, read_names
from regard.text.tokenizer_specs import ROLES, TokenizerSpec, byte_alphabet, check_lines, encodes_words_apart
from regard.text.word_cache import WordCache, cut_at_spaces

TAG = re.compile(r"<[_.:/-]*[A-Za-z0-9][\w.:/-]*>", re.ASCII)
LARGE_SHARE = 0.3
"""Share of unknown characters from which on a text is not what the vocabulary was made for."""
_CHUNK, _CHUNK_SIZE = 10_000, 1 << 20  # number of lines, and of characters, encoded by the library at once


class Coverage(NamedTuple):
    """Coverage of a text by a vocabulary: its tokens and bytes, and those among them that are unknown."""

    tokens: int
    unknown: int
    bytes: int
    unknown_bytes: int


class Tokenizer:
    """Created by `train` or `load`, or imported by `from_sentencepiece` and `from_subword_nmt`."""

    def __init__(self, core: Core) -> None:
        core.no_padding()
        core.no_truncation()
        core.encode_special_tokens = True  # special tokens in text are text; the file cannot store this
        special, post = _special_tokens(core), _read_post_processor(core)
        named = special | read_names(post)
        self._core = core
        self.size = core.get_vocab_size()
        self.pad, self.bos, self.eos, self.unk = roles = [named[role] for role in ROLES]
        self._tags = {name: i for name, i in named.items() if i not in roles}
        self._sealed = frozenset(special.values()) - {self.unk}
        self.template = Template.read(post)
        self._words = WordCache(self._encode_texts) if encodes_words_apart(core) else None

    @classmethod
    def train(cls, lines: Iterable[str], spec: TokenizerSpec, tags: Sequence[str] = ()) -> Self:
        """Learn a vocabulary from text; the same lines give the same tokenizer, byte for byte."""
        return cls(spec.learn(lines, [*ROLES, *check_tags(tags)]))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        return cls.from_bytes(read_user_file(path, MAX_FILE_BYTES, CheckpointError, what="the tokenizer"), path)

    @classmethod
    def from_bytes(cls, data: bytes, path: str | Path) -> Self:
        """Load a tokenizer from the bytes of its file, checked in a child process first; `path` names it in messages."""
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise CheckpointError(f"cannot read the tokenizer {path}: {error}") from None
        check_tokenizer_file(data, path)
        with translate_errors(CheckpointError, f"{path} is not a tokenizer"):
            core = Core.from_str(text)
        if faults := _find_faults(core):
            raise CheckpointError(f"{path} is not a usable tokenizer: {'; '.join(faults)}")
        return cls(core)

    def save(self, path: str | Path) -> None:
        """Write the file for `load`, which is also readable by `tokenizers.Tokenizer.from_file`."""
        write_file(Path(path), self.to_bytes())

    @property
    def core(self) -> Core:
        """The tokenizer of the library."""
        return self._core

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the file that `save` writes."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    @property
    def tags(self) -> tuple[str, ...]:
        return tuple(self._tags)

    def tag(self, name: str) -> int:
        """Return the id of a tag by its full spelling: `tag("<2de>")`."""
        if name not in self._tags:
            raise UnknownName("tag", name, self._tags)
        return self._tags[name]

    @property
    def marks(self) -> frozenset[int]:
        """Ids of all special tokens: roles, including `<unk>`, and tags."""
        return frozenset([self.pad, self.bos, self.eos, self.unk, *self._tags.values()])

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text, without special tokens except `<unk>`."""
        return self.encode_all([text])[0]

    def encode_all(self, lines: Iterable[str]) -> list[list[int]]:
        """Return the tokens of each line; much faster than one line at a time. Long lines are encoded in pieces."""
        if self._words is None:
            return self._encode_texts(lines)
        return _encode_chunks(lines, _CHUNK_SIZE, self._words.encode, self._encode_long_by_words)

    def _encode_texts(self, lines: Iterable[str]) -> list[list[int]]:
        return _encode_chunks(lines, MAX_PIECE, self._encode, self._encode_long)

    def _encode_long_by_words(self, line: str) -> list[int]:
        assert self._words is not None
        return [i for piece in cut_at_spaces(line, _CHUNK_SIZE) for i in self._words.encode([piece])[0]]

    def _encode(self, lines: Sequence[str]) -> list[list[int]]:
        with translate_errors(DataError, "the tokenizer failed on this text"):
            encodings = self._core.encode_batch_fast([*lines], add_special_tokens=False)
        return [self._seal(encoding.ids) for encoding in encodings]

    def _encode_long(self, line: str) -> list[int]:
        pieces, ids = cut_text(line, self._encode), list[int]()
        while chunk := list(islice(pieces, _CHUNK_SIZE // MAX_PIECE)):
            for part in self._encode([piece for _, piece in chunk]):
                ids += part
        return ids

    def encode_marked(self, text: str) -> list[int]:
        """Return the tokens of a text in which special tokens are written as their files spell them: `<|im_start|>`.

        For text that a program wrote, such as a chat template; what a user wrote goes through `encode`.
        """
        ids, starts = list[int](), [found.start() for found in self._spelled.finditer(text)]
        for start, end in _group_spans(starts, len(text), MAX_PIECE):
            piece = text[start:end]
            if len(piece) > MAX_PIECE:  # one special token at most, and a long text after it
                mark = found.end() if (found := self._spelled.match(piece)) else 0
                ids += self._encode_marks(piece[:mark]) + self.encode(piece[mark:])
            else:
                ids += self._encode_marks(piece)
        return ids

    def find_special(self, text: str) -> list[tuple[int, int]]:
        """Return where a text spells special tokens."""
        return [found.span() for found in self._spelled.finditer(text)]

    @cached_property
    def _spelled(self) -> re.Pattern[str]:
        spellings = sorted(_special_tokens(self._core), key=len, reverse=True)
        return re.compile("|".join(map(re.escape, spellings)))

    @cached_property
    def _marking_core(self) -> Core:
        """A second tokenizer of the library, which finds special tokens in text."""
        return Core.from_str(self._core.to_str())

    def _encode_marks(self, text: str) -> list[int]:
        with translate_errors(DataError, "the tokenizer failed on this text"):
            ids: list[int] = self._marking_core.encode(text, add_special_tokens=False).ids
        return ids

    def find_cut(self, text: str, limit: int) -> tuple[int, int]:
        """Return where a text can be cut into two, near its first `limit` characters, without a change of its tokens."""
        return find_cut(text, limit, self._encode)

    def encode_with_offsets(self, lines: Sequence[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """Return the tokens of each line, as `encode_all` does, and the start and end of each token in the line."""
        out = list[tuple[list[int], list[tuple[int, int]]]]()
        pieces = (
            (number, *piece) for number, line in enumerate(check_lines(lines)) for piece in cut_text(line, self._encode)
        )
        while chunk := list(islice(pieces, _CHUNK_SIZE // MAX_PIECE * 8)):
            with translate_errors(DataError, "the tokenizer failed on this text"):
                encodings = self._core.encode_batch([text for _, _, text in chunk], add_special_tokens=False)
            for (number, start, _), encoding in zip(chunk, encodings, strict=True):
                ids, spans = self._seal(encoding.ids), encoding.offsets
                if number == len(out):
                    out.append((ids, spans))
                else:
                    out[-1][0].extend(ids)
                    out[-1][1].extend((start + a, start + b) for a, b in spans)
        return out

    def mostly_unknown(self, lines: Iterable[str]) -> list[int]:
        """Return the indices of lines of which a large share is unknown: another script, language or tokenizer."""
        return [i for i, share in enumerate(self.unknown_shares(lines)) if share >= LARGE_SHARE]

    def unknown_shares(self, lines: Iterable[str]) -> list[float]:
        """Return for each line the share of its characters, spaces aside, that unknown tokens stand for.

        Characters, because one unknown token may stand for a long word. Of a very long line the beginning counts. U+FFFD
        stands for bytes that nobody could read, which says nothing of the language: it counts only if there is nothing else.
        """
        texts = [line[:MAX_PIECE] for line in check_lines(lines)]
        shares, some = [0.0] * len(texts), [i for i, ids in enumerate(self.encode_all(texts)) if self.unk in ids]
        for start in range(0, len(some), _CHUNK_SIZE // MAX_PIECE):
            chunk = some[start : start + _CHUNK_SIZE // MAX_PIECE]
            with translate_errors(DataError, "the tokenizer failed on this text"):
                found = self._core.encode_batch([texts[i] for i in chunk], add_special_tokens=False)
            for i, encoding in zip(chunk, found, strict=True):
                shares[i] = _share(texts[i], self._seal(encoding.ids), encoding.offsets, self.unk)
        return shares

    def count_unknown(self, lines: Iterable[str]) -> list[Coverage]:
        """Return for each line how many of its tokens, and how many of its bytes, are unknown."""
        out, chunk, size = list[Coverage](), list[str](), 0
        for line in lines:
            chunk.append(line)
            size += len(line)
            if len(chunk) == _CHUNK or size > _CHUNK_SIZE:
                out += self._count_unknown(chunk)
                chunk, size = [], 0
        return out + self._count_unknown(chunk)

    def _count_unknown(self, lines: Sequence[str]) -> list[Coverage]:
        counts = (
            (line, len(ids), ids.count(self.unk)) for line, ids in zip(lines, self.encode_all(lines), strict=True)
        )
        return [
            Coverage(tokens, unknown, len(line.encode()), self._count_lost_bytes(line) if unknown else 0)
            for line, tokens, unknown in counts
        ]

    def _count_lost_bytes(self, line: str) -> int:
        """Return the number of bytes that unknown tokens stand for."""
        lost = 0
        for piece in (line[at : at + MAX_PIECE] for at in range(0, len(line), MAX_PIECE)):
            with translate_errors(DataError, "the tokenizer failed on this text"):
                found = self._core.encode(piece, add_special_tokens=False)
            places = zip(self._seal(found.ids), found.offsets, strict=True)
            lost += sum(len(piece[start:end].encode()) for i, (start, end) in places if i == self.unk)
        return lost

    def frame(self, first: Sequence[int], second: Sequence[int] | None = None) -> tuple[list[int], list[int]]:
        """Return one text or two with special tokens around them, and the segment of each token.

        A tokenizer without a template uses BERT's.
        """
        return self.frame_template.fill(first, second)

    @cached_property
    def frame_template(self) -> Template:
        """The template of `frame`."""
        first, last = self.spell(self.bos), self.spell(self.eos)
        return self.template or Template.bert(first, last, {first: self.bos, last: self.eos})

    def surround(self, opening: Sequence[int], closing: Sequence[int]) -> Template:
        """Return the template of a task that puts these tokens before and after every text."""
        before, after = ([*map(self.spell, ids)] for ids in (opening, closing))
        ids = {self.spell(i): i for i in (*opening, *closing)}
        return Template.of(before, after, ids, between=before, segment=0)

    def spell(self, i: int) -> str:
        """Return a token as its file has it."""
        token = self._core.id_to_token(i)
        assert token is not None, i
        return token

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of tokens; special tokens, including `<unk>`, are removed."""
        known = self._known(ids)
        with translate_errors(DataError, "the tokenizer failed on these tokens"):
            return self._core.decode(known)

    def decode_all(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """Return the text of each row of tokens, as `decode` does; much faster than one row at a time."""
        known = [self._known(row) for row in rows]
        with translate_errors(DataError, "the tokenizer failed on these tokens"):
            return self._core.decode_batch(known)

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """Return each token as printable text, with ▁ for a space, for labels in figures."""
        return [self._label(i) for i in self._known(ids)]

    def __repr__(self) -> str:
        return f"<Tokenizer of {self.size} tokens, {self.fingerprint[:12]}>"

    def __reduce__(self) -> tuple[type[Self], tuple[Core]]:
        return type(self), (self._core,)  # the library's pickling loses `encode_special_tokens`

    def to_bytes(self) -> bytes:
        """Return the bytes that `save` writes."""
        return (self._core.to_str(pretty=True) + "\n").encode()

    def _seal(self, ids: list[int]) -> list[int]:
        """Replace special tokens by `<unk>`; only imported tokenizers can produce them from text."""
        return ids if self._sealed.isdisjoint(ids) else [self.unk if i in self._sealed else i for i in ids]

    def _known(self, ids: Iterable[int]) -> list[int]:
        known = [int(i) for i in ids]
        if wrong := [i for i in known if not 0 <= i < self.size]:
            raise DataError(
                f"token ids should be 0 to {self.size - 1}, got {wrong[0]}; is this the tokenizer of the model?"
            )
        return known

    def _label(self, i: int) -> str:
        token = self.spell(i)
        if i == self.unk or i in self._sealed:
            return token
        if "ByteLevel" in repr(self._core.decoder) and _BYTES.keys() >= {*token}:
            token = bytes(map(_BYTES.__getitem__, token)).decode(errors="backslashreplace")
        if suffix := getattr(self._core.model, "end_of_word_suffix", None):
            token = token.removesuffix(suffix) if token.endswith(suffix) else f"{token}@@"
        return make_printable(token).replace(" ", "▁")


def _encode_chunks(
    lines: Iterable[str], limit: int, encode: Encode, encode_long: Callable[[str], list[int]]
) -> list[list[int]]:
    """Encode many lines at once, and those of more than `limit` characters by themselves."""
    out, chunk, size = list[list[int]](), list[str](), 0
    for line in check_lines(lines):
        if len(line) > limit:
            out += encode(chunk)
            out.append(encode_long(line))
            chunk, size = [], 0
            continue
        chunk.append(line)
        size += len(line)
        if len(chunk) == _CHUNK or size > _CHUNK_SIZE:
            out += encode(chunk)
            chunk, size = [], 0
    return out + encode(chunk)


def _group_spans(starts: Sequence[int], size: int, limit: int) -> list[tuple[int, int]]:
    """Cut a text of `size` characters at some of `starts` into spans of at most `limit` characters, where that is possible."""
    spans, start = list[tuple[int, int]](), 0
    for at, following in pairwise([*starts, size]):
        if at > start and following - start > limit:
            spans.append((start, at))
            start = at
    return [*spans, (start, size)]


def _share(text: str, ids: Sequence[int], spans: Sequence[tuple[int, int]], unknown: int) -> float:
    """The share of the characters of a text, spaces aside, that lie in the spans of unknown tokens."""
    lost = [False] * len(text)
    for i, (start, stop) in zip(ids, spans, strict=True):
        lost[start:stop] = [i == unknown or was for was in lost[start:stop]]
    seen = [gone for gone, letter in zip(lost, text, strict=True) if not letter.isspace() and letter != "\ufffd"]
    seen = seen or [gone for gone, letter in zip(lost, text, strict=True) if letter == "\ufffd"]
    return sum(seen) / len(seen) if seen else 0.0


_BYTES = {letter: byte for byte, letter in enumerate(byte_alphabet())}


def check_tags(tags: Sequence[str]) -> Sequence[str]:
    """Return the tags if they are distinct and valid."""
    taken = set(ROLES)
    for tag in tags:
        if not TAG.fullmatch(tag):
            raise SpecError(f"a tag should be letters or digits in angle brackets, such as '<2de>', got {tag!r}")
        if tag in taken:
            raise SpecError(f"the token {tag!r} already exists; choose another name for the tag")
        taken.add(tag)
    return tags


def _special_tokens(core: Core) -> dict[str, int]:
    return {token.content: i for i, token in sorted(core.get_added_tokens_decoder().items()) if token.special}


def _read_post_processor(core: Core) -> dict[str, Any] | None:
    """Return the post-processor as JSON data, without serializing the vocabulary."""
    post = core.post_processor
    return None if post is None else json.loads(post.__getstate__())


def has_gaps(core: Core) -> bool:
    """True if some ids have no token. The library must not write such a vocabulary: it would list every missing id."""
    return sorted(core.get_vocab().values()) != list(range(core.get_vocab_size()))


def _find_faults(core: Core) -> list[str]:
    """Return all reasons why a tokenizer of the library cannot be used."""
    faults, special, post = [], _special_tokens(core), _read_post_processor(core)
    names = read_names(post)
    if missing := [role for role in ROLES if role not in special and role not in names]:
        faults.append(f"no special token {', '.join(missing)}")
    if wrong := [name for name, i in names.items() if i not in special.values()]:
        faults.append(f"its {', '.join(wrong)} is not a special token")
    try:
        template = Template.read(post)
    except DataError as error:
        faults.append(str(error))
    else:
        if template and not {i for ids in template.ids.values() for i in ids} <= set(core.get_vocab().values()):
            faults.append("its template has tokens that are not in its vocabulary")
    if has_gaps(core):
        faults.append("its ids have gaps")
    if getattr(core.model, "dropout", None) or getattr(core.model, "alpha", None):
        faults.append("it segments the same text differently each time (dropout or sampling); switch that off")
    return faults
