"""Denoising, the pre-training of BART.

An encoder-decoder reads a corrupted text and writes the original (Lewis et al. 2019). The trained model is a starting point for
summaries and other text-to-text tasks (`--from`).
"""

from __future__ import annotations

from collections.abc import Sequence

from regard.data.denoising import Noise
from regard.data.example_rng import Rng
from regard.decode import Constraints, Draw, Engine, Request, Search, SpecialTokens
from regard.errors import SpecError
from regard.spec import spec
from regard.tasks.common.fill_mask import MASKS, encode_masked, find_mask
from regard.tasks.common.pairs_frame import limit_length
from regard.tasks.common.task import TASKS, Output, RunOptions
from regard.tasks.common.text_corruption import CorruptionData, CorruptionTask, Ids
from regard.text import Tokenizer
from regard.text.words import SentenceEnds


@spec
class DenoiseData(CorruptionData):
    """The `data` part of a recipe: text files, the length of texts, and the noise."""

    noise: Noise = Noise()
    """Corruption of a text before the encoder reads it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_length < 3:
            raise SpecError(
                f"max_length={self.max_length} leaves no room for a text of two tokens and its end; raise it"
            )


@TASKS.add
class Denoise(CorruptionTask[DenoiseData]):
    """An encoder-decoder that restores a text."""

    Settings = DenoiseData

    def __init__(self, settings: DenoiseData, tokenizer: Tokenizer) -> None:
        self.settings, self.tokenizer = settings, tokenizer
        self.mask = find_mask(tokenizer, "start from a model trained by denoising")
        self._ends = SentenceEnds(tokenizer)

    # ------------------------------------------------------------------------------------------------ from data

    @classmethod
    def special_tokens(cls, settings: DenoiseData) -> Sequence[str]:
        return [MASKS[0]]

    def model_arguments(self) -> dict[str, int]:
        return {
            "vocab": self.tokenizer.size,
            "length": self.settings.max_length + 2,
            "start": self.tokenizer.bos,
        }

    def longest_chunk(self) -> int:
        return self.settings.max_length - 1

    def corrupted_lengths(self, length: int) -> tuple[int, int]:
        """A corrupted text is at most as long as the original."""
        return length + 1, length + 1

    def corrupt(self, ids: Ids, rng: Rng) -> tuple[Ids, Ids]:
        return self.settings.noise.apply(ids, self._ends.find(ids), self.mask, rng), ids

    # ------------------------------------------------------------------------------------------------ to the user

    def run(
        self, engine: Engine, inputs: Sequence[str], search: Search, options: RunOptions = RunOptions()
    ) -> list[list[Output]]:
        """Each text as the model restores it; a mask stands for any number of tokens."""
        request = Request(
            self.encode_inputs(inputs, options),
            limit_length(engine, search, self.settings.max_length),
            SpecialTokens.of(self.tokenizer),
            Constraints([self.tokenizer.unk, self.mask]),
            Draw(range(options.first, options.first + len(inputs))),
        )
        found = engine.decode(request)
        return [[Output(self.tokenizer.decode(h.tokens), h.score, h.log_prob) for h in each] for each in found]

    def encode_outputs(self, inputs: Sequence[str], outputs: Sequence[str]) -> list[list[int]]:
        return self.tokenizer.encode_all(outputs)

    def encode_masked(self, inputs: Sequence[str]) -> list[list[int]]:
        return encode_masked(self.tokenizer, inputs, lambda _: self.mask)
