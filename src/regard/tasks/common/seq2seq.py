"""Base of the tasks that read one text and write another.

An encoder reads, a decoder writes. `Seq2Seq` is the base of all such tasks: the loss, the scores of outputs, attention.
`TextPairs` adds what tasks share that learn from pairs of texts: two tokenizers, encoded pairs, word dropout,
constraints, alignment.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Generic, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from regard.data.batch import IGNORE, Batch, PaddedTokens, pad_rows
from regard.data.example_rng import ExampleRng
from regard.data.pairs import Pairs
from regard.data.ragged import Ragged
from regard.data.token_store import InMemoryTokens, TokenStore
from regard.data.word_dropout import drop_words
from regard.decode import Constraints, Draw, Hypothesis, Search, SpecialTokens, generate, score, stream_tokens
from regard.decode.stream_text import stream_text
from regard.errors import CheckpointError, DataError, SpecError
from regard.model.model_spec import ModelSpec
from regard.model.net import Net
from regard.nn.blocks.head import Classes, Vector
from regard.nn.core.context import Tape
from regard.nn.core.coords import Coords
from regard.tasks.common.encoded_pairs import EncodedPairs, encode_pairs, in_folder, in_memory
from regard.tasks.common.example_names import quote_examples
from regard.tasks.common.forward_pass import ForwardPass
from regard.tasks.common.losses import sequence_loss
from regard.tasks.common.task import EvalSet, Loss, Output, RunOptions, TextSide, check_pairs
from regard.tasks.common.word_scores import Alignment, Confidence, WordPairs
from regard.text import Tokenizer
from regard.text.sentence_split import split_text
from regard.text.word_ids import TokenizedWords, encode_inside, group_tokens, tokenize_words

TARGET, SOURCE = "tokenizer.json", "tokenizer.source.json"


class Seq2SeqSettings(Protocol):
    """What the settings of such a task have in common."""

    @property
    def max_length(self) -> int: ...

    @property
    def metrics(self) -> tuple[str, ...]: ...


class TextPairsSettings(Seq2SeqSettings, Protocol):
    """What the settings of a task that learns from pairs have in common."""

    @property
    def word_dropout(self) -> float: ...


S = TypeVar("S", bound=Seq2SeqSettings)
P = TypeVar("P", bound=TextPairsSettings)
O = TypeVar("O", bound=RunOptions)


@dataclasses.dataclass(frozen=True)
class TextPairsOptions(RunOptions):
    """What is to be written, and what is reported about it."""

    tag: str | None = None
    """The target language of a many-to-many model, as `2de`."""
    prefixes: Sequence[str] | None = None
    """How each output must begin."""
    must_include: Sequence[Sequence[str]] | None = None
    """Terms that each output must contain."""
    words: bool = False
    """Whether outputs come with the confidence and the alignment of each word."""


class Seq2Seq(Generic[S, O]):
    """A task with an encoder-decoder. A child says how inputs and outputs become tokens."""

    Options: type[O]
    settings: S
    tokenizer: Tokenizer
    """The tokenizer of what is written."""

    @property
    def metrics(self) -> tuple[str, ...]:
        return self.settings.metrics

    @property
    def source_tokenizer(self) -> Tokenizer:
        """The tokenizer of what is read."""
        return self.tokenizer

    def encode_inputs(self, inputs: Sequence[str], options: O) -> list[list[int]]:
        """Inputs as the encoder reads them: at most `max_length` tokens, the last of which is the end mark."""
        raise NotImplementedError

    def encode_outputs(self, inputs: Sequence[str], outputs: Sequence[str]) -> list[list[int]]:
        """Outputs as the decoder writes them for these inputs, without start and end mark."""
        raise NotImplementedError

    def adapt_spec(self, spec: ModelSpec) -> ModelSpec:
        if spec.encoder is None or spec.decoder is None or isinstance(spec.head, Classes | Vector):
            raise SpecError(
                "to write one text for another, a model needs an encoder, a decoder and a head over tokens; use "
                "model.family: transformer"
            )
        return spec

    def build_batch(
        self, source: Ragged, target: Ragged, indices: NDArray[np.int64] | None = None, given: Ragged | None = None
    ) -> Batch:
        """Sources with their end mark, targets after a start mark (read) and before an end mark (wanted).

        Without `indices`, all rows. `given` replaces the targets that are read; those that are wanted stay.
        """
        rows = np.arange(len(source)) if indices is None else indices
        read = pad_rows(source, rows, self.source_tokenizer.pad, after=self.source_tokenizer.eos)
        told = pad_rows(target if given is None else given, rows, self.tokenizer.pad, before=self.tokenizer.bos)
        wanted = pad_rows(target, rows, IGNORE, after=self.tokenizer.eos)
        return Batch(told, wanted.ids, read, sum(wanted.lengths))

    def loss(self, net: Net, batch: Batch, smoothing: float) -> Loss:
        assert batch.source is not None
        tape = Tape()
        stream = net(batch.given.ids, _coords(batch.given), (batch.source.ids, _coords(batch.source)), tape)
        return sequence_loss(net, stream, batch, smoothing, tape)

    def generate(
        self, nets: Sequence[Net], sources: Sequence[list[int]], search: Search, limit: int, draw: Draw,
        constraints: Constraints,
    ) -> list[list[Hypothesis]]:  # fmt: skip
        """Search for outputs of at most `limit` tokens, or as many as the models can write."""
        search = limit_length(nets, search, limit)
        return generate(nets, sources, search, SpecialTokens.of(self.tokenizer), constraints=constraints, draw=draw)

    def score(self, net: Net, inputs: Sequence[str], outputs: Sequence[str], options: O | None = None) -> list[float]:
        """log P(output | input) for each pair."""
        check_pairs(inputs, outputs)
        targets = [[*ids, self.tokenizer.eos] for ids in self.encode_outputs(inputs, outputs)]
        return score(
            net, self.encode_inputs(inputs, options or self.Options()), targets, SpecialTokens.of(self.tokenizer)
        )

    def forward_pass(self, net: Net, text: str, output: str, options: O | None = None) -> ForwardPass:
        """A pair: the output is predicted, and its end."""
        (source,) = self.encode_inputs([text], options or self.Options())
        (ids,) = self.encode_outputs([text], [output])
        given = [self.tokenizer.bos, *ids]
        written = ForwardPass.of(net, given, [*ids, self.tokenizer.eos], tokenizer=self.tokenizer)
        return written.after(source, self.source_tokenizer)


class TextPairs(Seq2Seq[P, TextPairsOptions]):
    """A task that learns from pairs of texts, with one vocabulary for both sides or one for each."""

    Options = TextPairsOptions

    def __init__(self, settings: P, tokenizer: Tokenizer, source: Tokenizer | None = None) -> None:
        self.settings, self.tokenizer = settings, tokenizer
        self._source, self.joint_vocab = source or tokenizer, source is None
        template = self.source_tokenizer.template
        self._front = [] if template is None else template.opening  # BART's encoder reads a mark before the text, too

    @property
    def source_tokenizer(self) -> Tokenizer:
        return self._source

    # ------------------------------------------------------------------------------------------------ from data

    @classmethod
    def load(cls, settings: P, files: Mapping[str, bytes]) -> Self:
        if TARGET not in files:
            raise CheckpointError(f"there is no {TARGET} among {', '.join(files)}; a model cannot be used without it")
        source = Tokenizer.from_bytes(files[SOURCE], SOURCE) if SOURCE in files else None
        return cls(settings, Tokenizer.from_bytes(files[TARGET], TARGET), source)

    def files(self) -> dict[str, bytes]:
        own = {TARGET: self.tokenizer.to_bytes()}
        return own if self.joint_vocab else {**own, SOURCE: self.source_tokenizer.to_bytes()}

    def model_arguments(self) -> dict[str, int]:
        sizes = {"vocab": self.tokenizer.size, "length": self.settings.max_length + 2}
        return sizes if self.joint_vocab else {**sizes, "source_vocab": self.source_tokenizer.size}

    def mixture(self) -> tuple[int | None, float]:
        """How corpora share an epoch: the number of pairs above which a corpus gets no larger share, and the temperature."""
        return None, 1.0

    def encode(self, raw: Sequence[Pairs]) -> EncodedPairs:
        """Token ids of all pairs except those longer than `max_length`."""
        return self._encode(raw, in_memory())

    def encode_to(self, folder: Path, raw: Sequence[Pairs], fingerprint: str) -> EncodedPairs:
        """The same, stored in a folder and encoded again only if something changed."""
        made_of = {
            "corpus": fingerprint,
            "pairs": [*map(len, raw)],
            "vocabulary": {name: hashlib.sha256(data).hexdigest() for name, data in self.files().items()},
            "max_length": self.settings.max_length,
        }
        return self._encode(raw, in_folder(folder, **made_of))

    def tokenize_pairs(self, sources: Sequence[str], targets: Sequence[str], tag: str | None) -> tuple[Ragged, Ragged]:
        """The tokens of sources, which have this tag, and of their targets."""
        front = self._opening(tag)
        read = Ragged.of([[*front, *ids] for ids in self.source_tokenizer.encode_all(sources)])
        return read, Ragged.of(self.tokenizer.encode_all(targets))

    # ------------------------------------------------------------------------------------------------ to the model

    def augment(self, examples: EncodedPairs, seed: int, epoch: int) -> EncodedPairs:
        """With word dropout, the tokens that are dropped in this epoch."""
        return dataclasses.replace(examples, rng=ExampleRng(seed, epoch)) if self.settings.word_dropout else examples

    def batch(self, examples: EncodedPairs, indices: NDArray[np.int64]) -> Batch:
        if examples.rng is None:
            return self.build_batch(examples.source, examples.target, indices)
        source, target = examples.source.take(indices), examples.target.take(indices)
        rng, share = [examples.rng.of(i) for i in indices.tolist()], self.settings.word_dropout
        read, given = (
            drop_words(source, self.source_tokenizer, share, rng),
            drop_words(target, self.tokenizer, share, rng),
        )
        return self.build_batch(read, target, given=given)

    def describe_examples(self, examples: EncodedPairs, indices: NDArray[np.int64]) -> list[str]:
        return quote_examples(indices, examples.source.take(indices), self.source_tokenizer)

    # ------------------------------------------------------------------------------------------------ to the user

    def run(
        self,
        nets: Sequence[Net],
        inputs: Sequence[str],
        search: Search,
        options: TextPairsOptions = TextPairsOptions(),
    ) -> list[list[Output]]:
        """Outputs for each input text, best first."""
        constraints = self._encode_constraints(options)
        draw, sources = Draw(range(options.first, options.first + len(inputs))), self.encode_inputs(inputs, options)
        found = self.generate(nets, sources, search, 2 * self.settings.max_length, draw, constraints)
        out = [[Output(self.tokenizer.decode(h.tokens), h.score, h.log_prob) for h in each] for each in found]
        if not options.words:
            return out
        written = [group_tokens(self.tokenizer, h.tokens) for each in found for h in each]
        read = [text for text, each in zip(inputs, found, strict=True) for _ in each]
        more = iter(self._pair_words(read, written, options).plain(nets))
        return [[dataclasses.replace(output, more=next(more)) for output in each] for each in out]

    def stream(
        self, nets: Sequence[Net], text: str, search: Search, options: TextPairsOptions = TextPairsOptions()
    ) -> Iterator[str]:
        """The output for one text in pieces, as they are generated."""
        (source,) = self.encode_inputs([text], options)
        tokens = stream_tokens(
            nets, source, limit_length(nets, search, 2 * self.settings.max_length), SpecialTokens.of(self.tokenizer),
            constraints=self._encode_constraints(options), draw=Draw([options.first]),
        )  # fmt: skip
        return stream_text(tokens, self.tokenizer.decode)

    def _encode_constraints(self, options: TextPairsOptions) -> Constraints:
        """What outputs must begin with and include, as tokens."""
        prefixes, terms = options.prefixes, options.must_include
        self._check_writable([text for text in prefixes or () if text.strip()])
        forced = None if prefixes is None else self.tokenizer.encode_all(prefixes)
        return Constraints([self.tokenizer.unk], forced, None if terms is None else self._encode_terms(terms))

    def confidence(
        self, net: Net, inputs: Sequence[str], outputs: Sequence[str], options: TextPairsOptions = TextPairsOptions()
    ) -> list[Confidence]:
        return self._pair_words(inputs, tokenize_words(self.tokenizer, outputs), options).confidence(net)

    def align(
        self,
        net: Net,
        inputs: Sequence[str],
        outputs: Sequence[str],
        options: TextPairsOptions = TextPairsOptions(),
        *,
        layer: int | None = None,
    ) -> list[Alignment]:
        return self._pair_words(inputs, tokenize_words(self.tokenizer, outputs), options).align(net, layer)

    def eval_sets(self, raw: Sequence[Pairs]) -> list[EvalSet]:
        return [EvalSet(pairs.source, pairs.target, TextPairsOptions(tag=pairs.tag), pairs.name) for pairs in raw]

    def list_texts(self, raw: Sequence[Pairs]) -> list[TextSide]:
        return [
            TextSide(self.source_tokenizer, [text for pairs in raw for text in pairs.source]),
            TextSide(self.tokenizer, [text for pairs in raw for text in pairs.target], written=True),
        ]

    @property
    def tags(self) -> list[str]:
        """The target languages of a many-to-many model."""
        return [tag.removeprefix("<2").removesuffix(">") for tag in self.source_tokenizer.tags if tag.startswith("<2")]

    def find_too_long(self, inputs: Sequence[str], options: TextPairsOptions = TextPairsOptions()) -> list[int]:
        room = self._room(options.tag)
        return [i for i, tokens in enumerate(self.source_tokenizer.encode_all(inputs)) if len(tokens) > room]

    def find_unknown(self, inputs: Sequence[str]) -> list[int]:
        return self.source_tokenizer.mostly_unknown(inputs)

    def find_unwritable(self, texts: Sequence[str]) -> list[str]:
        ids = [encode_inside(self.tokenizer, text.strip()) for text in texts]
        return [text for text, tokens in zip(texts, ids, strict=True) if not tokens or self.tokenizer.unk in tokens]

    def split(self, text: str, options: TextPairsOptions = TextPairsOptions()) -> list[str]:
        return list(split_text(self.source_tokenizer, text, max(self._room(options.tag), 1)))

    def encode_inputs(self, inputs: Sequence[str], options: TextPairsOptions) -> list[list[int]]:
        front, room = self._opening(options.tag), self._room(options.tag)
        return [[*front, *ids[:room], self.source_tokenizer.eos] for ids in self.source_tokenizer.encode_all(inputs)]

    def encode_outputs(self, inputs: Sequence[str], outputs: Sequence[str]) -> list[list[int]]:
        return self.tokenizer.encode_all(outputs)

    # ------------------------------------------------------------------------------------------------ helpers

    def _encode(self, raw: Sequence[Pairs], store: TokenStore | InMemoryTokens) -> EncodedPairs:
        limit, temperature = self.mixture()
        length = self.settings.max_length
        return encode_pairs(raw, self.tokenize_pairs, store, max_length=length, limit=limit, temperature=temperature)

    def _opening(self, tag: str | None) -> list[int]:
        """The tokens that the encoder reads before a text."""
        return [*self._front] if tag is None else [*self._front, self.source_tokenizer.tag(tag_token(tag))]

    def _room(self, tag: str | None) -> int:
        """How many tokens of a text the encoder reads, between its opening and the end mark."""
        return self.settings.max_length - 1 - len(self._front) - (tag is not None)

    def _encode_terms(self, terms: Sequence[Sequence[str]]) -> list[list[list[int]]]:
        """Terms as they are tokenized within a text."""
        if any(isinstance(row, str) for row in terms):
            raise SpecError(
                "`must_include` should have a list of terms for each input, got a text; write [[term, ...], ...]"
            )
        known = {term: encode_inside(self.tokenizer, term.strip()) for row in terms for term in row}
        self._check_writable(list(known))
        return [[known[term] for term in row] for row in terms]

    def _check_writable(self, texts: Sequence[str]) -> None:
        if wrong := self.find_unwritable(texts):
            raise DataError(f"the model cannot write {wrong[0]!r}: not all of it is in its vocabulary")

    def _pair_words(
        self, inputs: Sequence[str], written: Sequence[TokenizedWords], options: TextPairsOptions
    ) -> WordPairs:
        check_pairs(inputs, written)
        read, front = tokenize_words(self.source_tokenizer, inputs), len(self._opening(options.tag))
        return WordPairs(self.encode_inputs(inputs, options), read, written, front=front, tokenizer=self.tokenizer)


def tag_token(tag: str) -> str:
    """The token that stands for a tag: `2de` → `<2de>`."""
    return f"<{tag}>"


def limit_length(nets: Sequence[Net], search: Search, limit: int) -> Search:
    """The search with outputs of at most `limit` tokens, or as many as the models can write."""
    room = min(limit, *(net.spec.length for net in nets))
    return dataclasses.replace(search, max_length=min(search.max_length or room, room))


def _coords(side: PaddedTokens) -> Coords:
    return Coords.lengths(side.lengths, side.ids.device)
