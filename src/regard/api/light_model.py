"""A model without torch: plan, tokenizers, native library.

`regard run` opens a model like this where it can, because importing torch takes longer than translating a page. The texts
take the same way (`run_texts`), so that the outputs are those of `regard.load`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeGuard, cast

from regard.api.notes import Tell
from regard.api.run_texts import BATCH, Long, TextRunner
from regard.decode.engine import Engine
from regard.decode.search import Search
from regard.engine.engine_plan import PLAN
from regard.engine.native_engine import NativeEngine, find_nan, has_float64, read_threads, stored_precision
from regard.engine.shortlist import SHORTLIST, Shortlist
from regard.errors import CheckpointError, SpecError
from regard.files.folder import SOURCE_TOKENIZER, TOKENIZER, WEIGHTS, Folder
from regard.serialization.model_folder import CONFIG, sign_plan
from regard.spec import Plain
from regard.tasks.common.lm_frame import LmFrame
from regard.tasks.common.pairs_frame import MAX_UNFOLD, PairsFrame
from regard.tasks.common.task import Output
from regard.text import Tokenizer

if TYPE_CHECKING:
    from regard.api.light_encoder import EncoderTask
    from regard.api.trained_model import Model
    from regard.data.glossary import Glossary
    from regard.engine.encoder_head import NativeEncoder


class LightModel:
    """Part of a model that `regard run` needs."""

    def __init__(
        self, engine: Engine | NativeEncoder, task: PairsFrame | LmFrame | EncoderTask, search: Search, path: Path
    ) -> None:
        self.engine, self.task, self.search, self.path = cast("Engine", engine), task, search, path

    def run_lazily(
        self,
        inputs: Iterable[object],
        *,
        others: Sequence[Model] = (),
        to: str | None = None,
        prefix: str | None = None,
        glossary: Glossary | Mapping[str, str] | str | Path | None = None,
        long: Long = "split",
        notify: Tell | None = None,
        batch: int = BATCH,
        **options: object,
    ) -> Iterator[list[tuple[object, list[Output]]]]:
        """Run inputs like `Model.run_lazily`; ensembles and glossaries need torch."""
        if others or glossary is not None:
            raise SpecError("ensembles and glossaries need torch; use regard.load")
        runner = TextRunner(self, options, to=to, prefix=prefix, long=long, notify=notify)
        return runner.run_batches(inputs, batch)

    def stream(
        self,
        text: str,
        *,
        to: str | None = None,
        prefix: str | None = None,
        long: Long = "split",
        notify: Tell | None = None,
        **options: object,
    ) -> Iterator[str]:
        """Stream an output like `Model.stream`."""
        return TextRunner(self, options, to=to, prefix=prefix, long=long, notify=notify).stream(text)


def build_light(folder: Folder, config: Plain, plan: Plain) -> LightModel | None:
    """The model of a folder whose plan is in this version's format; None if the plan was not written for its files.

    Without torch, nothing can tell whether a configuration and its weights fit: if they are not those that the plan was
    written with, torch opens the folder, and refuses what it must.
    """
    weights = folder.weights
    if plan != sign_plan(plan, {**folder.files, WEIGHTS: weights}):
        return None
    if has_float64(weights, folder.path / WEIGHTS):
        return None
    if faults := find_nan(weights, folder.path / WEIGHTS):
        raise CheckpointError(f"{folder.path / WEIGHTS} does not fit the model: {'; '.join(faults)}")
    try:
        search = Search.parse(config["decode"])
    except SpecError as error:
        raise CheckpointError(f"{folder.path / CONFIG}: {error}") from None
    precision = stored_precision(weights, folder.path / WEIGHTS)
    engine = NativeEngine.open(plan, weights, folder.path / WEIGHTS, precision=precision, threads=read_threads())
    if SHORTLIST in folder:
        engine.use_shortlist(Shortlist.from_bytes(folder[SHORTLIST], folder.path / SHORTLIST))
    reader: Engine | NativeEncoder = engine
    if plan["decoder"] is None:
        from regard.api.light_encoder import open_encoder
        from regard.engine.encoder_head import NativeEncoder

        reader = NativeEncoder(engine, weights, folder.path / WEIGHTS)
        task: PairsFrame | LmFrame | EncoderTask | None = open_encoder(plan, folder, reader)
    else:
        task = _open_frame(plan, folder)
    return None if task is None else LightModel(reader, task, search, folder.path)


def _open_frame(plan: Plain, folder: Folder) -> PairsFrame | LmFrame:
    frame = plan.get("frame")
    given: Plain = frame if isinstance(frame, dict) else {}
    target = Tokenizer.from_bytes(folder[TOKENIZER], TOKENIZER)
    source = Tokenizer.from_bytes(folder[SOURCE_TOKENIZER], SOURCE_TOKENIZER) if SOURCE_TOKENIZER in folder else None
    read = target if source is None else source
    for tokenizer, vocab in ((target, plan["vocab"]), (read, plan["source_vocab" if plan.get("encoder") else "vocab"])):
        if tokenizer.size > vocab:
            raise CheckpointError(f"{folder.path}: the tokenizer has {tokenizer.size} tokens, the model only {vocab}")
    kind, length, unfold = (given.get(key) for key in ("kind", "max_length", "unfold"))
    if kind == "pairs" and isinstance(length, int) and length > 0 and _is_factor(unfold):
        pairs = PairsFrame(length, target, source)
        pairs.unfold = 1.0 if unfold is None else float(unfold)
        pairs.splits, prompts = given.get("splits") is not False, given.get("prompts", {})
        if isinstance(prompts, dict) and all(_are_tokens(ids, read) for ids in prompts.values()):
            pairs.prompts = prompts
            return pairs
    front, banned = given.get("front"), given.get("banned", [target.unk])
    context = given.get("context")
    if kind == "lm" and _are_tokens(front, target) and _are_tokens(banned, target) and _is_context(context):
        return LmFrame(target, front, banned, context)
    raise CheckpointError(f"{folder.path / PLAN} is damaged: it does not say how texts become tokens")


def _are_tokens(ids: object, tokenizer: Tokenizer) -> TypeGuard[list[int]]:
    """True if these are tokens of a vocabulary."""
    return isinstance(ids, list) and all(isinstance(i, int) and 0 <= i < tokenizer.size for i in ids)


def _is_context(context: object) -> TypeGuard[int | None]:
    """True if this is a number of tokens, or None for no limit."""
    return context is None or (isinstance(context, int) and context > 0)


def _is_factor(unfold: object) -> bool:
    """True if sources can become this many times as long; None: they stay as they are."""
    return unfold is None or (isinstance(unfold, int | float) and 1 <= unfold <= MAX_UNFOLD)
