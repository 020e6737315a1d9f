"""Music as piano rolls: predict the keys of the next frame.

Each key of a frame sounds or not, independently of the others given the frames before (Boulanger-Lewandowski et al. 2012): the
loss of a frame is the sum over its keys, and the first frame of a piece is given. Any causal decoder can be used.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Self

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from regard.data.batch import IGNORE
from regard.data.example_rng import Rng
from regard.data.piano_rolls import Keyboard, Piece, Roll, name_pitch, parse_roll, read_pieces
from regard.data.piece_parts import Part, count_pieces, join_parts
from regard.decode import Engine, Search
from regard.errors import DataError, SpecError
from regard.model.model_spec import ModelSpec
from regard.model.net import Net
from regard.nn.blocks.embedding import Tokens
from regard.nn.blocks.head import Bernoulli
from regard.nn.blocks.vectors import Vectors
from regard.nn.core.context import Tape
from regard.nn.core.coords import Coords
from regard.nn.core.state import State
from regard.spec import Count, Spec, spec
from regard.stopping import rest
from regard.tasks.common.data_settings import check_metrics, configure_files, split_pieces
from regard.tasks.common.forward_pass import ForwardPass
from regard.tasks.common.losses import add_auxiliary, pair_counts
from regard.tasks.common.task import TASKS, Dataset, EvalSet, Loss, Output, RunOptions, check_pairs

MAX_LENGTH = 4096
"""Length of the model in frames if pieces are not cut."""
TINY = 1e-12
"""Probabilities stay this far from 0 and 1."""


@spec
class FramesData(Spec):
    """The `data` part of a recipe: files of piano rolls (.mat, .npz, .json)."""

    train: tuple[str, ...] = ()
    valid: tuple[str, ...] = ()
    hold_out: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """Fraction of the pieces held out for validation if the files have none for it."""
    keys: Count = 88
    """Number of keys, the width of a roll."""
    lowest: Annotated[int, Field(ge=0, le=127)] = 21
    """MIDI pitch of the lowest key; 21 is that of a piano."""
    context: Count | None = None
    """Cut pieces into parts that predict this many frames; by default pieces are not cut."""
    metrics: tuple[str, ...] = ("loss", "frame_accuracy")

    def __post_init__(self) -> None:
        check_metrics(self.metrics)

    @property
    def keyboard(self) -> Keyboard:
        return Keyboard(self.keys, self.lowest)


@dataclasses.dataclass(frozen=True)
class EncodedRolls:
    """Rolls, each of which predicts all of its frames but the first."""

    pieces: Sequence[Piece]
    groups: None = None
    shares: None = None
    left_out: int = 0

    @property
    def lengths(self) -> NDArray[np.int64]:
        return np.array([len(piece.roll) - 1 for piece in self.pieces], np.int64)

    def __len__(self) -> int:
        return len(self.pieces)


@dataclasses.dataclass(frozen=True)
class RollBatch:
    """Frames (b, n, keys) that are read, those that follow them, and the lengths of the rows."""

    given: Tensor
    wanted: Tensor
    lengths: tuple[int, ...]

    @property
    def tokens(self) -> int:
        return sum(self.lengths)

    def to(self, device: torch.device | str) -> RollBatch:
        return RollBatch(self.given.to(device), self.wanted.to(device), self.lengths)


@TASKS.add
class Frames:
    """A decoder that continues a piece frame by frame."""

    Settings = FramesData
    Options = RunOptions
    tokenizer = None

    def __init__(self, settings: FramesData) -> None:
        self.settings, self.keyboard = settings, settings.keyboard

    @property
    def metrics(self) -> tuple[str, ...]:
        return self.settings.metrics

    # ------------------------------------------------------------------------------------------------ from data

    @classmethod
    def configure_data(cls, files: Sequence[str], valid: Sequence[str] = ()) -> dict[str, object]:
        return configure_files(files, valid)

    @classmethod
    def read_test(cls, settings: FramesData, files: Sequence[str]) -> list[Piece]:
        return cls._read_part(settings, files, "test")

    @classmethod
    def read(cls, settings: FramesData, seed: int) -> Dataset:
        if not settings.train:
            raise DataError("no training data; name one or more files of piano rolls (.mat, .npz or .json)")
        each = [read_pieces(path, settings.keyboard) for path in settings.train]
        if settings.valid:
            train = join_parts(each, settings.train, "train")
            valid = cls._read_part(settings, settings.valid, "valid")
        else:
            train, valid = split_pieces(each, settings.train, hold_out=settings.hold_out, seed=seed)
        digest = hashlib.sha256(str(settings.keyboard).encode())
        for piece in (*train, *valid):
            digest.update(f"{piece.roll.shape}".encode() + piece.roll.tobytes())
        counts = {
            part: {"pieces": len(some), "frames": sum(len(piece.roll) for piece in some)}
            for part, some in (("train", train), ("valid", valid))
        }
        sizes = [f"{count_pieces(count['pieces'])} of {count['frames']:,} frames" for count in counts.values()]
        said = f"{sizes[0]} for training, {sizes[1]} for validation"
        return Dataset(train, valid, digest.hexdigest(), counts, [said])

    @classmethod
    def _read_part(cls, settings: FramesData, files: Sequence[str], part: Part) -> list[Piece]:
        return join_parts([read_pieces(path, settings.keyboard) for path in files], files, part)

    @classmethod
    def prepare(cls, settings: FramesData, dataset: Dataset) -> Self:
        return cls(settings)

    @classmethod
    def load(cls, settings: FramesData, files: Mapping[str, bytes]) -> Self:
        return cls(settings)

    def files(self) -> dict[str, bytes]:
        return {}

    def model_arguments(self) -> dict[str, int]:
        return {"length": self.settings.context or MAX_LENGTH}

    def adapt_spec(self, spec: ModelSpec) -> ModelSpec:
        """Return the decoder, made to read frames and to give a probability for each key."""
        keys = self.settings.keys
        if spec.decoder is None or spec.encoder is not None or not isinstance(spec.embed, Tokens | Vectors):
            raise SpecError("piano rolls need a model with a decoder alone; use model.family: rnn or gpt")
        if isinstance(spec.embed, Vectors):
            if (spec.embed.size, spec.head) != (keys, Bernoulli(keys)):
                raise SpecError(f"the model reads {spec.embed.size} keys, and data.keys is {keys}")
            return spec
        read = Vectors(keys, spec.embed.position, spec.embed.dropout, spec.embed.width)
        return dataclasses.replace(spec, embed=read, head=Bernoulli(keys), beside=None)

    def encode(self, raw: Sequence[Piece]) -> EncodedRolls:
        step = self.settings.context
        if step is None:
            return EncodedRolls(raw)
        cuts = [(piece, i) for piece in raw for i in range(0, len(piece.roll) - 1, step)]
        return EncodedRolls([Piece(p.roll[i : i + step + 1], f"{p.name} from frame {i + 1}") for p, i in cuts])

    def describe_examples(self, examples: EncodedRolls, indices: NDArray[np.int64]) -> list[str]:
        return [examples.pieces[i].name for i in indices]

    # ------------------------------------------------------------------------------------------------ to the model

    def batch(self, examples: EncodedRolls, indices: NDArray[np.int64]) -> RollBatch:
        rolls = [examples.pieces[i].roll for i in indices]
        whole = np.zeros((len(rolls), max(map(len, rolls)), self.settings.keys), np.uint8)
        for i, roll in enumerate(rolls):
            whole[i, : len(roll)] = roll
        frames = torch.from_numpy(whole)
        return RollBatch(frames[:, :-1], frames[:, 1:], tuple(len(roll) - 1 for roll in rolls))

    def loss(self, net: Net, batch: RollBatch, smoothing: float) -> Loss:
        tape, at = Tape(outer=net.tape), Coords.lengths(batch.lengths, batch.given.device)
        logits = net.logits(net(batch.given, at, tape=tape)).float()
        kept, wanted = at.kept.expand(len(batch.lengths), -1), batch.wanted.float()
        nats = F.binary_cross_entropy_with_logits(logits, wanted, reduction="none").sum(-1) * kept
        total = nats.sum()
        if smoothing:
            soft = wanted * (1 - smoothing) + smoothing / 2
            total = (F.binary_cross_entropy_with_logits(logits, soft, reduction="none").sum(-1) * kept).sum()
        rows = {}
        if not net.training:
            sounds, sounded = logits > 0, batch.wanted.bool()
            right, either = ((f(sounds, sounded).sum(-1) * kept) for f in (torch.logical_and, torch.logical_or))
            rows = {"loss": pair_counts(nats, kept), "frame_accuracy": pair_counts(right, either)}
        return Loss(add_auxiliary(total, tape, batch.tokens), nats.detach().sum(), batch.tokens, rows)

    # ------------------------------------------------------------------------------------------------ to the user

    def run(
        self,
        engine: Engine,
        inputs: Sequence[str | Piece],
        search: Search,
        options: RunOptions = RunOptions(),
    ) -> list[list[Output]]:
        """The next `max_extra` frames of each roll: keys that are likelier to sound than not, or drawn."""
        if search.n_best > 1:
            raise SpecError(f"a piece has one continuation, got n_best={search.n_best}; use sample with other seeds")
        out = []
        for i, given in enumerate(self._read_rolls(inputs)):
            rest()
            rng = Rng(search.seed % (1 << 63), options.first + i) if search.sample else None
            roll, log_prob = self._continue(engine.nets, given, search, rng)
            frames = self.keyboard.pitches(roll)
            names = [" ".join(map(name_pitch, frame)) or "–" for frame in frames]
            more = {"frames": frames}
            out.append([Output(json.dumps(frames), log_prob / max(len(frames), 1), log_prob, more, names)])
        return out

    @torch.no_grad()
    def _continue(self, nets: Sequence[Net], given: Roll, search: Search, rng: Rng | None) -> tuple[Roll, float]:
        """New frames and their log-probability. If the context is full, the models go on from its later half."""
        most = search.max_extra if search.max_length is None else min(search.max_extra, search.max_length)
        room = min((net.spec.room for net in nets if net.spec.room is not None), default=None)
        roll, total, start, read = given, 0.0, 0, 0
        states: list[State | None] = [net.start(1, len(given) + most) for net in nets]
        for _ in range(most):
            if room is not None and len(roll) - start > room:
                start = read = len(roll) - max(room // 2, 1)
                states = [net.start(1, room) for net in nets]
            at, told = Coords.span(len(roll) - read, read - start), list[Tensor]()
            for i, net in enumerate(nets):
                frames = torch.from_numpy(roll[None, read:]).to(net.device)
                stream, states[i] = net.decode(frames, at.to(net.device), state=states[i])
                told.append(net.logits(stream[:, -1:])[0, 0].double().sigmoid().cpu())
            read, p = len(roll), torch.stack(told).mean(0).clamp(TINY, 1 - TINY)
            sounds = p >= 0.5
            if rng is not None:
                sounds = torch.from_numpy(rng.uniform(len(p))) < (p.logit() / search.temperature).sigmoid()
            total += float(torch.where(sounds, p, 1 - p).log().sum())
            roll = np.concatenate([roll, sounds.numpy().astype(np.uint8)[None]])
        return roll[len(given) :], total

    def score(
        self,
        engine: Engine,
        inputs: Sequence[str | Piece],
        outputs: Sequence[str],
        options: RunOptions = RunOptions(),
    ) -> list[float]:
        """log P(frames | the frames before them) for each pair."""
        net = engine.nets[0]
        check_pairs(inputs, outputs)
        out = []
        for given, text in zip(self._read_rolls(inputs), outputs, strict=True):
            rest()
            after = parse_roll(text, self.keyboard)
            room = net.spec.room
            if room is not None and len(after) > room:
                raise DataError(f"the model reads {room} frames, got {len(after)} to score; give fewer at a time")
            whole = torch.from_numpy(np.concatenate([given, after])[0 if room is None else -room - 1 :])[None].to(
                net.device
            )
            with torch.no_grad():
                logits = net.logits(net(whole[:, :-1], Coords.span(whole.shape[1] - 1, device=net.device)))
            told = F.binary_cross_entropy_with_logits(logits.double(), whole[:, 1:].double(), reduction="none")
            out.append(-float(told[0, -len(after) :].sum()))
        return out

    def forward_pass(self, net: Net, text: str | Piece, output: str, options: RunOptions = RunOptions()) -> ForwardPass:
        """The roll with its continuation; frames are named by their pitches. Keys are not classes, so none is explained."""
        (roll,) = self._read_rolls([text])
        if output:
            roll = np.concatenate([roll, parse_roll(output, self.keyboard)])
        room = net.spec.room
        roll = roll if room is None else roll[-room:]
        labels = [" ".join(map(name_pitch, frame)) or "–" for frame in self.keyboard.pitches(roll)]
        ids = torch.from_numpy(roll)[None].to(net.device)
        wanted = torch.full((1, len(roll)), IGNORE, device=net.device)
        return ForwardPass(ids, Coords.span(len(roll), device=net.device), labels, wanted)

    def eval_sets(self, raw: Sequence[Piece]) -> list[EvalSet]:
        return []

    def _read_rolls(self, inputs: Sequence[str | Piece]) -> list[Roll]:
        return [one.roll if isinstance(one, Piece) else parse_roll(one, self.keyboard) for one in inputs]
