"""Recommendation: the next item of a user's history.

A causal decoder predicts every item from those before it (SASRec, Kang & McAuley 2018); an encoder fills masked items, and a
mask behind the history asks for the next (BERT4Rec, Sun et al. 2019). The model decides which. The last item of each user is
for the test, the last but one for validation. Tokens are items from 1; 0 is the mask and padding.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Literal, Self

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from regard.data.batch import IGNORE, pad_rows
from regard.data.bucket import Buckets
from regard.data.interactions import read_interactions
from regard.data.leave_one_out import LeaveOneOut, cut_rows, cut_windows
from regard.data.negatives import OwnItems, Weighting, draw_candidates
from regard.data.permutation import Permutation
from regard.data.ragged import Ragged
from regard.data.table_header import Columns
from regard.decode import Engine, Search
from regard.errors import DataError, SpecError
from regard.model.model_spec import ModelSpec
from regard.model.net import Net
from regard.nn.blocks.embedding import Tokens
from regard.nn.blocks.head import Masked, Vocab
from regard.nn.core.context import Tape
from regard.nn.core.coords import Coords
from regard.spec import Count, Share, Spec, spec
from regard.stopping import rest
from regard.tasks.common.classifier import average_log_probs
from regard.tasks.common.data_settings import check_metrics
from regard.tasks.common.encoded_histories import MASK, EncodedHistories, HistoryBatch, drop_oldest
from regard.tasks.common.forward_pass import ForwardPass
from regard.tasks.common.item_baselines import ScoreUsers, score_item_knn, score_popularity
from regard.tasks.common.item_names import ItemNames, split_history
from regard.tasks.common.losses import add_auxiliary, pair_counts
from regard.tasks.common.target_ranks import count_ranks, hide_items
from regard.tasks.common.task import TASKS, BatchOrder, Dataset, EvalSet, Loss, Output, RunOptions, check_pairs
from regard.tasks.common.training_hooks import TOKENS

LOGITS = 1 << 24
"""Maximum number of scores in memory at once, outside of training."""
ROWS = 512
"""Histories that are run together."""


@spec
class RecommendData(Spec):
    """The `data` part of a recipe: files of interactions, and how they are held out and compared."""

    train: tuple[str, ...] = ()
    """Files with lines `user item [time]` or tables; a table of items with titles gives them names."""
    columns: Columns | None = None
    """Columns of user, item and, if there is one, time: by name, or by position from 1."""
    min_user: Count = 1
    """Users with fewer interactions are left out; the published data sets were made with 5."""
    min_item: Count = 1
    """Items with fewer interactions are left out; the published data sets were made with 5."""
    length: Count = 50
    """Number of items that are read of a history, the newest ones."""
    windows: bool = False
    """Learn from longer histories in several windows; otherwise from their newest items only, as published."""
    loss: Literal["bce", "softmax"] | None = None
    """Loss of a next item: against one random negative (`bce`, the default of a decoder), or against all items."""
    mask_rate: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """Encoders: share of the items of a history that are masked in training; at least one."""
    mask_last: Share = 0.1
    """Encoders: share of the histories in which only the last item is masked, as when the next item is predicted."""
    negatives: Count = 100
    """Number of sampled items that a target is compared with in the scores called `sampled_…`."""
    sampling: Weighting = "uniform"
    """Sampling of these: uniform (SASRec), or by `popularity` (BERT4Rec); their scores cannot be compared."""
    sampling_seed: Annotated[int, Field(ge=0, lt=2**63)] = 1
    """Seed for sampling these items, and users."""
    eval_users: Count | None = 10_000
    """Number of users that models are evaluated on, a sample if there are more; null: all of them."""
    repeats: bool = False
    """Items of the history may be recommended again."""
    metrics: tuple[str, ...] = ("ndcg@10", "hr@10", "mrr", "sampled_ndcg@10", "sampled_hr@10", "sampled_mrr")

    def __post_init__(self) -> None:
        check_metrics(self.metrics)
        if self.columns is not None and len(self.columns) not in (2, 3):
            raise SpecError(f"columns should be those of user, item and perhaps time, got {list(self.columns)}")
        if self.length < 2:
            raise SpecError(f"length should be at least 2, an item and one to predict, got {self.length}")


@dataclasses.dataclass(frozen=True, eq=False)
class History:
    """Items that somebody had, from the first to the last, as numbers from 0."""

    numbers: tuple[int, ...]
    names: ItemNames

    def __str__(self) -> str:
        return self.names.join(self.numbers)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, History) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))


@TASKS.add
class Recommend:
    """Recommends what comes next after a history."""

    Settings = RecommendData
    Options = RunOptions
    tokenizer = None

    def __init__(self, settings: RecommendData, items: ItemNames) -> None:
        self.settings, self.items = settings, items

    @property
    def metrics(self) -> tuple[str, ...]:
        return self.settings.metrics

    # ------------------------------------------------------------------------------------------------ from data

    @classmethod
    def configure_data(cls, files: Sequence[str], valid: Sequence[str] = ()) -> dict[str, object]:
        if valid:
            raise DataError("the last item but one of each user is for validation; leave out the validation file")
        return {"train": list(files)} if files else {}

    @classmethod
    def read_test(cls, settings: RecommendData, files: Sequence[str]) -> LeaveOneOut:
        found = read_interactions(files, settings.columns)
        out = LeaveOneOut(found.keep_frequent(min_user=settings.min_user, min_item=settings.min_item), "test")
        if not len(out.users):
            raise DataError(
                f"no user in {', '.join(files)} has three items, of which two are held out; lower data.min_user and "
                "data.min_item, or add data"
            )
        return out

    @classmethod
    def read(cls, settings: RecommendData, seed: int) -> Dataset:
        if not settings.train:
            raise DataError(
                "no training data; name a file with lines `user item [time]`, or a table such as ratings.csv"
            )
        found = cls.read_test(settings, settings.train).interactions
        train, valid = LeaveOneOut(found, "train"), LeaveOneOut(found, "valid")
        if not len(train.users):
            raise DataError(
                f"no user in {', '.join(settings.train)} has four items, of which two are held out and one is predicted"
            )
        actions = len(found.histories.ids)
        statistics = {
            "train": {"users": len(train.users), "items": len(found.items), "interactions": actions},
            "valid": {"users": len(valid.users)},
        }
        said = [
            f"{len(found.users):,} users, {len(found.items):,} items, {actions:,} interactions; the last item of "
            f"{len(valid.users):,} users is for the test, the last but one for validation"
        ]
        if long := int((found.histories.lengths > settings.length + 2).sum()):
            how = "they are cut into windows" if settings.windows else "the oldest are left out"
            said.append(f"{long:,} users have more than {settings.length} items to learn from; {how}")
        return Dataset(train, valid, found.fingerprint, statistics, said)

    @classmethod
    def prepare(cls, settings: RecommendData, dataset: Dataset) -> Self:
        found = dataset.train.interactions
        return cls(settings, ItemNames(found.items, found.names))

    @classmethod
    def load(cls, settings: RecommendData, files: Mapping[str, bytes]) -> Self:
        return cls(settings, ItemNames.unpack(files))

    def files(self) -> dict[str, bytes]:
        return self.items.pack()

    def model_arguments(self) -> dict[str, int]:
        return {"vocab": len(self.items) + 1, "length": self.settings.length}

    def adapt_spec(self, spec: ModelSpec) -> ModelSpec:
        """The model without a second head; it reads items and scores all of them."""
        fits = isinstance(spec.embed, Tokens) and isinstance(spec.head, Vocab | Masked) and spec.source is None
        if not fits or (spec.encoder is not None and spec.decoder is not None):
            raise SpecError(
                "recommendation needs a model with a decoder alone (model.family: sasrec) or an encoder alone (bert4rec), "
                "and a head over its vocabulary"
            )
        if spec.embed.vocab != len(self.items) + 1:
            raise SpecError(f"the model knows {spec.embed.vocab - 1} items, and the data has {len(self.items)}")
        if spec.room is not None and spec.room < self.settings.length:
            raise SpecError(f"the model reads {spec.room} items, and data.length is {self.settings.length}")
        if spec.decoder is None and self.settings.loss == "bce":
            raise SpecError(
                "data.loss: bce compares next items, and an encoder fills masks; leave it out, or use softmax"
            )
        return dataclasses.replace(spec, beside=None)

    def encode(self, raw: LeaveOneOut) -> EncodedHistories:
        found, count = raw.interactions, len(self.items)
        known, users, targets = raw.histories(), raw.users, None
        if raw.part != "train":
            users = self._sample(users)
            targets = raw.targets(users).astype(np.int64)
        if found.items != self.items.keys:
            numbers = self._translate(found.items)
            known = Ragged(numbers[known.ids], known.ends)
            targets = None if targets is None else numbers[targets].astype(np.int64)
        own, some, most = OwnItems(known, count), known.take(users), self.settings.length
        if targets is None and self.settings.windows:
            source, rows = cut_windows(some, most)
            users = users[source]
        else:
            rows = cut_rows(some, np.maximum(some.lengths - most - (targets is None), 0), some.lengths)
        rows = Ragged(rows.ids + 1, rows.ends)
        out = EncodedHistories(rows, users, known, own, found.users)
        if targets is None:
            return self.augment(out, 0, 0)
        popular = self.settings.sampling == "popularity"
        weights = np.bincount(known.ids, minlength=count).astype(np.float64) if popular else None
        drawn = draw_candidates(self.settings.sampling_seed, users, targets, own, self.settings.negatives, weights)
        return dataclasses.replace(out, targets=targets + 1, candidates=drawn + 1)

    def _sample(self, users: NDArray[np.int64]) -> NDArray[np.int64]:
        """The users that models are evaluated on."""
        most = self.settings.eval_users
        if most is None or len(users) <= most:
            return users
        return users[np.sort(Permutation(len(users), self.settings.sampling_seed, 6).take(0, most))]

    def _translate(self, items: Sequence[str]) -> NDArray[np.int32]:
        """The numbers of items of another file."""
        unknown = [item for item in items if item not in self.items.by_key]
        if unknown:
            raise DataError(
                f"{len(unknown):,} of {len(items):,} items are not in the data the model learned from, such as "
                f"{unknown[0][:60]!r}; use the file it was trained on, or remove these lines"
            )
        return np.array([self.items.by_key[item] for item in items], np.int32)

    def augment(self, examples: EncodedHistories, seed: int, epoch: int) -> EncodedHistories:
        """New negatives and masks in every epoch."""
        return examples.draw(seed, epoch, mask_rate=self.settings.mask_rate, mask_last=self.settings.mask_last)

    def order_batches(
        self, examples: EncodedHistories, *, tokens: int | None, seed: int, evaluate: bool = False
    ) -> BatchOrder:
        """In evaluation, the number of rows is also limited by the scores of all items."""
        most = max(LOGITS // (len(self.items) + 1), 1) if examples.targets is not None else None
        return Buckets(examples.lengths, tokens=tokens or TOKENS, seed=seed, max_rows=most)

    def describe_examples(self, examples: EncodedHistories, indices: NDArray[np.int64]) -> list[str]:
        return [f"user {examples.names[user]}" for user in examples.users[indices]]

    # ------------------------------------------------------------------------------------------------ to the model

    def batch(self, examples: EncodedHistories, indices: NDArray[np.int64]) -> HistoryBatch:
        return examples.batch(indices, repeats=self.settings.repeats)

    def loss(self, net: Net, batch: HistoryBatch, smoothing: float) -> Loss:
        tape = Tape(outer=net.tape)
        if batch.targets is not None:
            return self._evaluate(net, batch, tape)
        if net.spec.decoder is None:
            total, plain = self._fill_masks(net, batch, smoothing, tape)
        elif self.settings.loss == "softmax":
            stream, wanted, _ = self._predict_next(net, batch, tape)
            total, plain = net.loss(stream, wanted, smoothing)
        else:
            stream, wanted, negatives = self._predict_next(net, batch, tape)
            scores = net.score(stream, torch.stack([wanted, negatives], -1)).float()
            total = F.softplus(-scores[:, 0]).sum() + (F.softplus(scores[:, 1]) * (negatives != MASK)).sum()
            plain = total.detach()
        return Loss(add_auxiliary(total, tape, batch.tokens), plain, batch.tokens)

    def _predict_next(self, net: Net, batch: HistoryBatch, tape: Tape) -> tuple[Tensor, Tensor, Tensor]:
        """The stream (t, d) at every item but the last, the item that follows (t,), and its negative (t,)."""
        assert batch.negatives is not None
        at = Coords.ending([n - 1 for n in batch.lengths], self.settings.length, batch.ids.device)
        stream, kept = net(batch.ids[:, :-1], at, tape=tape), at.kept.expand(len(batch.lengths), -1)
        return stream[kept], batch.ids[:, 1:][kept], batch.negatives[:, 1:][kept]

    def _fill_masks(self, net: Net, batch: HistoryBatch, smoothing: float, tape: Tape) -> tuple[Tensor, Tensor]:
        """For each history the mean loss of its masked items, times the number of items that a decoder would predict.

        A batch has few different lengths, so few factors.
        """
        assert batch.masked is not None
        lengths = torch.tensor(batch.lengths, device=batch.ids.device)
        ids, masked = (drop_oldest(side, lengths, self.settings.length) for side in (batch.ids, batch.masked))
        at = Coords.ending(lengths.clamp(max=self.settings.length).tolist(), self.settings.length, ids.device)
        stream = net(ids.masked_fill(masked, MASK), at, tape=tape)
        factors = (lengths - 1) / masked.sum(1).clamp(min=1)
        total = plain = stream.sum() * 0.0
        for factor in sorted(set(factors.tolist())):
            chosen = masked & (factors == factor).unsqueeze(1)
            some = net.loss(stream[chosen], ids[chosen], smoothing)
            total, plain = total + some[0] * factor, plain + some[1] * factor
        return total, plain.detach()

    def _evaluate(self, net: Net, batch: HistoryBatch, tape: Tape) -> Loss:
        assert batch.targets is not None
        scores = self._score(net, batch.ids, batch.lengths, tape).float()
        true = scores.gather(1, batch.targets.target.unsqueeze(1))[:, 0]
        likelihood = net.spec.decoder is None or self.settings.loss == "softmax"
        if likelihood:
            nats = scores[:, 1:].logsumexp(1) - true
        else:
            other = batch.targets.candidates[:, 0]
            wrong = scores.gather(1, other.unsqueeze(1))[:, 0]
            nats = F.softplus(-true) + F.softplus(wrong) * (other != MASK)
        rows = {"loss": pair_counts(nats.unsqueeze(1), torch.ones_like(nats).unsqueeze(1))}
        total = nats.sum()
        rows |= count_ranks(scores.detach(), batch.targets)
        whole = add_auxiliary(total, tape, batch.tokens)
        return Loss(whole, total.detach(), batch.tokens, rows, likelihood=likelihood)

    def _score(self, net: Net, ids: Tensor, lengths: Sequence[int], tape: Tape | None = None) -> Tensor:
        """Scores of all tokens (b, items + 1) after each history."""
        count = torch.tensor(lengths, device=ids.device)
        end = self.settings.length
        if net.spec.decoder is None:
            ids = drop_oldest(F.pad(ids, (0, 1), value=MASK), count + 1, end)  # the mask behind a row is there already
            count = (count + 1).clamp(max=end)
        stream = net(ids, Coords.ending(count.tolist(), end, ids.device), tape=tape)
        return net.logits(stream[torch.arange(len(count), device=ids.device), count - 1])

    # ------------------------------------------------------------------------------------------------ to the user

    def count_baselines(self, examples: EncodedHistories) -> dict[str, dict[str, NDArray[np.float64]]]:
        """The counts of each test item, by score, for popularity and item-kNN."""
        makers = {"popularity": score_popularity, "item-kNN": score_item_knn}
        return {name: self._count(make(examples.known, len(self.items)), examples) for name, make in makers.items()}

    def _count(self, score: ScoreUsers, examples: EncodedHistories) -> dict[str, NDArray[np.float64]]:
        step, parts = max(LOGITS // (len(self.items) + 1), 1), list[dict[str, Tensor]]()
        for start in range(0, len(examples), step):
            some = np.arange(start, min(start + step, len(examples)))
            parts.append(
                count_ranks(score(examples.users[some]), examples.select_targets(some, repeats=self.settings.repeats))
            )
        return {name: np.concatenate([part[name].numpy() for part in parts]) for name in parts[0]}

    def run(
        self,
        engine: Engine,
        inputs: Sequence[str | History],
        search: Search,
        options: RunOptions = RunOptions(),
    ) -> list[list[Output]]:
        """The likeliest next items with their probabilities, without those of the history unless `repeats`."""
        out = list[list[Output]]()
        for row in self._log_probs(engine.nets, inputs):
            found, places = row.topk(min(search.n_best, len(row)))
            if not torch.isfinite(found[0]):
                raise DataError(
                    f"the history has all {len(self.items)} items; data.repeats lets them be recommended again"
                )
            best = [
                Output(self.items.names[i], float(p.exp()), float(p), {"item": self.items.keys[i]})
                for p, i in zip(found, places.tolist(), strict=True)
                if torch.isfinite(p)
            ]
            width = max(len(each.text) for each in best)
            lines = [
                f"{i:>2}. {each.text:<{width}}  {100 * each.score:5.2f} %"
                for i, each in enumerate(best, 1)
                if each.score
            ]
            out.append([dataclasses.replace(best[0], explanation=lines if len(best) > 1 else ()), *best[1:]])
        return out

    def score(
        self,
        engine: Engine,
        inputs: Sequence[str | History],
        outputs: Sequence[str],
        options: RunOptions = RunOptions(),
    ) -> list[float]:
        """log P(item | history) for each pair; −∞ for an item of the history, unless `repeats`."""
        check_pairs(inputs, outputs)
        wanted = [self.items.find(name) for name in outputs]
        return [float(row[i]) for i, row in zip(wanted, self._log_probs(engine.nets[:1], inputs), strict=True)]

    @torch.no_grad()
    def _log_probs(self, nets: Sequence[Net], inputs: Sequence[str | History]) -> Iterator[Tensor]:
        """For each history the log-probability of every item (items,)."""
        most = max(min(LOGITS // (len(self.items) + 1), ROWS), 1)
        for start in range(0, len(inputs), most):
            rest()
            some = [self._read(one) for one in inputs[start : start + most]]
            rows = Ragged.of([[number + 1 for number in one[-self.settings.length :]] for one in some])
            side = pad_rows(rows, np.arange(len(some)), MASK)
            own = [] if self.settings.repeats else [(i, n + 1) for i, one in enumerate(some) for n in one]
            owned = torch.tensor(own, dtype=torch.long).reshape(-1, 2)
            told = [self._score(net, side.ids.to(net.device), side.lengths).cpu() for net in nets]
            yield from average_log_probs([hide_items(one, (owned[:, 0], owned[:, 1]))[:, 1:] for one in told])

    def _read(self, given: str | History) -> list[int]:
        numbers = list(given.numbers) if isinstance(given, History) else self.items.find_all(given)
        if not numbers:
            raise DataError("a history should have at least one item; `;` separates several")
        return numbers

    def find_too_long(self, inputs: Sequence[str | History], options: RunOptions = RunOptions()) -> list[int]:
        return [i for i, one in enumerate(inputs) if self._size(one) > self.settings.length]

    def explain_cut(self, given: str | History) -> str:
        return f"has {self._size(given)} items, and the model reads {self.settings.length}; the oldest are left out"

    def _size(self, given: str | History) -> int:
        return len(given.numbers) if isinstance(given, History) else len(split_history(given))

    def forward_pass(
        self, net: Net, text: str | History, output: str, options: RunOptions = RunOptions()
    ) -> ForwardPass:
        """The history, of which a decoder predicts every item but the first; and what follows it."""
        numbers, end = self._read(text), self.settings.length
        after = self.items.find(output) + 1 if output else IGNORE
        masks = net.spec.decoder is None
        ids = [number + 1 for number in numbers[-end + masks :]]
        wanted = [*([IGNORE] * len(ids) if masks else ids[1:]), after]
        ids += [MASK] * masks
        labels = ["[mask]" if i == MASK else self.items.names[i - 1] for i in ids]
        read, told = (torch.tensor([row], device=net.device) for row in (ids, wanted))
        return ForwardPass(read, Coords.ending([len(ids)], end, net.device), labels, told)

    def eval_sets(self, raw: LeaveOneOut) -> list[EvalSet]:
        users = self._sample(raw.users)
        numbers = self._translate(raw.interactions.items)
        rows = raw.histories().take(users)
        inputs = [History(tuple(numbers[row].tolist()), self.items) for row in rows]
        references = [self.items.names[i] for i in numbers[raw.targets(users)]]
        return [EvalSet(inputs, references, RunOptions())]
