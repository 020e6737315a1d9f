"""Texts to tokens and back, for models of text pairs.

A user of such a model needs this besides the model itself: how a text is framed for the encoder, what an output must contain,
which texts are too long. Nothing here needs torch, so that a model can run without it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from regard.decode.decode_request import Constraints, Draw, Hypothesis, Request, SpecialTokens
from regard.decode.engine import Engine, stream_tokens
from regard.decode.search import Search
from regard.decode.stream_text import stream_text
from regard.errors import DataError, SpecError
from regard.spec import Plain
from regard.tasks.common.task import EvalSet, Output, RunOptions
from regard.text import Tokenizer
from regard.text.sentence_split import split_to_fit
from regard.text.word_ids import encode_inside

MAX_UNFOLD = 10
"""Maximum of `unfold`."""


@dataclasses.dataclass(frozen=True)
class TextPairsOptions(RunOptions):
    """Constraints on outputs, and what is reported about them."""

    tag: str | None = None
    """The target language of a many-to-many model, as `2de`."""
    prefixes: Sequence[str] | None = None
    """Beginning of each output."""
    must_include: Sequence[Sequence[str]] | None = None
    """Terms that each output must contain."""
    words: bool = False
    """True if outputs come with the confidence and the alignment of each word."""


class PairsFrame:
    """Reads texts of at most `max_length` tokens, and writes others."""

    Options = TextPairsOptions
    unfold: float = 1.0
    """Factor by which a source becomes longer: its end mark is repeated."""
    splits: bool = True
    """True if a text that is too long is read in parts, whose outputs are joined; otherwise its end is left out."""
    prompts: Mapping[str, Sequence[int]] = {}
    """Tokens that the encoder reads before a text, by tag; "" is for texts without a tag."""

    def __init__(self, max_length: int, tokenizer: Tokenizer, source: Tokenizer | None = None) -> None:
        self.max_length, self.tokenizer, self._source = max_length, tokenizer, source or tokenizer
        template = self.source_tokenizer.template
        self._front = [] if template is None else template.opening  # BART's encoder reads a mark before the text, too

    @property
    def source_tokenizer(self) -> Tokenizer:
        return self._source

    def describe_words(
        self,
        engine: Engine,
        inputs: Sequence[str],
        found: Sequence[Sequence[Hypothesis]],
        options: TextPairsOptions,
    ) -> list[Plain]:
        """The confidence and the alignment of each word of all hypotheses, one after another."""
        raise SpecError("the confidence and the alignment of words need torch; leave out words")

    def run(
        self, engine: Engine, inputs: Sequence[str], search: Search, options: TextPairsOptions = TextPairsOptions()
    ) -> list[list[Output]]:
        """Outputs for each input text, best first."""
        found = engine.decode(self._ask(engine, inputs, search, options))
        out = [[Output(self.tokenizer.decode(h.tokens), h.score, h.log_prob) for h in each] for each in found]
        if not options.words:
            return out
        more = iter(self.describe_words(engine, inputs, found, options))
        return [[dataclasses.replace(output, more=next(more)) for output in each] for each in out]

    def stream(
        self, engine: Engine, text: str, search: Search, options: TextPairsOptions = TextPairsOptions()
    ) -> Iterator[str]:
        """The output for one text in pieces, as they are generated."""
        return stream_text(stream_tokens(engine, self._ask(engine, [text], search, options)), self.tokenizer.decode)

    def eval_sets(self, raw: Any) -> list[EvalSet]:
        """Inputs with their references; none without the task's data."""
        return []

    def _ask(self, engine: Engine, inputs: Sequence[str], search: Search, options: TextPairsOptions) -> Request:
        """The request for outputs, of as many tokens as the model can write and no more than twice those of a source."""
        return Request(
            self.encode_inputs(inputs, options),
            limit_length(engine, search, 2 * self.max_length),
            SpecialTokens.of(self.tokenizer),
            self._encode_constraints(options),
            Draw(range(options.first, options.first + len(inputs))),
        )

    def _encode_constraints(self, options: TextPairsOptions) -> Constraints:
        """Encode what outputs must begin with and include."""
        prefixes, terms = options.prefixes, options.must_include
        self._check_writable([text for text in prefixes or () if text.strip()])
        forced = None if prefixes is None else self.tokenizer.encode_all(prefixes)
        return Constraints([self.tokenizer.unk], forced, None if terms is None else self._encode_terms(terms))

    @property
    def tags(self) -> list[str]:
        """List what an output can be asked to be: the languages of a many-to-many model, or the lengths of summaries."""
        special = [tag.removeprefix("<").removesuffix(">") for tag in self.source_tokenizer.tags]
        return [tag.removeprefix("2") for tag in (*special, *self.prompts) if tag.startswith("2")]

    def find_too_long(self, inputs: Sequence[str], options: TextPairsOptions = TextPairsOptions()) -> list[int]:
        room = self._room(options.tag)
        return [i for i, tokens in enumerate(self.source_tokenizer.encode_all(inputs)) if len(tokens) > room]

    def find_unknown(self, inputs: Sequence[str]) -> list[int]:
        return self.source_tokenizer.mostly_unknown(inputs)

    def find_unwritable(self, texts: Sequence[str]) -> list[str]:
        ids = [encode_inside(self.tokenizer, text.strip()) for text in texts]
        return [text for text, tokens in zip(texts, ids, strict=True) if not tokens or self.tokenizer.unk in tokens]

    def split(self, text: str, options: TextPairsOptions = TextPairsOptions()) -> list[str]:
        return (
            list(split_to_fit(self.source_tokenizer, text, max(self._room(options.tag), 1))) if self.splits else [text]
        )

    def encode_inputs(self, inputs: Sequence[str], options: TextPairsOptions) -> list[list[int]]:
        front, room = self._opening(options.tag), self._room(options.tag)
        eos, texts = self.source_tokenizer.eos, self.source_tokenizer.encode_all(inputs)
        read = [[*front, *ids[:room], eos] for ids in texts]
        return [[*ids, *[eos] * (unfold_length(len(ids), self.unfold) - len(ids))] for ids in read]

    def encode_outputs(self, inputs: Sequence[str], outputs: Sequence[str]) -> list[list[int]]:
        return self.tokenizer.encode_all(outputs)

    def _opening(self, tag: str | None) -> list[int]:
        """The tokens that the encoder reads before a text."""
        if (tag or "") in self.prompts:
            return [*self._front, *self.prompts[tag or ""]]
        return [*self._front] if tag is None else [*self._front, self.source_tokenizer.tag(tag_token(tag))]

    def _room(self, tag: str | None) -> int:
        """Maximum tokens of a text that the encoder reads, between its opening and the end mark."""
        prompt = self.prompts.get(tag or "")
        return self.max_length - 1 - len(self._front) - (tag is not None if prompt is None else len(prompt))

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


def limit_length(engine: Engine, search: Search, limit: int) -> Search:
    """The search with outputs of at most `limit` tokens, or as many as the model can write."""
    room = min(limit, engine.length)
    return dataclasses.replace(search, max_length=min(search.max_length or room, room))


def unfold_length(length: int, factor: float) -> int:
    """The number of columns for a source of this length: ⌈factor · length⌉, whatever the rounding of the product."""
    return max(math.ceil(round(factor * length, 6)), length)


def tag_token(tag: str) -> str:
    """The token that stands for a tag: `2de` → `<2de>`."""
    return f"<{tag}>"
