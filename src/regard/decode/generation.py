"""Generation: batches of sources in, hypotheses out, in order."""

from __future__ import annotations

import dataclasses
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from regard.decode.beam import BeamBatch, RankContinuations, rank_continuations
from regard.decode.decode_request import Hypothesis, Request, check_feasible, limit_output
from regard.decode.ensemble import Ensemble
from regard.decode.greedy import ChooseToken, GreedyBatch, choose_best
from regard.decode.lexical_constraints import TermConstraint, widen_beam
from regard.decode.sample import Sampler
from regard.decode.search_batch import SearchBatch
from regard.decode.token_constraints import BannedTokens, Constraint, ForcedPrefix, RepetitionGuard
from regard.errors import SpecError
from regard.model.net import Net
from regard.nn.core.coords import Coords
from regard.stopping import check_stops, list_stops, rest

BATCH_TOKENS = 8192
"""Number of source tokens decoded together, over all hypotheses."""
PARALLEL_ROWS = 64
"""From this many rows on, each core decodes sentences of its own; with 32, threads wait for one another's Python."""


def generate(nets: Sequence[Net], request: Request, *, batch_tokens: int = BATCH_TOKENS) -> list[list[Hypothesis]]:
    """Decode every source and return its `n_best` hypotheses, in input order; several nets average their probabilities."""
    limits = check_request(nets, request)
    out: list[list[Hypothesis]] = [[] for _ in request.sources]
    by_beam: dict[int, list[int]] = defaultdict(list)  # 0: no terms
    for i in range(len(request)):
        terms = request.constraints.terms(i)
        by_beam[widen_beam(request.search.beam, terms) if terms else 0].append(i)

    stops = list_stops()  # `decode` may run in threads of its own

    def decode(indices: list[int]) -> None:
        check_stops(stops)
        batch = _Batch(nets, _widen(request.select(indices)), [limits[i] for i in indices])
        for i, hypotheses in zip(indices, batch.start().finish(stops), strict=True):
            out[i] = hypotheses

    workers = _count_workers(nets[0].device, len(request) * request.rows)
    batches = (
        [group[i] for i in batch]
        for beam, group in by_beam.items()
        for batch in batch_by_length(
            [len(request.sources[i]) for i in group],
            max(batch_tokens // (beam or request.rows), 1),
            -(-len(group) // workers),
        )
    )
    if workers == 1:
        for indices in batches:
            rest()
            decode(indices)
    else:
        decode_in_threads(decode, batches, workers)
    return out


def start_batch(nets: Sequence[Net], request: Request, seeds: Sequence[int] | None = None) -> SearchBatch:
    """Start the search for all sources together, without a step; the beam is widened as the terms of the first one need.

    Batches join if they have the same models, settings (except `max_extra`, `max_length` and `seed`) and banned tokens, and
    neither prefixes nor terms. `seeds` are used instead of that of the search, one for each source.
    """
    return _Batch(nets, _widen(request), check_request(nets, request), seeds).start()


def check_request(nets: Sequence[Net], request: Request) -> list[int]:
    """Check the request; the maximum number of tokens of each output."""
    search, constraints, special = request.search, request.constraints, request.special
    if search.sample and request.has_terms:
        raise SpecError("terms need beam search, not sampling; leave out sample or the terms")
    has_encoder, capacity = nets[0].encoder is not None, min(net.spec.room or sys.maxsize for net in nets)
    limits = [limit_output(search, len(source), has_encoder, capacity) for source in request.sources]
    never = {special.bos, special.pad, special.eos, *constraints.banned}
    check_feasible(constraints.must_include, constraints.prefixes, limits, never=never)
    return limits


def _widen(request: Request) -> Request:
    """The request with as many beams as the terms of its first source need."""
    terms = request.constraints.terms(0) if len(request) else ()
    if not terms:
        return request
    wide = dataclasses.replace(request.search, beam=widen_beam(request.search.beam, terms))
    return dataclasses.replace(request, search=wide)


def _count_workers(device: torch.device, rows: int) -> int:
    """Operators of a step are small: two cores do more with sentences of their own than by sharing every operator."""
    single = device.type != "cpu" or torch.is_autocast_enabled("cpu")
    return 1 if single or rows < PARALLEL_ROWS else min(torch.get_num_threads(), rows)


def decode_in_threads(run: Callable[[list[int]], None], batches: Iterable[list[int]], workers: int) -> None:
    """Run batches on threads of one core each; torch releases the interpreter lock inside its operators."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # inherited by threads that start from here on
    try:
        with ThreadPoolExecutor(workers) as pool:
            for _ in pool.map(run, batches):
                pass
    finally:
        torch.set_num_threads(threads)


def batch_by_length(lengths: Sequence[int], tokens: int, rows: int = sys.maxsize) -> Iterator[list[int]]:
    """Indices in batches of similar length, longest first, each within a budget of padded tokens and of rows."""
    batch: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if batch and ((len(batch) + 1) * max(lengths[batch[0]], 1) > tokens or len(batch) == rows):
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


@dataclasses.dataclass(frozen=True)
class _Batch:
    """Sources that are decoded together."""

    nets: Sequence[Net]
    request: Request
    limits: Sequence[int]
    seeds: Sequence[int] | None = None

    @property
    def device(self) -> torch.device:
        return self.nets[0].device

    @torch.no_grad()
    def start(self) -> SearchBatch:
        """All sources read, and no token written."""
        limits, eos, search = (
            torch.tensor(self.limits, device=self.device),
            self.request.special.eos,
            self.request.search,
        )
        constraints, rank = self._build_constraints()
        ensemble, first = self._start()
        if self.request.rows > 1:
            return BeamBatch(ensemble, first, eos=eos, limits=limits, search=search, constraints=constraints, rank=rank)
        return GreedyBatch(
            ensemble, first, eos=eos, limits=limits, search=search, choose=self._choose(), constraints=constraints
        )

    def _build_constraints(self) -> tuple[list[Constraint], RankContinuations]:
        """The constraints of all rows, and how continuations are ranked under them."""
        request, special, k, device = self.request, self.request.special, self.request.rows, self.device
        never = special.list_unwritten(self.nets[0].spec.embed.vocab)
        banned = never | ({*request.constraints.banned} - {special.eos})
        out: list[Constraint] = [BannedTokens(banned, device)]
        rank: RankContinuations = rank_continuations
        if request.search.repetition_guard and self.nets[0].encoder is not None:
            lengths = torch.tensor([len(s) for s in request.sources], device=device)
            out.append(RepetitionGuard(lengths.repeat_interleave(k)))
        if request.constraints.must_include is not None:
            rows = [terms for terms in request.constraints.must_include for _ in range(k)]
            limits = torch.tensor(self.limits, device=device).repeat_interleave(k)
            terms = TermConstraint(rows, limits, eos=special.eos, rest=out)
            out, rank = [terms], terms.rank_continuations
        if request.constraints.prefixes is not None:
            forced = pad_rows(request.constraints.prefixes, ForcedPrefix.NONE, device)
            out = [ForcedPrefix(forced.repeat_interleave(k, 0), out, eos=special.eos)]
        return out, rank

    def _start(self) -> tuple[Ensemble, Tensor]:
        """The models with all but the last given token read, and that token of each row."""
        sources, special, k, device = self.request.sources, self.request.special, self.request.rows, self.device
        rows, lengths, most = len(sources), [len(source) for source in sources], max(self.limits)
        if self.nets[0].encoder is not None:
            source = (pad_rows(sources, special.pad, device), Coords.lengths(lengths, device))
            ensemble = Ensemble(self.nets, source, rows=rows, beam=k, capacity=most)
            return ensemble, torch.full((rows,), special.bos, device=device)
        ensemble = Ensemble(self.nets, None, rows=rows, beam=k, capacity=most + max(lengths))
        before = [source[:-1] for source in sources]
        if any(before):
            ids = pad_rows(before, special.pad, device).repeat_interleave(k, 0)
            ensemble.advance(ids, Coords.lengths([len(row) for row in before for _ in range(k)], device))
        return ensemble, torch.tensor([source[-1] for source in sources], dtype=torch.long, device=device)

    def _choose(self) -> ChooseToken:
        if not self.request.search.sample:
            return choose_best
        numbers = torch.tensor(self.request.numbers, device=self.device)
        seeds = None if self.seeds is None else torch.tensor(self.seeds, device=self.device)
        return Sampler(self.request.search, numbers, seeds, self.request.draw.first_step)


def pad_rows(rows: Sequence[Sequence[int]], fill: int, device: torch.device | str | None = None) -> Tensor:
    """Rows of different lengths as one matrix, padded on the right."""
    n = max((len(r) for r in rows), default=0)
    return torch.tensor([[*r, *[fill] * (n - len(r))] for r in rows], dtype=torch.long, device=device).view(
        len(rows), n
    )
