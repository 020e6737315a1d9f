"""From encoded sources to hypotheses: batches by length, the search the user asked for, results in input order."""

from __future__ import annotations

import dataclasses
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from regard.decode.beam import beam_search, continuations
from regard.decode.ensemble import Steps
from regard.decode.greedy import Choose, Hypothesis, greedy, walk
from regard.decode.lexical_constraints import Term, Terms, check, width
from regard.decode.sample import sampler
from regard.decode.search import Search
from regard.decode.token_constraints import Banned, Constraint, Guard, Prefix
from regard.errors import DataError, SpecError
from regard.model.net import Net
from regard.nn.core.coords import Coords

TOKENS = 8192
"""How many source tokens are decoded at once, over all hypotheses."""


def generate(
    nets: Sequence[Net],
    sources: Sequence[Sequence[int]],
    search: Search,
    *,
    bos: int,
    eos: int,
    pad: int,
    banned: Sequence[int] = (),
    prefixes: Sequence[Sequence[int]] | None = None,
    must_include: Sequence[Sequence[Term]] | None = None,
    names: Sequence[int] | None = None,
    begun: int = 0,
    tokens: int = TOKENS,
) -> list[list[Hypothesis]]:
    """Decode every source (token ids, end mark included); the `n_best` hypotheses of each, in input order.

    A model without an encoder reads the sources itself and goes on from there, at most `search.max_extra` tokens.
    The start mark and padding are never written, nor is what is `banned`, unless a prefix says so; the end mark always may be.
    `must_include` has the terms that each output must hold; where there are any, its beam is as wide as they need.
    Where tokens are drawn, `names` (the sources' places, if not given) and how much was written before (`begun`) say which.
    """
    for what, given in (("prefixes", prefixes), ("lists of terms", must_include)):
        if given is not None and len(given) != len(sources):
            raise DataError(f"as many {what} as sources are needed, got {len(given)} for {len(sources)}")
    if search.sample and must_include is not None and any(must_include):
        raise SpecError("terms are written by beam search, not while drawing at random; leave out sample or the terms")
    encodes, room = nets[0].encoder is not None, min(net.spec.room or sys.maxsize for net in nets)
    limits = [_limit(search, len(source), encodes, room) for source in sources]
    check(must_include, prefixes, limits, never={bos, pad, eos, *banned})
    names = range(len(sources)) if names is None else names
    out: list[list[Hypothesis]] = [[] for _ in sources]
    alike: dict[int, list[int]] = defaultdict(list)  # by the width of their beam; 0 without terms
    for i in range(len(sources)):
        alike[width(search.beam, must_include[i]) if must_include is not None and must_include[i] else 0].append(i)

    def decode(indices: list[int]) -> None:
        rows = [sources[i] for i in indices]
        forced = None if prefixes is None else [prefixes[i] for i in indices]
        terms = None if must_include is None or not must_include[indices[0]] else [must_include[i] for i in indices]
        wide = search if terms is None else dataclasses.replace(search, beam=width(search.beam, terms[0]))
        found = _batch(
            nets, rows, wide, bos=bos, eos=eos, pad=pad, banned=banned, prefixes=forced, terms=terms,
            limits=[limits[i] for i in indices], names=[names[i] for i in indices], begun=begun,
        )  # fmt: skip
        for i, hypotheses in zip(indices, found, strict=True):
            out[i] = hypotheses

    usual = 1 if search.sample else search.beam
    workers = _workers(nets[0].device, len(sources) * usual)
    batches = (
        [group[i] for i in batch]
        for wide, group in alike.items()
        for batch in by_length(
            [len(sources[i]) for i in group], max(tokens // (wide or usual), 1), -(-len(group) // workers)
        )
    )
    if workers == 1:
        for indices in batches:
            decode(indices)
    else:
        side_by_side(decode, batches, workers)
    return out


MANY = 64
"""From so many rows on, each core decodes sentences of its own; with 32 the threads wait for one another's Python."""


def _workers(device: torch.device, rows: int) -> int:
    """Operators of a step are small: two cores do more with sentences of their own than by sharing every operator."""
    alone = device.type != "cpu" or torch.is_autocast_enabled("cpu")
    return 1 if alone or rows < MANY else min(torch.get_num_threads(), rows)


def side_by_side(run: Callable[[list[int]], None], batches: Iterable[list[int]], workers: int) -> None:
    """Run batches on threads of one core each; torch lets go of the interpreter inside its operators."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # what threads started from here on begin with
    try:
        with ThreadPoolExecutor(workers) as pool:
            for _ in pool.map(run, batches):
                pass
    finally:
        torch.set_num_threads(threads)


def by_length(lengths: Sequence[int], tokens: int, rows: int = sys.maxsize) -> Iterator[list[int]]:
    """Indices in batches of similar length, the longest first, each within a budget of padded tokens and of rows."""
    batch: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if batch and ((len(batch) + 1) * max(lengths[batch[0]], 1) > tokens or len(batch) == rows):
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


def _batch(
    nets: Sequence[Net],
    sources: Sequence[Sequence[int]],
    search: Search,
    *,
    bos: int,
    eos: int,
    pad: int,
    banned: Sequence[int],
    prefixes: Sequence[Sequence[int]] | None,
    terms: Sequence[Sequence[Term]] | None,
    limits: Sequence[int],
    names: Sequence[int],
    begun: int,
) -> list[list[Hypothesis]]:
    device, encodes = nets[0].device, nets[0].encoder is not None
    lengths = [len(s) for s in sources]
    b, k = len(sources), 1 if search.sample else search.beam
    most = torch.tensor(limits, device=device)
    constraints: list[Constraint] = [Banned({bos, pad, *banned} - {eos}, device)]
    if search.repetition_guard and encodes:
        constraints.append(Guard(torch.tensor(lengths, device=device).repeat_interleave(k)))
    choose_next = continuations
    if terms is not None:
        each = [row for row in terms for _ in range(k)]
        must = Terms(each, most.repeat_interleave(k), eos=eos, rest=constraints)
        constraints, choose_next = [must], must.continuations
    if prefixes is not None:
        constraints = [Prefix(pad_rows(prefixes, -1, device).repeat_interleave(k, 0), constraints)]
    with torch.no_grad():
        if encodes:
            source = (pad_rows(sources, pad, device), Coords.lengths(lengths, device))
            steps = Steps(nets, source, rows=b, beam=k, capacity=max(limits))
            first = torch.full((b,), bos, device=device)
        else:
            steps = Steps(nets, None, rows=b, beam=k, capacity=max(limits) + max(lengths))
            first = _prompted(steps, sources, k, pad, device)
        if k > 1:
            return beam_search(
                steps, first, eos=eos, limits=most, search=search, constraints=constraints, choose=choose_next
            )
        choose: Choose = greedy
        if search.sample:
            named, draw = torch.tensor(names, device=device), sampler(search)
            choose = lambda given, index, step: draw(given, named[index], begun + step)  # noqa: E731
        found = walk(
            steps, first, eos=eos, limits=most, search=search, constraints=constraints, choose=choose
        )  # fmt: skip
    return [[h] for h in found]


def _limit(search: Search, n: int, encodes: bool, room: int) -> int:
    """How many tokens an output may have: what was asked for, and no more than the model has room for."""
    return min(search.limit(n), room) if encodes else max(min(search.limit(0), room - n + 1), 1)


def _prompted(steps: Steps, prompts: Sequence[Sequence[int]], beam: int, pad: int, device: torch.device) -> Tensor:
    """Let a decoder read all of each prompt but its last token, which is given back to begin with."""
    before = [prompt[:-1] for prompt in prompts]
    if any(before):
        ids = pad_rows(before, pad, device).repeat_interleave(beam, 0)
        lengths = [len(row) for row in before for _ in range(beam)]
        steps.advance(ids, Coords.lengths(lengths, device))
    return torch.tensor([prompt[-1] for prompt in prompts], dtype=torch.long, device=device)


def pad_rows(rows: Sequence[Sequence[int]], fill: int, device: torch.device | str | None = None) -> Tensor:
    """Rows of different lengths as one matrix, filled at the right."""
    n = max((len(r) for r in rows), default=0)
    return torch.tensor([[*r, *[fill] * (n - len(r))] for r in rows], dtype=torch.long, device=device).view(
        len(rows), n
    )
