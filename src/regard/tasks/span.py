"""Span corruption, the pre-training of T5.

An encoder-decoder reads a text with masked spans and writes them (Raffel et al. 2019).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np
from pydantic import Field

from regard.data.example_rng import Rng
from regard.data.span_corruption import Spans, corrupt, restore
from regard.decode import Constraints, Draw, Engine, Request, Search, SpecialTokens
from regard.errors import DataError, SpecError
from regard.spec import spec
from regard.tasks.common.fill_mask import MARK, encode_masked, find_fills
from regard.tasks.common.pairs_frame import limit_length
from regard.tasks.common.task import TASKS, Output, RunOptions
from regard.tasks.common.text_corruption import CorruptionData, CorruptionTask, Ids
from regard.text import Tokenizer

SENTINEL = "<extra_id_{}>"


@spec
class SpanData(CorruptionData):
    """The `data` part of a recipe: text files, the length of texts, and the masked spans."""

    spans: Spans = Spans()
    sentinels: Annotated[int, Field(ge=1, le=100_000)] = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        raw = self.spans.longest_text(self.max_length)
        if raw < 2:
            raise SpecError(f"max_length={self.max_length} leaves no room for a text with a masked span; raise it")
        needed = self.spans.span_counts(raw)[1] + self.spans.final_sentinel
        if needed > self.sentinels:
            raise SpecError(f"texts of {raw} tokens need {needed} sentinels, got sentinels={self.sentinels}")


@TASKS.add
class Span(CorruptionTask[SpanData]):
    """An encoder-decoder that fills masked spans."""

    Settings = SpanData

    def __init__(self, settings: SpanData, tokenizer: Tokenizer) -> None:
        self.settings, self.tokenizer = settings, tokenizer
        names, known = self.special_tokens(settings), set(tokenizer.tags)
        if missing := [name for name in names if name not in known]:
            raise SpecError(
                f"this vocabulary has {len(names) - len(missing)} of {len(names)} sentinels, {missing[0]} is missing; "
                "set data.sentinels, or start from a model trained on span corruption"
            )
        self.sentinels = [tokenizer.tag(name) for name in names]

    # ------------------------------------------------------------------------------------------------ from data

    @classmethod
    def special_tokens(cls, settings: SpanData) -> Sequence[str]:
        return [SENTINEL.format(k) for k in range(settings.sentinels)]

    def model_arguments(self) -> dict[str, int]:
        return {"vocab": self.tokenizer.size, "length": self.settings.max_length + 2}

    def longest_chunk(self) -> int:
        return self.settings.spans.longest_text(self.settings.max_length)

    def corrupted_lengths(self, length: int) -> tuple[int, int]:
        return self.settings.spans.lengths(length)

    def corrupt(self, ids: Ids, rng: Rng) -> tuple[Ids, Ids]:
        spans = self.settings.spans
        laid = spans.draw_spans(len(ids), rng)
        return corrupt(ids, laid, np.asarray(self.sentinels, np.int32), final_sentinel=spans.final_sentinel)

    # ------------------------------------------------------------------------------------------------ to the user

    def run(
        self, engine: Engine, inputs: Sequence[str], search: Search, options: RunOptions = RunOptions()
    ) -> list[list[Output]]:
        """Each text with its masks filled; a text without masks is returned unchanged."""
        sources, open_ = self.encode_inputs(inputs, options), [i for i, text in enumerate(inputs) if MARK.search(text)]
        draw, banned = Draw([options.first + i for i in open_]), Constraints([self.tokenizer.unk])
        limited, special = limit_length(engine, search, self.settings.max_length), SpecialTokens.of(self.tokenizer)
        found = engine.decode(Request([sources[i] for i in open_], limited, special, banned, draw))
        out = [[Output(text, 0.0, 0.0)] for text in inputs]
        for i, hypotheses in zip(open_, found, strict=True):
            whole = [restore(sources[i][:-1], h.tokens, self.sentinels) for h in hypotheses]
            out[i] = [
                Output(self.tokenizer.decode(ids), h.score, h.log_prob)
                for ids, h in zip(whole, hypotheses, strict=True)
            ]
        return out

    def encode_outputs(self, inputs: Sequence[str], outputs: Sequence[str]) -> list[list[int]]:
        return [self._encode_target(text, output) for text, output in zip(inputs, outputs, strict=True)]

    def encode_masked(self, inputs: Sequence[str]) -> list[list[int]]:
        for text in inputs:
            if (count := len(MARK.findall(text))) > len(self.sentinels):
                raise DataError(
                    f"a text has {count} masks, but this model only {len(self.sentinels)} sentinels; shorten the text"
                )
        return encode_masked(self.tokenizer, inputs, self.sentinels.__getitem__)

    def _encode_target(self, text: str, output: str) -> list[int]:
        """Encode what the decoder should write to turn a text with masks into the output."""
        parts = [self.tokenizer.decode(self.tokenizer.encode(part)) for part in MARK.split(text)]
        whole = self.tokenizer.decode(self.tokenizer.encode(output))
        found = find_fills(parts, whole)
        if found is None:
            raise DataError(f"the output should be its input with text at each mask, got {output[:80]!r}")
        fills = self.tokenizer.encode_all(found)
        return [t for sentinel, ids in zip(self.sentinels, fills, strict=False) for t in (sentinel, *ids)]
