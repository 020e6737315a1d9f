"""Fill the masks that people write into texts."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.decode.ensemble import compute_log_probs
from regard.decode.generation import batch_by_length, pad_rows
from regard.errors import SpecError
from regard.model.net import Net
from regard.nn.core.coords import Coords
from regard.stopping import rest
from regard.tasks.common.task import Output
from regard.text import Tokenizer

MASKS = ("<mask>", "[MASK]")
"""Spellings of a mask: ours and RoBERTa's, and BERT's."""
MARK = re.compile("|".join([*map(re.escape, MASKS), r"<extra_id_\d+>"]))
"""Everything that people write for a missing part; the last is T5's."""
SPACES = re.compile(r"\s*")
TOKENS = 8192
"""Tokens per batch."""


def find_mask(tokenizer: Tokenizer, advice: str) -> int:
    """The mask token of a vocabulary; without one, SpecError with advice."""
    found = [name for name in MASKS if name in tokenizer.tags]
    if not found:
        raise SpecError(f"this vocabulary has no mask token ({' or '.join(MASKS)}); {advice}")
    return tokenizer.tag(found[0])


def find_unknown_texts(tokenizer: Tokenizer, texts: Sequence[str]) -> list[int]:
    """Indices of texts that, apart from masks, are mostly unknown tokens."""
    return tokenizer.mostly_unknown(MARK.sub(" ", text) for text in texts)


def encode_masked(tokenizer: Tokenizer, texts: Sequence[str], token: Callable[[int], int]) -> list[list[int]]:
    """Texts as tokens; the k-th mask of a text, counted from 0, becomes `token(k)`."""
    cut = [MARK.split(text) for text in texts]
    parts = iter(
        _encode_parts(tokenizer, [(part, j > 0, j + 1 < len(each)) for each in cut for j, part in enumerate(each)])
    )
    out = []
    for each in cut:
        ids = list(next(parts))
        for k in range(len(each) - 1):
            ids += [token(k), *next(parts)]
        out.append(ids)
    return out


def find_fills(parts: Sequence[str], whole: str) -> list[str] | None:
    """Return what stands in `whole` between its `parts`, without spaces at the ends; None if these are not its parts.

    Finds what the regular expression `parts[0] \\s*(.*?)\\s* parts[1] …` finds, which would try n^parts ways. Here each part
    is looked for twice: from the right, for the last place that leaves room for all after it, and from the left, for the first.
    """
    first, *rest = parts
    places = _find_last_places(rest, whole)
    if not whole.startswith(first) or places is None or (not rest and whole != first):
        return None
    out, start = list[str](), len(first)
    for i, (part, latest) in enumerate(zip(rest, places, strict=True), 1):
        if latest < start:
            return None
        place = latest if i == len(rest) else _find_first_place(part, whole, start, latest)
        out.append(whole[start:place].strip())
        start = place + len(part)
    return out


def _find_last_places(parts: Sequence[str], whole: str) -> list[int] | None:
    """Return for each part the last place that leaves room for those after it; the last part ends the text."""
    back, after, out = whole[::-1], 0, list[int]()  # searched backwards by `find`: `rfind` may take quadratic time
    for part in reversed(parts):
        found = back.find(part[::-1], after)
        if found < 0 or (found and not out):
            return None
        after = found + len(part)
        out.append(len(whole) - after)
    return out[::-1]


def _find_first_place(part: str, whole: str, start: int, latest: int) -> int:
    """Return the first place of a part that stands at `latest`, too. Of places in a run of spaces, the last one counts."""
    first = whole.find(part, min(_skip_spaces(whole, start), latest))
    last = min(_skip_spaces(whole, first), latest)
    found = whole[first : last + len(part)][::-1].find(part[::-1])
    return last - found


def _skip_spaces(text: str, start: int) -> int:
    found = SPACES.match(text, start)
    return found.end() if found else start


