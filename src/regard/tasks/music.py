"""Music: continue a piece, or harmonize a melody.

A language model whose words are notes (Huang et al. 2018). The encoding says which: events, for any music, or four voices,
for chorales. A model of four voices that is given one voice writes the other three below it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from regard.data.bptt import TokenStream
from regard.data.documents import DocumentUnit
from regard.data.example_rng import Rng
from regard.data.music.encoding import PITCH_NAMES, EncodingSpec
from regard.data.music.grid_notes import PITCHES, Note, check_ranges
from regard.data.music.music_files import MIDI, FoundMusic, MusicPiece, parse_piece, read_music, read_piece
from regard.data.music.performance_events import Performance
from regard.data.packing import Packed
from regard.data.pair_reader import OnBad
from regard.data.piece_parts import Part, count_pieces, join_parts
from regard.data.ragged import Ragged
from regard.decode import Engine, Search
from regard.decode.decode_request import FREE
from regard.errors import CheckpointError, DataError, SpecError
from regard.model.net import Net
from regard.report.piano_roll_picture import Bar, draw_piano_roll
from regard.spec import Count, Plain, spec
from regard.tasks.common.data_settings import split_pieces
from regard.tasks.common.encoder_input import load_tokenizer
from regard.tasks.common.forward_pass import ForwardPass
from regard.tasks.common.task import TASKS, Dataset, Output, RunOptions, TextSide
from regard.tasks.common.text_corpus import Texts
from regard.tasks.lm import Lm, LmData
from regard.text import Pieces, Tokenizer, TokenizerSpec

RANGES_FILE = "music.json"
Ranges = Mapping[int, tuple[int, int]]
"""The lowest and highest pitch of each part."""


@spec
class MusicData(LmData):
    """The `data` part of a recipe: folders of MIDI files, or chorales as JSON."""

    encoding: EncodingSpec = Performance()
    transpose: Annotated[int, Field(ge=0, le=24)] = 3
    """Transpose each piece in training by up to this many semitones, within the pitch range of the corpus."""
    on_bad: OnBad = "error"
    """Files that cannot be used: an `error`, or `drop` and count them."""
    tokenizer: TokenizerSpec = Pieces()
    documents: DocumentUnit = "line"
    context: Count = 512
    metrics: tuple[str, ...] = ("loss", "perplexity")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tokenizer != Pieces() or self.documents != "line":
            raise SpecError("music has words of its own, and a piece is a document; set data.encoding instead")


@dataclasses.dataclass(frozen=True)
class MusicOptions(RunOptions):
    """Options of continuing a piece."""

    harmonize: bool | None = None
    """True if the highest voice is kept and the others are written; by default if there is only one."""


class MusicTexts(Texts):
    """Pieces as words, and the range of each part in them."""

    def __init__(self, pieces: Sequence[MusicPiece], encoding: EncodingSpec, training: bool = False) -> None:
        super().__init__([" ".join(encoding.encode(piece.notes)) for piece in pieces], training)
        self.ranges = measure_ranges(note for piece in pieces for note in piece.notes)


@TASKS.add
class Music(Lm):
    """A decoder that continues a piece. Inputs are MIDI files, pieces, or words of the encoding."""

    Settings = MusicData
    Options = MusicOptions
    settings: MusicData
    data_hint = "name a folder of MIDI files, or chorales as .json"
    file_suffix = ".mid"

    def __init__(self, settings: MusicData, tokenizer: Tokenizer, ranges: Ranges) -> None:
        super().__init__(settings, tokenizer)
        self.encoding, self.ranges = settings.encoding, ranges
        tokens = {tokenizer.spell(i): i for i in range(tokenizer.size)}
        self._words = {word: tokens[word] for word in self.encoding.list_words()}

    # ------------------------------------------------------------------------------------------------ from data

    @classmethod
    def read_test(cls, settings: Any, files: Sequence[str]) -> Texts:
        found = [read_music(path, settings.encoding, settings.on_bad) for path in files]
        _check_rest(found, "test")
        return MusicTexts(join_parts([each.parts for each in found], files, "test"), settings.encoding)

    @classmethod
    def read(cls, settings: Any, seed: int) -> Dataset:
        if not settings.train:
            raise DataError(f"no training data; {cls.data_hint}")
        encoding = settings.encoding
        found = [read_music(path, encoding, settings.on_bad) for path in settings.train]
        aside = [read_music(path, encoding, settings.on_bad) for path in settings.valid]
        for one in (*found, *aside):
            _keep_whole(one, encoding, settings.on_bad)
        _check_rest(found, "train")
        each: list[Mapping[Part, list[MusicPiece]]] = [one.parts for one in found]
        if settings.valid:
            _check_rest(aside, "valid")
            train = join_parts(each, settings.train, "train")
            valid = join_parts([one.parts for one in aside], settings.valid, "valid")
            found += aside
        else:
            train, valid = split_pieces(each, settings.train, hold_out=settings.hold_out, seed=seed)
        texts, held = MusicTexts(train, encoding, training=True), MusicTexts(valid, encoding)
        digest, counts = hashlib.sha256(), dict[str, dict[str, int]]()
        for part, some in (("train", texts), ("valid", held)):
            words = 0
            for document in some.documents:
                digest.update(f"{document}\n".encode())
                words += document.count(" ") + 1
            counts[part] = {"pieces": len(some.documents), "words": words}
        sizes = [f"{count_pieces(count['pieces'])} of {count['words']:,} words" for count in counts.values()]
        messages = [f"{sizes[0]} for training, {sizes[1]} for validation"]
        dropped = [fault for one in found for fault in one.dropped]
        were = "file was" if len(dropped) == 1 else "files were"
        messages += [f"{len(dropped):,} {were} dropped, such as: {dropped[0]}"] if dropped else []
        lost = [{"reason": "cannot be used", "count": len(dropped), "examples": dropped[:3]}] if dropped else []
        return Dataset(texts, held, digest.hexdigest(), counts, messages, lost)

    @classmethod
    def prepare(cls, settings: Any, dataset: Dataset) -> Self:
        return cls(settings, Tokenizer.train(settings.encoding.list_words(), settings.tokenizer), dataset.train.ranges)

    @classmethod
    def load(cls, settings: Any, files: Mapping[str, bytes]) -> Self:
        tokenizer = load_tokenizer(files)
        missing = set(settings.encoding.list_words()) - {tokenizer.spell(i) for i in range(tokenizer.size)}
        if missing:
            raise CheckpointError(f"the vocabulary lacks {min(missing)!r}; it is not that of data.encoding")
        return cls(settings, tokenizer, _unpack_ranges(files, len(settings.encoding.parts)))

    def files(self) -> dict[str, bytes]:
        ranges = {name: self.ranges.get(part) for part, name in enumerate(self.encoding.parts)}
        return {**super().files(), RANGES_FILE: json.dumps({"ranges": ranges}).encode()}

    # ------------------------------------------------------------------------------------------------ to the model

    def augment(self, examples: Packed | TokenStream, seed: int, epoch: int) -> Packed | TokenStream:
        """Each piece transposed at random, within the pitch range of the corpus."""
        if not self.settings.transpose:
            return examples
        if isinstance(examples, Packed):
            texts = examples.windows.texts
            moved = Ragged(self._transpose(texts.ids, texts.ends, seed, epoch), texts.ends)
            return dataclasses.replace(examples, windows=dataclasses.replace(examples.windows, texts=moved))
        ends = np.array([len(examples.ids)]) if examples.docs is None else examples.docs.ends
        return dataclasses.replace(examples, ids=self._transpose(examples.ids, ends, seed, epoch))

    def _transpose(
        self, ids: NDArray[np.integer], ends: NDArray[np.int64], seed: int, epoch: int
    ) -> NDArray[np.integer]:
        most, (pitch_of, moves) = self.settings.transpose, self._transpositions()
        pitches, starts = pitch_of[ids], ends - np.diff(ends, prepend=0)
        low = np.minimum.reduceat(np.where(pitches < 0, PITCHES, pitches), starts)
        high = np.maximum.reduceat(pitches, starts)
        bottom, top = min(self.ranges.values())[0], max(high for _, high in self.ranges.values())
        down = np.clip(low - bottom, 0, most)  # a piece may be held out, and go further than the corpus
        up = np.clip(top - high, 0, most)
        drawn = (Rng(seed, epoch).uniform(len(ends)) * (down + up + 1)).astype(np.int64) - down
        shift = np.repeat(drawn, np.diff(ends, prepend=0))
        moved: NDArray[np.integer] = moves[shift + most, ids].astype(ids.dtype)
        return moved

    def _transpositions(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The pitch of each token, −1 if it has none, and each token so many semitones higher, (2 · most + 1, v)."""
        most, by_name = self.settings.transpose, {name: i for i, name in enumerate(PITCH_NAMES)}
        pitches = np.full(self.tokenizer.size, -1)
        moves = np.tile(np.arange(self.tokenizer.size), (2 * most + 1, 1))
        for word in self.encoding.list_words():
            token, pitch = self._words[word], self.encoding.split(word)[1]
            if pitch:
                pitches[token] = by_name[pitch]
                for by in range(-most, most + 1):
                    moves[by + most, token] = self._words[self.encoding.transpose(word, by) or word]
        return pitches, moves

    # ------------------------------------------------------------------------------------------------ to the user

    def run(
        self,
        engine: Engine,
        inputs: Sequence[object],
        search: Search,
        options: RunOptions = MusicOptions(),
    ) -> list[list[Output]]:
        """The continuation of each piece by `max_extra` words, or a melody with all voices; as words, MIDI and a picture."""
        assert isinstance(options, MusicOptions)
        out = list[list[Output]]()
        for i, piece in enumerate(map(self._open, inputs)):
            once = dataclasses.replace(options, first=options.first + i)
            harmonize = self._harmonizes(piece) if options.harmonize is None else options.harmonize
            if harmonize:
                given, forced = list[str](), self._force_melody(piece)
                search_here = dataclasses.replace(search, max_extra=len(forced), max_length=None)
                done = "harmonized:"
            else:
                given, forced = self.encoding.encode(piece.notes), [FREE] * search.max_extra
                search_here, done = search, "continued by" if given else "written:"
            prompt = [*self._front, *(self._words[word] for word in given)]
            ((ids, total),) = self.continue_prompts(engine, [prompt], search_here, once, [forced])
            words = self.tokenizer.tokens(ids)
            out.append([self._present(piece, given, words, total, search, done)])
        return out

    def _present(
        self, piece: MusicPiece, given: Sequence[str], words: Sequence[str], log_prob: float, search: Search, done: str
    ) -> Output:
        """New words as music: what was given and what was written, a picture of both, and what is unusual about it."""
        encoding, before = self.encoding, self.encoding.decode(given)
        notes, begin = encoding.decode([*given, *words]), max((note.end for note in before), default=0)
        length = max((note.end for note in notes), default=0) - begin
        unit, rate = encoding.unit, encoding.steps_per_unit
        said = [f"{done} {len(notes) - len(before)} notes in {length / rate:.1f} {unit}"]
        checks = check_ranges([note for note in notes if note.end > begin], self.ranges, encoding.parts)
        said += checks or ["every part stays within its range in the training data"]
        faults = encoding.count_faults([*given, *words])
        said += [f"{what}: {count}" for what, count in faults.items()]
        files = {self.file_suffix: encoding.write(notes, piece.beats_per_minute)}
        if notes:
            bars = [Bar(note.start, note.end, note.pitch, note.part) for note in notes]
            files[".png"] = draw_piano_roll(bars, steps_per_line=rate, given=begin)
        more: Plain = {
            "notes": [[n.start, n.end, n.pitch, n.velocity, n.part] for n in notes], "unit": unit,
            "steps_per_unit": rate, "given": begin, "outside_range": checks, "faults": faults,
        }  # fmt: skip
        score = log_prob / search.divisor(max(len(words), 1))
        return Output(" ".join(words), score, log_prob, more, said, files)

    def _harmonizes(self, piece: MusicPiece) -> bool:
        return len(self.encoding.parts) > 1 and {note.part for note in piece.notes} == {0}

    def _force_melody(self, piece: MusicPiece) -> list[int]:
        """The words of the highest voice at their places, and free places for the others."""
        if len(self.encoding.parts) == 1:
            raise SpecError("only a model of several voices can harmonize; train one with data.encoding=four_voices")
        words = self.encoding.encode([note for note in piece.notes if note.part == 0])
        return [FREE if i % len(self.encoding.parts) else self._words[word] for i, word in enumerate(words)]

    def open_input(self, raw: bytes, name: str) -> MusicPiece:
        return parse_piece(raw, self.encoding, name)

    def _open(self, given: object) -> MusicPiece:
        """A piece from the path of a MIDI file, or from words of the encoding."""
        if isinstance(given, MusicPiece):
            return given
        text = str(given)
        if text.lower().endswith(MIDI):
            return read_piece(text, self.encoding)
        words = text.split()
        if unknown := next((word for word in words if word not in self._words), None):
            example = " ".join(self.encoding.list_words()[:3])
            raise DataError(
                f"{unknown[:40]!r} is neither a MIDI file (.mid) nor a word of this model's music, such as {example}"
            )
        return MusicPiece(text[:40], self.encoding.decode(words))

    def _spell(self, given: object) -> str:
        """A piece as words, with a space after them."""
        return " ".join([*self.encoding.encode(self._open(given).notes), ""])

    def stream(self, engine: Engine, text: str, search: Search, options: RunOptions = MusicOptions()) -> Iterator[str]:
        return super().stream(engine, self._spell(text), search, options)

    def score(
        self,
        engine: Engine,
        inputs: Sequence[object],
        outputs: Sequence[str],
        options: RunOptions = MusicOptions(),
    ) -> list[float]:
        """log P(words | the piece before them) for each pair."""
        return super().score(engine, [self._spell(given) for given in inputs], outputs, options)

    def forward_pass(self, net: Net, text: object, output: str, options: RunOptions = MusicOptions()) -> ForwardPass:
        """The piece with its continuation, both as words."""
        return super().forward_pass(net, self._spell(text), output, options)

    def find_unknown(self, inputs: Sequence[str]) -> list[int]:
        return []  # a path has no words, and words that are unknown are an error

    def list_texts(self, raw: Texts) -> list[TextSide]:
        return []  # words are spellings of notes: bits per byte would say nothing

    def frame(self) -> Plain | None:
        return None  # its inputs are files

    def _truncate(self, ids: list[int], room: int | None) -> list[int]:
        """Truncate like texts, but never in the middle of a step of several voices."""
        kept = super()._truncate(ids, room)
        return kept[(len(kept) - len(ids)) % len(self.encoding.parts) :] if len(kept) < len(ids) else kept


