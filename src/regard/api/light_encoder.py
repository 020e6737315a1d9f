"""Encoders without torch: classes, labels, vectors.

Imported only for such models: `regard run` should not wait for what it does not need.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import numpy as np

from regard.data.labels import Unit
from regard.engine.encoder_head import NativeEncoder, pool_tokens
from regard.engine.engine_plan import PLAN
from regard.errors import CheckpointError
from regard.files.folder import TOKENIZER, Folder
from regard.spec import Plain
from regard.tasks.common.class_names import unpack_classes
from regard.tasks.common.encoder_frames import UNITS, ClassifyFrame, EmbedFrame, Numbers, TagFrame
from regard.tasks.common.task import EvalSet
from regard.tasks.common.text_frame import FramedText, Pool
from regard.text import Tokenizer


class EngineEncoderTask:
    """Runs, and is evaluated elsewhere."""

    def eval_sets(self, raw: object) -> list[EvalSet]:
        return []


class EngineClassify(ClassifyFrame[NativeEncoder], EngineEncoderTask):
    """Classes of texts with an engine."""

    max_length = 0

    def __init__(self, tokenizer: Tokenizer, classes: tuple[str, ...], max_length: int, pair: bool) -> None:
        self.tokenizer, self.classes, self.max_length, self.pair = tokenizer, classes, max_length, pair

    def class_log_probs(self, engine: NativeEncoder, rows: Sequence[FramedText]) -> Numbers:
        return np.array(engine.log_probs([ids for ids, _ in rows])).reshape(len(rows), len(self.classes))


class EngineTag(TagFrame[NativeEncoder], EngineEncoderTask):
    """Labels of words or characters with an engine."""

    max_length = 0
    unit: Unit = "words"

    def __init__(self, tokenizer: Tokenizer, classes: tuple[str, ...], max_length: int, unit: Unit) -> None:
        self.tokenizer, self.classes, self.max_length, self.unit = tokenizer, classes, max_length, unit

    def token_log_probs(self, engine: NativeEncoder, rows: Sequence[FramedText]) -> list[Numbers]:
        return engine.log_probs([ids for ids, _ in rows])


class EngineEmbed(EmbedFrame[NativeEncoder], EngineEncoderTask):
    """Vectors of texts with an engine."""

    max_length = 0

    def __init__(self, tokenizer: Tokenizer, max_length: int, pool: Pool, unit: bool) -> None:
        self.tokenizer, self.max_length, self._pool, self._unit = tokenizer, max_length, pool, unit

    def embed_rows(self, engine: NativeEncoder, rows: Sequence[FramedText]) -> Numbers:
        found = np.array([pool_tokens(x, self._pool) for x in engine.read([ids for ids, _ in rows])])
        return found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-12) if self._unit else found


EncoderTask = EngineClassify | EngineTag | EngineEmbed


def open_encoder(plan: Plain, folder: Folder, encoder: NativeEncoder) -> EncoderTask | None:
    """Return the task of an encoder; None for what the engine cannot do."""
    frame = plan.get("frame")
    given: Plain = frame if isinstance(frame, dict) else {}
    tokenizer, length, kind = (
        Tokenizer.from_bytes(folder[TOKENIZER], TOKENIZER),
        given.get("max_length"),
        given.get("kind"),
    )
    if tokenizer.size > plan["vocab"]:
        raise CheckpointError(
            f"{folder.path}: the tokenizer has {tokenizer.size} tokens, the model only {plan['vocab']}"
        )
    if isinstance(length, int) and len(tokenizer.frame([], [])[0]) < length <= (encoder.engine.room or length):
        if kind == "embed" and given.get("pool") in get_args(Pool):
            return EngineEmbed(tokenizer, length, given["pool"], bool(given.get("unit")))
        classes = unpack_classes(folder.files)["classes"]
        if kind == "classify" and encoder.pool is not None and len(classes) == encoder.classes:
            pair = bool(given.get("pair"))  # the engine has one segment
            return (
                None
                if pair and plan["embed"].get("segments", 0) > 1
                else EngineClassify(tokenizer, classes, length, pair)
            )
        fits = encoder.pool is None and len(classes) == encoder.classes
        if kind == "tag" and given.get("unit") in [*UNITS] and fits:  # a list: what a file has may be unhashable
            return EngineTag(tokenizer, classes, length, given["unit"])
    raise CheckpointError(f"{folder.path / PLAN} is damaged: it does not say how texts become tokens")
