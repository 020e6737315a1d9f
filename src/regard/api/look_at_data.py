"""Look inside on a data set: faithfulness, ablation, heads."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

from regard.api.evaluation import Progress
from regard.api.look import name_model
from regard.api.trained_model import Model
from regard.data.batch import IGNORE
from regard.errors import DataError, SpecError
from regard.interpret.data_look import DataLook, DescribedHead
from regard.interpret.faithfulness import measure
from regard.interpret.heads import PairCounter, describe_heads
from regard.interpret.interventions import ablate, list_places
from regard.interpret.word_joining import SPECIAL, join_labels, join_weights, word_of_tokens
from regard.tasks.common.capabilities import FillsMasks, eval_sets, list_texts, supports
from regard.tasks.common.forward_pass import ForwardPass

PARTS = {"heads": ("*.head.*",), "layers": ("*.mix", "*.cross", "*.feed")}
CHARACTERS = 256
"""Length of the pieces that running text is divided into."""
MASKED = 0.15
"""Share of tokens that a masked language model has to guess."""


def look_at_data(
    model: Model | str | Path,
    data: str | Path | Sequence[str | Path],
    *,
    faithful: bool = False,
    ablate_parts: str | None = None,
    describe: bool = False,
    examples: int = 100,
    samples: int = 1000,
    seed: int = 1,
    device: str = "cpu",
    progress: Progress | None = None,
) -> DataLook:
    """Measure on a data set whether explanations are faithful, what parts are worth, or what heads look at.

    data          files as for training
    faithful      comprehensiveness and sufficiency of each kind of explanation, beside a random one
    ablate_parts  "heads", "layers", or a pattern of places such as "encoder.blocks.0.*": how much log P falls without each
    describe      where each head looks, and which words it links most
    examples      number of examples, drawn at random with `seed`
    samples       number of bootstrap samples for the intervals
    """
    from regard.api import load

    if not (faithful or ablate_parts or describe):
        raise SpecError("nothing is asked about the data; choose faithful, ablate_parts or describe")
    handle = model if isinstance(model, Model) else load(model, device=device)
    files = [str(data)] if isinstance(data, str | Path) else [str(path) for path in data]
    tell = progress or (lambda *_: None)
    found = DataLook(name_model(handle), " + ".join(Path(path).name for path in files), 0)
    if faithful:
        own = _read(handle, files, examples, seed, own_outputs=True)
        judged = measure(handle.net, own, samples=samples, seed=seed, progress=lambda i, of: tell("explaining", i, of))
        found = dataclasses.replace(found, examples=len(own), faithfulness=judged)
    if ablate_parts or describe:
        passes = _read(handle, files, examples, seed, own_outputs=False)
        found = dataclasses.replace(found, examples=len(passes))
        if ablate_parts:
            places = list_places(handle.net, passes[0], *PARTS.get(ablate_parts, (ablate_parts,)))
            worths = ablate(
                handle.net, passes, [p for p in places if not p.endswith((".weights", ".slots", ".heads"))],
                samples=samples, seed=seed, progress=lambda i, of: tell("ablating", i, of),
            )  # fmt: skip
            found = dataclasses.replace(found, worths=worths)
        if describe:
            found = dataclasses.replace(found, heads=_describe(handle, passes))
    return found


def _read(handle: Model, files: Sequence[str], most: int, seed: int, *, own_outputs: bool) -> list[ForwardPass]:
    """Examples that something is predicted in, a random choice of `most`, in the order of the data."""
    raw = handle.task.read_test(handle.task.settings, files)
    pairs: list[tuple[object, str | None, dict[str, object]]] = [
        (text, None if own_outputs else output, vars(each.options))
        for each in eval_sets(handle.task, raw)
        for text, output in zip(each.inputs, each.references, strict=True)
    ]
    masks = supports(handle.task, FillsMasks)
    if not pairs:
        sides = [side for side in list_texts(handle.task, raw) if side.written or masks]
        pairs = [(text, text if masks else "", {}) for side in sides for text in _divide(side.texts)]
    draw = np.random.Generator(np.random.PCG64(seed))
    chosen = sorted(draw.choice(len(pairs), min(most, len(pairs)), replace=False)) if pairs else []
    passes = [handle.forward_pass(pairs[i][0], pairs[i][1], **pairs[i][2]) for i in chosen]
    if supports(handle.task, FillsMasks):
        passes = [_mask(read, handle.task.mask, draw) for read in passes]
    if not (kept := [read for read in passes if read.places]):
        raise DataError(f"the model predicts nothing in {', '.join(files)} that could be measured")
    return kept


def _divide(texts: object) -> Iterator[str]:
    """Running text in pieces that end with a word."""
    for text in itertools.islice(texts, 10_000):  # type: ignore[call-overload]
        begin = 0
        while begin < len(text):
            end = begin + CHARACTERS
            if end < len(text):
                end = max(text.rfind(" ", begin + 1, end), text.rfind("\n", begin + 1, end)) + 1 or end
            if piece := text[begin:end].strip():
                yield piece
            begin = end


def _mask(read: ForwardPass, mask: int, draw: np.random.Generator) -> ForwardPass:
    """Return the pass with some of its tokens masked, which are to be predicted."""
    free = [i for i, label in enumerate(read.tokens) if not SPECIAL.fullmatch(label)]
    if not free:
        return read
    hidden = torch.tensor(draw.choice(free, max(1, round(MASKED * len(free))), replace=False))
    wanted = torch.full_like(read.ids, IGNORE).index_copy(1, hidden, read.ids[:, hidden])
    labels = [f"[MASK] {label}" if i in hidden else label for i, label in enumerate(read.tokens)]
    return dataclasses.replace(read, ids=read.ids.index_fill(1, hidden, mask), wanted=wanted, tokens=labels)


def _describe(handle: Model, passes: Sequence[ForwardPass]) -> list[DescribedHead]:
    pairs, maps = PairCounter(), []
    both = bool(passes[0].source_tokens)
    for read in passes:
        weights, source, target = read.attention(handle.net)
        own = {}
        for name, matrix in weights.items():
            queries = source if both and name.startswith("encoder.") else target
            keys = source if both and ".cross" in name else queries
            if matrix.shape[1:] != (len(queries), len(keys)):
                continue  # slots of a memory, which have no words
            owners = word_of_tokens(queries), word_of_tokens(keys)
            words = join_labels(queries, owners[0]), join_labels(keys, owners[1])
            pairs.add(name, join_weights(matrix.float(), *owners), *words)
            if queries is keys:
                own[name] = matrix
        maps.append(own)
    if not weights:
        raise SpecError("no layer of this model has attention weights to describe; `regard show` lists its mixers")
    cards = {(card.layer, card.head): card for card in describe_heads(maps)}
    return [
        DescribedHead(name, head, cards.get((name, head)), pairs.most_attended(name, head))
        for name, matrix in weights.items()
        for head in range(len(matrix))
    ]
