"""Base of the tasks that read one text and write another.

An encoder reads, a decoder writes. `Seq2Seq` is the base of all such tasks: the loss, the scores of outputs, attention.
`TextPairs` adds what tasks share that learn from pairs of texts: two tokenizers, encoded pairs, word dropout,
constraints, alignment.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Generic, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from regard.data.batch import IGNORE, Batch, PaddedTokens, pad_rows, repeat_last
from regard.data.example_rng import ExampleRng
from regard.data.pairs import Pairs
from regard.data.ragged import Ragged
from regard.data.token_store import InMemoryTokens, TokenStore
from regard.data.word_dropout import drop_words
from regard.decode import Engine, Hypothesis, SpecialTokens
from regard.errors import CheckpointError, SpecError
from regard.files.folder import SOURCE_TOKENIZER, TOKENIZER
from regard.model.model_spec import ModelSpec
from regard.model.net import Net
from regard.nn.blocks.head import Classes, Vector
from regard.nn.core.context import Tape
from regard.nn.core.coords import Coords
from regard.spec import Plain
from regard.tasks.common.encoded_pairs import EncodedPairs, encode_pairs, in_folder, in_memory
from regard.tasks.common.example_names import quote_examples
from regard.tasks.common.forward_pass import ForwardPass
from regard.tasks.common.losses import sequence_loss
from regard.tasks.common.pairs_frame import PairsFrame, TextPairsOptions, unfold_length
from regard.tasks.common.task import EvalSet, Loss, RunOptions, TextSide, check_pairs
from regard.tasks.common.word_scores import Alignment, Confidence, WordPairs
from regard.text import Template, Tokenizer
from regard.text.word_ids import TokenizedWords, group_tokens, tokenize_words


class Seq2SeqSettings(Protocol):
    """Settings that such tasks have in common."""

    @property
    def max_length(self) -> int: ...

    @property
    def metrics(self) -> tuple[str, ...]: ...


class TextPairsSettings(Seq2SeqSettings, Protocol):
    """Settings that tasks have in common which learn from pairs."""

    @property
    def word_dropout(self) -> float: ...


S = TypeVar("S", bound=Seq2SeqSettings)
P = TypeVar("P", bound=TextPairsSettings)
O = TypeVar("O", bound=RunOptions)


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

    @property
    def input_template(self) -> Template:
        """The special tokens around a text that the encoder reads."""
        return self.source_tokenizer.surround([], [self.source_tokenizer.eos])

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
        tape = Tape(outer=net.tape)
        stream = net(batch.given.ids, _coords(batch.given), (batch.source.ids, _coords(batch.source)), tape)
        return sequence_loss(net, stream, batch, smoothing, tape)

    def score(
        self, engine: Engine, inputs: Sequence[str], outputs: Sequence[str], options: O | None = None
    ) -> list[float]:
        """log P(output | input) for each pair."""
        check_pairs(inputs, outputs)
        targets = [[*ids, self.tokenizer.eos] for ids in self.encode_outputs(inputs, outputs)]
        sources = self.encode_inputs(inputs, options or self.Options())
        return [math.fsum(each) for each in engine.score(sources, targets, SpecialTokens.of(self.tokenizer))]

    def forward_pass(self, net: Net, text: str, output: str, options: O | None = None) -> ForwardPass:
        """A pair: the output is predicted, and its end."""
        (source,) = self.encode_inputs([text], options or self.Options())
        (ids,) = self.encode_outputs([text], [output])
        given = [self.tokenizer.bos, *ids]
        written = ForwardPass.of(net, given, [*ids, self.tokenizer.eos], tokenizer=self.tokenizer)
        return written.after(source, self.source_tokenizer)


class TextPairs(PairsFrame, Seq2Seq[P, TextPairsOptions]):
    """A task that learns from pairs of texts, with one vocabulary for both sides or one for each."""

    def __init__(self, settings: P, tokenizer: Tokenizer, source: Tokenizer | None = None) -> None:
        super().__init__(settings.max_length, tokenizer, source)
        self.settings, self.joint_vocab = settings, source is None

    @property
    def input_template(self) -> Template:
        return self.source_tokenizer.surround(self._front, [self.source_tokenizer.eos])

    # ------------------------------------------------------------------------------------------------ from data

    @classmethod
    def load(cls, settings: P, files: Mapping[str, bytes]) -> Self:
        if TOKENIZER not in files:
            raise CheckpointError(
                f"there is no {TOKENIZER} among {', '.join(files)}; a model cannot be used without it"
            )
        source = Tokenizer.from_bytes(files[SOURCE_TOKENIZER], SOURCE_TOKENIZER) if SOURCE_TOKENIZER in files else None
        return cls(settings, Tokenizer.from_bytes(files[TOKENIZER], TOKENIZER), source)

    def files(self) -> dict[str, bytes]:
        own = {TOKENIZER: self.tokenizer.to_bytes()}
        return own if self.joint_vocab else {**own, SOURCE_TOKENIZER: self.source_tokenizer.to_bytes()}

    def model_arguments(self) -> dict[str, int]:
        sizes = {
            "vocab": self.tokenizer.size,
            "length": unfold_length(self.settings.max_length, self.unfold) + 2,
            "start": self.tokenizer.bos,
        }
        return sizes if self.joint_vocab else {**sizes, "source_vocab": self.source_tokenizer.size}

    def mixture(self) -> tuple[int | None, float]:
        """Shares of corpora in an epoch: the number of pairs above which a corpus gets no larger share, and the temperature."""
        return None, 1.0

    def encode(self, raw: Sequence[Pairs]) -> EncodedPairs:
        """Token ids of all pairs except those longer than `max_length`."""
        return self._encode(raw, in_memory())

    def encode_to(self, folder: Path, raw: Sequence[Pairs], fingerprint: str) -> EncodedPairs:
        """Encode pairs into a folder, and again only if something changed."""
        made_of = {"corpus": fingerprint, "pairs": [*map(len, raw)], **self.describe_encoding()}
        return self._encode(raw, in_folder(folder, **made_of))

    def describe_encoding(self) -> dict[str, object]:
        """Return what the tokens depend on besides the texts."""
        files = {name: hashlib.sha256(data).hexdigest() for name, data in self.files().items()}
        return {"vocabulary": files, "max_length": self.settings.max_length}

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

    def build_batch(
        self, source: Ragged, target: Ragged, indices: NDArray[np.int64] | None = None, given: Ragged | None = None
    ) -> Batch:
        batch = super().build_batch(source, target, indices, given)
        if self.unfold == 1.0 or batch.source is None:
            return batch
        lengths = [unfold_length(length, self.unfold) for length in batch.source.lengths]
        read = repeat_last(batch.source, lengths, self.source_tokenizer.eos, self.source_tokenizer.pad)
        return dataclasses.replace(batch, source=read)

    def describe_examples(self, examples: EncodedPairs, indices: NDArray[np.int64]) -> list[str]:
        return quote_examples(indices, examples.source.take(indices), self.source_tokenizer)

    # ------------------------------------------------------------------------------------------------ to the user

    def frame(self) -> Plain:
        more: Plain = {} if self.unfold == 1.0 else {"unfold": self.unfold}
        more |= {} if self.splits else {"splits": False}
        more |= {"prompts": {tag: list(ids) for tag, ids in self.prompts.items()}} if self.prompts else {}
        return {"kind": "pairs", "max_length": self.settings.max_length, **more}

    def describe_words(
        self,
        engine: Engine,
        inputs: Sequence[str],
        found: Sequence[Sequence[Hypothesis]],
        options: TextPairsOptions,
    ) -> list[Plain]:
        written = group_tokens(self.tokenizer, [h.tokens for each in found for h in each])
        read = [text for text, each in zip(inputs, found, strict=True) for _ in each]
        return self._pair_words(read, written, options).plain(engine.nets)

    def confidence(
        self,
        engine: Engine,
        inputs: Sequence[str],
        outputs: Sequence[str],
        options: TextPairsOptions = TextPairsOptions(),
    ) -> list[Confidence]:
        return self._pair_words(inputs, tokenize_words(self.tokenizer, outputs), options).confidence(*engine.nets)

    def align(
        self,
        engine: Engine,
        inputs: Sequence[str],
        outputs: Sequence[str],
        options: TextPairsOptions = TextPairsOptions(),
        *,
        layer: int | None = None,
    ) -> list[Alignment]:
        return self._pair_words(inputs, tokenize_words(self.tokenizer, outputs), options).align(engine.nets[0], layer)

    def eval_sets(self, raw: Sequence[Pairs]) -> list[EvalSet]:
        return [EvalSet(pairs.source, pairs.target, TextPairsOptions(tag=pairs.tag), pairs.name) for pairs in raw]

    def list_texts(self, raw: Sequence[Pairs]) -> list[TextSide]:
        return [
            TextSide(self.source_tokenizer, [text for pairs in raw for text in pairs.source]),
            TextSide(self.tokenizer, [text for pairs in raw for text in pairs.target], written=True),
        ]

    # ------------------------------------------------------------------------------------------------ helpers

    def _encode(self, raw: Sequence[Pairs], store: TokenStore | InMemoryTokens) -> EncodedPairs:
        limit, temperature = self.mixture()
        length = self.settings.max_length
        return encode_pairs(raw, self.tokenize_pairs, store, max_length=length, limit=limit, temperature=temperature)

    def _pair_words(
        self, inputs: Sequence[str], written: Sequence[TokenizedWords], options: TextPairsOptions
    ) -> WordPairs:
        check_pairs(inputs, written)
        front, room = len(self._opening(options.tag)), self._room(options.tag)
        texts = tokenize_words(self.source_tokenizer, inputs)
        read = [dataclasses.replace(text, owner=text.owner[:room]) for text in texts]  # what does not fit is not read
        return WordPairs(self.encode_inputs(inputs, options), read, written, front=front, tokenizer=self.tokenizer)


def _coords(side: PaddedTokens) -> Coords:
    return Coords.lengths(side.lengths, side.ids.device)
