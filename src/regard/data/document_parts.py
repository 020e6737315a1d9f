"""Documents in bounded parts: count, sample, split, encode.

A part is some whole documents, or a piece of a long one. The list of parts is short, however large the corpus is, and depends
on the documents and the tokenizer alone, so an interrupted preparation continues at the same place.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from regard.data.document_store import Documents, JoinedDocuments
from regard.data.permutation import Permutation
from regard.data.progress import track
from regard.data.scratch import blocks
from regard.data.text_files import PIECE

FindCut = Callable[[str, int], tuple[int, int]]
"""A function from a text and a limit to where its first part ends and its second begins."""
WINDOW = 4096
"""Size in which a place for a cut is looked for."""
MAX_SAMPLE = 1 << 26
"""Maximum size of the text from which a vocabulary is learned."""
MAX_LINE = 1 << 16
"""Maximum size of a piece from which a vocabulary is learned."""
MAX_HELD_OUT = 1 << 23
"""Maximum size of what is held out of a file for validation."""


@dataclass(frozen=True, slots=True)
class DocumentPart:
    """Documents `first` to `last` - 1, or the piece of document `first` from `start` to `stop`."""

    first: int
    last: int
    start: int = 0
    stop: int = -1
    ends: bool = True
    """True if the last document ends here."""

    def texts(self, documents: Documents) -> list[str]:
        """Return the texts of this part."""
        if self.stop < 0:
            return documents[self.first : self.last]
        return [documents.read(self.first, self.start, self.stop)]


def plan_parts(documents: Documents, find_cut: FindCut, size: int = PIECE) -> list[DocumentPart]:
    """Divide documents into parts of about `size`; a long document is cut where `find_cut` says."""
    out, first, room = list[DocumentPart](), 0, size
    for some in blocks(len(documents)):
        for document, length in enumerate(documents.sizes(some.start, some.stop).tolist(), some.start):
            if length > 2 * size:
                out += [DocumentPart(first, document)] if first < document else []
                out += _cut_document(documents, document, length, find_cut, size)
                first, room = document + 1, size
                continue
            room -= length
            if room <= 0:
                out.append(DocumentPart(first, document + 1))
                first, room = document + 1, size
    return out + ([DocumentPart(first, len(documents))] if first < len(documents) else [])


def _cut_document(
    documents: Documents, document: int, length: int, find_cut: FindCut, size: int
) -> Iterator[DocumentPart]:
    start, window = 0, min(WINDOW, size // 2)
    while length - start > 2 * size:
        near, limit, beyond = (documents.align(document, start + size + by) for by in (-window, 0, window // 4))
        text, most = documents.read(document, near, beyond), len(documents.read(document, near, limit))
        end, following = (near + documents.width(text[:place]) for place in find_cut(text, most))
        yield DocumentPart(document, document + 1, start, end, ends=False)
        start = following
    yield DocumentPart(document, document + 1, start, length)


def cut_at_line(text: str, limit: int) -> tuple[int, int]:
    """Cut after the last line break in a text, at the last space if there is none, or else at the limit."""
    place = text.rfind("\n", 0, limit) + 1
    place = place or text.rfind(" ", 0, limit) + 1 or limit
    return place, place


def iter_pieces(documents: Documents, what: str = "text read, MB") -> Iterator[tuple[str, bool]]:
    """Yield the documents in pieces of bounded size, each with whether it ends its document."""
    parts = plan_parts(documents, cut_at_line)
    for part in track(parts, what, total=len(parts)):
        for text in part.texts(documents):
            yield text, part.ends


class TextSample:
    """Texts from which a vocabulary is learned: all, or random parts of a large corpus; can be iterated again."""

    def __init__(self, documents: Documents) -> None:
        self._documents, self._parts = documents, plan_parts(documents, cut_at_line)
        count = MAX_SAMPLE // PIECE
        if len(self._parts) > count:
            chosen = np.sort(Permutation(len(self._parts), count).take(0, count))
            self._parts = [self._parts[i] for i in chosen.tolist()]

    def __iter__(self) -> Iterator[str]:
        for part in track(self._parts, "vocabulary, MB of text", total=len(self._parts)):
            for text in part.texts(self._documents):
                yield from _cut_lines(text)


def _cut_lines(text: str) -> Iterator[str]:
    """Cut a text at line breaks into pieces that the trainer of a tokenizer can hold many of."""
    start = 0
    while len(text) - start > 2 * MAX_LINE:
        end, _ = cut_at_line(text[start : start + MAX_LINE], MAX_LINE)
        yield text[start : start + end]
        start += end
    yield text[start:]


@dataclass
class Survey:
    """Counts of a corpus, and the SHA-256 of its documents in order."""

    characters: int
    distinct: int
    fingerprint: str


def survey(*corpora: Documents) -> list[Survey]:
    """Count each of several corpora; each fingerprint covers the corpora before it, too."""
    digest, out = hashlib.sha256(), list[Survey]()
    for documents in corpora:
        seen, total, length = set[str](), 0, 0
        for text, ends in iter_pieces(documents):
            seen.update(text)
            digest.update(text.encode())
            length += len(text)
            if ends:
                digest.update(f"\0{length}\n".encode())  # no text contains a NUL
                total, length = total + length, 0
        digest.update(b"\0\n")
        out.append(Survey(total, len(seen), digest.hexdigest()))
    return out


def hold_out(documents: Documents, share: float) -> tuple[Documents, Documents]:
    """Split off the last share of a file's documents for validation, of a single document its end; never more than
    `MAX_HELD_OUT`."""
    if len(documents) != 1:
        return _hold_out_last(documents, share)
    length = sum(len(text) for text, _ in iter_pieces(documents))
    wanted = max(round(length * (1 - share)), length - MAX_HELD_OUT)
    place = passed = 0
    for text, _ in iter_pieces(documents):
        if passed + len(text) >= wanted:
            place += documents.width(text[: wanted - passed])
            break
        place, passed = place + documents.width(text), passed + len(text)
    return documents.cut(documents.align(0, place))


def _hold_out_last(documents: Documents, share: float) -> tuple[Documents, Documents]:
    count = len(documents)
    cut, size = min(max(round(count * (1 - share)), 1), count - 1), 0
    for some in reversed(list(blocks(count - cut))):
        sizes = documents.sizes(cut + some.start, cut + some.stop)[::-1]
        fits = int(np.searchsorted(np.cumsum(sizes) + size, MAX_HELD_OUT, side="right"))
        if fits < len(sizes):
            cut = min(cut + some.stop - fits, count - 1)
            break
        size += int(sizes.sum())
    return documents.take(0, cut), documents.take(cut, count)


def join(parts: Sequence[Documents]) -> Documents:
    """Return the documents of several files as one sequence."""
    return parts[0] if len(parts) == 1 else JoinedDocuments(parts)