def measure_ranges(notes: Iterable[Note]) -> Ranges:
    """The lowest and highest pitch of each part."""
    out = dict[int, tuple[int, int]]()
    for note in notes:
        low, high = out.get(note.part, (note.pitch, note.pitch))
        out[note.part] = min(low, note.pitch), max(high, note.pitch)
    return out


def _keep_whole(found: FoundMusic, encoding: EncodingSpec, on_bad: OnBad) -> None:
    """Drop pieces to learn from that lack a part, or refuse the first; lists may be those of several parts of the data."""
    for pieces in (found.parts.get("train", []), found.parts.get("valid", [])):
        faults = [_find_fault(piece, encoding) for piece in pieces]
        found.dropped += (said := [fault for fault in faults if fault])
        if said and on_bad == "error":
            raise DataError(f"{said[0]}; leave it out, or drop such pieces with --on-bad drop")
        pieces[:] = [piece for piece, fault in zip(pieces, faults, strict=True) if not fault]


def _find_fault(piece: MusicPiece, encoding: EncodingSpec) -> str:
    there = {note.part for note in piece.notes}
    missing = [name for part, name in enumerate(encoding.parts) if part not in there]
    said = f"{piece} has no notes for {', '.join(missing)}; training needs {', '.join(encoding.parts)}"
    return said if missing else ""


def _check_rest(found: Sequence[FoundMusic], part: Part) -> None:
    """Refuse data of which nothing is left."""
    dropped = [fault for one in found for fault in one.dropped]
    if dropped and not any(one.parts.get(part) for one in found):
        raise DataError(f"{dropped[0]}; no piece is left for part {part!r}")


def _unpack_ranges(files: Mapping[str, bytes], count: int) -> Ranges:
    """The ranges of the parts, from the file of a model folder."""
    try:
        found = list(json.loads(files[RANGES_FILE])["ranges"].values())
        rows = {part: (int(row[0]), int(row[1])) for part, row in enumerate(found)}
    except (KeyError, ValueError, TypeError, AttributeError, IndexError, RecursionError, OverflowError):
        rows = {}
    if len(rows) != count or not all(0 <= low <= high < PITCHES for low, high in rows.values()):
        raise CheckpointError(f"{RANGES_FILE} should have the lowest and highest pitch of each of {count} parts")
    return rows