def _encode_parts(tokenizer: Tokenizer, parts: Sequence[tuple[str, bool, bool]]) -> list[list[int]]:
    """Parts of texts as tokens; with each comes whether something precedes and follows it.

    A tokenizer may prepend a space to every text and strip spaces at its ends. So a stand-in is put where something
    precedes or follows (a letter next to a punctuation mark, a full stop next to a letter, so that they are two
    tokens) and removed again.
    """
    letter, stop, both = tokenizer.encode_all(["a", ".", "a a"])
    alone = len(both) > 2 * len(letter)  # a space is a token of its own, and not a part of the word after it
    fronts = ["" if not before else "." if part[:1].isalnum() else "a" for part, before, _ in parts]
    backs = ["a" if after and alone else "" for _, _, after in parts]
    bodies = [part.rstrip() if after and not alone else part for part, _, after in parts]
    whole = tokenizer.encode_all([a + b + c for a, b, c in zip(fronts, bodies, backs, strict=True)])
    known, out = {"": [], "a": letter, ".": stop}, []
    for ids, front, body, back in zip(whole, fronts, bodies, backs, strict=True):
        first, last = len(known[front]), len(ids) - len(known[back])
        kept = ids[:first] == known[front] and ids[last:] == known[back]
        out.append(ids[first:last] if kept else tokenizer.encode(body))
    return out


def mask_log_probs(
    nets: Sequence[Net], tokenizer: Tokenizer, texts: Sequence[Sequence[int]], mask: int, reach: int
) -> list[dict[int, Tensor]]:
    """For each text and the position of each mask in it, the log-probability of every token (for an ensemble, of the
    mean).

    A model reads `reach` tokens at once; of a longer text it reads what surrounds the mask.
    """
    seen = [(i, *view) for i, ids in enumerate(texts) for view in plan_views(ids, mask, reach)]
    front, device = tokenizer.frame([-1])[0].index(-1), nets[0].device
    rows = [tokenizer.frame(texts[i][start : start + reach])[0] for i, start, _ in seen]
    out: list[dict[int, Tensor]] = [{} for _ in texts]
    for indices in batch_by_length([len(row) for row in rows], TOKENS):
        rest()
        ids = pad_rows([rows[j] for j in indices], tokenizer.pad, device)
        at = Coords.lengths([len(rows[j]) for j in indices], device)
        places = [(r, *seen[j][:2], p) for r, j in enumerate(indices) for p in seen[j][2]]
        row, column = torch.tensor([(r, p - start + front) for r, _, start, p in places], device=device).T
        with torch.no_grad():
            each = torch.stack([compute_log_probs(net, net(ids, at)[row, column]) for net in nets])
        mean = (each.logsumexp(0) - math.log(len(nets)))[:, : tokenizer.size].cpu()  # a table may be padded
        for (_, i, _, p), log_p in zip(places, mean, strict=True):
            out[i][p] = log_p
    return out


def plan_views(ids: Sequence[int], mask: int, reach: int) -> list[tuple[int, list[int]]]:
    """For a model that reads `reach` tokens: where each view of the text begins, and the masks it fills."""
    left, out = [i for i, token in enumerate(ids) if token == mask], []
    while left:
        start = max(min(left[0] - reach // 4, len(ids) - reach), 0)
        inside = [i for i in left if i < start + reach]
        out.append((start, inside))
        left = left[len(inside) :]
    return out


def fill_masks(
    tokenizer: Tokenizer, ids: Sequence[int], found: Mapping[int, Tensor], usable: NDArray[np.bool_], count: int
) -> list[Output]:
    """The likeliest ways to fill all masks with `usable` tokens, independently of one another, best first."""
    barred = torch.from_numpy(~usable)
    best: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    for log_p in found.values():
        value, token = log_p.masked_fill(barred, -torch.inf).topk(min(count, int(usable.sum())))
        choices = list(zip(value.tolist(), token.tolist(), strict=True))
        more = [(total + p, (*fills, t)) for total, fills in best for p, t in choices]
        best = sorted(more, key=lambda way: -way[0])[:count]
    out = []
    for total, fills in best:
        put = dict(zip(found, fills, strict=True))
        words = [
            {"text": tokenizer.decode([fill]), "probability": float(found[place][fill].exp())}
            for place, fill in put.items()
        ]
        text = tokenizer.decode([put.get(i, token) for i, token in enumerate(ids)])
        out.append(Output(text, math.exp(total), total, {"fills": words}))
    return out
